//! The documents that the nodes of a run share, as JSON, in format 1.
//!
//! Every document has a format number. A document of another format is refused with an error that names both formats.
//! Within a format a later version may add fields: an older version reads the document without them, and keeps them when
//! it rewrites the document.

mod display_time;
mod format;
mod history;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

pub use self::display_time::DisplayTime;
pub use self::format::{DocumentError, decode, encode};
pub use self::history::RunHistory;
use super::ranks::PreviousAssignment;
pub use super::sizes::Limits;
use super::sizes::SizeRules;
use super::succession::claims::{Claims, Cut};
use crate::events::run_events;
use crate::kv::Revision;

/// The format of the documents that this version writes and reads.
pub const FORMAT: u32 = 1;

/// The fields of a document that this version does not know.
pub type Extra = BTreeMap<String, serde_json::Value>;

/// Whether a field has its default value. Such a field is left out, and a missing field reads as its default.
pub(super) fn is_default<T: Default + PartialEq>(field: &T) -> bool {
    *field == T::default()
}

/// The state of the round in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Nodes may join.
    Joinable,
    /// The ranks are assigned; each node must confirm its rank.
    Frozen,
    /// Every node has confirmed its rank. The group runs.
    Final,
    /// The run is closed.
    Closed,
}

/// The name of a node, for messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeName {
    /// The id of the node.
    pub id: String,
    /// The address of the node.
    #[serde(default)]
    pub address: String,
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address.as_str() {
            // An operator, who is no node.
            "" => f.write_str(&self.id),
            address => write!(f, "node {} ({address})", self.id),
        }
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", from = "String")]
pub enum RunOutcome {
    /// The job is done.
    Succeeded,
    /// The job failed, and a restart may help. Also any outcome of a later version that this version does not know.
    #[default]
    Failed,
    /// The job failed, and a restart does not help.
    NonRetryable,
}

impl fmt::Display for RunOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Succeeded => "done",
            Self::Failed => "failed",
            Self::NonRetryable => "failed for good",
        })
    }
}

impl From<String> for RunOutcome {
    fn from(text: String) -> Self {
        match text.as_str() {
            "succeeded" => Self::Succeeded,
            "non_retryable" => Self::NonRetryable,
            _ => Self::Failed,
        }
    }
}

/// `rdzv/active`: the round in progress. It does not contain the membership, so that its size does not depend on the
/// number of nodes, and a join does not change it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Active {
    /// The history that the round belongs to.
    pub history: RunHistory,
    /// The number of the round.
    pub round: u64,
    /// The state of the round.
    pub status: Status,
    /// The smallest and the largest size of the group, on which all nodes must agree.
    pub limits: Limits,
    /// Which of these sizes the group may have, and when it grows, on which all nodes must agree.
    #[serde(default, skip_serializing_if = "is_default")]
    pub sizes: SizeRules,
    /// How ranks are assigned, on which all nodes must agree.
    pub rank_policy: String,
    /// The coordinator of the round, or the node or the operator that closed the run. The coordinator of a final round is
    /// a member of its group.
    pub coordinator: NodeName,
    /// When the round was opened, its group formed, or the run was closed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub since: Option<DisplayTime>,
    /// Why the round began, or the run was closed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reason: String,
    /// How the run ended; only when closed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub outcome: Option<RunOutcome>,
    /// Why the round stopped taking nodes; empty while nodes may join.
    #[serde(default, skip_serializing_if = "is_default")]
    pub frozen_because: String,
    /// The revision at which the round was opened; 0 while nodes may join.
    #[serde(default, skip_serializing_if = "is_default")]
    pub began: Revision,
    /// The last round before this one that formed a group; 0 if none did.
    #[serde(default, skip_serializing_if = "is_default")]
    pub previous: u64,
    /// The last group of a lost history whose workers have certainly stopped; 0 if no node remembers one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub outlived: u64,
    /// The number of nodes in the group; 0 while nodes may join.
    #[serde(default, skip_serializing_if = "is_default")]
    pub world: u32,
    /// Which nodes certainly have a rank; only while frozen, where hosts succeed each other as servers.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cut: Cut,
    /// The id of the node that has rank 0; empty while nodes may join.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rank0: String,
    /// The bootstrap store that rank 0 serves; only when final.
    #[serde(default, skip_serializing_if = "is_default")]
    pub store: Option<BootstrapStore>,
    /// The number of late nodes that the group has room for; only when final.
    #[serde(default, skip_serializing_if = "is_default")]
    pub waiting: usize,
    /// The number of lost members of the group; only when final.
    #[serde(default, skip_serializing_if = "is_default")]
    pub lost: usize,
    /// The ids of some of the lost members.
    #[serde(default, skip_serializing_if = "is_default")]
    pub lost_names: Vec<String>,
    /// How the coordinator knows of each of these losses, in the same order.
    #[serde(default, skip_serializing_if = "is_default")]
    pub lost_because: Vec<String>,
    /// Up to 16 members of the last group before this round that are proved dead.
    #[serde(default, skip_serializing_if = "is_default")]
    pub proved_dead: Vec<String>,
    /// Up to 8 members that have no connection to rank 0's store, and why; only when final.
    #[serde(default, skip_serializing_if = "is_default")]
    pub unreached: Vec<String>,
    /// What the round waits for, for the logs of the nodes that joined it; only while joinable, and only if it waits
    /// long.
    #[serde(default, skip_serializing_if = "is_default")]
    pub waits_for: String,
    /// The round of the group of which too few nodes have come, if it waits for that, and the group belongs to another
    /// server; 0 for the hosts that may serve.
    #[serde(default, skip_serializing_if = "is_default")]
    pub lacks_quorum: Option<u64>,
    /// The number of events of the run up to this document: see [`Keys::event`](super::keys::Keys::event).
    #[serde(default, skip_serializing_if = "is_default")]
    pub events: u64,
    /// The fields that this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A network address of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// A name or an IP address.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        let is_v6 = host.contains(':') && !host.starts_with('[');
        if is_v6 { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// A listening socket that a node and its workers hold as long as one of them lives: when its host refuses a connection
/// there, they are dead. The socket greets with its token, which tells it from a later socket on the same port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LivenessAddress {
    /// A name or an IP address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The token with which the socket greets.
    pub token: String,
}

