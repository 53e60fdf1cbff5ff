//! The rendezvous: who is in, who has which rank, and when the group meets again.
//!
//! - [`keys`]: where everything lies. No other file builds a key (invariant A3).
//! - [`gate`]: when a round stops taking nodes, and why.
//! - [`ranks`]: who gets in when there are too many, and who gets which rank.
//! - [`dynamic`]: the same meeting over a single document, for a store that can only compare and set.

pub mod dynamic;
pub mod gate;
pub mod keys;
pub mod ranks;
