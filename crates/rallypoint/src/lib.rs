//! Elastic rendezvous for distributed training.
//!
//! # A map
//!
//! - [`client`]: speaks to a cluster: Rallypoint's own server or etcd.
//! - [`session`]: a lease that is kept alive, and the news of its loss.
//! - [`proto`]: etcd's v3 wire as generated code, for those who need it bare.

pub mod client;
mod convert;
pub mod proto;
pub mod session;

pub use rallypoint_core as core;
