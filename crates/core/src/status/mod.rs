//! The operator's view: the documents of a run, read into one [`RunStatus`], and [explained](explain()) in sentences.
//!
//! All of it is a pure function of what a server holds, so every endpoint can be asked: nothing here talks to nodes. The
//! JSON of these types is what `rallypoint status --json` prints, and `docs/reference/status.md` documents it.
//!
//! - `documents`: the documents of a run, by kind.
//! - `read`: the status that follows from them.
//! - `reason`: the state of a run in one phrase, as `squeue` has it.
//! - `rounds`: past rounds, by the events of the run.
//! - `hang`: the hang of a job that goes on.
//! - `explain`: what a run waits for, why its round began, and what would help.

mod documents;
mod explain;
mod hang;
mod read;
mod reason;
mod rounds;
mod sizes;

use serde::Serialize;

pub use self::explain::{Sentence, Topic, age, explain};
pub use self::hang::HangStatus;
use crate::agent::stacks::HangDocument;
use crate::agent::{FailureOutput, NodeExit, OperatorAction, RestartVerdict};
use crate::events::RunEvent;
use crate::kv::LeaseStatus;
use crate::rendezvous::documents::{DisplayTime, Limits, RunOutcome};
use crate::rendezvous::sizes::SizeRules;

/// The state of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// No round is in progress.
    None,
    /// A round takes nodes.
    Joinable,
    /// Ranks are assigned, and the nodes have to confirm them.
    Frozen,
    /// A group runs.
    Final,
    /// The run is over.
    Closed,
}

impl RunState {
    /// The word of the state, as `docs/glossary.md` has it.
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Joinable => "joinable",
            Self::Frozen => "frozen",
            Self::Final => "final",
            Self::Closed => "closed",
        }
    }
}

/// A run, as an operator sees it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunStatus {
    /// The id of the run.
    pub run: String,
    /// The state of the run.
    pub state: RunState,
    /// What the run waits for, or how it fares, in one phrase.
    pub reason: String,
    /// When the round was opened, its group formed, or the run was closed, by the clock of the node that did it.
    #[serde(rename = "since_unix_ms")]
    pub since: Option<DisplayTime>,
    /// The last round; 0 if there was none.
    pub round: u64,
    /// Why that round began.
    pub round_reason: String,
    /// How many nodes there are.
    pub counts: NodeCounts,
    /// Which sizes a group may have, how many nodes are planned, and when the group grows.
    pub sizes: SizeRules,
    /// The restarts of the job.
    pub restarts: RestartStatus,
    /// The id of the coordinator of the round in progress.
    pub coordinator: Option<String>,
    /// What the round in progress waits for, if too few nodes of the last group have come to a successor of its server.
    pub lacks_quorum: Option<String>,
    /// How the run was closed, if it is.
    pub closed: Option<ClosedStatus>,
    /// The last failure of workers, or the last hang that ended a round.
    pub last_failure: Option<FailureStatus>,
    /// The hang of the round in progress, until workers make progress again.
    pub hang: Option<HangStatus>,
    /// Every live node, and members of the group that are lost; by rank, and then by arrival.
    pub nodes: Vec<NodeStatus>,
    /// Nodes that the run lacks, as far as they are known.
    pub missing: Vec<MissingNode>,
    /// What operators did to the run, the latest last.
    pub actions: Vec<OperatorAction>,
    /// Documents that cannot be read, and contradictions between nodes.
    pub problems: Vec<String>,
    /// The last events of the run, by number. They are no part of the JSON, where a reader asks for them by themselves.
    #[serde(skip)]
    pub events: Vec<RunEvent>,
    /// The last lines of the last worker that failed, if its node kept them. They are no part of the JSON either.
    #[serde(skip)]
    pub failure: Option<FailureOutput>,
    /// The last hang that a node noticed, also if it is over. It is no part of the JSON either.
    #[serde(skip)]
    pub last_hang: Option<HangDocument>,
}

/// How many nodes a run has and wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct NodeCounts {
    /// Nodes in the round in progress: joined, or members of the group that are not lost.
    pub present: usize,
    /// The smallest number of nodes that a group may have; 0 if it is unknown.
    pub min: usize,
    /// The largest number of nodes that a group may have; 0 if it is unknown.
    pub max: usize,
    /// Nodes that the round lacks to begin; 0 unless it takes nodes.
    pub needed: usize,
    /// Nodes that wait to join, and that the group has room for.
    pub waiting: usize,
    /// Nodes that the group has no room for.
    pub spare: usize,
    /// Members of the group that are lost.
    pub lost: usize,
}

