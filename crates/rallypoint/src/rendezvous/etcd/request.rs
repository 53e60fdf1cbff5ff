//! A transaction of the core's node, retried until the server answers.

use rallypoint_core::kv::{KvError, LeaseId, Txn, TxnResult};
use std::time::Duration;
use tokio::time::{Instant, sleep};

use crate::client::{Client, ClientError, KeepAliveStream};

/// The lifetime of the run's keys when no member renews its lease.
pub(super) const RUN_TTL: Duration = Duration::from_secs(2 * 3600);

/// The delay before a refused request is retried: permissions may change.
pub(super) const REFUSED: Duration = Duration::from_secs(1);

/// The backoff before the `failures`-th retry, with jitter.
pub(super) fn delay(failures: u32) -> Duration {
    let longest = Duration::from_millis(20).saturating_mul(1 << failures.min(6));
    longest.mul_f64(0.5 + fastrand::f64() / 2.0)
}

/// Whether the error is not retryable: the server answered and refused the request.
pub(super) fn is_fatal(error: &ClientError) -> bool {
    !matches!(error, ClientError::Unavailable { .. } | ClientError::OutcomeUnknown { .. })
}

/// Sends `txn` until it is answered. Every transaction of the node is idempotent: it may be executed twice.
///
/// # Errors
/// The errors that are not retryable. `troubles` receives the others.
pub(super) async fn send(
    client: Client,
    txn: Txn,
    run_lease: LeaseId,
    mut troubles: impl FnMut(ClientError),
) -> Result<TxnResult, ClientError> {
    let mut failures = 0;
    loop {
        let error = match client.txn(txn.clone()).await {
            Ok(result) => return Ok(result),
            // The node's own lease, or the run's. The session reports the loss of the former, which makes this
            // request pointless; the latter is granted again.
            Err(ClientError::Kv(KvError::LeaseNotFound)) => {
                match hold_run_lease(&client, run_lease).await {
                    Ok(()) => ClientError::Kv(KvError::LeaseNotFound),
                    Err(error) if is_fatal(&error) => return Err(error),
                    Err(error) => error,
                }
            }
            Err(error) if is_fatal(&error) => return Err(error),
            Err(error) => error,
        };
        troubles(error);
        // The first retry need not wait: the client has moved on to another server.
        if failures > 0 {
            sleep(delay(failures)).await;
        }
        failures += 1;
    }
}

/// Grants the run's lease, or renews it if it exists.
pub(super) async fn hold_run_lease(client: &Client, lease: LeaseId) -> Result<(), ClientError> {
    let seconds = i64::try_from(RUN_TTL.as_secs()).unwrap_or(i64::MAX);
    match client.lease_grant(seconds, Some(lease)).await {
        Ok(_) => Ok(()),
        Err(ClientError::Kv(KvError::LeaseExists)) => {
            let bound = Instant::now() + Duration::from_secs(5);
            let renewed = async {
                let mut stream = KeepAliveStream::open(client, lease, bound).await?;
                stream.answer().await
            };
            // If the renewal fails, the next request that needs the lease grants it again.
            let _ = tokio::time::timeout_at(bound, renewed).await;
            Ok(())
        }
        Err(error) => Err(error),
    }
}
