//! The kinds of events, and their fields.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::agent::{AgentInput, AgentSettings, Exit, GroupChange};
use crate::rendezvous::documents::{Address, NodeDocument, RunOutcome};
use crate::rendezvous::{FenceCause, NodeConfig, NodeInput, Registration};

/// The kind of an event, and its fields. `docs/reference/events.md` lists them.
///
/// Times that end in `_ms` are stage times, in milliseconds. They are left out where the node did not see the beginning
/// of the stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventBody {
    /// A round began to take nodes.
    RoundOpened {
        /// The coordinator.
        coordinator: String,
        /// The last round before it that formed a group; 0 if none did.
        previous: u64,
    },
    /// The round stopped taking nodes, and has ranks.
    RoundFrozen {
        /// The number of nodes.
        size: u32,
        /// The node that has rank 0.
        rank0: String,
        /// The time from the opening to the end of the joining.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gather_ms: Option<u64>,
        /// The part of it after enough nodes had joined. The coordinator alone knows it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last_call_ms: Option<u64>,
    },
    /// All nodes of the round have confirmed: the group has formed.
    RoundFinal {
        /// The number of nodes.
        size: u32,
        /// The node that has rank 0.
        rank0: String,
        /// The coordinator from now on.
        coordinator: String,
        /// The time from the freeze.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        confirm_ms: Option<u64>,
    },
    /// Members of the group were lost.
    MembersLost {
        /// The number of members that the group has lost.
        count: usize,
        /// The first of them.
        nodes: Vec<String>,
    },
    /// Lost members of the group are proved dead.
    LossesProved {
        /// The first of them.
        nodes: Vec<String>,
    },
    /// Late nodes wait, and the group has room for them.
    NodesWaiting {
        /// Their number.
        count: usize,
    },
    /// The document of the round is gone, and with it the coordinator: its lease has ended, or it has left.
    CoordinatorLost {
        /// The coordinator.
        coordinator: String,
    },
    /// The run was closed.
    RunClosed {
        /// The node that closed it.
        by: String,
        /// How it ended.
        outcome: RunOutcome,
    },
    /// A closed run was opened again.
    RunReopened,

    /// This node has a session.
    SessionOpened,
    /// This node has lost its session, or may have.
    SessionLost {
        /// The process or its host was suspended.
        slept: bool,
    },
    /// The server has lost its state, and with it the run.
    ServerStateLost,
    /// This node joined the round.
    Joined {
        /// The time since this node asked for a group.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        join_ms: Option<u64>,
    },
    /// This node waits for a later round.
    Registered {
        /// How it is registered.
        registered: Registered,
    },
    /// The round went on without this node, which had joined: other nodes had a better claim, or it came too late.
    LeftOut,
    /// This node confirmed its rank.
    Confirmed {
        /// Its rank.
        rank: u32,
        /// The number of nodes.
        size: u32,
    },
    /// This node has lost its place in its group: its workers must stop.
    PlaceLost {
        /// How it lost it.
        cause: FenceCause,
    },
    /// This node asked for a group and got none.
    RendezvousFailed,
    /// This node has left the rendezvous.
    Left,
    /// This node suspects that another one is dead: the connection to it ended.
    MemberSuspected {
        /// The other node.
        node: String,
    },
    /// This node has proved that another one is dead, and revokes its lease.
    MemberProvedDead {
        /// The other node.
        node: String,
    },
    /// This node has no connection to the store of rank 0, or has one again.
    Unreached {
        /// Whether it has one.
        connected: bool,
    },

    /// The agent asks for a group.
    RendezvousBegan,
    /// The agent has a group.
    GroupFormed {
        /// The rank of this node.
        rank: u32,
        /// The number of nodes.
        size: u32,
        /// The restarts that the job has used before.
        restarts: u32,
        /// The address of the workers' store.
        store: Address,
        /// The time since the agent asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rendezvous_ms: Option<u64>,
    },
    /// The agent got no group.
    NoGroup,
    /// The workers have ranks.
    RanksAssigned {
        /// The rank of the first worker of this node.
        first_rank: u32,
        /// The number of workers of all nodes.
        world_size: u32,
        /// The time since the group formed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ranks_ms: Option<u64>,
    },
    /// The workers got no ranks.
    RanksFailed,
    /// The workers of this node are being started.
    WorkersStarting {
        /// The number of the start on this node, from 0.
        attempt: u64,
        /// The rank of the first of them.
        first_rank: u32,
    },
    /// All workers of this node have been started.
    WorkersStarted {
        /// The start.
        attempt: u64,
        /// The time that the start took.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        start_ms: Option<u64>,
    },
    /// The workers could not be started.
    StartFailed {
        /// The start.
        attempt: u64,
    },
    /// A worker exited.
    WorkerExited {
        /// The start.
        attempt: u64,
        /// The rank of the worker on this node.
        local_rank: u32,
        /// The rank of the worker among all workers; none if its start is not known any more.
        rank: Option<u32>,
        /// How it exited.
        exit: Exit,
        /// Whether it was being stopped.
        stopping: bool,
    },
    /// The workers are told that they will be stopped.
    WorkersNotified {
        /// The start.
        attempt: u64,
        /// The time that they have.
        left_ms: u64,
    },
    /// The workers are being stopped.
    WorkersStopping {
        /// The start.
        attempt: u64,
        /// The signal.
        signal: i32,
        /// The time until what is left of them is killed.
        left_ms: u64,
    },
    /// No process of the workers is left.
    WorkersStopped {
        /// The start.
        attempt: u64,
        /// The time since the first signal.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stop_ms: Option<u64>,
    },
    /// Processes of the workers survive SIGKILL.
    StopFailed {
        /// The start.
        attempt: u64,
    },
    /// The other nodes are told that this one leaves.
    DepartureAnnounced {
        /// The time until it stops its workers.
        left_ms: u64,
    },
    /// The group changed.
    GroupChanged {
        /// How it changed.
        change: GroupChange,
    },
    /// The workers of this node must be gone, because another node may take its place.
    Fenced {
        /// The time until then.
        left_ms: u64,
    },
    /// The agent asks the job's budget for a restart.
    RestartRequested {
        /// The time between the start of the workers and the failure.
        lived_ms: u64,
    },
    /// The budget grants the restart, and charges the round for it.
    RestartGranted {
        /// The number of short lives in a row, which decides the pause before the restart.
        short_lives: u32,
    },
    /// No restart is left.
    RestartRefused {
        /// The restarts that the job has used.
        used: u32,
    },
    /// The failure was the consequence of another event, so the restart is given back.
    RestartRefunded,
    /// All workers of this node succeeded, and it waits for the other nodes.
    BarrierReached,
    /// The workers of all nodes have finished.
    BarrierPassed {
        /// The time at the barrier.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        barrier_ms: Option<u64>,
    },
    /// This node closes the run.
    Closing {
        /// How it ended.
        outcome: RunOutcome,
    },
    /// The launcher received a signal.
    Signalled {
        /// The signal.
        signal: i32,
    },
    /// The workers of this node made no progress: the node asks all nodes for the stacks of their workers.
    HangDetected {
        /// The number of the hang within the round, from 1.
        number: u64,
        /// How long the workers had made no progress.
        silent_ms: u64,
    },
    /// This node takes the stacks of its workers.
    StacksTaken {
        /// The number of the hang within the round, from 1.
        number: u64,
        /// The host whose workers made no progress.
        host: String,
    },
    /// This node has rank 0, and has reported where the workers of all nodes are.
    HangReported {
        /// The number of the hang within the round, from 1.
        number: u64,
        /// The ids of the nodes that are to blame; none if that is in doubt.
        odd: Vec<String>,
    },
    /// An operator, or the node with rank 0 because of a hang, told this node to stop its workers and to leave.
    Evicted {
        /// The operator, as `user@host`; or the id of the node with rank 0.
        by: String,
    },
    /// The part of this node in the job is over.
    Finished {
        /// The exit code of the launcher.
        exit_code: i32,
        /// The number of workers of this node that failed in the last start.
        failures: usize,
    },

    /// Record: the agent before its first input.
    AgentBegan {
        /// The version that wrote the records.
        version: String,
        /// The settings.
        settings: AgentSettings,
    },
    /// Record: an input of the agent, and what it decided.
    AgentStep {
        /// The time of the input, in nanoseconds since the start of the node.
        at_ns: u64,
        /// The input.
        input: AgentInput,
        /// The outputs.
        outputs: Vec<Value>,
    },
    /// Record: the node's part in the rendezvous before its first input.
    NodeBegan {
        /// The version that wrote the records.
        version: String,
        /// The configuration.
        config: Box<NodeConfig>,
        /// The node's document.
        document: Box<NodeDocument>,
        /// The random number from which it names histories.
        entropy: u64,
    },
    /// Record: an input of the node, and what it decided.
    NodeStep {
        /// The time of the input, in nanoseconds since the start of the node.
        at_ns: u64,
        /// The input.
        input: Box<NodeInput>,
        /// The outputs; of transactions and watches a digest.
        outputs: Vec<Value>,
    },

    /// A kind of a later version.
    #[serde(other)]
    Unknown,
}

/// How a node is registered that waits for a later round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Registered {
    /// The group has room for it.
    Waiting,
    /// The group is full.
    Spare,
    /// It disagrees with the round in progress.
    Objector,
}

impl From<Registration> for Registered {
    fn from(registration: Registration) -> Self {
        match registration {
            Registration::Waiting => Self::Waiting,
            Registration::Spare => Self::Spare,
            Registration::Objector => Self::Objector,
        }
    }
}
