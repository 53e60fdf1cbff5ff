//! The integration tests: one binary, one module for each subject.

#![allow(clippy::unwrap_used, reason = "a test that fails should stop")]
#![allow(unreachable_pub, reason = "modules of one test program, not used by other crates")]

#[path = "../support/mod.rs"]
mod support;

mod agent_store;
mod architecture;
mod bench;
mod book;
mod client;
mod cluster;
mod completions;
mod connections;
mod damage;
mod defects;
mod differential;
mod doctor;
mod dynamic;
mod embedded;
mod etcd_server;
mod etcd_store;
mod etcdctl;
mod examples;
mod failover;
mod fixtures;
mod fuzz;
mod gate;
mod hash_store;
mod http;
mod kill;
mod launch;
mod limits;
mod linearizability;
mod page;
mod rendezvous;
mod rendezvous_api;
mod rendezvous_errors;
mod retry;
mod secure;
mod session;
mod situations;
mod slow_watch;
mod small_disk;
mod status;
mod stopping;
mod strangers;
mod watch;
mod wire;
