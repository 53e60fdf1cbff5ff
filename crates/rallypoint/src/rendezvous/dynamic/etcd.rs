//! A backend that keeps the state in one key of etcd or of Rallypoint's server.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use rallypoint_core::kv::{
    Compare, KeyRange, KeyValue, KvError, LeaseId, Op, OpResult, Put, Revision, Txn,
};
use rallypoint_core::rendezvous::dynamic::InvalidSetting;
use rallypoint_core::rendezvous::keys;
use tokio::time::{Instant, sleep};

use super::backend::{FencingToken, RendezvousBackend};
use crate::client::{Client, ClientError};
use crate::config::Backend;
use crate::rendezvous::RendezvousError;
use crate::store::EtcdStore;
use crate::util::follow::{FollowedKey, KeyState};

/// The time to live of a state after its last write.
const DEFAULT_TTL: Duration = Duration::from_secs(2 * 60 * 60);

/// A backend that keeps the state in one key of etcd. Its fencing tokens are the key's mod revisions.
///
/// ```no_run
/// use rallypoint::client::{Client, ClientOptions};
/// use rallypoint::rendezvous::dynamic::EtcdRendezvousBackend;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::connect(ClientOptions::new(["10.0.0.1:2379"])).await?;
/// let backend = EtcdRendezvousBackend::create(client, "job-7")?;
/// # Ok(())
/// # }
/// ```
pub struct EtcdRendezvousBackend {
    client: Client,
    key: String,
    ttl: Duration,
    /// The lease of the state. Its id is derived from the key, so that all writers share it. With a lease
    /// for each writer, the state would depend on the lease of the last writer, and every node of the last
    /// two hours would leave a lease behind. The shared lease expires when no node has written for its
    /// time to live.
    lease: LeaseId,
    /// When this process last granted or renewed the lease.
    renewed: Mutex<Option<Instant>>,
    /// The watch on the key, opened by the first wait for a change.
    followed: OnceLock<FollowedKey<Seen>>,
}

/// The newest observation of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Nothing,
    Present(Revision),
    Absent(Revision),
}

impl std::fmt::Debug for EtcdRendezvousBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdRendezvousBackend").field("key", &self.key).finish_non_exhaustive()
    }
}

impl EtcdRendezvousBackend {
    /// A backend for the run `run_id` at PyTorch's key, with a time to live of two hours after the last
    /// write.
    ///
    /// # Errors
    /// [`InvalidSetting`] if the run id is empty.
    pub fn create(client: Client, run_id: &str) -> Result<Self, InvalidSetting> {
        Self::new(client, run_id, Some(keys::DYNAMIC_PREFIX), None)
    }

    /// A backend for the run `run_id` below `key_prefix`. The state expires `ttl` after the last write (two
    /// hours if `ttl` is `None` or zero). The first writer's time to live applies to all writers.
    ///
    /// # Errors
    /// [`InvalidSetting`] if the run id is empty.
    pub fn new(
        client: Client,
        run_id: &str,
        key_prefix: Option<&str>,
        ttl: Option<Duration>,
    ) -> Result<Self, InvalidSetting> {
        if run_id.is_empty() {
            let fix = "give the name that all nodes of the job share".to_owned();
            return Err(InvalidSetting { what: "run_id", value: "\"\"".to_owned(), fix });
        }
        let key = keys::dynamic_state(key_prefix, run_id);
        let ttl = ttl.filter(|ttl| !ttl.is_zero()).unwrap_or(DEFAULT_TTL);
        let lease = keys::lease_named(&key);
        let (renewed, followed) = (Mutex::default(), OnceLock::new());
        Ok(Self { client, key, ttl, lease, renewed, followed })
    }

    /// The lease of the state, for a store whose keys must expire with it: a run that starts again after its
    /// state has expired would otherwise read the keys of its first rounds. The lease exists once the state
    /// has been written.
    pub fn lease(&self) -> LeaseId {
        self.lease
    }

    /// Makes a store whose keys begin with `prefix` and expire with the state. It may be used before the
    /// state is first written: this method grants the lease if it does not exist.
    ///
    /// # Errors
    /// [`RendezvousError::Connection`] if no server answered.
    pub async fn store(
        &self,
        prefix: impl Into<Bytes>,
        timeout: Duration,
    ) -> Result<EtcdStore, RendezvousError> {
        self.keep_lease().await.map_err(|error| self.failed("keep", error))?;
        Ok(EtcdStore::new(self.client.clone(), prefix, self.lease, timeout))
    }

    fn failed(&self, what: &str, source: ClientError) -> RendezvousError {
        let context = format!("cannot {what} the rendezvous state at {}", self.place());
        RendezvousError::Connection { context, source: source.into() }
    }

    async fn read(&self) -> Result<Option<(Bytes, FencingToken)>, ClientError> {
        let found = self.client.range(KeyRange::key(self.key.clone())).await?;
        Ok(found.kvs.into_iter().next().map(decode))
    }

