//! Elastic rendezvous for distributed training.
//!
//! # A map
//!
//! - [`proto`]: etcd's v3 wire as generated code, for those who need it bare.

mod convert;
pub mod proto;

pub use rallypoint_core as core;
