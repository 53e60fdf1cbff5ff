//! The rendezvous on etcd, or on our own server: the machine of the core, driven by a client.

mod bond;
mod driver;
mod duty;
mod fault;
mod handler;
mod hosting;
mod probe;
mod proofs;
mod reach;
mod request;
mod revoke;
mod session;

pub use self::handler::EtcdRendezvousHandler;
