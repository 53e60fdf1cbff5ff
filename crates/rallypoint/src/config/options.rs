//! The options of the backends, as in `--rdzv-conf`: one table, and the structs that it is read into.
//!
//! [`OPTIONS`] is the only list of them. Parsing, the names in "did you mean", the reference in
//! `docs/reference/options.md`, the help of `rallypoint run` and the docstring of the Python package come from it.
//! An option that the protocol uses is a row of the table, a field of [`HandlerOptions`] with its line in `read`
//! and `node_config`, and a field of the core's [`NodeConfig`].
//!
//! An option that a backend does not know is an error: a misspelt name would otherwise go unnoticed until the job
//! behaves as if the option had not been given.

mod connection;
mod dynamic;
mod read;
#[cfg(any(feature = "cli", test))]
mod render;

#[cfg(any(feature = "cli", test))]
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use rallypoint_core::agent::HangPolicy;
use rallypoint_core::rendezvous::NodeConfig;
use rallypoint_core::rendezvous::documents::{Limits, LivenessAddress};
use rallypoint_core::rendezvous::keys::{DEFAULT_PREFIX, Keys};
use rallypoint_core::rendezvous::ranks::RankPolicy;
use rallypoint_core::rendezvous::sizes::SizeRules;

pub use self::connection::{ConnectionOptions, PASSWORD, add_password};
pub use self::dynamic::DynamicOptions;
use self::read::Reader;
#[cfg(any(feature = "cli", test))]
pub(crate) use self::render::help;
use super::backend::Backend;
use super::error::ConfigError;
use super::parameters::{RendezvousParameters, validate_run};
use super::progress::{ProgressSign, hang_policy};
use super::sizes::SizeOptions;
use super::values::{MIN_SECONDS, PortRange, http_address};
use crate::client::ClientOptions;
use crate::events::EventRecorder;
use crate::succession::HostOrder;
use crate::util::clock::display_time;
#[cfg(doc)]
use crate::{rendezvous::RendezvousHandler, store::AgentStore};

/// The type of an option's value, with its limits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    /// Seconds, whole or not.
    Seconds {
        /// The shortest time.
        least: f64,
    },
    /// Whole seconds.
    WholeSeconds {
        /// The shortest time.
        least: u32,
    },
    /// A whole number.
    Count {
        /// The smallest number.
        least: u32,
    },
    /// `true` or `false`.
    Switch,
    /// Text that is not empty.
    Text,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// The path of a file.
    File,
    /// A port, or a first and a last one.
    Ports,
}

/// One row of the table.
#[derive(Debug)]
pub(crate) struct OptionSpec {
    /// The name.
    pub(crate) name: &'static str,
    /// Other names of the same option, as PyTorch's backends have them.
    pub(crate) aliases: &'static [&'static str],
    /// The type of the value.
    pub(crate) kind: Kind,
    /// The value if the option is not given, as a user would write it.
    pub(crate) default: Option<&'static str>,
    /// The backends that have the option.
    pub(crate) backends: &'static [Backend],
    /// The meaning, as part of a sentence: plain text in which code stands in backticks.
    #[cfg_attr(
        not(feature = "cli"),
        allow(dead_code, reason = "the help of the command prints it")
    )]
    pub(crate) meaning: &'static str,
}

const OWN: &[Backend] = &[Backend::Rallypoint];
const ETCD: &[Backend] = &[Backend::Rallypoint, Backend::Etcd];
const DYNAMIC: &[Backend] = &[Backend::Dynamic];
const RENDEZVOUS: &[Backend] = &[Backend::Rallypoint, Backend::Etcd, Backend::Dynamic];
const CONNECTION: &[Backend] =
    &[Backend::Rallypoint, Backend::Etcd, Backend::Dynamic, Backend::Client];

/// Rows are short: the type, the default and the meaning in the order in which a reader asks for them.
const fn row(
    name: &'static str,
    kind: Kind,
    default: Option<&'static str>,
    backends: &'static [Backend],
    meaning: &'static str,
) -> OptionSpec {
    OptionSpec { name, aliases: &[], kind, default, backends, meaning }
}

/// The same row, for an option with other names.
const fn also(aliases: &'static [&'static str], row: OptionSpec) -> OptionSpec {
    OptionSpec { aliases, ..row }
}

