//! A launcher's agent: one node's policy between its rendezvous and its local workers.
//!
//! - [`Budget`]: how many restarts the whole job has used, as a document that all nodes share.
//! - [`placement`]: which workers have which ranks, as torchrun gives them.
//! - [`error_file`]: what a worker leaves behind when it fails.

mod budget;
pub mod error_file;
pub mod placement;

pub use self::budget::{Answer, Budget, Charge, Verdict};
