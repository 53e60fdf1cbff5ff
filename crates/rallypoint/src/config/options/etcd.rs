//! The options of the `etcd` backend.

use std::time::Duration;

use rallypoint_core::rendezvous::keys::DEFAULT_PREFIX;

use super::{ConnectionOptions, LONGEST_SECONDS, Zero, check_names, count, text, time};
use crate::client::ClientOptions;
use crate::config::parameters::{ParameterError, RendezvousParameters};
use crate::rendezvous::HandlerOptions;
use crate::rendezvous::local::PortRange;

const NAMES: &[&str] = &[
    "timeout",
    "join_timeout",
    "last_call_timeout",
    "etcd_prefix",
    "lease_ttl",
    "rank_policy",
    "node_rank",
    "topology",
    "local_world_size",
    "use_agent_store",
    "store_ports",
    "reopen",
];

/// What the `etcd` backend can be told.
///
/// | option | default | |
/// |---|---|---|
/// | `timeout` | 600 s | how long a group may take to form; `join_timeout`, as `c10d` calls it, comes first |
/// | `last_call_timeout` | 30 s | how long nodes may still come when there are enough; 0 for not at all |
/// | `etcd_prefix` | `/torchelastic/p2p` | where the runs keep their keys |
/// | `lease_ttl` | 10 s | how long a silent node counts as alive; whole seconds, at least 2 |
/// | `rank_policy` | `stable` | how ranks are given: `stable`, `hint`, `topology`, `arrival` |
/// | `node_rank` | | the rank that this node would like to have |
/// | `topology` | | where this node stands, such as `rack2/node11` |
/// | `local_world_size` | | how many workers this node runs |
/// | `use_agent_store` | `true` | whether rank 0's node serves a store for the workers |
/// | `store_ports` | any | the ports of which rank 0's node takes one, such as `29500-29599` |
/// | `reopen` | `false` | whether a run that is over is begun anew |
/// | `protocol` | `http` | `http` or `https` |
/// | `cacert`, `cert`, `key` | | files for `https`; also `ca_cert`, `ssl_cert`, `ssl_cert_key` |
/// | `user`, `password` | | for a cluster that asks for them; `password_file` has the password in it |
/// | `read_timeout` | 10 s | how long one request may take |
///
/// ```
/// use std::time::Duration;
/// use rallypoint::rendezvous::{EtcdOptions, RendezvousParameters};
///
/// let parameters = RendezvousParameters::new("etcd", "a:2379,b:2379", "job-7", 4, 8)?
///     .with("last_call_timeout", 0.5);
/// let options = EtcdOptions::from_parameters(&parameters)?;
/// assert_eq!(options.handler.last_call, Duration::from_millis(500));
/// assert_eq!(options.client_options().endpoints, ["a:2379", "b:2379"]);
/// # Ok::<(), rallypoint::rendezvous::ParameterError>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EtcdOptions {
    /// How to reach the servers.
    pub connection: ConnectionOptions,
    /// How to meet there.
    pub handler: HandlerOptions,
}

impl EtcdOptions {
    /// Reads the options and the endpoint.
    ///
    /// # Errors
    /// [`ParameterError`] names the first option that is wrong or unknown, and what would be right.
    pub fn from_parameters(parameters: &RendezvousParameters) -> Result<Self, ParameterError> {
        check_names(parameters, NAMES)?;
        // Under etcd's v2 a prefix meant the same with and without the slash; two nodes must meet.
        let prefix = text(parameters, "etcd_prefix")?;
        let prefix = prefix.as_deref().unwrap_or(DEFAULT_PREFIX).trim_matches('/');
        let rank_policy = parameters.get("rank_policy").map(str::parse).transpose()?;
        let lease_ttl = count(parameters, "lease_ttl", 2, LONGEST_SECONDS)?;
        let RendezvousParameters { run_id, min_nodes, max_nodes, local_addr, .. } = parameters;
        let usual = HandlerOptions::new(run_id.clone(), *min_nodes, *max_nodes);
        // torchrun gives a `timeout` in any case, so it does not contradict what its user calls `join_timeout`.
        let timeout = time(parameters, "timeout", usual.timeout, Zero::Refused)?;
        let handler = HandlerOptions {
            timeout: time(parameters, "join_timeout", timeout, Zero::Refused)?,
            last_call: time(parameters, "last_call_timeout", usual.last_call, Zero::Allowed)?,
            prefix: format!("/{prefix}"),
            lease_ttl: lease_ttl.map_or(usual.lease_ttl, |ttl| Duration::from_secs(ttl.into())),
            rank_policy: rank_policy.unwrap_or_default(),
            node_rank: count(parameters, "node_rank", 0, u32::MAX)?,
            topology: text(parameters, "topology")?,
            local_addr: local_addr.clone(),
            local_workers: count(parameters, "local_world_size", 1, u32::MAX)?
                .unwrap_or(usual.local_workers),
            use_agent_store: parameters
                .get_as_bool("use_agent_store")?
                .unwrap_or(usual.use_agent_store),
            store_ports: parameters.get("store_ports").map(PortRange::parse).transpose()?,
            reopen: parameters.get_as_bool("reopen")?.unwrap_or(usual.reopen),
            liveness: parameters.liveness.clone(),
            sole: parameters.sole,
            ..usual
        };
        Ok(Self { connection: ConnectionOptions::read(parameters, 10)?, handler })
    }

    /// The options of a client that reaches the servers.
    pub fn client_options(&self) -> ClientOptions {
        self.connection.client_options()
    }
}
