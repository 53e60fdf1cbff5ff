//! A transaction of the core's node, retried until the server answers.

use std::time::Duration;

use rallypoint_core::kv::{KvError, LeaseId, Txn, TxnResult};
use tokio::time::timeout;

use crate::client::{Client, ClientError};
use crate::util::retry::{SERVER_BACKOFF, retry, transient};

/// The lifetime of the run's keys when no member renews its lease.
pub(super) const RUN_TTL: Duration = Duration::from_secs(2 * 3600);

/// The time limit for a renewal of the run's lease.
const RENEWAL: Duration = Duration::from_secs(5);

/// Sends `txn` until it is answered. Every transaction of the node is idempotent: it may be executed twice.
///
/// # Errors
/// Errors that are not retryable. `troubles` receives the retryable ones.
pub(super) async fn send(
    client: Client,
    txn: Txn,
    run_lease: LeaseId,
    mut troubles: impl FnMut(ClientError),
) -> Result<TxnResult, ClientError> {
    let attempt = || async {
        match client.txn(txn.clone()).await {
            // The node's own lease, or the run's. The session reports the loss of the former, which makes this
            // request pointless; the latter is granted again.
            Err(ClientError::Kv(KvError::LeaseNotFound)) => {
                hold_run_lease(&client, run_lease).await?;
                Err(ClientError::Kv(KvError::LeaseNotFound))
            }
            answer => answer,
        }
    };
    let failed = |error, _| {
        troubles(match error {
            ClientError::Kv(KvError::LeaseNotFound) => error,
            error => transient(error)?,
        });
        Ok(())
    };
    // The first retry need not wait: the client has moved on to another server.
    retry(SERVER_BACKOFF.with_immediate_first(), attempt, failed).await
}

/// Grants the run's lease, or renews it if it exists.
pub(super) async fn hold_run_lease(client: &Client, lease: LeaseId) -> Result<(), ClientError> {
    let seconds = i64::try_from(RUN_TTL.as_secs()).unwrap_or(i64::MAX);
    match client.lease_grant(seconds, Some(lease)).await {
        Ok(_) => Ok(()),
        Err(ClientError::Kv(KvError::LeaseExists)) => {
            // If the renewal fails, the next request that needs the lease grants it again.
            let _ = timeout(RENEWAL, client.lease_renew(lease)).await;
            Ok(())
        }
        Err(error) => Err(error),
    }
}
