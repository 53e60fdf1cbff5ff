//! The pure core of Rallypoint: inputs in, outputs out, the time as an argument.
//!
//! Nothing here reads a clock, a random number, the environment, a file or a socket (invariant A1);
//! `clippy.toml` beside the manifest makes the compiler enforce that. Every run is therefore
//! deterministic and repeatable, and tests need no time to pass.
//!
//! # A map
//!
//! - [`kv`]: the vocabulary of a versioned key-value store: requests, results and errors. All modules
//!   above and below it speak these types and no others.
//! - [`mvcc`]: the multi-version store with its leases and watches.
//! - [`c10d`]: the state of one c10d store (PyTorch's `TCPStore`): values, queues and waiters.
//! - [`rendezvous`]: the decisions of a rendezvous, made on top of a versioned store.
//! - [`agent`]: the decisions of a launcher, between a rendezvous and the workers of a node.
//! - [`events`]: what these machines decided and why, for people and programs, and the record to decide it again.
//! - [`status`]: the documents of a run as an operator wants to see them, and what a run waits for in sentences.
//!
//! ```
//! use rallypoint_core::kv::{KeyRange, Put, Range};
//! use rallypoint_core::mvcc::Mvcc;
//!
//! let mut store = Mvcc::default();
//! store.put(Put::new("greeting", "hello")).unwrap();
//! store.publish_all();
//! let found = store.range(&Range::new(KeyRange::key("greeting"))).unwrap();
//! assert_eq!(found.kvs[0].value, "hello");
//! assert_eq!(found.kvs[0].version, 1);
//! ```

#![forbid(unsafe_code)]

pub mod agent;
pub mod c10d;
pub mod events;
pub mod kv;
pub mod mvcc;
pub mod rendezvous;
pub mod status;
mod text;
