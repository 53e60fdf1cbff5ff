//! Why the store refused a request.

use thiserror::Error;

/// A refusal by the store.
///
/// The sentences are etcd's own, to the letter: stock clients compare the text, not only the code.
/// The last limit has no counterpart in etcd and is worded as ours.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KvError {
    /// The key of a request, or the start of its range, is empty.
    #[error("etcdserver: key is not provided")]
    KeyNotProvided,
    /// `ignore_value` and a value in the same put.
    #[error("etcdserver: value is provided")]
    ValueProvided,
    /// `ignore_lease` and a lease in the same put.
    #[error("etcdserver: lease is provided")]
    LeaseProvided,
    /// `ignore_value` or `ignore_lease` for a key that does not exist.
    #[error("etcdserver: key not found")]
    KeyNotFound,
    /// A transaction with more operations than allowed.
    #[error("etcdserver: too many operations in txn request")]
    TooManyOps,
    /// A transaction that would write one key twice.
    #[error("etcdserver: duplicate key given in txn request")]
    DuplicateKey,
    /// The revision asked for is older than the last compaction.
    #[error("etcdserver: mvcc: required revision has been compacted")]
    Compacted,
    /// The revision asked for has not happened yet.
    #[error("etcdserver: mvcc: required revision is a future revision")]
    FutureRevision,
    /// No lease has this id.
    #[error("etcdserver: requested lease not found")]
    LeaseNotFound,
    /// The id asked for is taken.
    #[error("etcdserver: lease already exists")]
    LeaseExists,
    /// The time to live asked for is longer than etcd allows.
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
