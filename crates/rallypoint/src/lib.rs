//! Elastic rendezvous for distributed training.
//!
//! # A map
//!
//! - [`server`]: the coordination server, which speaks etcd's v3 gRPC.
//! - [`client`]: speaks to a cluster: Rallypoint's own server or etcd.
//! - [`session`]: a lease that is kept alive, and the news of its loss.
//! - [`proto`]: that wire as generated code, for those who need it bare.
//! - [`core`]: the pure part below: the vocabulary of a versioned store, and the store.
//! - [`cli`]: the `rallypoint` command, as a function.

pub mod cli;
pub mod client;
mod codec;
mod convert;
mod disk;
pub mod proto;
pub mod server;
pub mod session;

pub use rallypoint_core as core;
