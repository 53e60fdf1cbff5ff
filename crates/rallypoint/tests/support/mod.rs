//! What the tests stand on: real etcds, our own server as a child, a proxy that misbehaves.
//!
//! Every server listens on loopback, keeps its files in a directory of its own, and is gone when its
//! handle is dropped; if the test process itself is killed, a watchdog does it (see [`process`]).

#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "each test binary uses a part of this"
)]
#![allow(clippy::unwrap_used, reason = "a fixture that fails should stop its test")]
#![allow(clippy::print_stderr, reason = "a failed test shows its server's log")]

pub mod case;
pub mod cluster;
pub mod embedded;
pub mod etcd;
pub mod hostile;
pub mod process;
pub mod proxy;
pub mod tools;
pub mod wire;

pub use cluster::EtcdCluster;
pub use embedded::Embedded;
pub use etcd::Etcd;
pub use proxy::Proxy;
pub use tools::Version;
