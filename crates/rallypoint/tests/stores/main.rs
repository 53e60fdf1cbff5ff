//! One body of expectations, every store: what c10d's interface promises, in exact values.
//!
//! A case is named `store::area::case`, so `cargo test --test stores agent::queues` runs a part. Each
//! store is also tried as a part of itself, behind a `PrefixStore`.

#![allow(clippy::unwrap_used, reason = "a test that fails should stop")]
#![allow(unreachable_pub, reason = "modules of one test program, not used by other crates")]

#[path = "../support/mod.rs"]
mod support;

mod harness;

mod barriers;
mod counters;
mod keys;
mod queues;
mod sharing;
mod swaps;
mod values;
mod waits;

fn main() -> std::process::ExitCode {
    harness::run([
        ("values", values::cases()),
        ("waits", waits::cases()),
        ("counters", counters::cases()),
        ("swaps", swaps::cases()),
        ("keys", keys::cases()),
        ("queues", queues::cases()),
        ("barriers", barriers::cases()),
        ("sharing", sharing::cases()),
    ])
}