impl NodeCounts {
    /// The limits of a group; `None` if they are unknown.
    pub fn limits(&self) -> Option<Limits> {
        (self.max > 0).then_some(Limits { min: self.min, max: self.max })
    }
}

/// The restarts of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct RestartStatus {
    /// The number of restarts used.
    pub used: u32,
    /// The limit; unknown until the first group has formed, and without a launcher.
    pub max: Option<u32>,
    /// The number of restarts left, if the limit is known.
    pub left: Option<u32>,
}

/// How a run was closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClosedStatus {
    /// The node or the operator that closed it.
    pub by: String,
    /// How the run ended.
    pub outcome: RunOutcome,
    /// Why.
    pub reason: String,
}

/// The last failure of workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FailureStatus {
    /// The round.
    pub round: u64,
    /// The first failure of that round.
    pub blame: String,
    /// Whether it used a restart.
    pub verdict: RestartVerdict,
    /// Whether the job hung, and no worker failed.
    pub hang: bool,
}

/// The state of a node in its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    /// A member of the group.
    Member,
    /// The node has confirmed its rank, and the group has not formed yet.
    Confirmed,
    /// The node has joined the round.
    Joined,
    /// The node has yet to stop workers of the last group, or to say so.
    Stopping,
    /// The node waits to join, and the group has room for it.
    Waiting,
    /// The group has no room for the node.
    Spare,
    /// The node disagrees with the round.
    Objector,
    /// A member that another node reports as possibly dead.
    Suspect,
    /// A live node that takes part in no round.
    Idle,
    /// A member whose lease has expired, or that has left.
    Lost,
}

impl NodeState {
    /// The word of the state.
    pub fn word(self) -> &'static str {
        match self {
            Self::Member => "member",
            Self::Confirmed => "confirmed",
            Self::Joined => "joined",
            Self::Stopping => "stopping",
            Self::Waiting => "waiting",
            Self::Spare => "spare",
            Self::Objector => "objector",
            Self::Suspect => "suspect",
            Self::Idle => "idle",
            Self::Lost => "lost",
        }
    }
}

/// One node of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeStatus {
    /// The id of the node.
    pub id: String,
    /// The rank of the node, or the one that it wants while none is assigned.
    pub rank: Option<u32>,
    /// The state of the node.
    pub state: NodeState,
    /// The name of its host; empty if the node is lost.
    pub host: String,
    /// The address at which other nodes reach it.
    pub address: String,
    /// The process id.
    pub pid: u32,
    /// The number of workers.
    pub workers: u32,
    /// The place of the node in the order of arrival, from 1; 0 if the node is lost.
    pub order: usize,
    /// When the node was started, by its own clock.
    #[serde(rename = "started_unix_ms")]
    pub started: Option<DisplayTime>,
    /// When the node joined the round in progress, by its own clock.
    #[serde(rename = "joined_unix_ms")]
    pub joined: Option<DisplayTime>,
    /// The lease of the node, if it was read.
    pub lease: Option<LeaseMargin>,
    /// What else is known: why it disagrees, whom it does not reach, who evicted it.
    pub note: String,
}

/// How long a node would live without another renewal of its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LeaseMargin {
    /// The seconds left when the lease was read.
    pub left_s: i64,
    /// The seconds after a renewal.
    pub ttl_s: i64,
}

impl From<&LeaseStatus> for LeaseMargin {
    fn from(lease: &LeaseStatus) -> Self {
        Self { left_s: lease.remaining_ttl, ttl_s: lease.granted_ttl }
    }
}

/// A node that a run lacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MissingNode {
    /// The id, if the node was there before.
    pub id: Option<String>,
    /// The rank that it had, or that no node wants.
    pub rank: Option<u32>,
    /// What is known of it.
    pub why: String,
    /// How the last node with this id or node rank ended, if it said so.
    pub last_exit: Option<NodeExit>,
}

/// The first names, and how many more there are.
fn some_of<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> String {
    const MOST_NAMED: usize = 8;
    let names: Vec<T> = names.into_iter().collect();
    let named: Vec<&str> = names.iter().take(MOST_NAMED).map(AsRef::as_ref).collect();
    match (names.len().saturating_sub(MOST_NAMED), named.as_slice()) {
        (0, [first @ .., last]) if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        (0, _) => named.join(", "),
        (more, _) => format!("{} and {more} more", named.join(", ")),
    }
}

/// A sentence with a capital at its beginning.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// A count with its noun.
fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests;
