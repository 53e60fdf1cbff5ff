//! The right of a server to grant and renew leases, where hosts succeed each other as servers (invariant Y3).
//!
//! The decision is the core's ([`ServingRight`]). Here it is given what it needs: the changes of the run's keys, the
//! grants, and the responses that clients have confirmed. Its clock is the one that also advances while the host is
//! suspended: a server that slept has not heard its group meanwhile.

use std::time::Duration;

use rallypoint_core::kv::{KeyRange, LeaseId, Time, Watch};
use rallypoint_core::mvcc::{Mvcc, StreamId, WatchMessage};
use rallypoint_core::rendezvous::keys::Keys;
use rallypoint_core::rendezvous::succession::right::ServingRight;

use crate::util::clock::boot_time;

/// The right of one server, as long as its store lives.
pub(super) struct EngineRight {
    right: ServingRight,
    /// The changes of the run's keys.
    changes: Option<StreamId>,
}

impl EngineRight {
    /// The right to serve the run with these keys, whose changes are those of `store`.
    pub(super) fn new(store: &mut Mvcc, keys: Keys, lease_ttl: Duration) -> Self {
        let stream = store.open_stream();
        let watch = Watch::new(KeyRange::prefix(keys.root().to_owned()));
        let changes = store.watch(stream, None, watch).is_ok().then_some(stream);
        Self { right: ServingRight::new(keys, lease_ttl), changes }
    }

    /// Takes in the changes since the last call. A server that has missed some has no right.
    fn follow(&mut self, store: &mut Mvcc) {
        while let Some(stream) = self.changes {
            match store.next_message(stream) {
                Some(WatchMessage::Events { events, .. }) => {
                    events.iter().for_each(|event| self.right.changed(event));
                }
                Some(WatchMessage::Compacted { .. }) => self.changes = None,
                None => return,
            }
        }
    }

    /// The holder of the lease has confirmed a response that was sent at this time.
    pub(super) fn confirmed(&mut self, lease: LeaseId, sent: Time) {
        self.right.confirmed(lease, sent);
    }

    /// The server grants this lease.
    pub(super) fn granted(&mut self, lease: LeaseId) {
        self.right.granted(lease, boot_time());
    }

    /// Whether the server may grant and renew leases now.
    pub(super) fn holds(&mut self, store: &mut Mvcc) -> bool {
        self.follow(store);
        self.changes.is_some() && self.right.holds(boot_time())
    }

    /// Whether the right is lost for so long that the server ends.
    pub(super) fn is_over(&mut self, store: &mut Mvcc) -> bool {
        self.follow(store);
        self.changes.is_none() || self.right.is_over(boot_time())
    }

    /// The last round that formed a group here; 0 if none did.
    pub(super) fn formed(&mut self, store: &mut Mvcc) -> u64 {
        self.follow(store);
        self.right.round()
    }
}
