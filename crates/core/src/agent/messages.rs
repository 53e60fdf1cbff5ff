//! The agent's settings, inputs and outputs.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::backoff::RestartBackoff;
use super::failure::Exit;
use super::hang::{HangFinding, HangOver, HangPolicy, HangRequest, HangRestart, OnHang};
use super::operator::OperatorAction;
use super::outcome::{CloseReason, RunClosure, RunResult};
use super::placement::Placement;
use super::restarts::{Departure, RestartAnswer};
use super::why::Why;
use crate::kv::Time;
use crate::rendezvous::documents::Address;
pub use crate::rendezvous::keys::agent::EXIT_BARRIER;

/// The signal that asks a process to terminate.
pub const SIGTERM: i32 = 15;

/// The signal that kills a process.
pub const SIGKILL: i32 = 9;

/// One node's policy for its workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentSettings {
    /// The name of this host, for the message with which the run is closed.
    pub host: String,
    /// The number of workers of this node.
    pub local_workers: u32,
    /// The time that workers have to exit after a signal before they are killed, whatever the reason.
    /// In the next round the other nodes wait for this one until its workers are gone.
    pub shutdown_timeout: Duration,
    /// The time between the notice to the workers and their stop, when a new node joins or SIGTERM asks this node
    /// to leave, so that they can save their work. Zero means no notice. Nodes whose workers exit earlier wait
    /// for the rest of the group.
    pub notice: Duration,
    /// The time that a node whose workers succeeded waits for the other nodes; `None` means without limit.
    pub exit_barrier: Option<Duration>,
    /// The time that an exhausted budget waits for an event that excuses the failure before it ends the job. A
    /// node without peers does not wait.
    pub settle: Duration,
    /// The exit code of a worker whose failure is non-retryable.
    pub no_restart_exit_code: Option<i32>,
    /// The pauses before a restart of workers that fail soon after their start.
    pub restart_backoff: RestartBackoff,
    /// When workers without progress hang; `None` means that nothing looks for progress.
    pub hang: Option<HangPolicy>,
    /// What follows from the report of a hang, if this node has rank 0.
    #[serde(default)]
    pub on_hang: OnHang,
}

impl Default for AgentSettings {
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
            restart_backoff: RestartBackoff::default(),
            hang: None,
            on_hang: OnHang::Report,
        }
    }
}

/// A group that has formed, as seen by one of its nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeGroup {
    /// The round in which the group formed.
    pub round: u64,
    /// The rank of this node.
    pub rank: u32,
    /// The number of nodes.
    pub nodes: u32,
    /// The number of restarts that the job had used before this round: see [`RestartBudget::used_before`](super::RestartBudget::used_before).
    pub restarts: u32,
    /// The address of the bootstrap store, which the rank-0 node hosts for the workers.
    pub store: Address,
}

/// One start of the workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// The number of this start on this node, from 0. Log files carry it, so no start overwrites the logs of another.
    pub attempt: u64,
    /// The group that the workers belong to.
    pub group: NodeGroup,
    /// The workers' ranks.
    pub placement: Placement,
}

/// The exit of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exited {
    /// The start that the worker belongs to.
    pub attempt: u64,
    /// The worker's rank among the workers of this node.
    pub local_rank: u32,
    /// How the process ended.
    pub exit: Exit,
    /// The message in the worker's error file, if it wrote one.
    pub message: Option<String>,
}

/// A change of a group that has formed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupChange {
    /// This number of nodes wait to join, and the group has room.
    NodesWaiting(usize),
    /// These members were lost.
    PeerLost(Vec<String>),
    /// Other members have started the next round, for this reason.
    GoneAhead(String),
    /// A later round froze, or formed a group, without this node: another node may have its rank already, so its
    /// workers are killed at once.
    Replaced(u64),
    /// Another node's worker failed in this way, and the round used a restart for it.
    PeerFailed(String),
    /// The job hangs, and the round used a restart to end it.
    Hung(String),
    /// A member was asked to leave, and stops its workers at the announced time.
    PeerLeaves(Departure),
}

/// Why no group formed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoGroup {
    /// The run is closed.
    Closed(RunClosure),
    /// The run is closed, and this node was a spare throughout.
    NotNeeded(String),
    /// This node did not join: its preflight command failed, for this reason.
    Unfit(String),
    /// This node had a group, and no server has answered since.
    ServerLost(String),
    /// Any other failure, such as a time-out or unreachable servers.
    Failed(String),
}

