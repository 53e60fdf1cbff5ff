//! The rendezvous: which nodes form a group, with which ranks, and when the group meets again.
//!
//! - [`keys`]: all keys. No other module builds a key (invariant A3).
//! - [`documents`]: the values of those keys.
//! - [`Node`]: one node's part in the rendezvous, as a state machine.
//! - `coordinator`: the part of the one node that coordinates a round, with its [join window](window).
//! - [`Operator`]: the commands of an operator, who is no node.
//! - [`sizes`]: how many of the nodes that are here become members, and when a group grows.
//! - [`ranks`]: the selection of members, and the assignment of ranks.
//! - [`succession`]: how a job outlives the host of its server.
//! - `txn`: the transactions, and the readers of their replies.
//! - [`dynamic`]: the same rendezvous over a single document, for a store that has only compare-and-set.
//!
//! # Driving a node
//!
//! Open a watch on [`Keys::active`](keys::Keys::active), read a snapshot ([`NodeConfig::snapshot_txn`]), and give the
//! node a [`NodeInput::Snapshot`]. From then on give it every event of the watch, carry out its outputs, give it the
//! results, and wake it when [`Node::next_wake`] says so.

mod coordinator;
pub mod documents;
pub mod dynamic;
pub mod keys;
mod messages;
mod node;
mod operator;
pub mod ranks;
pub mod sizes;
pub mod succession;
mod txn;

pub use self::coordinator::window;
pub use self::messages::{
    CommandDone, FenceCause, FormedGroup, NodeConfig, NodeInput, NodeOutput, Purpose,
    RendezvousFailure, RendezvousView, RequestId, RunClosed, WatchSetId,
};
pub use self::node::{AnnouncedState, Node, Registration};
pub use self::operator::{Operator, OperatorStep};
