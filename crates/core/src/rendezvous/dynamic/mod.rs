//! A rendezvous over one shared document, for any store that can compare and set.
//!
//! Every node reads the document, decides what it should say next, and writes that under a compare;
//! whoever loses reads again. What is decided here is decided by the same [join window](super::window) and
//! [`ranks`](super::ranks) as in the main protocol.
//!
//! - [`document`]: the document, and its JSON.
//! - [`observer`]: what one node has seen of the others, by its own clock.
//! - [`machine`]: what a node should do next, and why.
//! - [`settings`]: the limits and the times.
//!
//! No moment of any clock is ever in the document (invariant A5). A node counts its heartbeats there,
//! and each of the others notes by its own clock how long that number has stood still. The last call
//! has a name there and no end: each participant measures it from when it first saw the name.

pub mod document;
pub mod machine;
pub mod observer;
pub mod settings;

#[cfg(test)]
mod simulation;

pub use self::document::{DynamicClosure, SharedGroup, SharedNode, SharedState, StateError};
pub use self::machine::{Action, DynamicFailure, Intent, Reason, decide};
pub use self::observer::Observer;
pub use self::settings::{DynamicSettings, InvalidSetting};