/// An event that the driver reports to the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentInput {
    /// The node takes part in the job from now on.
    Begin,
    /// [`AgentOutput::Rendezvous`]: a group with this node formed.
    Formed(NodeGroup),
    /// [`AgentOutput::Rendezvous`]: no group with this node formed.
    NotFormed(NoGroup),
    /// [`AgentOutput::AssignRanks`]: the workers have ranks.
    Placed {
        /// The round.
        round: u64,
        /// The assigned ranks.
        placement: Placement,
    },
    /// [`AgentOutput::AssignRanks`]: the workers got no ranks.
    NotPlaced {
        /// The round.
        round: u64,
        /// The error.
        reason: String,
    },
    /// [`AgentOutput::StartWorkers`]: some workers could not be started. The rest may run.
    NotStarted {
        /// The start.
        attempt: u64,
        /// The error.
        reason: String,
    },
    /// [`AgentOutput::StartWorkers`]: all workers have been started. It changes nothing: it tells how long the start took.
    Started {
        /// The start.
        attempt: u64,
    },
    /// A worker exited.
    Exited(Exited),
    /// [`AgentOutput::StopWorkers`]: no process of the workers is left.
    Stopped {
        /// The start.
        attempt: u64,
    },
    /// [`AgentOutput::StopWorkers`]: processes of the workers survive SIGKILL.
    NotStopped {
        /// The start.
        attempt: u64,
        /// The processes that are left.
        reason: String,
    },
    /// [`AgentOutput::ConsumeRestart`] or [`AgentOutput::RestartHung`]: the budget's answer.
    Counted {
        /// The round in which the worker failed, or the job hung.
        round: u64,
        /// Whether a restart is granted.
        answer: RestartAnswer,
    },
    /// [`AgentOutput::ExitBarrier`]: the workers of all nodes of the group have finished.
    BarrierPassed {
        /// The round.
        round: u64,
    },
    /// The group changed.
    Changed {
        /// The round of the group.
        round: u64,
        /// The change.
        change: GroupChange,
    },
    /// The node lost its session.
    SessionLost {
        /// From this time on another node may take this node's rank.
        deadline: Time,
        /// How the session was lost.
        reason: String,
    },
    /// The run was closed.
    Closed(RunClosure),
    /// An operator evicted this node.
    Evicted(OperatorAction),
    /// [`AgentOutput::CheckProgress`]: the last sign of progress of any worker.
    Progress {
        /// The start.
        attempt: u64,
        /// The time of the sign; `None` if there was none since the start.
        latest: Option<Time>,
    },
    /// A node of the group asks all nodes for the stacks of their workers.
    StacksWanted(HangRequest),
    /// The hang is over, by the node that had reported it.
    HangOver(HangOver),
    /// [`AgentOutput::TakeStacks`], on the node with rank 0: the report was made.
    HangReported(HangFinding),
    /// The launcher received a signal.
    Signal(i32),
    /// The time of [`Agent::next_wake`](super::Agent::next_wake) has come.
    Wake,
}

/// An action for the driver to execute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentOutput {
    /// Join the next round. Without a session, open a new one first.
    Rendezvous {
        /// The reason for the rendezvous.
        why: Why,
    },
    /// Agree with the other nodes on the workers' ranks, through the round's store: see
    /// [`placement`](super::placement).
    AssignRanks(NodeGroup),
    /// Start the workers.
    StartWorkers(Start),
    /// Notify the workers that they will be stopped.
    NotifyWorkers {
        /// The start.
        attempt: u64,
        /// The time of the stop.
        stops_at: Time,
        /// The reason for the stop.
        why: Why,
    },
    /// Stop the workers and every process that they have started. The output may come again with another signal and an
    /// earlier deadline while they are being stopped, and after they have exited, to stop the processes they left.
    StopWorkers {
        /// The start.
        attempt: u64,
        /// The signal to send.
        signal: i32,
        /// The time at which remaining processes are killed.
        kill_at: Time,
        /// The reason for the stop.
        why: Why,
    },
    /// Announce to the other nodes of the group that this one stops its workers at this time and leaves, so that all
    /// nodes save the same state ([`RestartBudget::announce`](super::RestartBudget::announce)). Best effort: no input
    /// follows.
    Announce {
        /// The round of the group.
        round: u64,
        /// The time of the stop.
        stops_at: Time,
        /// The node and its reason, in a sentence.
        why: String,
    },
    /// Ask the job's budget for a restart ([`RestartBudget::consume`](super::RestartBudget::consume)), and retry
    /// until it answers. If the servers stay unreachable, the session is lost, which is another input.
    ConsumeRestart {
        /// The round in which the worker failed.
        round: u64,
        /// The failure, in a sentence.
        blame: String,
        /// The time between the start of the workers and the failure.
        lived: Duration,
    },
    /// Refund the restart of this round ([`RestartBudget::refund`](super::RestartBudget::refund)). Best effort: no
    /// input follows.
    RefundRestart {
        /// The round.
        round: u64,
        /// The event that excuses the failure.
        why: Why,
    },
    /// Look for signs of progress of the workers: [`AgentInput::Progress`] is the answer.
    CheckProgress {
        /// The start.
        attempt: u64,
    },
    /// Ask all nodes of the group for the stacks of their workers
    /// ([`RestartBudget::request_stacks`](super::RestartBudget::request_stacks)). Best effort.
    RequestStacks(HangRequest),
    /// Tell all nodes of the group, and operators, that the hang is over that this node has reported
    /// ([`RestartBudget::end_hang`](super::RestartBudget::end_hang)). Best effort.
    EndHang(HangOver),
    /// Take the stacks of the workers and publish them in the round's store. Rank 0 reports those of all nodes instead:
    /// [`AgentInput::HangReported`] follows there. Best effort.
    TakeStacks(HangRequest),
    /// Restart the job, which hangs, and evict these nodes, all in one change of the budget
    /// ([`RestartBudget::restart_hung`](super::RestartBudget::restart_hung)), and retry until it answers. If it grants
    /// the restart, all nodes of the group see so, and this one too.
    RestartHung(HangRestart),
    /// Wait at [`EXIT_BARRIER`] for the other nodes of the group, and retry if that fails: leaving would
    /// disturb nodes whose workers still run.
    ExitBarrier {
        /// The round of the group.
        round: u64,
    },
    /// Close the run for all nodes. The workers may still be stopping.
    Close(CloseReason),
    /// Leave the rendezvous, so that the other nodes need not wait for the lease to expire. The run stays open.
    Leave,
    /// Exit, once the outputs before this one are done or have timed out.
    Finish(RunResult),
}
