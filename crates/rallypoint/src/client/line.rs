//! The failure detector of a connection: it is alive while the server sends anything.
//!
//! A host that loses its power and a firewall that drops a connection send nothing. A call that waits for an
//! answer on a silent connection therefore sends a probe, which any server answers at once, however busy the
//! call itself keeps it. If the probe is not answered either, the connection counts as lost for all calls on it:
//! one call detects it, and all of them move at the same moment.

use std::error::Error as _;
use std::future::{Future, pending};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OnceCell, Semaphore};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::Client;
use super::endpoints::EndpointConnection;
use super::rpc;

/// How long a connection may be silent before a probe is sent.
const QUIET: Duration = Duration::from_millis(500);

/// The delay before the next probe of a server that answers probes, but not the call.
const LONGEST_QUIET: Duration = Duration::from_secs(2);

/// The first time-out of a probe that is sent because of a call: see
/// [`super::endpoints::Endpoints::patience`]. Before it, the connection was silent for [`QUIET`]. When a large group
/// forms, a server may be busy for a second before it answers a call.
pub(super) const PATIENCE: Duration = Duration::from_millis(1500);

/// The first time-out of a probe that is sent because of a lease renewal. A quarter of the lease may have passed until
/// the renewal was due, so there is less time.
pub(super) const PATIENCE_FOR_RENEWALS: Duration = Duration::from_millis(500);

/// The unit in which silence is counted, so that a process that was itself stopped for a while does not take that
/// time for silence of the server: data that arrived meanwhile is read before the next unit is over.
const PIECE: Duration = Duration::from_millis(250);

/// The delay of a unit at which it counts for a quarter only: this process is overloaded, and data may still be
/// unread.
const LATE: Duration = Duration::from_millis(50);

/// The state of one connection, shared by all calls on it.
#[derive(Default)]
pub(super) struct Line {
    heard: Mutex<Option<Instant>>,
    lost: CancellationToken,
    greeting: OnceCell<()>,
    probes: OneAtATime,
}

struct OneAtATime(Semaphore);

impl Default for OneAtATime {
    fn default() -> Self {
        Self(Semaphore::new(1))
    }
}

impl Line {
    /// Notes that the server has sent something.
    pub(super) fn hear(&self) {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Notes a status, if the server sent it and it was not created here.
    pub(super) fn hear_of<T>(&self, answer: &Result<T, Status>) {
        if answer.as_ref().map_or_else(|status| status.source().is_none(), |_| true) {
            self.hear();
        }
    }

    /// When the server last sent something.
    pub(super) fn heard(&self) -> Option<Instant> {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the connection as lost for all calls on it.
    pub(super) fn lose(&self) {
        self.lost.cancel();
    }

    /// Waits until the connection is known to be lost.
    pub(super) async fn lost(&self) {
        self.lost.cancelled().await;
    }
}

impl EndpointConnection {
    /// The status of a call on a lost connection.
    pub(super) fn gone(&self) -> Status {
        Status::unavailable(format!("{} has gone silent and answers no probe", self.name))
    }
}

impl Client {
    /// Waits for an answer of the server until the connection is known to be lost. With a `patience` the failure is
    /// detected here, by probes with that time-out.
    pub(super) async fn owed<T>(
        &self,
        connection: &EndpointConnection,
        patience: Duration,
        answer: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        tokio::select! {
            // An answer that has arrived counts, however late it is read.
            biased;
            answer = answer => answer,
            () = connection.line.lost() => Err(connection.gone()),
            () = self.silence(connection, patience) => {
                self.shared.endpoints.lost(connection);
                Err(connection.gone())
            }
        }
    }

    /// Makes sure that the server has answered on this connection before a request is sent on it that must not be
    /// retried: the outcome of such a request to a dead server would stay unknown.
    pub(super) async fn greet(&self, connection: &EndpointConnection) -> Result<(), Status> {
        let line = &connection.line;
        if line.heard().is_some() {
            return Ok(());
        }
        let greeting = async {
            let answer = self.owed(connection, PATIENCE, self.probe(connection)).await;
            if line.heard().is_some() { Ok(()) } else { answer }
        };
        line.greeting.get_or_try_init(|| Box::pin(greeting)).await.copied()
    }

    /// Waits until the server has been silent for too long, even to a probe.
    async fn silence(&self, connection: &EndpointConnection, patience: Duration) {
        let line = &connection.line;
        let mut quiet = QUIET;
        loop {
            let heard = line.heard();
            in_pieces(quiet).await;
            if line.heard() != heard {
                continue;
            }
            // One probe serves all waiting calls.
            let Ok(_turn) = line.probes.0.try_acquire() else { continue };
            let probed = async {
                let answer = self.probe(connection).await;
                if answer.is_err_and(|status| status.source().is_some()) {
                    // There is no connection. The call fails with that, too, and knows whether it was sent.
                    pending().await
                }
            };
            tokio::select! {
                biased;
                () = probed => quiet = (quiet * 2).min(LONGEST_QUIET),
                () = in_pieces(self.shared.endpoints.patience(patience)) => return,
            }
        }
    }

    async fn probe(&self, connection: &EndpointConnection) -> Result<(), Status> {
        // Boxed, since every call would otherwise carry the memory of a probe that it rarely sends.
        let answer = Box::pin(rpc::probe(connection.channel.clone(), &self.shared.meter)).await;
        connection.line.hear_of(&answer);
        answer
    }
}

async fn in_pieces(patience: Duration) {
    let mut left = patience;
    while !left.is_zero() {
        let (begun, piece) = (Instant::now(), left.min(PIECE));
        sleep(piece).await;
        let late = begun.elapsed() > piece + LATE;
        left = left.saturating_sub(if late { PIECE / 4 } else { piece });
    }
}
