//! Waits until a server answers, and says what stands in the way.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::time::Duration;

use rallypoint_core::rendezvous::keys::Keys;
use tokio::time::{Instant, sleep};

use super::errors::connection_error;
use super::request::{delay, hold_run_lease, is_fatal};
use crate::client::{Client, ClientError, describe};
use crate::log_target::RENDEZVOUS;
use crate::rendezvous::RendezvousError;

/// What a server may take to answer, however little time there is.
const LEAST_ATTEMPT: Duration = Duration::from_millis(100);

/// After so long a failure is worth knowing, whatever time is left.
const ATTEMPT: Duration = Duration::from_secs(3);

/// An obstacle that stays is said again after this, and then after twice as much each time.
const AGAIN: Duration = Duration::from_secs(10);

/// Waits until a server answers, and sees to the run's lease on the way.
///
/// # Errors
/// [`RendezvousError::Connection`] if none has after `patience`, or if waiting does not help.
pub(super) async fn wait_for_server(
    client: &Client,
    keys: &Keys,
    patience: Duration,
    servers: &str,
) -> Result<(), RendezvousError> {
    let begun = Instant::now();
    let mut failures = 0;
    let mut said: Option<(Obstacle, Instant, Duration)> = None;
    loop {
        // One request must not take longer than all of them may.
        let left = patience.saturating_sub(begun.elapsed()).max(LEAST_ATTEMPT);
        let hasty = client.with_timeout(client.timeout().min(left).min(ATTEMPT));
        let error = match hold_run_lease(&hasty, keys.run_lease()).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        // Certificates do not become good by waiting.
        if is_fatal(&error) || error.is_tls_error() || begun.elapsed() >= patience {
            return Err(connection_error(servers, error));
        }
        let obstacle = Obstacle::of(&error);
        let pause = match said {
            Some((before, at, pause)) if before == obstacle && at.elapsed() < pause => None,
            Some((before, _, pause)) if before == obstacle => Some(pause * 2),
            _ => Some(AGAIN),
        };
        if let Some(pause) = pause {
            said = Some((obstacle, Instant::now(), pause));
            tracing::warn!(target: RENDEZVOUS, "{}", obstacle.sentence(servers, &error));
        }
        sleep(delay(failures)).await;
        failures += 1;
    }
}

/// Why no server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Obstacle {
    /// The name stands for no address here.
    Name,
    /// Nobody listens there.
    Refused,
    /// Whoever answers speaks something else.
    Foreign,
    /// Nothing comes back.
    Silent,
    /// Something else.
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
        // By the text, since these layers keep nothing else of an error of the layer below.
        if text.contains("dns error") || text.contains("failed to lookup address") {
            return Self::Name;
        }
        // One that has no use for what it is sent may answer otherwise, or end the connection.
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
