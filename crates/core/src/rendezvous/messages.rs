//! The configuration of a node, its inputs and its outputs.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};

use super::documents::{
    Address, BootstrapStore, DisplayTime, DocumentError, Limits, LivenessAddress, NodeName,
    RunOutcome,
};
use super::keys::Keys;
use super::ranks::RankPolicy;
use super::sizes::SizeRules;
use super::succession::Succession;
use crate::kv::{Event, LeaseId, Time, Txn, TxnResult, Watch};

/// How a node takes part in the rendezvous.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeConfig {
    /// The keys of the run.
    pub keys: Keys,
    /// The lease of everything that belongs to no single node.
    pub run_lease: LeaseId,
    /// The smallest and the largest size of the group.
    pub limits: Limits,
    /// Which of these sizes the group may have, and when it grows.
    #[serde(default)]
    pub sizes: SizeRules,
    /// How long a node waits for a group.
    pub timeout: Duration,
    /// How long a node that was a member of a group waits for a server to answer. That time is no part of `timeout`.
    pub server_timeout: Duration,
    /// How long a round waits for more nodes once enough have joined.
    pub last_call: Duration,
    /// How long a round waits for its nodes to confirm their ranks.
    pub confirm: Duration,
    /// The time to live of a node's lease: without a server for this long, no node has workers any more.
    pub lease_ttl: Duration,
    /// How ranks are assigned.
    pub rank_policy: RankPolicy,
    /// No other node can join, not even as a spare, because the server is embedded in this node and serves it alone.
    /// Then no node can replace this one, and it is never fenced.
    pub sole: bool,
    /// The time of day at which the clock of the node's inputs read zero, for the times in its documents, which are for
    /// display only. Without it the documents have none.
    pub started: Option<DisplayTime>,
    /// The node's part in the succession of servers; none if the server of the run has no successor.
    pub succession: Option<Succession>,
    /// Whether the last events of the run are kept in its keys, when this node is the coordinator.
    pub keeps_events: bool,
}

impl NodeConfig {
    /// The time of day at this time of the node's clock.
    pub(super) fn display_time(&self, now: Time) -> Option<DisplayTime> {
        self.started.map(|started| started.plus(now))
    }
}

/// Identifies a request. A node never uses an id twice.
pub type RequestId = u64;

/// Identifies a set of watches of the coordinator. A node never uses an id twice.
pub type WatchSetId = u64;

/// An input to a [`Node`](super::Node): a command, a reply or an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeInput {
    /// Command: become a member of a group.
    Enter,
    /// Command: withdraw everything that the node announced.
    Leave,
    /// Command: close the run.
    Close {
        /// How the run ended.
        outcome: RunOutcome,
        /// The reason, in words.
        reason: String,
    },
    /// Command: open a closed run again.
    Reopen,
    /// A failure detector suspects that a node is dead.
    Suspect {
        /// The id of the suspected node.
        node: String,
    },
    /// The node is a member of the group of this round and has no connection to rank 0's store, or has one again.
    Unreached {
        /// The round.
        round: u64,
        /// The address and the error; none if there is a connection.
        reason: Option<String>,
    },
    /// The node's session has opened.
    SessionOpened {
        /// The lease of the session.
        lease: LeaseId,
    },
    /// The node's lease has expired, or may have.
    SessionLost {
        /// The lease expired because this process was suspended, or its host was.
        slept: bool,
        /// The time since the last response of the server.
        #[serde(default)]
        silent: Duration,
    },
    /// A snapshot of the documents in force: at the beginning, and when the watch of `rdzv/active` had to be opened
    /// again. [`NodeConfig::snapshot_txn`] is the request.
    Snapshot {
        /// The reply to that request.
        found: TxnResult,
        /// Another server replied than before, whose revisions may have begun again.
        another_server: bool,
    },
    /// The watch of `rdzv/active` reported changes.
    ActiveChanged {
        /// The changes, in order.
        events: Vec<Event>,
    },
    /// The server replied to a request.
    Answered {
        /// The request.
        id: RequestId,
        /// The reply.
        result: TxnResult,
    },
    /// The coordinator's watches are open: every later change will be reported.
    Watching {
        /// The set of watches.
        id: WatchSetId,
    },
    /// A failure detector has proved that a node is dead, and its lease is being revoked. The end of the lease changes
    /// the membership; the proof is only remembered.
    ProvedDead {
        /// The id of the node.
        node: String,
        /// The round of the group in which it was a peer of this node.
        #[serde(default)]
        round: u64,
    },
    /// One of the coordinator's watches reported changes.
    Watched {
        /// The set of watches.
        id: WatchSetId,
        /// The position of the watch in its set.
        watch: usize,
        /// The changes, in order.
        events: Vec<Event>,
    },
    /// The coordinator's watches missed changes and must be opened again.
    WatchBroken {
        /// The set of watches.
        id: WatchSetId,
    },
    /// The bootstrap store of a round listens on this node.
    BootstrapStoreReady {
        /// The round.
        round: u64,
        /// The address of the store, and how members identify themselves there.
        store: BootstrapStore,
    },
    /// The bootstrap store of a round could not be started on this node.
    BootstrapStoreFailed {
        /// The round.
        round: u64,
        /// The error, in words.
        reason: String,
    },
    /// The time that [`Node::next_wake`](super::Node::next_wake) named has come.
    Wake,
}

