//! The rendezvous for any store that can compare and set: all nodes share one document.
//!
//! - [`RendezvousBackend`]: what such a store has to do. [`MemoryRendezvousBackend`] does it inside one
//!   process, [`EtcdRendezvousBackend`] on etcd.
//! - [`DynamicRendezvousHandler`]: a node's way into its group, over any of them.
//!
//! What is decided is in [`rallypoint_core::rendezvous::dynamic`]; here it is read, written and waited for.
//! Every heartbeat of every node rewrites the document, and every node reads what another wrote. That is
//! what such a store costs, and why it is the second choice for more than some dozens of nodes.

mod backend;
mod driver;
mod etcd;
mod handler;
mod memory;

pub use self::backend::{RendezvousBackend, Token};
pub use self::etcd::EtcdRendezvousBackend;
pub use self::handler::{DynamicHandlerOptions, DynamicRendezvousHandler, StoreFactory};
pub use self::memory::MemoryRendezvousBackend;
pub use rallypoint_core::rendezvous::dynamic::{DynamicSettings, InvalidSetting};
