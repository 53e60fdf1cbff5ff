//! The launcher: what a plan comes to.
//!
//! - `workers`: the processes of one start, their output and their end.
//! - `console`: standard output and standard error, shared by all who have something to say.
//! - `report`: what is said of a failure at the end.

mod console;
mod report;
mod workers;
