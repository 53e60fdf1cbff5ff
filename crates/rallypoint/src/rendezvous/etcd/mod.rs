//! The rendezvous on an etcd or on the embedded server: the core's node, driven by a client.
//!
//! - `handler`: the public handler.
//! - `driver`: the event loop that feeds the node and executes its outputs.
//! - `commands`, `wait_log`: what callers ask and are told, and what the log says while they wait.
//! - `request`, `watches`, `session_events`: transactions, watches and the lease that the node asks for.
//! - `connect`, `errors`: the wait for a first answer, and errors as callers see them.
//! - `ending`: the end of a node's part. `collateral`: whether a lost peer caused a failure.
//! - `bootstrap`: rank 0's port and store. `peer_liveness`: the other members' connection to it.
//! - `probe`, `proofs`, `revoke`: the proof that a node is dead, and the end of its lease.

mod bootstrap;
mod collateral;
mod commands;
mod connect;
mod driver;
mod ending;
mod errors;
mod handler;
mod peer_liveness;
mod probe;
mod proofs;
mod request;
mod revoke;
mod server_search;
mod session_events;
mod wait_log;
mod watches;

pub use self::ending::Ending;
pub use self::handler::EtcdRendezvousHandler;
