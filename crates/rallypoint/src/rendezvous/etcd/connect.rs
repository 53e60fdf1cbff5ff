//! The wait for a first answer of a server, with the cause in the log while none answers.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::time::Duration;

use rallypoint_core::rendezvous::keys::Keys;
use tokio::time::Instant;

use super::errors::connection_error;
use super::request::hold_run_lease;
use crate::client::{Client, ClientError, describe};
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

/// Waits until a server answers, and grants or renews the run's lease.
///
/// # Errors
/// [`RendezvousError::Connection`] if no server has answered after `patience`, or if the error is not retryable.
pub(super) async fn wait_for_server(
    client: &Client,
    keys: &Keys,
    patience: Duration,
    servers: &str,
) -> Result<(), RendezvousError> {
    let begun = Instant::now();
    let attempt = || {
        // One attempt must not take longer than the whole wait.
        let left = patience.saturating_sub(begun.elapsed()).max(LEAST_ATTEMPT);
        let hasty = client.with_timeout(client.timeout().min(left).min(ATTEMPT));
        async move { hold_run_lease(&hasty, keys.run_lease()).await }
    };
    let (mut met, mut reminder) = (Obstacle::Other, Reminder::doubling(AGAIN).at_once());
    let failed = |error: ClientError, _| {
        // A retry does not mend a certificate.
        if !error.is_transient() || error.is_tls_error() || begun.elapsed() >= patience {
            return Err(connection_error(servers, error));
        }
        let obstacle = Obstacle::of(&error);
        if obstacle != met {
            (met, reminder) = (obstacle, Reminder::doubling(AGAIN).at_once());
        }
        if reminder.is_due() {
            tracing::warn!(target: RENDEZVOUS, "{}", obstacle.sentence(servers, &error));
        }
        Ok(())
    };
    retry(SERVER_BACKOFF, attempt, failed).await
}

/// The cause for which no server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Obstacle {
    /// The host name does not resolve.
    Name,
    /// The connection is refused: no program listens on the port.
    Refused,
    /// A program answers in another protocol.
    Foreign,
    /// No packet comes back.
    Silent,
    /// Another cause.
    Other,
}

impl Obstacle {
    fn of(error: &ClientError) -> Self {
        let (ClientError::Unavailable { source, .. } | ClientError::OutcomeUnknown { source, .. }) =
            error
        else {
            return Self::Other;
        };
        let text = describe(source);
        // By the text, since these layers keep nothing else of the error below.
        if text.contains("dns error") || text.contains("failed to lookup address") {
            return Self::Name;
        }
        // A server of another protocol answers in its own, or closes the connection.
        let foreign = ["http2 error", "protocol error", "broken pipe", "Connection reset"];
        if foreign.iter().any(|sign| text.contains(sign)) {
            return Self::Foreign;
        }
        if text.contains("no answer within") || text.contains("has gone silent") {
            return Self::Silent;
        }
        let mut cause: Option<&(dyn Error + 'static)> = source.source();
        while let Some(error) = cause {
            match error.downcast_ref::<io::Error>().map(io::Error::kind) {
                Some(ErrorKind::ConnectionRefused) => return Self::Refused,
                Some(
                    ErrorKind::TimedOut
                    | ErrorKind::HostUnreachable
                    | ErrorKind::NetworkUnreachable,
                ) => return Self::Silent,
                _ => cause = error.source(),
            }
        }
        Self::Other
    }

    fn sentence(self, servers: &str, error: &ClientError) -> String {
        let cause = match error {
            ClientError::Unavailable { source, .. }
            | ClientError::OutcomeUnknown { source, .. } => describe(source),
            error => error.to_string(),
        };
        let what = match self {
            Self::Name => {
                "its name does not resolve on this host. If it never does, the endpoint \
                 (--rdzv-endpoint) is misspelt, or this host needs another name server"
            }
            Self::Refused => {
                "nothing listens there. The node that the endpoint (--rdzv-endpoint) names \
                 has not started, or the port is another"
            }
            Self::Foreign => {
                "the program that answers is no etcd. Give the endpoint (--rdzv-endpoint) \
                 another port, the same on every node"
            }
            Self::Silent => {
                "nothing comes back. The host that the endpoint (--rdzv-endpoint) names is \
                 down, a firewall drops what is sent there, or another program has the port"
            }
            Self::Other => "is the endpoint (--rdzv-endpoint) right?",
        };
        format!("no server answers at {servers}: {what}: {cause}")
    }
}
