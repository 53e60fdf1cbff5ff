//! The events of the driver's session: opened, renewed, lost.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rallypoint_core::kv::Time;
use tokio::sync::watch;

use super::driver::Boxed;
use crate::client::{Client, ClientError};
use crate::session::{Loss, Session};
use crate::util::retry::{SERVER_BACKOFF, retry, transient};

/// Opens a session, and retries until it is open or the server refuses it. The last failure is kept in `last_error`.
pub(super) async fn open_session(
    client: Client,
    ttl: Duration,
    last_error: Arc<Mutex<Option<ClientError>>>,
) -> Result<Session, ClientError> {
    let failed = |error, _| {
        let error = transient(error)?;
        *last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        Ok(())
    };
    retry(SERVER_BACKOFF, || Session::open(&client, ttl), failed).await
}

/// Waits for the loss of the session, and checks the lease's clock at each poll: a process that was suspended may
/// receive other events before the session's own task runs again.
pub(super) async fn lost(session: &mut Option<(Session, Boxed<Loss>)>) -> Loss {
    let Some((session, lost)) = session else { return std::future::pending().await };
    poll_fn(|context| {
        session.is_lost();
        lost.as_mut().poll(context)
    })
    .await
}

/// Waits for the next renewal.
pub(super) async fn renewed(renewals: &mut Option<watch::Receiver<Time>>) {
    if let Some(renewed) = renewals
        && renewed.changed().await.is_err()
    {
        // The session has ended, which `lost` reports.
        *renewals = None;
    }
    if renewals.is_none() {
        std::future::pending().await
    }
}
