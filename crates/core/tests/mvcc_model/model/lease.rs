//! Leases: a plain map. Which keys live on a lease is asked of the keys, so it cannot be wrong.

use std::time::Duration;

use bytes::Bytes;
use rallypoint_core::kv::{KvError, LeaseId, LeaseStatus, Revision, Time};

use super::{Draft, Model};

#[derive(Clone)]
pub(super) struct Lease {
    ttl: i64,
    pub(super) ends: Time,
}

impl Lease {
    pub(super) fn full(&self) -> Time {
        Duration::from_secs(self.ttl as u64)
    }
}

impl Model {
    pub(crate) fn lease_count(&self) -> usize {
        self.leases.len()
    }

    /// When each lease ends.
    pub(crate) fn lease_ends(&self, id: LeaseId) -> Option<Time> {
        self.leases.get(&id).map(|lease| lease.ends)
    }

    pub(crate) fn next_expiry(&self) -> Option<Time> {
        self.leases.values().map(|lease| lease.ends).min()
    }

    pub(crate) fn lease_grant(&mut self, now: Time, id: LeaseId, ttl: i64) -> Result<i64, KvError> {
        let limit = self.options.max_leases;
        if self.leases.len() >= limit {
            return Err(KvError::TooManyLeases { limit });
        }
        if id == 0 {
            return Err(KvError::LeaseNotFound);
        }
        if ttl > 9_000_000_000 {
            return Err(KvError::LeaseTtlTooLarge);
        }
        if self.leases.contains_key(&id) {
            return Err(KvError::LeaseExists);
        }
        let ttl = ttl.max(self.options.min_lease_ttl);
        let mut lease = Lease { ttl, ends: now };
        lease.ends += lease.full();
        self.leases.insert(id, lease);
        Ok(ttl)
    }

    pub(crate) fn lease_revoke(&mut self, id: LeaseId) -> Result<Revision, KvError> {
        let keys = self.lease_keys(id);
        self.leases.remove(&id).ok_or(KvError::LeaseNotFound)?;
        let mut draft = Draft::new(self);
        keys.iter().for_each(|key| draft.delete_key(key));
        draft.commit();
        Ok(self.head())
    }

    pub(crate) fn lease_keep_alive(&mut self, now: Time, id: LeaseId) -> Option<i64> {
        let lease = self.leases.get_mut(&id)?;
        lease.ends = now + lease.full();
        Some(lease.ttl)
    }

    pub(crate) fn lease_status(&self, now: Time, id: LeaseId) -> Option<LeaseStatus> {
        let lease = self.leases.get(&id)?;
        Some(LeaseStatus {
            granted_ttl: lease.ttl,
            remaining_ttl: lease.ends.saturating_sub(now).as_secs() as i64,
            keys: self.lease_keys(id),
        })
    }

    /// Ends what is due, the earliest first, each in a revision of its own.
    pub(crate) fn expire(&mut self, now: Time) -> usize {
        let mut due: Vec<(Time, LeaseId)> = self
            .leases
            .iter()
            .filter(|(_, lease)| lease.ends <= now)
            .map(|(id, lease)| (lease.ends, *id))
            .collect();
        due.sort();
        for (_, id) in &due {
            self.lease_revoke(*id).expect("it was listed");
        }
        due.len()
    }

    fn lease_keys(&self, id: LeaseId) -> Vec<Bytes> {
        let state = &self.states[self.head() as usize];
        state.values().filter(|kv| kv.lease == id).map(|kv| kv.key.clone()).collect()
    }
}
