//! What a store would have to be told to become the same store again.

use crate::kv::{Event, LeaseId, Revision};

/// One fact that must survive a restart.
///
/// Records are effects, not requests: replaying them needs no clock and cannot fail half-way.
/// Renewals of leases are not among them, so that a keep-alive never waits for a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// One write transaction and its events in order, without their previous pairs.
    Write {
        /// The revision it made.
        revision: Revision,
        /// What it changed.
        events: Vec<Event>,
    },
    /// A lease came to be.
    LeaseGranted {
        /// Its id.
        id: LeaseId,
        /// Its time to live in seconds.
        ttl: i64,
    },
    /// A lease was revoked or ran out. The deletion of its keys is a [`Record::Write`] of its own.
    LeaseRevoked {
        /// Its id.
        id: LeaseId,
    },
    /// History before this revision is gone.
    Compacted {
        /// The oldest revision that can still be read.
        revision: Revision,
    },
}