const SECONDS: Kind = Kind::Seconds { least: MIN_SECONDS };
const SECONDS_OR_ZERO: Kind = Kind::Seconds { least: 0.0 };

/// Every option of every backend, in the order of the documentation.
#[rustfmt::skip]
pub(crate) const OPTIONS: &[OptionSpec] = &[
    row("timeout", SECONDS, Some("600"), RENDEZVOUS,
        "how long a group may take to form; torchrun always gives it, 900 unless told otherwise"),
    row("join_timeout", SECONDS, None, RENDEZVOUS,
        "the name of `timeout` in `c10d`; has precedence over it"),
    row("server_timeout", SECONDS, Some("300"), ETCD,
        "how long a node that had a group waits for a server that does not answer any more; no part of `timeout`"),
    row("succession", Kind::Choice(&["on", "off"]), Some("on"), OWN,
        "whether the hosts in the endpoint succeed each other as the host of the server; with `off` the first one serves \
         alone"),
    row("last_call_timeout", SECONDS_OR_ZERO, Some("30"), ETCD,
        "how long the join window stays open for more nodes once there are enough; 0 closes it at once"),
    row("last_call_timeout", SECONDS, Some("30"), DYNAMIC,
        "how long the join window stays open for more nodes once there are enough"),
    row("close_timeout", SECONDS, Some("30"), DYNAMIC,
        "how long closing the run may take"),
    row("heartbeat_timeout", SECONDS, Some("5"), DYNAMIC,
        "how long one heartbeat may take"),
    row("keep_alive_interval", SECONDS, Some("5"), DYNAMIC,
        "the time between two heartbeats"),
    row("keep_alive_max_attempt", Kind::Count { least: 2 }, Some("3"), DYNAMIC,
        "a node that misses this number of heartbeats counts as dead"),
    row("cas_backoff_max_seconds", SECONDS_OR_ZERO, Some("0.1"), DYNAMIC,
        "the longest backoff before a write that lost against another node is retried"),
    row("planned", Kind::Count { least: 1 }, None, ETCD,
        "number of nodes that are planned to come: when they are there, a group forms without a last call, and a group \
         that would grow to fewer waits for them until the last call is over"),
    row("sizes", Kind::Text, None, ETCD,
        "the only sizes that a group may have, such as `2/4/8`; further nodes are spares"),
    row("node_unit", Kind::Count { least: 1 }, None, ETCD,
        "a group has a multiple of this number of nodes; further nodes are spares"),
    row("scale_up_after", SECONDS_OR_ZERO, Some("0"), ETCD,
        "how long after it has formed a group does not meet again for late nodes alone"),
    row("etcd_prefix", Kind::Text, Some(DEFAULT_PREFIX), ETCD,
        "prefix of the keys of all runs"),
    row("lease_ttl", Kind::WholeSeconds { least: 2 }, Some("10"), ETCD,
        "how long a silent node counts as alive; whole seconds, at least 2"),
    row("rank_policy", Kind::Choice(&["stable", "hint", "topology", "arrival"]), Some("stable"), ETCD,
        "how ranks are assigned; without a hint, ranks follow the names of the hosts"),
    row("node_rank", Kind::Count { least: 0 }, None, ETCD,
        "preferred rank of this node"),
    row("topology", Kind::Text, None, ETCD,
        "position of this node, such as `rack2/node11`"),
    row("local_world_size", Kind::Count { least: 1 }, Some("1"), ETCD,
        "number of workers of this node; `rallypoint run` knows it"),
    row("use_agent_store", Kind::Switch, Some("true"), ETCD,
        "whether the node of rank 0 serves a store for the workers; with `false`, a worker must listen on \
         `MASTER_PORT`, and a node that dies is detected by its lease alone"),
    row("store_ports", Kind::Ports, None, ETCD,
        "ports from which the node of rank 0 takes one for the workers' store, such as `29500-29599`, and those of \
         `rallypoint run --ports`; any free ports unless given"),
    row("reopen", Kind::Switch, Some("false"), ETCD,
        "whether a run that is over is opened again"),
    row("hang_after", Kind::Text, None, ETCD,
        "under torchrun: if no worker of a node has made progress for this many seconds, the log of rank 0 says where \
         the workers of all nodes are; `600:1800` also limits the time to the first sign of progress"),
    row("progress", Kind::Text, Some("auto"), ETCD,
        "under torchrun: the sign of progress for `hang_after`: `beat`, `output`, `file:PATH` or `auto`"),
    row("http", Kind::Text, None, ETCD,
        "under torchrun: the address, such as `127.0.0.1:9480`, at which this node tells health and metrics over HTTP"),
    row("protocol", Kind::Choice(&["http", "https"]), Some("http"), CONNECTION,
        "protocol of the servers"),
    also(&["ca_cert"], row("cacert", Kind::File, None, CONNECTION,
        "certificate of the authority that signed the servers' certificates, for `https`")),
    also(&["ssl_cert"], row("cert", Kind::File, None, CONNECTION,
        "certificate of this node, for `https`")),
    also(&["ssl_cert_key"], row("key", Kind::File, None, CONNECTION,
        "private key of the certificate")),
    row("read_timeout", SECONDS, Some("10"), &[Backend::Rallypoint, Backend::Etcd, Backend::Client],
        "how long one request may take"),
    row("read_timeout", SECONDS, Some("60"), DYNAMIC,
        "how long one request may take"),
    row("user", Kind::Text, None, CONNECTION,
        "user of a server that requires authentication"),
    row("password", Kind::Text, None, CONNECTION,
        "password of the user; visible in `ps`, so prefer `password_file` or the variable `RALLYPOINT_PASSWORD`"),
    row("password_file", Kind::File, None, CONNECTION,
        "file with the password of the user"),
    row("is_host", Kind::Switch, None, ETCD,
        "whether this node runs the embedded server; by the name in the endpoint unless given. `etcd` has no such \
         server: there it does nothing"),
];

