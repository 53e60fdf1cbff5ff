//! Every key of a run. No other module builds a key (invariant A3).

pub mod agent;
mod parsed;
mod store;

pub use self::parsed::RunKey;
pub use self::store::{Digit, NameKeys, StoreKeys};

use serde::{Deserialize, Serialize};

use crate::kv::{KeyRange, LeaseId};

/// The default prefix of all runs, as in PyTorch.
pub const DEFAULT_PREFIX: &str = "/torchelastic/p2p";

/// The default prefix of the states of dynamic rendezvous, as in PyTorch.
pub const DYNAMIC_PREFIX: &str = "/torch/elastic/rendezvous";

/// The [`Predecessor`](super::documents::Predecessor) of a server without persistent state.
pub const PREDECESSOR: &str = "/rallypoint/predecessor";

/// The key of the whole state of a dynamic rendezvous.
///
/// ```
/// use rallypoint_core::rendezvous::keys;
/// let prefix = Some(keys::DYNAMIC_PREFIX);
/// assert_eq!(keys::dynamic_state(prefix, "job-7"), "/torch/elastic/rendezvous/job-7");
/// assert_eq!(keys::dynamic_state(None, "job-7"), "job-7");
/// ```
pub fn dynamic_state(prefix: Option<&str>, run_id: &str) -> String {
    match prefix.map(|prefix| prefix.trim_end_matches('/')) {
        None | Some("") => run_id.to_owned(),
        Some(prefix) => format!("{prefix}/{run_id}"),
    }
}

/// The name of the store of a round of a dynamic rendezvous, as in PyTorch.
pub fn dynamic_store(run_id: &str, round: u64) -> String {
    format!("torch.rendezvous.{run_id}.{round}")
}

/// The prefix of the store of a round of a dynamic rendezvous on etcd. Its last slash separates round 1 from round 10.
///
/// ```
/// use rallypoint_core::rendezvous::keys;
/// let prefix = keys::dynamic_store_prefix("job-7", 3);
/// assert_eq!(prefix, "/torch/elastic/store/torch.rendezvous.job-7.3/");
/// ```
pub fn dynamic_store_prefix(run_id: &str, round: u64) -> String {
    format!("{}/", dynamic_run_store(&dynamic_store(run_id, round)))
}

/// The prefix of the store of a run of dynamic rendezvous on etcd, for PyTorch's handler.
pub fn dynamic_run_store(run_id: &str) -> String {
    format!("/torch/elastic/store/{run_id}")
}

/// The keys of one run.
///
/// ```
/// use rallypoint_core::rendezvous::keys::Keys;
/// let keys = Keys::new("/torchelastic/p2p", "job-7");
/// assert_eq!(keys.active(), "/torchelastic/p2p/run_job-7/rdzv/active");
/// assert_eq!(keys.member(3, "a"), "/torchelastic/p2p/run_job-7/rdzv/v_3/member/a");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keys {
    root: String,
}

impl Keys {
    /// The keys of the run `run_id` below `prefix`, with or without a slash at its end.
    pub fn new(prefix: &str, run_id: &str) -> Self {
        Self { root: format!("{}/run_{run_id}/", prefix.trim_end_matches('/')) }
    }

    /// The prefix of every key of the run.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// The lease of everything that belongs to no single node. Every node computes the same id, so that the nodes need
    /// not agree on it first.
    pub fn run_lease(&self) -> LeaseId {
        lease_named(&self.root)
    }

    /// The round in progress: [`Active`](super::documents::Active).
    pub fn active(&self) -> String {
        format!("{}rdzv/active", self.root)
    }

    /// The last round number used, and the last round that formed a group: [`Rounds`](super::documents::Rounds).
    pub fn round(&self) -> String {
        format!("{}rdzv/round", self.root)
    }

    /// The history of the run on this server, which changes only when the server loses its state:
    /// [`RunHistory`](super::documents::RunHistory).
    pub fn history(&self) -> String {
        format!("{}rdzv/history", self.root)
    }

    /// What an operator has decided about the quorum of a new group, where hosts succeed each other as servers:
    /// [`Overruled`](super::documents::Overruled).
    pub fn overruled(&self) -> String {
        format!("{}rdzv/overruled", self.root)
    }

    /// The number of restarts that the job has used, for launchers.
    pub fn restarts(&self) -> String {
        format!("{}rdzv/restarts", self.root)
    }

    /// The last lines of the worker that failed, for operators: a [`FailureOutput`](crate::agent::FailureOutput).
    pub fn failure(&self) -> String {
        format!("{}rdzv/failure", self.root)
    }

    /// The report of the last hang, for operators: a [`HangDocument`](crate::agent::stacks::HangDocument).
    pub fn hang(&self) -> String {
        format!("{}rdzv/hang", self.root)
    }

    /// The place of the run's event of this number: an [`RunEvent`](crate::events::RunEvent). There are
    /// [`RUN_EVENTS`](crate::events::RUN_EVENTS) places, and a later event takes the place of an earlier one.
    pub fn event(&self, number: u64) -> String {
        let place = number % crate::events::RUN_EVENTS;
        format!("{}rdzv/events/{place}", self.root)
    }

    /// The last events of the run.
    pub fn events(&self) -> KeyRange {
        KeyRange::prefix(format!("{}rdzv/events/", self.root))
    }

