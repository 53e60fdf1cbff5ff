//! The rendezvous: who is in, who has which rank, and when the group meets again.
//!
//! - [`keys`]: where everything lies. No other file builds a key (invariant A3).
//! - [`document`]: what lies there.
//! - [`gate`]: when a round stops taking nodes, and why.
//! - [`ranks`]: who gets in when there are too many, and who gets which rank.
//! - [`Node`]: one node's part. `coordinator` and `roster` are the part of the one node that a round
//!   has for its coordinator; `request` builds the transactions; `meet` decides on them and `answer` reads
//!   the answers; `objection` is for nodes that disagree on what a group must agree on.
//! - [`dynamic`]: the same meeting over a single document, for a store that can only compare and set.
//!
//! # Driving the machine
//!
//! Open a watch on [`Keys::active`](keys::Keys::active), read what is in force ([`NodeConfig::snapshot_txn`]), and give the
//! machine an [`NodeInput::Snapshot`]. From then on give it every change of the key, do what its outputs say, tell it
//! what came of it, and wake it when [`Node::next_wake`] says so.

mod coordinator;
pub mod documents;
pub mod dynamic;
pub mod keys;
mod messages;
mod node;
pub mod ranks;
mod txn;

pub use self::coordinator::window;
pub use self::messages::{
    CommandDone, FenceCause, FormedGroup, NodeConfig, NodeInput, NodeOutput, Purpose,
    RendezvousFailure, RendezvousView, RequestId, RunClosed, WatchId,
};
pub use self::node::Node;
