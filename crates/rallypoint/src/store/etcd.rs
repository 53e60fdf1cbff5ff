//! A store on etcd, or on our own server.

/// A store below a prefix of an etcd.
pub struct EtcdStore;
