//! The targets of this crate's log records.
//!
//! Filters name these targets: `RUST_LOG`, the defaults of `rallypoint run` and of the plugin for torchrun, and in
//! Python the loggers of the same names with dots. Every record names its target, so a record keeps it when its
//! code moves to another file.

/// The command line.
pub const CLI: &str = "rallypoint::cli";
/// The client of the servers.
pub const CLIENT: &str = "rallypoint::client";
/// The server in a node's own process: which process serves, and until when.
pub const EMBEDDED: &str = "rallypoint::embedded";
/// An etcd that this process runs.
pub const ETCD_SERVER: &str = "rallypoint::etcd_server";
/// The pages over HTTP: health, readiness and metrics.
pub const HTTP: &str = "rallypoint::http";
/// The launcher, as its user follows it.
pub const LAUNCH: &str = "rallypoint::launch";
/// Processes and their guard.
pub const PROCESS: &str = "rallypoint::process";
/// The rendezvous in detail.
pub const RENDEZVOUS: &str = "rallypoint::rendezvous";
/// What happens to the whole run, such as that it is reopened.
pub const RUN: &str = "rallypoint::run";
/// The coordination server.
pub const SERVER: &str = "rallypoint::server";
/// The sessions of nodes, and their leases.
pub const SESSION: &str = "rallypoint::session";
/// The stores of a group.
pub const STORE: &str = "rallypoint::store";
/// What a node waits for, as its user follows it.
pub const WAITING: &str = "rallypoint::waiting";

/// All targets, in order.
pub const ALL: [&str; 13] = [
    CLI,
    CLIENT,
    EMBEDDED,
    ETCD_SERVER,
    HTTP,
    LAUNCH,
    PROCESS,
    RENDEZVOUS,
    RUN,
    SERVER,
    SESSION,
    STORE,
    WAITING,
];
