//! The rendezvous over any store with compare-and-set: all nodes share one document.
//!
//! - [`RendezvousBackend`]: the interface of such a store. [`MemoryRendezvousBackend`] implements it inside
//!   one process, [`EtcdRendezvousBackend`] on etcd.
//! - [`DynamicRendezvousHandler`]: the rendezvous handler of a node, over any backend.
//!
//! [`rallypoint_core::rendezvous::dynamic`] makes the decisions; this module reads and writes the document
//! and waits for changes. Every heartbeat of every node rewrites the document, and every node reads every
//! version. Prefer the backend `etcd` for more than a few dozen nodes.

mod backend;
mod driver;
mod etcd;
mod handler;
mod memory;

pub use self::backend::{FencingToken, RendezvousBackend};
pub use self::etcd::EtcdRendezvousBackend;
pub use self::handler::{DynamicHandlerOptions, DynamicRendezvousHandler, StoreFactory};
pub use self::memory::MemoryRendezvousBackend;
pub use rallypoint_core::rendezvous::dynamic::{DynamicSettings, InvalidSetting};
