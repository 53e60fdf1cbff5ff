//! What goes into the agent and what comes out of it.

use std::time::Duration;

use super::budget::{Answer, Departure};
use super::ending::{Closed, Closing, Outcome};
use super::failure::Exit;
use super::haste::RestartDelay;
use super::placement::Placement;
use super::why::Why;
use crate::kv::Time;
use crate::rendezvous::documents::Address;

/// Asks a process to end.
pub const SIGTERM: i32 = 15;

/// Ends it.
pub const SIGKILL: i32 = 9;

/// What the keys begin with, in the round's store, by which nodes say that their workers are done, as in
/// torchrun.
pub const EXIT_BARRIER: &str = "torchelastic/agent/terminal_state";

/// How a node treats its workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The name of this host, for those who read why the run was closed.
    pub host: String,
    /// How many workers this node runs.
    pub local_workers: u32,
    /// How long workers may take to end after a signal before they are killed, whatever the occasion.
    /// The others wait for this node in the next round until its workers are gone.
    pub shutdown_timeout: Duration,
    /// How long workers are told beforehand that they will be stopped for a new node, or since SIGTERM tells their node
    /// to go, so that they can save their work. Nothing means that they are not told. Nodes that are done earlier wait
    /// for the others.
    pub notice: Duration,
    /// How long a node whose workers are done waits for the others; nothing means as long as they take.
    pub exit_barrier: Option<Duration>,
    /// How long the end of the job, for want of restarts, waits for news that would excuse the failure. A
    /// node without peers does not wait.
    pub settle: Duration,
    /// The exit code by which a worker says that a restart is no use.
    pub no_restart_exit_code: Option<i32>,
    /// How long this node pauses before workers that live only shortly are started again.
    pub restart_delay: RestartDelay,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            host: "localhost".to_owned(),
            local_workers: 1,
            shutdown_timeout: Duration::from_secs(30),
            notice: Duration::ZERO,
            exit_barrier: None,
            settle: Duration::from_secs(1),
            // EX_CONFIG: what is wrong will be wrong again.
            no_restart_exit_code: Some(78),
            restart_delay: RestartDelay::default(),
        }
    }
}

/// A group that has formed, as seen by one of its nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The round.
    pub round: u64,
    /// The node's rank.
    pub rank: u32,
    /// How many nodes there are.
    pub nodes: u32,
    /// How many restarts the job had used before: see [`Budget::used_before`](super::Budget::used_before).
    pub restarts: u32,
    /// Where rank 0 listens for the workers.
    pub store: Address,
}

/// What workers are to be started with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// Counts the starts of this node from 0, so that no start writes over the logs of another.
    pub attempt: u64,
    /// The group that they are of.
    pub group: Group,
    /// Their ranks.
    pub placement: Placement,
}

/// A worker is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exited {
    /// Of which start it was.
    pub attempt: u64,
    /// Its rank among the workers of this node.
    pub local_rank: u32,
    /// How it went.
    pub exit: Exit,
    /// What its error file says, if it left one.
    pub message: Option<String>,
}

/// What happened to a group that has formed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// So many nodes would like to be in, and there is room.
    NodesWaiting(usize),
    /// Members are gone.
    PeerLost(Vec<String>),
    /// Others have begun the next round, for this reason.
    GoneAhead(String),
    /// A later round froze, or formed a group, without this node: others may have its place already, so its
    /// workers are killed at once.
    Replaced(u64),
    /// A restart was counted in this round, for this failure of another node's worker.
    PeerFailed(String),
    /// A member was told to go, and stops its workers when this time is over.
    PeerLeaves(Departure),
}