/// The options for which `rallypoint run` has options of its own.
#[cfg(any(feature = "cli", test))]
const OWN_OF_LAUNCHER: [(&str, &str); 7] = [
    ("hang_after", "--hang-after"),
    ("progress", "--progress"),
    ("http", "--http"),
    ("planned", "--planned"),
    ("sizes", "--sizes"),
    ("node_unit", "--node-unit"),
    ("scale_up_after", "--scale-up-after"),
];

#[cfg(any(feature = "cli", test))]
fn is_own_of_launcher(name: &str) -> bool {
    OWN_OF_LAUNCHER.iter().any(|(known, _)| *known == name)
}

/// Refuses options for which `rallypoint run` has options of its own.
#[cfg(feature = "cli")]
pub(crate) fn check_launcher(config: &BTreeMap<String, String>) -> Result<(), ConfigError> {
    match OWN_OF_LAUNCHER.into_iter().find_map(|(name, own)| Some((name, config.get(name)?, own))) {
        None => Ok(()),
        Some((name, value, own)) => {
            let fix = format!("it is for torchrun; give rallypoint run {own} instead");
            Err(ConfigError::invalid(name, value, fix))
        }
    }
}

/// The option `is_host` of the backend `rallypoint`: whether the user says that this node runs the server.
pub(crate) fn is_host(parameters: &RendezvousParameters) -> Result<Option<bool>, ConfigError> {
    Reader::new(parameters, Backend::Rallypoint)?.optional_switch("is_host")
}

/// The option `succession` of the backend `rallypoint`: whether several hosts in the endpoint succeed each other.
pub(crate) fn has_succession(parameters: &RendezvousParameters) -> Result<bool, ConfigError> {
    let on_or_off = |text: &str| match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("give on or off".to_owned()),
    };
    let reader = Reader::new(parameters, Backend::Rallypoint)?;
    Ok(reader.parsed("succession", on_or_off)?.unwrap_or(true))
}

/// The rows of a backend.
pub(crate) fn rows(backend: Backend) -> impl Iterator<Item = &'static OptionSpec> {
    OPTIONS.iter().filter(move |row| row.backends.contains(&backend))
}

