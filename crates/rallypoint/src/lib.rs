//! Elastic rendezvous for distributed training.
//!
//! # A map
//!
//! - [`server`]: the coordination server, which speaks etcd's v3 gRPC.
//! - [`client`]: a client for it, and for any etcd 3.4 or later.
//! - [`session`]: a lease that is kept alive, and the one event of losing it.
//! - [`rendezvous`]: nodes meet, and meet again.
//! - [`embedded`]: the coordination server inside a node's own process, and which node runs it.
//! - [`store`]: what the nodes of a group share.
//! - [`etcd_server`]: a real etcd as a child process, or a cluster of them.
//! - [`events`]: what a node decided and why, in a file.
//! - [`process`]: children that never outlive us, and what a program that starts any begins with.
//! - [`proto`]: the wire as generated code, for those who need it bare.
//! - [`core`]: the pure part below: the vocabulary of a versioned store, and the store.
//! - `agent`: what the agent of another launcher, such as torchrun's, needs beside its rendezvous; with the feature `cli`.
//! - `cli`: the `rallypoint` command, as a function; with the feature `cli`, which is on by default.
//! - [`error_chain()`]: an error with its causes, on one line.

#[cfg(feature = "cli")]
pub mod agent;
#[cfg(feature = "cli")]
pub mod cli;
pub mod client;
mod codec;
pub mod config;
mod convert;
mod credentials;
mod doctor;
pub mod embedded;
pub mod etcd_server;
pub mod events;
#[doc(hidden)]
pub mod fuzzing;
#[cfg(feature = "cli")]
mod http;
#[cfg(feature = "cli")]
mod launch;
pub mod log_target;
mod metrics;
#[cfg_attr(
    not(feature = "cli"),
    allow(dead_code, reason = "workers are started by the launcher, which is part of the command")
)]
pub mod process;
pub mod proto;
pub mod rendezvous;
#[cfg(feature = "cli")]
mod runs;
pub mod server;
pub mod session;
pub mod store;
mod succession;
mod util;

pub use rallypoint_core as core;

pub use self::util::error_chain::error_chain;
#[doc(hidden)]
pub use self::util::reminder::Reminder;
