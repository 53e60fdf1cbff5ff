//! Leases: how long a key lives without a renewal.
//!
//! Time is an argument. A lease never expires early; how late it expires depends on how soon the caller
//! asks for the [`expired`](Leases::expired) one.

use std::collections::{BTreeMap, BTreeSet};

use crate::kv::{KvError, LeaseId, LeaseStatus, Time};
use bytes::Bytes;

/// etcd's longest time to live, in seconds.
const LONGEST_TTL: i64 = 9_000_000_000;

#[derive(Debug)]
struct Lease {
    ttl: i64,
    ends: Time,
    keys: BTreeSet<Bytes>,
}

#[derive(Debug, Default)]
pub(super) struct Leases {
    by_id: BTreeMap<LeaseId, Lease>,
    /// The leases in the order of their expiry, so that the next one is found at once.
    by_end: BTreeSet<(Time, LeaseId)>,
}

impl Leases {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn contains(&self, id: LeaseId) -> bool {
        self.by_id.contains_key(&id)
    }

    /// Grants a lease and returns its time to live, which is at least `shortest`.
    pub(super) fn grant(
        &mut self,
        now: Time,
        id: LeaseId,
        ttl: i64,
        shortest: i64,
    ) -> Result<i64, KvError> {
        // 0 stands for "no lease": every key without one would be attached to it.
        if id == 0 {
            return Err(KvError::LeaseNotFound);
        }
        if ttl > LONGEST_TTL {
            return Err(KvError::LeaseTtlTooLarge);
        }
        if self.contains(id) {
            return Err(KvError::LeaseExists);
        }
        let ttl = ttl.max(shortest);
        self.insert(now, id, ttl);
        Ok(ttl)
    }

    pub(super) fn insert(&mut self, now: Time, id: LeaseId, ttl: i64) {
        let ends = now + seconds(ttl);
        self.by_id.insert(id, Lease { ttl, ends, keys: BTreeSet::new() });
        self.by_end.insert((ends, id));
    }

    /// Renews the lease and returns its time to live.
    ///
    /// A lease whose time is up, but whose keys are not deleted yet, is renewed like any other.
    pub(super) fn renew(&mut self, now: Time, id: LeaseId) -> Option<i64> {
        let lease = self.by_id.get_mut(&id)?;
        self.by_end.remove(&(lease.ends, id));
        lease.ends = now + seconds(lease.ttl);
        self.by_end.insert((lease.ends, id));
        Some(lease.ttl)
    }

    /// Removes the lease and returns its keys, in order.
    pub(super) fn remove(&mut self, id: LeaseId) -> Result<BTreeSet<Bytes>, KvError> {
        let lease = self.by_id.remove(&id).ok_or(KvError::LeaseNotFound)?;
        self.by_end.remove(&(lease.ends, id));
        Ok(lease.keys)
    }

    pub(super) fn status(&self, now: Time, id: LeaseId) -> Option<LeaseStatus> {
        let lease = self.by_id.get(&id)?;
        Some(LeaseStatus {
            granted_ttl: lease.ttl,
            remaining_ttl: lease.ends.saturating_sub(now).as_secs() as i64,
            keys: lease.keys.iter().cloned().collect(),
        })
    }

    /// All leases with their times to live, in the order of their expiry.
    pub(super) fn iter(&self) -> impl Iterator<Item = (LeaseId, i64)> {
        self.by_end.iter().map(|(_, id)| (*id, self.by_id[id].ttl))
    }

    pub(super) fn next_end(&self) -> Option<Time> {
        self.by_end.first().map(|(ends, _)| *ends)
    }

    /// The lease that expired first, if any has expired by `now`.
    pub(super) fn expired(&self, now: Time) -> Option<LeaseId> {
        self.by_end.first().filter(|(ends, _)| *ends <= now).map(|(_, id)| *id)
    }

    pub(super) fn attach(&mut self, id: LeaseId, key: Bytes) {
        if let Some(lease) = self.by_id.get_mut(&id) {
            lease.keys.insert(key);
        }
    }

    pub(super) fn detach(&mut self, id: LeaseId, key: &[u8]) {
        if let Some(lease) = self.by_id.get_mut(&id) {
            lease.keys.remove(key);
        }
    }
}

fn seconds(ttl: i64) -> Time {
    Time::from_secs(ttl.max(0) as u64)
}
