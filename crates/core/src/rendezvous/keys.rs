//! Every key of a run. Nothing else in the project builds one (invariant A3).

mod store;

pub use self::store::{Digit, NameKeys, StoreKeys};

use crate::kv::{KeyRange, LeaseId};

/// Where the runs lie unless the user says otherwise, as in PyTorch.
pub const DEFAULT_PREFIX: &str = "/torchelastic/p2p";

/// Where the states of dynamic rendezvous lie unless the user says otherwise, as in PyTorch.
pub const DYNAMIC_PREFIX: &str = "/torch/elastic/rendezvous";

/// Where a server that keeps nothing says what it knows of the one before it:
/// [`Predecessor`](super::documents::Predecessor).
pub const PREDECESSOR: &str = "/rallypoint/predecessor";

/// The one key that holds the whole state of a dynamic rendezvous.
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

/// The name of the store of one round of a dynamic rendezvous, as in PyTorch.
pub fn dynamic_store(run_id: &str, round: u64) -> String {
    format!("torch.rendezvous.{run_id}.{round}")
}

/// What the keys of that store begin with on etcd. The slash keeps round 1 apart from round 10.
///
/// ```
/// use rallypoint_core::rendezvous::keys;
/// let prefix = keys::dynamic_store_prefix("job-7", 3);
/// assert_eq!(prefix, "/torch/elastic/store/torch.rendezvous.job-7.3/");
/// ```
pub fn dynamic_store_prefix(run_id: &str, round: u64) -> String {
    format!("/torch/elastic/store/{}/", dynamic_store(run_id, round))
}

/// Where one run keeps its keys.
///
/// ```
/// use rallypoint_core::rendezvous::keys::Keys;
/// let keys = Keys::new("/torchelastic/p2p", "job-7");
/// assert_eq!(keys.active(), "/torchelastic/p2p/run_job-7/rdzv/active");
/// assert_eq!(keys.member(3, "a"), "/torchelastic/p2p/run_job-7/rdzv/v_3/member/a");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    root: String,
}

impl Keys {
    /// The keys of the run `run_id` below `prefix`, with or without a slash at its end.
    pub fn new(prefix: &str, run_id: &str) -> Self {
        Self { root: format!("{}/run_{run_id}/", prefix.trim_end_matches('/')) }
    }

    /// What every key of the run begins with.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// The lease of what belongs to no single node. Every node computes the same id, so that they share
    /// it without having to agree on it first.
    pub fn run_lease(&self) -> LeaseId {
        lease_named(&self.root)
    }

    /// The round in progress and how far it is.
    pub fn active(&self) -> String {
        format!("{}rdzv/active", self.root)
    }

    /// The last round number used, and the last round that formed a group.
    pub fn round(&self) -> String {
        format!("{}rdzv/round", self.root)
    }

    /// The name of the run's history on this server: it changes only when the server loses its memory.
    pub fn history(&self) -> String {
        format!("{}rdzv/history", self.root)
    }

    /// How many restarts the job has used, for launchers.
    pub fn restarts(&self) -> String {
        format!("{}rdzv/restarts", self.root)
    }

    /// One node.
    pub fn node(&self, id: &str) -> String {
        format!("{}rdzv/node/{id}", self.root)
    }

    /// All nodes.
    pub fn nodes(&self) -> KeyRange {
        KeyRange::prefix(format!("{}rdzv/node/", self.root))
    }

    /// A late node that the next round has room for.
    pub fn waiting(&self, id: &str) -> String {
        format!("{}rdzv/waiting/{id}", self.root)
    }

    /// All late nodes.
    pub fn all_waiting(&self) -> KeyRange {
        KeyRange::prefix(format!("{}rdzv/waiting/", self.root))
    }

    /// A node that came when the group was full.
    pub fn spare(&self, id: &str) -> String {
        format!("{}rdzv/spare/{id}", self.root)
    }

    /// All of those.
    pub fn spares(&self) -> KeyRange {
        KeyRange::prefix(format!("{}rdzv/spare/", self.root))
    }

    /// A node that disagrees with the round in progress.
    pub fn objector(&self, id: &str) -> String {
        format!("{}rdzv/objector/{id}", self.root)
    }

    /// All of those.
    pub fn objectors(&self) -> KeyRange {
        KeyRange::prefix(format!("{}rdzv/objector/", self.root))
    }

    /// A node that someone has reason to think dead, though its lease still lives.
    pub fn suspect(&self, id: &str) -> String {
        format!("{}rdzv/suspect/{id}", self.root)
    }

    /// All of those.
    pub fn suspects(&self) -> KeyRange {
        KeyRange::prefix(format!("{}rdzv/suspect/", self.root))
    }

    /// Says that a node has joined a round.
    pub fn member(&self, round: u64, id: &str) -> String {
        format!("{}rdzv/v_{round}/member/{id}", self.root)
    }

    /// All who joined a round.
    pub fn members(&self, round: u64) -> KeyRange {
        KeyRange::prefix(format!("{}rdzv/v_{round}/member/", self.root))
    }

    /// A node's rank in a round.
    pub fn rank(&self, round: u64, id: &str) -> String {
        format!("{}rdzv/v_{round}/rank/{id}", self.root)
    }

    /// All ranks of a round.
    pub fn ranks(&self, round: u64) -> KeyRange {
        KeyRange::prefix(format!("{}rdzv/v_{round}/rank/", self.root))
    }

    /// Says that a node has seen its rank and is there.
    pub fn ready(&self, round: u64, id: &str) -> String {
        format!("{}rdzv/v_{round}/ready/{id}", self.root)
    }

    /// All who said so.
    pub fn all_ready(&self, round: u64) -> KeyRange {
        KeyRange::prefix(format!("{}rdzv/v_{round}/ready/", self.root))
    }

    /// What the keys of a round's store begin with.
    pub fn store(&self, round: u64) -> String {
        format!("{}rdzv/v_{round}/kv/", self.root)
    }

    /// What the keys begin with of what nodes left for the others of a round.
    pub fn extra_data(&self, round: u64) -> String {
        format!("{}rdzv/v_{round}/extra_data/", self.root)
    }

    /// Everything that belongs to a round.
    pub fn whole_round(&self, round: u64) -> KeyRange {
        KeyRange::prefix(format!("{}rdzv/v_{round}/", self.root))
    }

    /// The node's id, if this is the key of a [`node`](Self::node) of any run.
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

    /// The id that follows the last slash of a node's, member's, waiting node's … key.
    pub fn id_of(key: &[u8]) -> Option<&str> {
        let text = std::str::from_utf8(key).ok()?;
        text.rsplit_once('/').map(|(_, id)| id)
    }
}

/// A lease that everyone who knows `name` finds without having to agree on it.
pub fn lease_named(name: &str) -> LeaseId {
    // FNV-1a: any hash would do that is the same everywhere and for ever.
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, mix);
    // Leases are positive.
    i64::try_from(hash >> 1).unwrap_or(i64::MAX).max(1)
}
