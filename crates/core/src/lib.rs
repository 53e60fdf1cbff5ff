//! The pure core of Rallypoint: inputs in, outputs out, the time as an argument.
//!
//! Nothing here reads a clock, a random number, the environment, a file or a socket (invariant A1);
//! `clippy.toml` beside the manifest makes the compiler say so. So every run can be repeated to the
//! letter, and tests need no time to pass.
//!
//! # A map
//!
//! - [`kv`]: the vocabulary. Everything above and below it speaks these types and no others.
//! - [`error`]: what a store may answer instead, in etcd's words, since clients match on them.
//! - [`store`]: the multi-version store with its leases and watches.
//! - [`rendezvous`]: the decisions of a rendezvous, made on top of such a store.
//! - [`agent`]: the decisions of a launcher, between a rendezvous and the workers of a node.
//! - [`keyspace`]: values, queues and waiters, as a group shares them on a single host.
//!
//! ```
//! use rallypoint_core::kv::{KeyRange, Put, Range};
//! use rallypoint_core::store::Store;
//!
//! let mut store = Store::default();
//! store.put(Put::new("greeting", "hello")).unwrap();
//! store.publish_all();
//! let found = store.range(&Range::new(KeyRange::key("greeting"))).unwrap();
//! assert_eq!(found.kvs[0].value, "hello");
//! assert_eq!(found.kvs[0].version, 1);
//! ```

#![forbid(unsafe_code)]

pub mod agent;
pub mod error;
pub mod keyspace;
pub mod kv;
pub mod rendezvous;
pub mod store;
