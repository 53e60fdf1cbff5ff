//! What a handler is told.

use std::time::Duration;

use rallypoint_core::rendezvous::documents::LivenessAddress;
use rallypoint_core::rendezvous::keys::DEFAULT_PREFIX;
use rallypoint_core::rendezvous::ranks::RankPolicy;

use crate::rendezvous::{PortRange, RendezvousError};
#[cfg(doc)]
use crate::{rendezvous::RendezvousHandler, store::AgentStore};

/// etcd has no shorter leases.
const SHORTEST_LEASE: Duration = Duration::from_secs(2);

/// How a node meets the others of its run.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HandlerOptions {
    /// The name of the run, the same for all of its nodes and for no others.
    pub run_id: String,
    /// At least so many nodes make a group.
    pub min_nodes: usize,
    /// At most so many do.
    pub max_nodes: usize,
    /// Where runs keep their keys.
    pub prefix: String,
    /// How long [`next_rendezvous`](RendezvousHandler::next_rendezvous) may take.
    pub timeout: Duration,
    /// How long a round waits for more nodes once there are enough.
    pub last_call: Duration,
    /// How long a node may be silent before it counts as dead, in whole seconds.
    pub lease_ttl: Duration,
    /// How ranks are given.
    pub rank_policy: RankPolicy,
    /// The rank that this node would like to have.
    pub node_rank: Option<u32>,
    /// Where this node stands, such as `rack2/node11`.
    pub topology: Option<String>,
    /// Where the other nodes reach this one. Without it, the address by which it reaches the servers.
    pub local_addr: Option<String>,
    /// How many workers it runs, for people who look.
    pub local_workers: u32,
    /// Whether this node, when it has rank 0, serves an [`AgentStore`] for the workers of the group at the
    /// address that they are told. Otherwise the port is only kept, for whoever will listen there.
    ///
    /// The nodes of a group hold connections to that store, by which they see each other die at once. Without it
    /// a death shows when its lease is over.
    pub use_agent_store: bool,
    /// The ports of which this node, when it has rank 0, takes one for its group. Without it, any that is free.
    pub store_ports: Option<PortRange>,
    /// Whether a run that is over is begun anew, instead of being refused.
    pub reopen: bool,
    /// The liveness socket of this node: all of its processes hold it, and it greets. With it the others can prove that
    /// the node is dead, and need not wait until its lease is over.
    pub liveness: Option<LivenessAddress>,
    /// No other node can come, not even as a spare: the server is this node's own and for nobody else. Then nobody can
    /// take its place, and it is never fenced.
    pub sole: bool,
}

impl HandlerOptions {
    /// These options after `change`, so that a single expression can set several of them.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// A group of `min_nodes` to `max_nodes` for this run, everything else as usual.
    pub fn new(run_id: impl Into<String>, min_nodes: usize, max_nodes: usize) -> Self {
        Self {
            run_id: run_id.into(),
            min_nodes,
            max_nodes,
            prefix: DEFAULT_PREFIX.to_owned(),
            timeout: Duration::from_secs(600),
            last_call: Duration::from_secs(30),
            lease_ttl: Duration::from_secs(10),
            rank_policy: RankPolicy::default(),
            node_rank: None,
            topology: None,
            local_addr: None,
            local_workers: 1,
            use_agent_store: true,
            store_ports: None,
            reopen: false,
            liveness: None,
            sole: false,
        }
    }

    pub(super) fn validate(&self) -> Result<(), RendezvousError> {
        let Self { min_nodes, max_nodes, run_id, lease_ttl, timeout, .. } = self;
        let wrong = |what: String| Err(RendezvousError::State { what, source: None });
        // It becomes one part of the path of every key of the run.
        if run_id.is_empty() || run_id.contains('/') || run_id.chars().any(char::is_control) {
            return wrong(format!(
                "run_id {run_id:?}: give a name that is not empty and has no slashes or control \
                 characters"
            ));
        }
        if *min_nodes == 0 {
            return wrong("min_nodes 0: give at least 1".to_owned());
        }
        if max_nodes < min_nodes {
            return wrong(format!(
                "max_nodes {max_nodes}: give at least min_nodes, which is {min_nodes}"
            ));
        }
        // Less is not to be had: the node would count itself dead before any server did, or a server
        // would keep it for longer than was asked for.
        if *lease_ttl < SHORTEST_LEASE {
            return wrong(format!("lease_ttl {lease_ttl:?}: give at least {SHORTEST_LEASE:?}"));
        }
        if timeout.is_zero() {
            return wrong("timeout 0s: give the time that a group may take to form".to_owned());
        }
        Ok(())
    }
}
