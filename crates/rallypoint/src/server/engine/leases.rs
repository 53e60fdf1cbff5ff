//! The engine's leases: granted, renewed, revoked, expired, and whether the server may at present.

use std::time::Duration;

use rallypoint_core::kv::{KvError, LeaseId, LeaseStatus, Revision, Time};
use rallypoint_core::mvcc::Mvcc;
use rallypoint_core::rendezvous::keys::Keys;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::{Engine, EngineState};
use crate::log_target::SERVER;
use crate::server::right::EngineRight;
use crate::succession::WITHHELD;
use crate::util::clock::boot_time;
use crate::util::random;

/// The answer to a renewal.
pub(in crate::server) struct Renewal {
    /// The published revision.
    pub(in crate::server) revision: Revision,
    /// The time to live; 0 if there is no such lease.
    pub(in crate::server) ttl: i64,
    /// The lease exists, and was not renewed: the server may not renew leases at present.
    pub(in crate::server) withheld: bool,
    /// When the lease was renewed or not.
    pub(in crate::server) at: Time,
}

impl Engine {
    /// Renews a lease, if the server may. The request confirms a response that was sent at the time `confirms`.
    pub(in crate::server) fn keep_alive(&self, id: LeaseId, confirms: Option<Time>) -> Renewal {
        self.renewed.notify_one();
        let mut state = self.lock();
        let EngineState { store, right, .. } = &mut *state;
        let revision = store.revision();
        if let Some((right, sent)) = right.as_mut().zip(confirms) {
            right.confirmed(id, sent);
        }
        if right.as_mut().is_some_and(|right| !right.holds()) {
            let left = store.lease_status(self.now(), id).map(|lease| lease.remaining_ttl.max(1));
            let withheld = left.is_some();
            return Renewal { revision, ttl: left.unwrap_or(0), withheld, at: boot_time() };
        }
        let renewed = store.lease_keep_alive(self.now(), id);
        if renewed.is_some() {
            self.counters.leases_renewed.inc();
        }
        let at = if right.is_some() { boot_time() } else { Time::ZERO };
        Renewal { revision, ttl: renewed.unwrap_or(0), withheld: false, at }
    }

    /// The published state of a lease, for readers that do not depend on it.
    #[cfg(feature = "cli")]
    pub(in crate::server) fn lease_status(&self, id: LeaseId) -> Option<LeaseStatus> {
        let now = self.now();
        self.read(|store| store.lease_status(now, id))
    }

    /// Waits until a lease is granted or renewed; returns at once if that has happened since the last call.
    pub(in crate::server) async fn renewed(&self) {
        self.renewed.notified().await;
    }

    /// Whether any lease has keys and a time to live of at most `longest`.
    pub(in crate::server) fn has_lease_in_use(&self, longest: Duration) -> bool {
        let now = self.now();
        let is_short = |ttl: i64| u64::try_from(ttl).is_ok_and(|ttl| ttl <= longest.as_secs());
        let in_use = |lease: LeaseStatus| is_short(lease.granted_ttl) && !lease.keys.is_empty();
        self.read(|store| store.leases().filter_map(|id| store.lease_status(now, id)).any(in_use))
    }

    /// Grants a lease, with a random id if none is requested. Returns its id and its time to live.
    pub(in crate::server) async fn grant(
        &self,
        wanted: Option<LeaseId>,
        ttl: i64,
    ) -> Result<Result<(LeaseId, i64), KvError>, Status> {
        loop {
            let id = wanted.unwrap_or_else(random::lease_id);
            let at = boot_time();
            if !self.has_right() {
                return Err(Status::unavailable(WITHHELD));
            }
            let granted = self.write(|store, now| {
                // The lease may be the next to expire. Signalled here, since the caller may not wait for the
                // disk.
                self.sooner.notify_one();
                self.renewed.notify_one();
                store.lease_grant(now, id, ttl)
            });
            match granted.await? {
                Err(KvError::LeaseExists) if wanted.is_none() => {}
                Err(refused) => return Ok(Err(refused)),
                Ok(ttl) => {
                    self.with_right((), |right| right.granted(id, at));
                    self.counters.leases_granted.inc();
                    return Ok(Ok((id, ttl)));
                }
            }
        }
    }

    /// Revokes a lease. Returns the revision that deleted its keys.
    pub(in crate::server) async fn revoke(
        &self,
        id: LeaseId,
    ) -> Result<Result<Revision, KvError>, Status> {
        let revoked = self.write(|store, _| store.lease_revoke(id)).await?;
        if revoked.is_ok() {
            self.counters.leases_revoked.inc();
        }
        Ok(revoked)
    }

    /// Expires leases when their time is up, until the server stops.
    pub(in crate::server) async fn expire_leases(&self) {
        loop {
            let Some(next) = self.read(Mvcc::next_expiry) else {
                self.sooner.notified().await;
                continue;
            };
            tokio::select! {
                () = self.sooner.notified() => continue,
                () = tokio::time::sleep_until((self.origin + next).into()) => {}
            }
            // Leases expire however many requests wait.
            match self.commit(|store, now| store.expire(now), usize::MAX).await {
                Ok(0) => {}
                Ok(count) => {
                    self.counters.leases_expired.inc_by(count as u64);
                    self.counters.leases_revoked.inc_by(count as u64);
                    tracing::debug!(target: SERVER, count, "leases expired");
                }
                Err(_) => return,
            }
        }
    }

    /// Makes grants and renewals depend on the right to serve the run with these keys.
    pub(in crate::server) fn needs_right(&self, keys: Keys, lease_ttl: Duration) {
        let mut state = self.lock();
        state.right = Some(EngineRight::new(&mut state.store, keys, lease_ttl));
    }

    fn with_right<T>(&self, otherwise: T, decide: impl FnOnce(&mut EngineRight) -> T) -> T {
        self.lock().right.as_mut().map_or(otherwise, decide)
    }

    /// Whether the server may grant and renew leases now.
    pub(in crate::server) fn has_right(&self) -> bool {
        self.with_right(true, EngineRight::holds)
    }

    /// Whether the server has lost its right for so long that it ends.
    pub(in crate::server) fn right_is_over(&self) -> bool {
        self.with_right(false, EngineRight::is_over)
    }

    /// The node of this server has left. If `retires`, the server ends as soon as the others can go on at another host.
    /// Returns what is cancelled then.
    pub(in crate::server) fn retires(&self, retires: bool) -> Option<CancellationToken> {
        let mut state = self.lock();
        let right = state.right.as_mut()?;
        right.retires(retires);
        let succeeded = right.succeeded().clone();
        state.end_if_succeeded();
        Some(succeeded)
    }

    /// The last round that formed a group here; 0 if none did.
    pub(in crate::server) fn formed(&self) -> u64 {
        self.with_right(0, |right| right.formed())
    }
}
