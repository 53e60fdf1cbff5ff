//! What goes into the machine and what comes out of it.

use std::time::Duration;

use super::documents::Limits;
use super::documents::{
    Address, BootstrapStore, DocumentError, LivenessAddress, NodeName, RunOutcome,
};
use super::keys::Keys;
use super::ranks::RankPolicy;
use crate::kv::{Event, LeaseId, Txn, TxnResult, Watch};

/// How a node meets the others.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// Where the run keeps its keys.
    pub keys: Keys,
    /// The lease that everything lives on which belongs to no single node.
    pub run_lease: LeaseId,
    /// How small and how large the group may be.
    pub limits: Limits,
    /// How long a node waits for a group.
    pub timeout: Duration,
    /// How long a round waits for more nodes once there are enough.
    pub last_call: Duration,
    /// How long a round waits for its nodes to say that they are there.
    pub confirm: Duration,
    /// The time to live of a node's lease: after so long without a server, no node has workers any more.
    pub lease_ttl: Duration,
    /// How ranks are given.
    pub rank_policy: RankPolicy,
    /// No other node can come, not even as a spare, as where the server is this node's own and for nobody else. Then
    /// nobody can take its place, and it is never fenced.
    pub sole: bool,
}

/// Names a request. Never used twice by one machine.
pub type RequestId = u64;

/// Names one of the coordinator's sets of watches. Never used twice by one machine.
pub type WatchId = u64;

/// Something that happened.
#[derive(Debug, Clone)]
pub enum NodeInput {
    /// The node wants to be in a group.
    Enter,
    /// The node no longer wants to, and takes back what it announced.
    Leave,
    /// The run shall be closed.
    Close {
        /// As what.
        outcome: RunOutcome,
        /// Why.
        reason: String,
    },
    /// A closed run shall be open again.
    Reopen,
    /// Someone has reason to think that a node is dead.
    Suspect {
        /// Its id.
        node: String,
    },
    /// The node has a lease now.
    SessionOpened {
        /// The lease.
        lease: LeaseId,
    },
    /// The node's lease is gone, or may be.
    SessionLost {
        /// The lease ran out because this process did not run: it stood still, or its machine slept.
        slept: bool,
    },
    /// What is in force, as it was when it was last read: at the beginning, and when the watch of
    /// `rdzv/active` had to be begun anew. [`NodeConfig::snapshot_txn`] is the request.
    Snapshot {
        /// The answer to that request.
        found: TxnResult,
        /// The server is not the one that answered before, so that its revisions may have begun anew.
        another_server: bool,
    },
    /// `rdzv/active` changed.
    ActiveChanged {
        /// How, in order.
        events: Vec<Event>,
    },
    /// A request was answered.
    Answered {
        /// Which.
        id: RequestId,
        /// How.
        result: TxnResult,
    },
    /// The coordinator's watches stand: every change from here on will be told.
    Watching {
        /// Which set.
        id: WatchId,
    },
    /// A change to something that the coordinator watches.
    Watched {
        /// Which set.
        id: WatchId,
        /// Which of its watches.
        watch: usize,
        /// What changed, in order.
        events: Vec<Event>,
    },
    /// The coordinator's watches missed something and must be begun anew.
    WatchBroken {
        /// Which set.
        id: WatchId,
    },
    /// This node listens for the workers of the group, as it was asked to.
    BootstrapStoreReady {
        /// For which round.
        round: u64,
        /// Where, and how members say hello there.
        store: BootstrapStore,
    },
    /// This node cannot listen for the workers of the group.
    BootstrapStoreFailed {
        /// For which round.
        round: u64,
        /// Why.
        reason: String,
    },
    /// It is as late as [`Node::next_wake`](super::Node::next_wake) said.
    Wake,
}

