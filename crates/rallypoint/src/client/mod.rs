//! A client for Rallypoint's server and for etcd 3.4 and later, in the types of [`rallypoint_core::kv`].
//!
//! It retries idempotent requests, moves to another endpoint when one fails, and reports when the outcome
//! of a write is unknown.

mod auth;
mod call;
mod cluster;
mod endpoints;
mod error;
mod line;
mod options;
mod retry;
mod rpc;
mod traffic;
mod watch;

use rallypoint_core::kv::{
    Delete, DeleteResult, KvError, LeaseId, LeaseStatus, Put, PutResult, Range, RangeResult,
    Revision, Txn, TxnResult,
};
use rallypoint_core::rendezvous::succession::order::HostAnswer;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

pub use self::cluster::{ClusterMember, ServerStatus};
pub use self::error::ClientError;
pub use self::options::{ClientOptions, Pem, TlsOptions};
pub use self::traffic::Traffic;
pub use self::watch::{WatchBatch, WatchError, Watcher};
pub use crate::credentials::Credentials;

pub(crate) use self::call::StreamFailed;
pub(crate) use self::error::describe;
#[cfg(feature = "cli")]
pub(crate) use self::rpc::DialBackOutcome;
pub(crate) use self::rpc::{KeepAliveStream, RenewalAnswer};

use self::auth::Auth;
use self::endpoints::Endpoints;
use self::traffic::Meter;
use crate::convert;
use crate::log_target::CLIENT;
use crate::util::blocking::blocking;
use crate::util::random;

/// A client of one cluster. Clones are cheap and share its one connection.
///
/// Dropping a call's future cancels the call; a write may still be executed.
///
/// ```no_run
/// use rallypoint::client::{Client, ClientError, ClientOptions};
/// use rallypoint::core::kv::{KeyRange, Put};
///
/// # async fn example() -> Result<(), ClientError> {
/// let client = Client::connect(ClientOptions::new(["10.0.0.1:2379", "10.0.0.2:2379"])).await?;
/// client.put(Put::new("greeting", "hello")).await?;
/// let found = client.range(KeyRange::prefix("greet")).await?;
/// assert_eq!(found.kvs[0].value, "hello");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    shared: Arc<ClientShared>,
    timeout: Duration,
}

struct ClientShared {
    endpoints: Endpoints,
    auth: Auth,
    attempt_timeout: Duration,
    meter: Meter,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// Limit of ids that are tried for a lease. Even the second is hardly ever needed.
const MOST_IDS: u32 = 4;

/// The most retries of a renewal, before the state of the lease is read instead.
const MOST_RENEWALS: u32 = 3;

/// A lease as it was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrantedLease {
    /// The id of the lease.
    pub id: LeaseId,
    /// The granted time to live in seconds: the requested one, or the server's minimum if that is more.
    pub ttl: i64,
}

impl Client {
    /// Creates a client. The connection is opened by the first call, so a server that is not up yet is not an
    /// error.
    ///
    /// # Errors
    /// [`ClientError::Config`], [`ClientError::File`] or [`ClientError::Tls`] if the options are wrong.
    pub async fn connect(options: ClientOptions) -> Result<Self, ClientError> {
        // Certificates may be files, and reading them blocks.
        let prepared = move || Endpoints::new(&options).map(|endpoints| (endpoints, options));
        let (endpoints, options) = blocking(prepared).await?;
        let ClientOptions { credentials, timeout, attempt_timeout, .. } = options;
        let auth = Auth::new(credentials);
        let meter = Meter::default();
        let shared = ClientShared { endpoints, auth, attempt_timeout, meter };
        Ok(Self { shared: Arc::new(shared), timeout })
    }

