//! One body of expectations, four servers: ours in memory, ours on disk, etcd 3.4 and etcd 3.5; and etcd 3.6 and 3.7
//! where `RALLYPOINT_ETCD_3_6` and `RALLYPOINT_ETCD_3_7` name them.
//!
//! Every case says what etcd does, in exact values, through the generated clients alone. It is named
//! `arm::area::case`, so `cargo test --test conformance etcd_3_5::watch` runs a part. What truly
//! differs between the servers is in [`differences`] and nowhere else.

#![allow(clippy::unwrap_used, reason = "a test that fails should stop")]
#![allow(unreachable_pub, reason = "modules of one test program, not used by other crates")]

#[path = "../support/mod.rs"]
mod support;

mod ask;
mod context;
mod differences;
mod harness;

mod auth;
mod compact;
mod concurrency;
mod delete;
mod lease;
mod lease_life;
mod limits;
mod maintenance;
mod put;
mod range;
mod range_options;
mod restart;
mod txn;
mod txn_checks;
mod txn_compare;
mod upkeep;
mod watch;
mod watch_history;
mod watch_stream;

fn main() -> std::process::ExitCode {
    let areas: [(&str, Vec<harness::Case>); 19] = [
        ("range", range::cases()),
        ("range_options", range_options::cases()),
        ("put", put::cases()),
        ("delete", delete::cases()),
        ("txn", txn::cases()),
        ("txn_compare", txn_compare::cases()),
        ("txn_checks", txn_checks::cases()),
        ("lease", lease::cases()),
        ("lease_life", lease_life::cases()),
        ("watch", watch::cases()),
        ("watch_history", watch_history::cases()),
        ("watch_stream", watch_stream::cases()),
        ("compact", compact::cases()),
        ("maintenance", maintenance::cases()),
        ("upkeep", upkeep::cases()),
        ("concurrency", concurrency::cases()),
        ("auth", auth::cases()),
        ("limits", limits::cases()),
        ("restart", restart::cases()),
    ];
    harness::run(areas)
}
