//! The integration tests: one binary, one module for each subject.

#![allow(clippy::unwrap_used, reason = "a test that fails should stop")]

#[path = "../support/mod.rs"]
mod support;

mod connections;
mod damage;
mod fixtures;
mod kill;
mod limits;
mod slow_watch;
mod wire;
