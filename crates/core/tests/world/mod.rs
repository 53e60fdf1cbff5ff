//! The simulator that two test programs share: one store, any number of nodes with the real rendezvous state machine,
//! virtual time, and injected faults. One seed decides everything, so every failure can be reproduced.
//!
//! - `plan`: what a seed decides before the run.
//! - `events`: virtual time and the queue of events; `network`, `server`, `node`, `session`, `guard` and `connections` are the
//!   parts of the world, and `faults` injects faults.
//! - `succession`: hosts that succeed each other as servers, with links between them and clocks.
//! - `inspector`: the content of the store, and the groups that have formed; `invariants`: what must hold after every
//!   step; `one_group`: that one group runs at a time.
//! - `broken`: deliberately broken variants, which prove that the invariants detect them.
//! - `runner`: runs many seeds.
//!
//! The agent that uses a node's membership is not here. Each program has a module `top` for it: `sim` a minimal agent,
//! and `agents` the real one.

pub(crate) mod broken;
pub(crate) mod connections;
pub(crate) mod events;
pub(crate) mod faults;
pub(crate) mod guard;
pub(crate) mod inspector;
pub(crate) mod invariants;
pub(crate) mod network;
pub(crate) mod node;
pub(crate) mod one_group;
pub(crate) mod plan;
pub(crate) mod random;
pub(crate) mod record;
pub(crate) mod runner;
pub(crate) mod server;
pub(crate) mod session;
pub(crate) mod succession;
