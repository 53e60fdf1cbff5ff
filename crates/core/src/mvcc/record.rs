//! The records from which a store is restored.

use crate::kv::{Event, LeaseId, Revision};

/// One fact that must survive a restart.
///
/// Records are effects, not requests: replaying them needs no clock and cannot fail half-way.
/// Renewals of leases are not among them, so that a keep-alive never waits for a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// One write transaction and its events in order, without the previous pairs.
    Write {
        /// The revision of the transaction.
        revision: Revision,
        /// The changes.
        events: Vec<Event>,
    },
    /// A lease was granted.
    LeaseGranted {
        /// The id of the lease.
        id: LeaseId,
        /// The time to live in seconds.
        ttl: i64,
    },
    /// A lease was revoked or has expired. The deletion of its keys is a separate [`Record::Write`].
    LeaseRevoked {
        /// The id of the lease.
        id: LeaseId,
    },
    /// The history before a revision was compacted.
    Compacted {
        /// The oldest revision that can still be read.
        revision: Revision,
    },
}