    /// A live node: [`NodeDocument`](super::documents::NodeDocument).
    pub fn node(&self, id: &str) -> String {
        format!("{}rdzv/node/{id}", self.root)
    }

    /// All live nodes.
    pub fn nodes(&self) -> KeyRange {
        KeyRange::prefix(format!("{}rdzv/node/", self.root))
    }

    /// The last exit of this name: [`NodeExit`](crate::agent::NodeExit).
    pub fn exit(&self, name: &str) -> String {
        format!("{}rdzv/exit/{name}", self.root)
    }

    /// A late node that the group has room for.
    pub fn waiting(&self, id: &str) -> String {
        format!("{}rdzv/waiting/{id}", self.root)
    }

    /// All late nodes that the group has room for.
    pub fn all_waiting(&self) -> KeyRange {
        KeyRange::prefix(format!("{}rdzv/waiting/", self.root))
    }

    /// A late node that the group has no room for.
    pub fn spare(&self, id: &str) -> String {
        format!("{}rdzv/spare/{id}", self.root)
    }

    /// All late nodes that the group has no room for.
    pub fn spares(&self) -> KeyRange {
        KeyRange::prefix(format!("{}rdzv/spare/", self.root))
    }

    /// A node that disagrees with the round in progress: [`Objection`](super::documents::Objection).
    pub fn objector(&self, id: &str) -> String {
        format!("{}rdzv/objector/{id}", self.root)
    }

    /// All nodes that disagree with the round in progress.
    pub fn objectors(&self) -> KeyRange {
        KeyRange::prefix(format!("{}rdzv/objector/", self.root))
    }

    /// A node that a peer suspects to be dead, though its lease lives.
    pub fn suspect(&self, id: &str) -> String {
        format!("{}rdzv/suspect/{id}", self.root)
    }

    /// All suspect nodes.
    pub fn suspects(&self) -> KeyRange {
        KeyRange::prefix(format!("{}rdzv/suspect/", self.root))
    }

    /// A node that joined a round: [`Joined`](super::documents::Joined).
    pub fn member(&self, round: u64, id: &str) -> String {
        format!("{}rdzv/v_{round}/member/{id}", self.root)
    }

    /// All nodes that joined a round.
    pub fn members(&self, round: u64) -> KeyRange {
        KeyRange::prefix(format!("{}rdzv/v_{round}/member/", self.root))
    }

    /// A node's rank in a round: [`Ranked`](super::documents::Ranked).
    pub fn rank(&self, round: u64, id: &str) -> String {
        format!("{}rdzv/v_{round}/rank/{id}", self.root)
    }

    /// All ranks of a round.
    pub fn ranks(&self, round: u64) -> KeyRange {
        KeyRange::prefix(format!("{}rdzv/v_{round}/rank/", self.root))
    }

    /// A node that confirmed its rank in a round, and may have workers of its group.
    pub fn ready(&self, round: u64, id: &str) -> String {
        format!("{}rdzv/v_{round}/ready/{id}", self.root)
    }

    /// All nodes that confirmed their rank in a round.
    pub fn all_ready(&self, round: u64) -> KeyRange {
        KeyRange::prefix(format!("{}rdzv/v_{round}/ready/", self.root))
    }

    /// A member of the group of a round that has left in good order, where hosts succeed each other as servers.
    pub fn left(&self, round: u64, id: &str) -> String {
        format!("{}rdzv/v_{round}/left/{id}", self.root)
    }

    /// All members of the group of a round that have left in good order.
    pub fn all_left(&self, round: u64) -> KeyRange {
        KeyRange::prefix(format!("{}rdzv/v_{round}/left/", self.root))
    }

    /// The prefix of the keys of a round's store.
    pub fn store(&self, round: u64) -> String {
        format!("{}rdzv/v_{round}/kv/", self.root)
    }

    /// The prefix of the data that the nodes of a round share besides its store.
    pub fn extra_data(&self, round: u64) -> String {
        format!("{}rdzv/v_{round}/extra_data/", self.root)
    }

    /// All keys of a round.
    pub fn whole_round(&self, round: u64) -> KeyRange {
        KeyRange::prefix(format!("{}rdzv/v_{round}/", self.root))
    }

    /// The id of the node, if this is the key of a [`node`](Self::node) of any run.
    ///
    /// ```
    /// use rallypoint_core::rendezvous::keys::Keys;
    /// let keys = Keys::new("/torchelastic/p2p", "job-7");
    /// assert_eq!(Keys::node_of(keys.node("a").as_bytes()), Some("a"));
    /// assert_eq!(Keys::node_of(keys.waiting("a").as_bytes()), None);
    /// ```
    pub fn node_of(key: &[u8]) -> Option<&str> {
        let (_, id) = std::str::from_utf8(key).ok()?.rsplit_once("/rdzv/node/")?;
        (!id.contains('/')).then_some(id)
    }

    /// The id after the last slash of the key of a node, member, waiting node, and so on.
    pub fn id_of(key: &[u8]) -> Option<&str> {
        let text = std::str::from_utf8(key).ok()?;
        text.rsplit_once('/').map(|(_, id)| id)
    }
}

/// The lease of this name. Every process computes the same id from the same name.
pub fn lease_named(name: &str) -> LeaseId {
    // FNV-1a. Any hash would do that is the same on every platform and in every version.
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, mix);
    // Leases are positive.
    i64::try_from(hash >> 1).unwrap_or(i64::MAX).max(1)
}