impl NodeInput {
    /// Whether the server sent it.
    pub(super) fn is_response(&self) -> bool {
        matches!(
            self,
            Self::SessionOpened { .. }
                | Self::Snapshot { .. }
                | Self::ActiveChanged { .. }
                | Self::Answered { .. }
                | Self::Watching { .. }
                | Self::Watched { .. }
        )
    }
}

/// An output of a [`Node`](super::Node): an action of its driver, or a result.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeOutput {
    /// Send this transaction, and retry it until the server replies: each transaction is idempotent.
    Request {
        /// Identifies the request in the reply.
        id: RequestId,
        /// The purpose of the request.
        purpose: Purpose,
        /// The transaction. Its serialized form is a digest.
        #[serde(serialize_with = "digest")]
        txn: Txn,
    },
    /// Open these watches from now on, and give [`NodeInput::Watching`] when they are open. They replace earlier ones.
    Watch {
        /// Identifies the set of watches.
        id: WatchSetId,
        /// The watches. Their serialized form is a digest.
        #[serde(serialize_with = "digest")]
        watches: Vec<Watch>,
    },
    /// Close the watches.
    Unwatch,
    /// Open the watch of `rdzv/active` again and read a snapshot: the server has lost its state.
    Resync,
    /// Open a session: the node needs a lease.
    OpenSession,
    /// End the session: its lease belongs to a history that the server has lost. Do not give
    /// [`NodeInput::SessionLost`] for it.
    EndSession,
    /// The node was a member of a group and has lost its membership: stop its workers before another node may replace
    /// it.
    Fenced(FenceCause),
    /// Serve the bootstrap store of this round: the node has rank 0 there.
    ServeBootstrapStore {
        /// The round.
        round: u64,
    },
    /// The node is a member of a group.
    Formed(FormedGroup),
    /// The attempt to become a member has ended without a group.
    Failed(RendezvousFailure),
    /// A command is completed.
    Done(CommandDone),
}

/// Serializes what is long and follows from the inputs as a digest, which is the same for the same value.
fn digest<T: Hash, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    let mut digest = Digest(0);
    value.hash(&mut digest);
    serializer.serialize_str(&format!("{:016x}", digest.finish()))
}

/// The hash function of digests: FxHash, which takes eight bytes at once. Unlike that of the standard library, it stays
/// as it is.
struct Digest(u64);

impl Hasher for Digest {
    fn write(&mut self, bytes: &[u8]) {
        let mut add = |word| {
            let mixed = self.0.rotate_left(5) ^ u64::from_le_bytes(word);
            self.0 = mixed.wrapping_mul(0x517c_c1b7_2722_0a95);
        };
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().copied().for_each(&mut add);
        if !rest.is_empty() {
            let mut word = [0; 8];
            word.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
            add(word);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

fn sentence<T: ToString, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&value.to_string())
}

/// The purpose of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Opens a round.
    Open,
    /// Joins a round.
    Join,
    /// Confirms the node's rank.
    Confirm,
    /// Registers a node that cannot join the round in progress.
    Register,
    /// Restores the membership of a node that lost its session.
    Resume,
    /// Withdraws what the node announced.
    Leave,
    /// Closes the run.
    Close,
    /// Opens a closed run again.
    Reopen,
    /// Reports a node that may be dead.
    Suspect,
    /// Tells the coordinator that the node has no connection to rank 0's store, or has one again.
    ReportUnreached,
    /// Reads which nodes are missing.
    Diagnose,
    /// The coordinator reads the membership.
    ReadMembership,
    /// The coordinator writes ranks.
    AssignRanks,
    /// The coordinator ends the joining.
    Freeze,
    /// The coordinator declares the group formed.
    Finalize,
    /// The coordinator publishes late and lost nodes to the group.
    PublishChanges,
    /// The coordinator deletes earlier rounds.
    Sweep,
}