/// How a node takes part in the rendezvous of its run, on etcd or on the embedded server.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HandlerOptions {
    /// The name of the run, the same for all of its nodes and for no others.
    pub run_id: String,
    /// The smallest number of nodes of a group.
    pub min_nodes: usize,
    /// The largest number of nodes of a group.
    pub max_nodes: usize,
    /// Which of these sizes a group may have, how many nodes are planned, and when a group grows (`sizes`, `node_unit`,
    /// `planned`, `scale_up_after`).
    pub sizes: SizeRules,
    /// The prefix of the keys of all runs (`etcd_prefix`).
    pub prefix: String,
    /// How long [`next_rendezvous`](RendezvousHandler::next_rendezvous) may take (`timeout`, `join_timeout`).
    pub timeout: Duration,
    /// How long a node that had a group waits for a server that does not answer any more. It is no part of `timeout`.
    pub server_timeout: Duration,
    /// How long a round waits for more nodes once there are enough (`last_call_timeout`).
    pub last_call: Duration,
    /// How long a node may be silent before it counts as dead, in whole seconds.
    pub lease_ttl: Duration,
    /// How ranks are assigned.
    pub rank_policy: RankPolicy,
    /// The preferred rank of this node.
    pub node_rank: Option<u32>,
    /// The position of this node, such as `rack2/node11`.
    pub topology: Option<String>,
    /// The address at which the other nodes reach this one. Without it, the address from which this node reaches the
    /// servers.
    pub local_addr: Option<String>,
    /// The number of workers of this node (`local_world_size`). It is informational.
    pub local_workers: u32,
    /// Whether this node, when it has rank 0, serves an [`AgentStore`] for the workers of the group at the
    /// address that they are told. Otherwise the port is only reserved, for a worker that listens there.
    ///
    /// The nodes of a group hold connections to that store, by which they see each other die at once. Without it
    /// a death shows when its lease expires.
    pub use_agent_store: bool,
    /// The ports of which this node, when it has rank 0, takes one for its group. Without it, any that is free.
    pub store_ports: Option<PortRange>,
    /// Whether a run that is over is opened again, instead of being refused.
    pub reopen: bool,
    /// The liveness socket of this node: all of its processes hold it, and it greets. With it the other nodes can
    /// prove that this one is dead, and need not wait until its lease expires.
    pub liveness: Option<LivenessAddress>,
    /// No other node can join, not even as a spare: the server is this node's own and on loopback. No node can take
    /// its place then, and it is never fenced.
    pub sole: bool,
    /// The hosts that may serve, where they succeed each other.
    pub(crate) succession: Option<HostOrder>,
    /// Records the events of the node.
    pub recorder: Option<EventRecorder>,
    /// Whether this node keeps the last events of the run in its keys, when it is the coordinator. `rallypoint
    /// explain` tells the past of a run from them.
    pub keeps_events: bool,
    /// When the workers of this node hang (`hang_after`), for a [`ForeignAgent`](crate::agent::ForeignAgent).
    pub hang: Option<HangPolicy>,
    /// The sign by which the workers show progress.
    pub progress: ProgressSign,
    /// The address at which the node tells its health and metrics, for [`AgentPages`](crate::agent::AgentPages).
    pub http: Option<SocketAddr>,
}

impl HandlerOptions {
    /// These options after `change`, so that a single expression can set several of them.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// A group of `min_nodes` to `max_nodes` for this run, with the defaults of the table.
    pub fn new(run_id: impl Into<String>, min_nodes: usize, max_nodes: usize) -> Self {
        let run_id = run_id.into();
        let parameters = RendezvousParameters::unchecked(
            Backend::Etcd.name().to_owned(),
            String::new(),
            run_id,
            min_nodes,
            max_nodes,
        );
        Self::read(&Reader::unchecked(&parameters, Backend::Etcd))
            .expect("the defaults of the table are valid")
    }

