//! Elastic rendezvous for distributed training.
//!
//! # A map
//!
//! - [`server`]: the coordination server, which speaks etcd's v3 gRPC.
//! - [`proto`]: that wire as generated code, for those who need it bare.
//! - [`core`]: the pure part below: the vocabulary of a versioned store, and the store.
//! - [`cli`]: the `rallypoint` command, as a function.

pub mod cli;
mod codec;
mod convert;
mod disk;
pub mod proto;
pub mod server;

pub use rallypoint_core as core;