/// The bootstrap store of a group, which rank 0 announces when it confirms.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootstrapStore {
    /// The address on which the store listens.
    #[serde(flatten)]
    pub address: Address,
    /// The token with which a member identifies itself on its liveness connection to rank 0.
    #[serde(default)]
    pub token: String,
    /// The liveness socket of rank 0.
    #[serde(default, skip_serializing_if = "is_default")]
    pub liveness: Option<LivenessAddress>,
    /// Whether the process of rank 0 runs the server of the job, where hosts succeed each other as servers. Its death is
    /// then the end of the server.
    #[serde(default, skip_serializing_if = "is_default")]
    pub runs_server: bool,
}

/// The confirmation of a member of a running group, other than rank 0, that has no connection to rank 0's store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unreached {
    /// The address and the error, in a sentence.
    pub unreached: String,
}

/// What the confirmation of a node adds: members of the last group before the round that the node has proved dead.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Proofs {
    /// The ids of these members.
    #[serde(default, skip_serializing_if = "is_default")]
    pub proved_dead: Vec<String>,
}

/// How the loss of a member is known that is proved dead.
pub const PROVED_DEAD: &str = "proved dead: its host refuses its liveness socket";

/// How the loss of a member is known that has ended in one of two ways.
pub(crate) const LEFT_OR_EXPIRED: &str = "it left, or its lease expired";

/// `rdzv/round`: the state of the run that outlives the round in progress. Each write of `rdzv/active` writes it too, so
/// both have the same revision as long as the latter exists. A field that a later version adds here it adds to
/// `rdzv/active` too, which is the key that nodes watch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rounds {
    /// The last round number used.
    pub round: u64,
    /// The last round that formed a group; 0 if none did.
    #[serde(default, skip_serializing_if = "is_default")]
    pub formed: u64,
    /// The last group of a lost history whose workers have certainly stopped; 0 if no node remembers one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub outlived: u64,
    /// The number of events of the run.
    #[serde(default, skip_serializing_if = "is_default")]
    pub events: u64,
    /// The fields that this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// `rdzv/overruled`: an operator has decided that the missing nodes of earlier groups are gone. A new group needs no
/// quorum of them (rule Y2), and still waits for their workers (rule Y4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overruled {
    /// The last round whose group this is about. The operator knows of no later one.
    pub round: u64,
    /// The author, as `user@host`.
    pub by: String,
}

impl Active {
    /// A document of this author for a round without a group, and without anything else to tell.
    pub(crate) fn new(
        history: RunHistory,
        round: u64,
        status: Status,
        coordinator: NodeName,
    ) -> Self {
        Self {
            history,
            round,
            status,
            limits: Limits { min: 0, max: 0 },
            sizes: SizeRules::default(),
            rank_policy: String::new(),
            coordinator,
            since: None,
            reason: String::new(),
            outcome: None,
            frozen_because: String::new(),
            began: 0,
            previous: 0,
            outlived: 0,
            world: 0,
            cut: Cut::default(),
            rank0: String::new(),
            store: None,
            waiting: 0,
            lost: 0,
            lost_names: Vec::new(),
            lost_because: Vec::new(),
            proved_dead: Vec::new(),
            unreached: Vec::new(),
            waits_for: String::new(),
            lacks_quorum: None,
            events: 0,
            extra: Extra::new(),
        }
    }

