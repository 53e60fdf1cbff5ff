//! The wait for a first answer of a server, with the cause in the log while none answers.

use std::mem::replace;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rallypoint_core::rendezvous::keys::Keys;
use tokio::time::{Instant, timeout};

use super::errors::connection_error;
use super::request::hold_run_lease;
use crate::client::{Client, ClientError};
use crate::doctor::{Obstacle, way};
use crate::log_target::RENDEZVOUS;
use crate::rendezvous::RendezvousError;
use crate::util::reminder::Reminder;
use crate::util::retry::{SERVER_BACKOFF, retry};

/// The least time for one attempt, however little time is left.
const LEAST_ATTEMPT: Duration = Duration::from_millis(100);

/// The most time for one attempt, so that the log names the cause soon.
const ATTEMPT: Duration = Duration::from_secs(3);

/// The log repeats an unchanged cause after this time, and then each time after twice as long.
const AGAIN: Duration = Duration::from_secs(10);

/// The time limit for looking at the way to the servers, so that the log names the cause soon.
const WAY: Duration = Duration::from_millis(1500);

/// An attempt that no server answered.
struct Unanswered {
    error: ClientError,
    obstacle: Obstacle,
    /// Whether the attempt before had another obstacle.
    is_new: bool,
    /// What is known of the way to the servers, in sentences.
    way: String,
}

/// Waits until a server answers, and grants or renews the run's lease.
///
/// # Errors
/// [`RendezvousError::Connection`] if no server has answered at the deadline, or if the error is not retryable.
pub(super) async fn wait_for_server(
    client: &Client,
    keys: &Keys,
    deadline: Instant,
    servers: &str,
) -> Result<(), RendezvousError> {
    let met = Mutex::new(Obstacle::Other);
    let attempt = || {
        // One attempt must not take longer than the whole wait.
        let left = deadline.saturating_duration_since(Instant::now()).max(LEAST_ATTEMPT);
        let hasty = client.with_timeout(client.timeout().min(left).min(ATTEMPT));
        let (met, keys) = (&met, &keys);
        async move {
            let Err(error) = hold_run_lease(&hasty, keys.run_lease()).await else { return Ok(()) };
            let obstacle = Obstacle::of(&error);
            let before =
                replace(&mut *met.lock().unwrap_or_else(PoisonError::into_inner), obstacle);
            // The addresses are said once.
            let is_new = obstacle != before;
            let way = match is_new {
                true => timeout(WAY, way(obstacle, servers)).await.unwrap_or_default(),
                false => String::new(),
            };
            Err(Unanswered { error, obstacle, is_new, way })
        }
    };
    let mut reminder = Reminder::doubling(AGAIN).at_once();
    let failed = |Unanswered { error, obstacle, is_new, way }, _| {
        // A retry does not mend a certificate.
        if !error.is_transient() || error.is_tls_error() || Instant::now() >= deadline {
            return Err(connection_error(servers, error));
        }
        if is_new {
            reminder = Reminder::doubling(AGAIN).at_once();
        }
        if reminder.is_due() {
            tracing::warn!(target: RENDEZVOUS, "{}{way}", obstacle.sentence(servers, &error));
        }
        Ok(())
    };
    retry(SERVER_BACKOFF, attempt, failed).await
}