/// Why no group formed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoGroup {
    /// The run is closed.
    Closed(Closed),
    /// The run is over, and this node was a spare all along.
    NotNeeded(String),
    /// Anything else, such as a time-out or servers that cannot be reached.
    Failed(String),
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// The node shall take part.
    Begin,
    /// [`Output::Meet`]: the node is in a group.
    Formed(Group),
    /// [`Output::Meet`]: it is not.
    NotFormed(NoGroup),
    /// [`Output::AssignRanks`]: the workers have ranks.
    Placed {
        /// In which round.
        round: u64,
        /// Which.
        placement: Placement,
    },
    /// [`Output::AssignRanks`]: they have none.
    NotPlaced {
        /// In which round.
        round: u64,
        /// Why.
        reason: String,
    },
    /// [`Output::StartWorkers`]: not all of them could be started. The others may run.
    NotStarted {
        /// Which start.
        attempt: u64,
        /// Why.
        reason: String,
    },
    /// A worker is gone.
    Exited(Exited),
    /// [`Output::StopWorkers`]: nothing is left of the workers.
    Stopped {
        /// Of which start.
        attempt: u64,
    },
    /// [`Output::StopWorkers`]: they were killed but do not go.
    NotStopped {
        /// Of which start.
        attempt: u64,
        /// What is left.
        reason: String,
    },
    /// [`Output::CountRestart`]: the budget's answer.
    Counted {
        /// For which round.
        round: u64,
        /// The answer.
        answer: Answer,
    },
    /// [`Output::ExitBarrier`]: all nodes of the group are done.
    BarrierPassed {
        /// In which round.
        round: u64,
    },
    /// The group changed.
    Changed {
        /// Of which round.
        round: u64,
        /// How.
        change: Change,
    },
    /// The node lost its session.
    SessionLost {
        /// From then on others may take its place.
        deadline: Time,
        /// How it was lost.
        reason: String,
    },
    /// The run was closed.
    Closed(Closed),
    /// The launcher got a signal.
    Signal(i32),
    /// It is as late as [`Agent::next_wake`](super::Agent::next_wake) said.
    Wake,
}

/// Something to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Enter the next round. Without a session, get a new one on the way.
    Meet {
        /// Why.
        why: Why,
    },
    /// Agree with the other nodes on the workers' ranks, through the round's store: see
    /// [`placement`](super::placement).
    AssignRanks(Group),
    /// Start the workers.
    StartWorkers(Start),
    /// Tell the workers that they will be stopped.
    NotifyWorkers {
        /// Of which start.
        attempt: u64,
        /// When.
        stops_at: Time,
        /// Why.
        why: Why,
    },
    /// Stop the workers and whatever they have started. It may come again, with another signal and an
    /// earlier end, while they are being stopped; and after they have exited, to see to what they left.
    StopWorkers {
        /// Of which start.
        attempt: u64,
        /// By this signal.
        signal: i32,
        /// Kill what is left by then.
        kill_at: Time,
        /// Why.
        why: Why,
    },
    /// Tell the other nodes of the group that this one stops its workers at this time and leaves, so that all save
    /// the same state ([`Budget::announce`](super::Budget::announce)), if it can be done. Nobody waits for it.
    Announce {
        /// The round of the group.
        round: u64,
        /// When.
        stops_at: Time,
        /// Why, in a sentence.
        why: String,
    },
    /// Ask the job's budget for a restart ([`Budget::charge`](super::Budget::charge)), again and again
    /// until there is an answer. If there is none for long, the session is lost, which is told.
    CountRestart {
        /// The round in which the worker failed.
        round: u64,
        /// The failure, in a sentence.
        blame: String,
        /// How long the workers had lived.
        lived: Duration,
    },
    /// Give back what was asked for in this round ([`Budget::forgive`](super::Budget::forgive)), if it can
    /// be done. Nobody waits for it.
    ForgiveRestart {
        /// The round.
        round: u64,
        /// What excuses the failure.
        why: Why,
    },
    /// Wait at [`EXIT_BARRIER`] for the other nodes of the group, and if that fails, again: to leave would
    /// disturb those who are not done.
    ExitBarrier {
        /// Of which round.
        round: u64,
    },
    /// Close the run for all nodes. The workers may still be stopping.
    Close(Closing),
    /// Leave, so that the others need not wait for the lease to lapse. The run stays open.
    Leave,
    /// Exit, when what came before is done or has taken too long.
    Finish(Outcome),
}