    /// A client on the same connection whose calls may take this long.
    ///
    /// ```no_run
    /// # async fn example(client: rallypoint::client::Client) {
    /// use std::time::Duration;
    /// let patient = client.with_timeout(Duration::from_secs(60));
    /// # }
    /// ```
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self { timeout, ..self.clone() }
    }

    /// How long a call may take.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Uses the endpoint of this position alone, from now on.
    pub(crate) fn pin_to(&self, position: usize) {
        self.shared.endpoints.pin_to(position);
    }

    /// Closes the connection of a client that is not needed at present.
    pub(crate) fn disconnect(&self) {
        self.shared.endpoints.disconnect();
    }

    /// Asks the host of a job whether it serves, and tells it which group this node remembers. Returns its answer and the
    /// id of its node; nothing if it belongs to another run.
    ///
    /// # Errors
    /// If the host does not answer at the first attempt.
    pub(crate) async fn ask_host(
        &self,
        run_id: &str,
        remembers: u64,
    ) -> Result<Option<(HostAnswer, String)>, ClientError> {
        let asked = rpc::host_question(run_id, remembers);
        Ok(convert::host_answer(run_id, self.rpc_ask_host(asked).await?))
    }

    /// Asks the host of any job whether it serves. Returns the last round that formed a group there; nothing if the host
    /// stands by.
    ///
    /// # Errors
    /// If the host does not answer at the first attempt, or is none of a job.
    #[cfg(feature = "cli")]
    pub(crate) async fn ask_whether_it_serves(&self) -> Result<Option<u64>, ClientError> {
        let answer = self.rpc_ask_host(rpc::host_question("", 0)).await?;
        Ok(answer.serves.then_some(answer.round))
    }

    /// Asks the server to connect to this address and to read the nonce there.
    ///
    /// # Errors
    /// If the server does not answer, or does not know the question.
    #[cfg(feature = "cli")]
    pub(crate) async fn dial_back(
        &self,
        host: &str,
        port: u16,
        nonce: &[u8],
    ) -> Result<DialBackOutcome, ClientError> {
        Ok(self.rpc_dial_back(rpc::dial_back(host, port, nonce)).await?.outcome())
    }

    /// The traffic of the client so far.
    pub fn traffic(&self) -> Traffic {
        self.shared.meter.read()
    }

    /// Reads keys.
    ///
    /// # Errors
    /// [`ClientError::Kv`] if the requested revision is compacted or in the future.
    pub async fn range(&self, range: impl Into<Range>) -> Result<RangeResult, ClientError> {
        Ok(self.rpc_range(range.into().into()).await?.into())
    }

    /// Writes a key.
    ///
    /// # Errors
    /// [`ClientError::OutcomeUnknown`] if the write may have been executed; this holds for every call that writes.
    pub async fn put(&self, put: Put) -> Result<PutResult, ClientError> {
        Ok(self.rpc_put(put.into()).await?.into())
    }

    /// Deletes keys.
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    pub async fn delete(&self, delete: impl Into<Delete>) -> Result<DeleteResult, ClientError> {
        Ok(self.rpc_delete(delete.into().into()).await?.into())
    }

    /// Runs a transaction.
    ///
    /// # Errors
    /// As for [`put`](Self::put), unless the transaction only reads.
    pub async fn txn(&self, txn: Txn) -> Result<TxnResult, ClientError> {
        let response = if txn.is_read_only() {
            self.rpc_txn_read(txn.into()).await?
        } else {
            self.rpc_txn_write(txn.into()).await?
        };
        // The answer is malformed: the server executed something, and the outcome is unknown.
        response.try_into().map_err(|source| ClientError::OutcomeUnknown {
            request: "txn",
            endpoint: self.shared.endpoints.current().name.to_string(),
            source,
        })
    }

    /// Compacts the history before `revision`; with `physical`, waits until its space is free. Returns the
    /// store's revision.
    ///
    /// # Errors
    /// [`ClientError::Kv`] if the revision is already compacted, or in the future.
    pub async fn compact(
        &self,
        revision: Revision,
        physical: bool,
    ) -> Result<Revision, ClientError> {
        let response = self.rpc_compact(rpc::compaction(revision, physical)).await?;
        Ok(convert::revision(response.header.as_ref()))
    }

    /// Grants a lease that lives for `ttl` seconds without a renewal, or for the server's minimum (2 in etcd)
    /// if that is more.
    ///
    /// Without an `id` the client draws a random positive one, so that the request is idempotent: if the lease exists
    /// after an attempt that was not answered, that attempt was executed. A lease that exists at the first attempt
    /// belongs to another client, and another id is drawn. A lease that was granted without an answer expires by
    /// itself.
    ///
    /// # Errors
    /// [`ClientError::Kv`] if the given `id` is in use, or the time to live is too large.
    pub async fn lease_grant(
        &self,
        ttl: i64,
        id: Option<LeaseId>,
    ) -> Result<GrantedLease, ClientError> {
        if let Some(id) = id {
            let response = self.rpc_grant(rpc::lease_grant(id, ttl)).await?;
            return Ok(GrantedLease { id: response.id, ttl: response.ttl });
        }
        for _ in 0..MOST_IDS {
            // Any id but 0, which asks the server to choose one.
            let id = random::lease_id();
            let mut in_doubt = false;
            match self.rpc_grant_own(rpc::lease_grant(id, ttl), &mut in_doubt).await {
                Ok(response) => return Ok(GrantedLease { id: response.id, ttl: response.ttl }),
                Err(ClientError::Kv(KvError::LeaseExists)) if in_doubt => {
                    let status = self.lease_time_to_live(id, false).await?;
                    // The lease may have expired by now if it was short and the retry late.
                    let status = status.ok_or(ClientError::Kv(KvError::LeaseNotFound))?;
                    return Ok(GrantedLease { id, ttl: status.granted_ttl });
                }
                Err(ClientError::Kv(KvError::LeaseExists)) => {
                    tracing::warn!(
                        target: CLIENT,
                        lease = id, "another has a lease of this id; taking another id"
                    );
                }
                Err(error) => return Err(error),
            }
        }
        Err(ClientError::Kv(KvError::LeaseExists))
    }

    /// Revokes a lease and deletes its keys.
    ///
    /// # Errors
    /// [`ClientError::Kv`] if there is no such lease.
    pub async fn lease_revoke(&self, id: LeaseId) -> Result<(), ClientError> {
        self.rpc_revoke(rpc::lease_revoke(id)).await.map(drop)
    }

    /// Renews a lease once, as far as a server can be reached; whether there is such a lease.
    ///
    /// # Errors
    /// As for every read.
    pub(crate) async fn lease_renew(&self, id: LeaseId) -> Result<bool, ClientError> {
        let mut failures = 0;
        loop {
            let failed = match self.try_renew(id, self.stream_timeout(failures)).await {
                Ok(answer) => return Ok(answer != RenewalAnswer::Unknown),
                Err(failed) => failed,
            };
            failures += 1;
            if failures > MOST_RENEWALS {
                let reason = describe(&failed.status);
                tracing::warn!(target: CLIENT, lease = id, reason, "a lease was not renewed");
                // This read is retried, and its error names the endpoints.
                return Ok(self.lease_time_to_live(id, false).await?.is_some());
            }
            sleep(self.stream_delay(failures, failed.failure)).await;
        }
    }

    async fn try_renew(
        &self,
        id: LeaseId,
        patience: Duration,
    ) -> Result<RenewalAnswer, StreamFailed> {
        let bound = Instant::now() + patience;
        let mut stream = KeepAliveStream::open(self, id, bound).await?;
        match timeout_at(bound, stream.answer()).await {
            Ok(answer) => answer,
            Err(_) => Err(stream.abandon(patience)),
        }
    }

    /// The state of a lease, with its keys if requested; `None` if it does not exist.
    ///
    /// # Errors
    /// As for every read.
    pub async fn lease_time_to_live(
        &self,
        id: LeaseId,
        with_keys: bool,
    ) -> Result<Option<LeaseStatus>, ClientError> {
        let request = rpc::lease_time_to_live(id, with_keys);
        match self.rpc_time_to_live(request).await {
            Ok(response) => Ok(convert::lease_status(response)),
            // Some members of a cluster answer this where other members answer with no time left.
            Err(ClientError::Kv(KvError::LeaseNotFound)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All leases.
    ///
    /// # Errors
    /// As for every read.
    pub async fn leases(&self) -> Result<Vec<LeaseId>, ClientError> {
        let response = self.rpc_leases(rpc::leases()).await?;
        Ok(response.leases.into_iter().map(|lease| lease.id).collect())
    }
}
