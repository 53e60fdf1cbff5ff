//! What goes into the machine and what comes out of it.

use std::time::Duration;

use super::document::{Address, Author, Corrupt};
use super::gate::Limits;
use super::keys::Keys;
use super::ranks::RankPolicy;
use crate::kv::{Event, KeyValue, LeaseId, Revision, Txn, TxnResult, Watch};

/// How a node meets the others.
#[derive(Debug, Clone)]
pub struct Settings {
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
    /// How ranks are given.
    pub rank_policy: RankPolicy,
}

/// Names a request. Never used twice by one machine.
pub type RequestId = u64;

/// Names one of the coordinator's sets of watches. Never used twice by one machine.
pub type WatchId = u64;

/// Something that happened.
#[derive(Debug, Clone)]
pub enum Input {
    /// The node wants to be in a group.
    Enter,
    /// The node no longer wants to, and takes back what it announced.
    Leave,
    /// The run shall be closed.
    Close {
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
    SessionLost,
    /// `rdzv/active` as it was when it was last read: at the beginning, and when its watch had to be
    /// begun anew.
    Snapshot {
        /// When it was read.
        revision: Revision,
        /// What was there.
        active: Option<KeyValue>,
        /// The server has forgotten all that was before, so that its revisions began anew.
        forgotten: bool,
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
    Hosting {
        /// For which round.
        round: u64,
        /// Where.
        address: Address,
    },
    /// It cannot.
    HostFailed {
        /// For which round.
        round: u64,
        /// Why.
        reason: String,
    },
    /// It is as late as [`Machine::next_wake`](super::Machine::next_wake) said.
    Wake,
}

/// Something to do.
#[derive(Debug, Clone)]
pub enum Output {
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
    /// Read `rdzv/active` and watch it anew, and say that all was forgotten: an answer was of a time before
    /// what is known, so the server has lost its memory.
    LookAgain,
    /// Open a session: the node needs a lease.
    OpenSession,
    /// Listen for the workers of this round's group, since this node has rank 0 there.
    Host {
        /// Which round.
        round: u64,
    },
    /// The node is in a group.
    Formed(Formed),
    /// The node is not, and will not be without entering again.
    Failed(Fault),
    /// What the node was told to do besides is done.
    Done(Errand),
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
    Survey,
    /// The coordinator writes ranks.
    Rank,
    /// The coordinator ends the joining.
    Freeze,
    /// The coordinator declares the group formed.
    Finish,
    /// The coordinator tells the group of late and lost nodes.
    Note,
    /// The coordinator deletes earlier rounds.
    Sweep,
}

/// Something that a node may be told to do besides meeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errand {
    /// To leave.
    Left,
    /// To close the run: it is closed now, by this node or another.
    Closed,
    /// To open it again: it was closed, and no longer is.
    Reopened,
    /// To open it again, but it was not closed.
    NotClosed,
}

/// A node's place in a group that has formed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Formed {
    /// The round.
    pub round: u64,
    /// The node's rank.
    pub rank: u32,
    /// How many nodes the group has.
    pub world: u32,
    /// Where rank 0 listens.
    pub store: Address,
}

/// Why a node is not in a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The run is closed.
    Closed {
        /// By whom.
        by: Author,
        /// Why.
        reason: String,
    },
    /// The run is closed, and this node was a spare all along.
    NotNeeded {
        /// Who closed it.
        by: Author,
        /// Why.
        reason: String,
    },
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
        other: Author,
    },
    /// A shared document cannot be read.
    Corrupt(Corrupt),
    /// This node got rank 0, but cannot listen for the workers.
    CannotHost {
        /// Why.
        reason: String,
    },
}

/// What a node knows of its group, for those who ask: a memory read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct View {
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
    /// Who closed the run, and why, if it is closed.
    pub closed: Option<(Author, String)>,
    /// What the node waits for, in a sentence; nothing if it does not wait.
    pub waits_for: Option<String>,
    /// How long it does so at most, from the beginning; nothing if it does not wait, or has no end to it.
    pub patience: Option<Duration>,
}