    /// The value of `rdzv/round` beside this document. `extra` are its fields that this version does not know.
    pub fn rounds(&self, extra: Extra) -> Rounds {
        let Self { round, outlived, events, .. } = *self;
        Rounds { round, formed: self.formed(), outlived, events, extra }
    }

    /// The last round that formed a group; 0 if none did.
    pub fn formed(&self) -> u64 {
        if self.status == Status::Final { self.round } else { self.previous }
    }

    /// This document with the number of events up to it, if it follows `before`, up to which there were `events`.
    #[must_use]
    pub(super) fn numbered(self, before: Option<&Self>, events: u64) -> Self {
        let more = run_events(before, &self).len() as u64;
        Self { events: events.saturating_add(more), ..self }
    }

    /// The next larger size that the group may have.
    pub fn next_size(&self) -> Option<usize> {
        self.sizes.next(self.limits, self.world as usize)
    }
}

/// What a node tells about itself that a rank policy considers. The same fields stand in [`NodeDocument`] and [`Joined`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RankHints {
    /// The rank that the node wants.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hint: Option<u32>,
    /// The place of the node in the network: a path such as `rack2/node11`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub topology: Option<String>,
}

/// `rdzv/node/{id}`: a live node, and its description for operators.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NodeDocument {
    /// Unique among all nodes of the run, also over time.
    pub id: String,
    /// The address at which other nodes reach it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub address: String,
    /// The name of the host.
    #[serde(default, skip_serializing_if = "is_default")]
    pub host: String,
    /// The process id.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pid: u32,
    /// The number of workers on the node.
    #[serde(default, skip_serializing_if = "is_default")]
    pub local_workers: u32,
    /// What a rank policy considers.
    #[serde(flatten)]
    pub rank_hints: RankHints,
    /// The socket that is refused when the node and its workers are dead.
    #[serde(default, skip_serializing_if = "is_default")]
    pub liveness: Option<LivenessAddress>,
    /// When the node was started.
    #[serde(default, skip_serializing_if = "is_default")]
    pub started: Option<DisplayTime>,
}

impl NodeDocument {
    /// The name of the node, for messages.
    pub fn name(&self) -> NodeName {
        NodeName { id: self.id.clone(), address: self.address.clone() }
    }
}

/// `rdzv/v_{n}/member/{id}`: a node joined a round.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Joined {
    /// When the node first announced itself, if that was before it joined.
    #[serde(default, skip_serializing_if = "is_default")]
    pub arrived: Option<Revision>,
    /// When the node joined the round.
    #[serde(default, skip_serializing_if = "is_default")]
    pub joined: Option<DisplayTime>,
    /// What a rank policy considers.
    #[serde(flatten)]
    pub rank_hints: RankHints,
    /// The node's assignment in the last group that it was a member of.
    #[serde(default, skip_serializing_if = "is_default")]
    pub previous_assignment: Option<PreviousAssignment>,
    /// The rounds of earlier histories that the node remembers.
    #[serde(default, skip_serializing_if = "is_default")]
    pub earlier: Earlier,
    /// What the node remembers of groups, where hosts succeed each other as servers.
    #[serde(default, skip_serializing_if = "is_default")]
    pub claims: Claims,
}

/// `rdzv/objector/{id}`: a node disagrees with the round in progress, before any group has formed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Objection {
    /// The smallest and the largest size of the group, as this node has it.
    pub limits: Limits,
    /// Which of these sizes the group may have, and when it grows, as this node has it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub sizes: SizeRules,
    /// How ranks are assigned, as this node has it.
    pub rank_policy: String,
    /// The node that disagrees.
    pub node: NodeName,
}

impl Objection {
    /// Whether both nodes agree on the terms of a group.
    pub fn has_the_terms_of(&self, other: &Self) -> bool {
        (self.limits, &self.sizes, &self.rank_policy)
            == (other.limits, &other.sizes, &other.rank_policy)
    }
}

/// What a node remembers of earlier histories of the run, which the server has lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Earlier {
    /// The highest round that was opened.
    pub round: u64,
    /// The highest round that formed a group; 0 if none did.
    #[serde(default)]
    pub formed: u64,
}

impl Earlier {
    /// Whether the node remembers no round.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The higher number of both, field by field.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { round: self.round.max(other.round), formed: self.formed.max(other.formed) }
    }
}

/// [`PREDECESSOR`](super::keys::PREDECESSOR): a server without persistent state follows another one, whose nodes may
/// still have workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Predecessor {
    /// The time between the last renewal of a lease by the preceding server and the start of this one, in milliseconds.
    pub silent_ms: u64,
}

/// `rdzv/v_{n}/rank/{id}`: a node's rank in a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ranked {
    /// The rank of the node.
    pub rank: u32,
    /// The number of nodes in the group.
    pub world: u32,
}

#[cfg(test)]
mod tests;