/// Something to do.
#[derive(Debug, Clone)]
pub enum NodeOutput {
    /// Send this transaction, and again until it is answered: each of them may be repeated.
    Request {
        /// Names it in the answer.
        id: RequestId,
        /// What it is for.
        purpose: Purpose,
        /// The transaction.
        txn: Txn,
    },
    /// Open these watches from now on, and say when they stand. They replace earlier ones.
    Watch {
        /// Names the set.
        id: WatchId,
        /// The watches.
        watches: Vec<Watch>,
    },
    /// The watches are not needed any more.
    Unwatch,
    /// Read what is in force and watch `rdzv/active` anew: the server has lost its memory.
    Resync,
    /// Open a session: the node needs a lease.
    OpenSession,
    /// Drop the session: its lease belongs to a history that the server has lost. [`NodeInput::SessionLost`] is not
    /// to be given for it.
    EndSession,
    /// The node was in a group and has lost its place: its workers must stop before others may take it.
    Fenced(FenceCause),
    /// Listen for the workers of this round's group, since this node has rank 0 there.
    ServeBootstrapStore {
        /// Which round.
        round: u64,
    },
    /// The node is in a group.
    Formed(FormedGroup),
    /// The node is not, and will not be without entering again.
    Failed(RendezvousFailure),
    /// What the node was told to do besides is done.
    Done(CommandDone),
}

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// Begins a round.
    Open,
    /// Joins it.
    Join,
    /// Says that the node has seen its rank and is there.
    Confirm,
    /// Registers a late or surplus node.
    Register,
    /// Takes up the place again that the node had before it lost its session.
    Resume,
    /// Takes back what the node announced.
    Leave,
    /// Closes the run.
    Close,
    /// Opens it again.
    Reopen,
    /// Reports a node that may be dead.
    Suspect,
    /// Reads who is missing.
    Diagnose,
    /// The coordinator reads who is there.
    ReadMembership,
    /// The coordinator writes ranks.
    AssignRanks,
    /// The coordinator ends the joining.
    Freeze,
    /// The coordinator declares the group formed.
    Finalize,
    /// The coordinator tells the group of late and lost nodes.
    PublishChanges,
    /// The coordinator deletes earlier rounds.
    Sweep,
}

/// Something that a node may be told to do besides meeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandDone {
    /// To leave.
    Left,
    /// To close the run: it is closed now, by this node or another.
    Closed,
    /// To open it again: it was closed, and no longer is.
    Reopened,
    /// To open it again, but it was not closed.
    NotClosed,
}

/// How a node lost its place in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FenceCause {
    /// Its lease is gone, or may be.
    SessionLost,
    /// The server has lost its memory, and with it the group.
    ServerForgot,
}

/// A node's place in a group that has formed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormedGroup {
    /// The round.
    pub round: u64,
    /// The node's rank.
    pub rank: u32,
    /// How many nodes the group has.
    pub world: u32,
    /// Where rank 0 listens.
    pub store: Address,
    /// What a member shows to be watched over by rank 0.
    pub token: String,
    /// The liveness socket of rank 0.
    pub rank0_liveness: Option<LivenessAddress>,
}

/// A run that was closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunClosed {
    /// By whom.
    pub by: NodeName,
    /// As what.
    pub outcome: RunOutcome,
    /// Why.
    pub reason: String,
}

/// Why a node is not in a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RendezvousFailure {
    /// The run is closed.
    Closed(RunClosed),
    /// The run is closed, and this node was a spare all along.
    NotNeeded(RunClosed),
    /// No group formed in time.
    TimedOut {
        /// How long the node waited.
        waited: Duration,
        /// What was missing; nothing if that could not be found out.
        missing: Option<String>,
    },
    /// Two nodes disagree on what they must agree on.
    Mismatch {
        /// On what.
        what: &'static str,
        /// What this node says.
        ours: String,
        /// What the other says.
        theirs: String,
        /// The other.
        other: NodeName,
    },
    /// A shared document cannot be read.
    Unreadable(DocumentError),
    /// This node got rank 0, but cannot listen for the workers.
    CannotServeBootstrapStore {
        /// Why.
        reason: String,
    },
}

/// What a node knows of its group, for those who ask: a memory read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RendezvousView {
    /// Whether anything is known yet.
    pub known: bool,
    /// Whether the node has a session.
    pub session: bool,
    /// The round in progress; 0 if there is none.
    pub round: u64,
    /// The last round that has formed a group; 0 if none has.
    pub formed: u64,
    /// The round of the group that this node is in, if it is.
    pub member_of: Option<u64>,
    /// How many nodes would like a new round. 0 unless this node is in a group.
    pub nodes_waiting: usize,
    /// Members that the group has lost.
    pub lost: Vec<String>,
    /// The later round that froze, or formed a group, without this node, if one did: others may have its place.
    pub replaced_by: Option<u64>,
    /// How the run was closed, if it is.
    pub closed: Option<RunClosed>,
    /// What the node waits for, in a sentence; nothing if it does not wait.
    pub waits_for: Option<String>,
    /// How long it does so at most, from the beginning; nothing if it does not wait, or has no end to it.
    pub patience: Option<Duration>,
}