    /// Reads the options of the table.
    fn read(reader: &Reader<'_>) -> Result<Self, ConfigError> {
        // Under etcd's v2 a prefix meant the same with and without the slash; two nodes must share it.
        let prefix = reader.text("etcd_prefix")?.unwrap_or_default();
        // torchrun gives a `timeout` in any case, so it does not contradict what its user calls `join_timeout`.
        let timeout = reader.time("timeout")?;
        let RendezvousParameters {
            run_id,
            min_nodes,
            max_nodes,
            local_addr,
            liveness,
            sole,
            succession,
            recorder,
            ..
        } = reader.parameters();
        let sizes = SizeOptions {
            planned: reader.optional_count("planned")?,
            sizes: reader.parsed("sizes", super::sizes::sizes)?,
            node_unit: reader.optional_count("node_unit")?,
            scale_up_after: reader.time("scale_up_after")?,
        };
        let limits = Limits { min: *min_nodes, max: *max_nodes };
        Ok(Self {
            run_id: run_id.clone(),
            min_nodes: *min_nodes,
            max_nodes: *max_nodes,
            sizes: sizes.rules(limits, str::to_owned)?,
            prefix: format!("/{}", prefix.trim_matches('/')),
            timeout: reader.optional_time("join_timeout")?.unwrap_or(timeout),
            server_timeout: reader.time("server_timeout")?,
            last_call: reader.time("last_call_timeout")?,
            lease_ttl: reader.time("lease_ttl")?,
            rank_policy: reader.choice("rank_policy")?,
            node_rank: reader.optional_count("node_rank")?,
            topology: reader.text("topology")?,
            local_addr: local_addr.clone(),
            local_workers: reader.count("local_world_size")?,
            use_agent_store: reader.switch("use_agent_store")?,
            store_ports: reader.ports("store_ports")?,
            reopen: reader.switch("reopen")?,
            liveness: liveness.clone(),
            sole: *sole,
            succession: succession.clone(),
            recorder: recorder.clone(),
            keeps_events: true,
            hang: reader.parsed("hang_after", hang_policy)?,
            progress: reader.parsed("progress", str::parse)?.unwrap_or_default(),
            http: reader.parsed("http", http_address)?,
        })
    }

    /// The smallest and the largest number of nodes of a group.
    pub(crate) fn limits(&self) -> Limits {
        Limits { min: self.min_nodes, max: self.max_nodes }
    }

    /// The configuration of the protocol, which keeps the run under `keys`.
    pub(crate) fn node_config(&self, keys: &Keys) -> NodeConfig {
        NodeConfig {
            run_lease: keys.run_lease(),
            keys: keys.clone(),
            limits: self.limits(),
            sizes: self.sizes.clone(),
            timeout: self.timeout,
            server_timeout: self.server_timeout,
            last_call: self.last_call,
            confirm: self.lease_ttl,
            lease_ttl: self.lease_ttl,
            rank_policy: self.rank_policy,
            sole: self.sole,
            succession: None,
            started: Some(display_time()),
            keeps_events: self.keeps_events,
        }
    }

    /// Checks the options of a caller that has written the struct.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        /// etcd has no shorter leases.
        const SHORTEST_LEASE: Duration = Duration::from_secs(2);
        let Self { min_nodes, max_nodes, run_id, lease_ttl, timeout, .. } = self;
        validate_run(run_id, *min_nodes, *max_nodes)?;
        super::sizes::check(&self.sizes, self.limits(), str::to_owned)?;
        // Less is not to be had: the node would count itself dead before any server did, or a server
        // would keep it for longer than was asked for.
        if *lease_ttl < SHORTEST_LEASE {
            let fix = format!("give at least {SHORTEST_LEASE:?}");
            return Err(ConfigError::invalid("lease_ttl", format!("{lease_ttl:?}"), fix));
        }
        if timeout.is_zero() {
            let fix = "give the time that a group may take to form";
            return Err(ConfigError::invalid("timeout", "0s", fix));
        }
        Ok(())
    }
}

/// The options of the backends `rallypoint` and `etcd`: how to reach the servers, and how to take part in the
/// rendezvous there. `docs/reference/options.md` lists them.
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
/// # Ok::<(), rallypoint::config::ConfigError>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EtcdOptions {
    /// How to reach the servers.
    pub connection: ConnectionOptions,
    /// How to take part in the rendezvous.
    pub handler: HandlerOptions,
}

impl EtcdOptions {
    /// Reads the options and the endpoint.
    ///
    /// # Errors
    /// [`ConfigError`] names the first option that is wrong or unknown, and the remedy.
    pub fn from_parameters(parameters: &RendezvousParameters) -> Result<Self, ConfigError> {
        let backend = match Backend::named(&parameters.backend) {
            Some(Backend::Rallypoint) => Backend::Rallypoint,
            _ => Backend::Etcd,
        };
        let reader = Reader::new(parameters, backend)?;
        let handler = HandlerOptions::read(&reader)?;
        Ok(Self { connection: ConnectionOptions::read(&reader)?, handler })
    }

    /// The options of a client that reaches the servers.
    pub fn client_options(&self) -> ClientOptions {
        self.connection.client_options()
    }
}

#[cfg(test)]
mod tests;
