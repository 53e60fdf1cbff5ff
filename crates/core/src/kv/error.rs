//! The errors of a key-value store.

use thiserror::Error;

/// Why a key-value store refused a request.
///
/// The messages are etcd's own, to the letter: stock clients compare the text, not only the code.
/// [`TooManyLeases`](Self::TooManyLeases) has no counterpart in etcd.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KvError {
    /// The key of a request, or the start of its range, is empty.
    #[error("etcdserver: key is not provided")]
    KeyNotProvided,
    /// A put has both `ignore_value` and a value.
    #[error("etcdserver: value is provided")]
    ValueProvided,
    /// A put has both `ignore_lease` and a lease.
    #[error("etcdserver: lease is provided")]
    LeaseProvided,
    /// A put has `ignore_value` or `ignore_lease`, and the key does not exist.
    #[error("etcdserver: key not found")]
    KeyNotFound,
    /// A transaction has more operations than allowed.
    #[error("etcdserver: too many operations in txn request")]
    TooManyOps,
    /// A transaction would write one key twice.
    #[error("etcdserver: duplicate key given in txn request")]
    DuplicateKey,
    /// The requested revision is older than the last compaction.
    #[error("etcdserver: mvcc: required revision has been compacted")]
    Compacted,
    /// The requested revision lies in the future.
    #[error("etcdserver: mvcc: required revision is a future revision")]
    FutureRevision,
    /// No lease has this id.
    #[error("etcdserver: requested lease not found")]
    LeaseNotFound,
    /// The requested lease id is in use.
    #[error("etcdserver: lease already exists")]
    LeaseExists,
    /// The requested time to live is longer than etcd allows.
    #[error("etcdserver: too large lease TTL")]
    LeaseTtlTooLarge,
    /// The store holds as many bytes as it may.
    #[error("etcdserver: mvcc: database space exceeded")]
    NoSpace,
    /// The store holds as many leases as it may.
    #[error("rallypoint: {limit} leases exist, which is the limit (max-leases)")]
    TooManyLeases {
        /// The limit in force.
        limit: usize,
    },
}