/// The completion of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandDone {
    /// Leave: the node has left.
    Left,
    /// Close: the run is closed, by this node or another.
    Closed,
    /// Reopen: the run was closed, and is open again.
    Reopened,
    /// Reopen: the run was not closed.
    NotClosed,
}

/// How a node lost its membership in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FenceCause {
    /// The node's lease has expired, or may have.
    SessionLost,
    /// The server has lost its state, and with it the group.
    ServerStateLost,
}

/// A node's membership in a group that has formed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FormedGroup {
    /// The round.
    pub round: u64,
    /// The node's rank.
    pub rank: u32,
    /// The number of nodes in the group.
    pub world: u32,
    /// The address of the bootstrap store.
    pub store: Address,
    /// The token with which a member identifies itself on its liveness connection to rank 0.
    pub token: String,
    /// The liveness socket of rank 0.
    pub rank0_liveness: Option<LivenessAddress>,
    /// The node that has rank 0, if its process runs the server of the job and hosts succeed each other as servers.
    pub head: Option<String>,
}

/// How a run was closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunClosed {
    /// The node that closed the run.
    pub by: NodeName,
    /// How the run ended.
    pub outcome: RunOutcome,
    /// The reason, in words.
    pub reason: String,
}

/// Why an attempt to become a member ended without a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RendezvousFailure {
    /// The run is closed.
    Closed(RunClosed),
    /// The run is closed, and this node was registered as a spare.
    NotNeeded(RunClosed),
    /// No group formed in time.
    TimedOut {
        /// How long the node waited.
        waited: Duration,
        /// What was missing; none if it could not be determined.
        missing: Option<String>,
    },
    /// The node was a member of a group, and no server has answered since.
    ServerLost {
        /// How long the node waited for a server.
        waited: Duration,
        /// What a successor of the server lacks; none if there is none.
        missing: Option<String>,
    },
    /// Two nodes disagree on a setting that all nodes must agree on.
    Mismatch {
        /// The setting.
        what: &'static str,
        /// The value on this node.
        ours: String,
        /// The value on the other node.
        theirs: String,
        /// The other node.
        other: NodeName,
    },
    /// A shared document cannot be read.
    Unreadable(#[serde(serialize_with = "sentence")] DocumentError),
    /// This node has rank 0, but cannot serve the bootstrap store.
    CannotServeBootstrapStore {
        /// The error, in words.
        reason: String,
    },
}

/// What a node knows of its group and its run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RendezvousView {
    /// Whether the node has read the documents in force.
    pub known: bool,
    /// Whether the node has a session.
    pub session: bool,
    /// The round in progress; 0 if there is none.
    pub round: u64,
    /// The last round that formed a group; 0 if none did.
    pub formed: u64,
    /// The latest round of which the node knows that it formed a group, or may have, at any server.
    pub remembers: u64,
    /// The round of the group that this node is a member of.
    pub member_of: Option<u64>,
    /// The number of nodes that need a new round: late nodes, and members that are lost. 0 unless this node is a member
    /// of a group.
    pub nodes_waiting: usize,
    /// Members that the group has lost.
    pub lost: Vec<String>,
    /// The first members of the group that have no connection to rank 0's store, and why.
    pub unreached: Vec<String>,
    /// A later round that froze, or formed a group, without this node: another node may have replaced it.
    pub replaced_by: Option<u64>,
    /// How the run was closed, if it is closed.
    pub closed: Option<RunClosed>,
    /// What the node waits for, in a sentence; none if it does not wait.
    pub waits_for: Option<String>,
    /// How long the node waits in total; none if it does not wait, or without limit.
    pub patience: Option<Duration>,
}