    /// Grants the lease or renews it, unless this process did so recently.
    async fn keep_lease(&self) -> Result<(), ClientError> {
        let renewed = *self.renewed.lock().unwrap_or_else(PoisonError::into_inner);
        // Every heartbeat writes the state; most of them need not renew the lease as well.
        if renewed.is_some_and(|renewed| renewed.elapsed() < self.ttl / 4) {
            return Ok(());
        }
        let begun = Instant::now();
        let seconds = self.ttl.as_secs() + u64::from(self.ttl.subsec_nanos() > 0);
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        // The second attempt is for a lease that expired between the two requests of the first.
        for _ in 0..2 {
            match self.client.lease_grant(seconds, Some(self.lease)).await {
                Ok(_) => break,
                // Another node granted it, or this one did and the answer was lost.
                Err(ClientError::Kv(KvError::LeaseExists) | ClientError::OutcomeUnknown { .. }) => {
                    if self.client.lease_renew(self.lease).await? {
                        break;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        *self.renewed.lock().unwrap_or_else(PoisonError::into_inner) = Some(begun);
        Ok(())
    }

    async fn write(
        &self,
        state: &Bytes,
        compare: Compare,
    ) -> Result<Option<(Bytes, FencingToken, bool)>, ClientError> {
        let key = self.key.clone();
        let txn = Txn::when([compare])
            .then([Op::Put(Put::new(key.clone(), state.clone()).on_lease(self.lease))])
            .otherwise([Op::Range(KeyRange::key(key).into())]);
        for attempt in 0.. {
            self.keep_lease().await?;
            match self.client.txn(txn.clone()).await {
                Ok(done) if done.succeeded => {
                    let token = FencingToken::new(done.revision.to_string());
                    return Ok(Some((state.clone(), token, true)));
                }
                Ok(done) => {
                    let found = done.results.into_iter().next();
                    let Some(OpResult::Range(range)) = found else { return Ok(None) };
                    let current = range.kvs.into_iter().next().map(decode);
                    return Ok(current.map(|(state, token)| (state, token, false)));
                }
                // The lease expired, or the server lost its memory: grant it again.
                Err(ClientError::Kv(KvError::LeaseNotFound)) if attempt < 2 => {
                    *self.renewed.lock().unwrap_or_else(PoisonError::into_inner) = None;
                }
                // No two writes have equal bytes, so equal bytes are this node's write. Other bytes leave the
                // outcome open: the write may still be executed, but only if no other write comes first, and
                // then the next read returns it.
                Err(ClientError::OutcomeUnknown { .. }) => {
                    let current = self.read().await?;
                    return Ok(current.map(|(found, token)| {
                        let ours = found == *state;
                        (found, token, ours)
                    }));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

#[async_trait]
impl RendezvousBackend for EtcdRendezvousBackend {
    fn name(&self) -> &str {
        Backend::Dynamic.name()
    }

    fn place(&self) -> String {
        format!("key {:?}", self.key)
    }

    async fn get_state(&self) -> Result<Option<(Bytes, FencingToken)>, RendezvousError> {
        self.read().await.map_err(|error| self.failed("read", error))
    }

    async fn set_state(
        &self,
        state: Bytes,
        token: Option<&FencingToken>,
    ) -> Result<Option<(Bytes, FencingToken, bool)>, RendezvousError> {
        let compare = match token.map(revision) {
            None => Compare::absent(self.key.clone()),
            Some(Some(revision)) => Compare::unchanged_since(self.key.clone(), revision),
            // The token is not one of this backend. To etcd, revision 0 would mean that the key does not exist.
            Some(None) => {
                let current = self.get_state().await?;
                return Ok(current.map(|(state, token)| (state, token, false)));
            }
        };
        self.write(&state, compare).await.map_err(|error| self.failed("write", error))
    }

    async fn changed(&self, token: Option<&FencingToken>) {
        let token = token.and_then(revision);
        let followed = self.followed.get_or_init(|| {
            let seen = |_: &Seen, state: KeyState<'_>| {
                Some(match state {
                    KeyState::Present(kv) => Seen::Present(kv.mod_revision),
                    KeyState::Absent(revision) => Seen::Absent(revision),
                })
            };
            FollowedKey::new(self.client.clone(), self.key.clone(), Seen::Nothing, seen)
        });
        let differs = |seen: &Seen| match (*seen, token) {
            (Seen::Present(now), Some(token)) | (Seen::Absent(now), Some(token)) => now > token,
            (Seen::Present(_), None) => true,
            (Seen::Absent(_), None) | (Seen::Nothing, _) => false,
        };
        if followed.latest().clone().wait_for(differs).await.is_err() {
            // The task ends only with its runtime; then nothing may spin here.
            sleep(Duration::from_secs(1)).await;
        }
    }
}

fn decode(kv: KeyValue) -> (Bytes, FencingToken) {
    (kv.value, FencingToken::new(kv.mod_revision.to_string()))
}

fn revision(token: &FencingToken) -> Option<Revision> {
    token.as_str().parse().ok().filter(|revision| *revision > 0)
}
