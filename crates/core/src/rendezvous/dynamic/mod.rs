//! A rendezvous over one shared document, for any store with compare-and-set.
//!
//! Every node reads the document, decides on the next state, and writes it by compare-and-set; a node that loses
//! reads again and retries. The [join window](super::window) and [`ranks`](super::ranks) are those of the main
//! protocol.
//!
//! - [`document`]: the document, and its JSON.
//! - [`observer`]: the failure detector of a node, by its own clock.
//! - [`machine`]: the decisions of a node, with their reasons.
//! - [`settings`]: the limits of the group size, and the timeouts.
//!
//! The document never has a time of any clock (invariant A5). A node counts its heartbeats there, and each other
//! node measures by its own clock for how long that count has not changed. The last call has a number there and no
//! end: each participant measures it from when it first saw the number.

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
