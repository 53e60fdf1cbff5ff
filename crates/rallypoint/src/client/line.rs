//! Whether a connection still leads to a server, told by what comes from it.
//!
//! A host that loses its power and a firewall that forgets a connection say nothing. So whoever waits for an
//! answer on a connection from which nothing comes at all sends a probe, which any server answers at once however
//! busy the call itself keeps it. If nothing comes to that either, the connection is lost, for all who use it:
//! one finds out, and everybody moves on in the same moment.

use std::error::Error as _;
use std::future::{Future, pending};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OnceCell, Semaphore};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::Client;
use super::endpoints::Connection;
use super::rpc;

/// How long nothing may come before a probe is sent.
const QUIET: Duration = Duration::from_millis(500);

/// How long to wait before the next probe of a server that answers probes, but not the call.
const LONGEST_QUIET: Duration = Duration::from_secs(2);

/// How long the probe may take that is sent because of a call, at first: see
/// [`super::endpoints::Endpoints::patience`]. Before that, nothing had come for [`QUIET`]. When a large group forms, a
/// server may well have work for a second before it comes to a call.
pub(super) const PATIENCE: Duration = Duration::from_millis(1500);

/// The same because of a renewal. A third of the lease may have passed until that was due, so there is less time.
pub(super) const PATIENCE_FOR_RENEWALS: Duration = Duration::from_millis(500);

/// Silence is counted in pieces of this length, so that a process that was itself stopped for a while does not
/// take that time for silence of the server: what came meanwhile is read before the next piece is over.
const PIECE: Duration = Duration::from_millis(250);

/// A piece that is this much late counts for a quarter only: this process has too much to do, and what came may still be
/// unread.
const LATE: Duration = Duration::from_millis(50);

/// One connection as all of its users see it.
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
    /// Notes that something came from the server.
    pub(super) fn hear(&self) {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Notes what came, if it came from the server and was not made here.
    pub(super) fn hear_of<T>(&self, answer: &Result<T, Status>) {
        if answer.as_ref().map_or_else(|status| status.source().is_none(), |_| true) {
            self.hear();
        }
    }

    /// When something last came from the server.
    pub(super) fn heard(&self) -> Option<Instant> {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells all who use the connection that it is lost.
    pub(super) fn lose(&self) {
        self.lost.cancel();
    }

    /// Waits until the connection is known to be lost.
    pub(super) async fn lost(&self) {
        self.lost.cancelled().await;
    }
}

impl Connection {
    /// What is said of a call on a connection that was lost.
    pub(super) fn gone(&self) -> Status {
        Status::unavailable(format!("{} has gone silent and answers no probe", self.name))
    }
}

impl Client {
    /// Waits for what the server owes us, for as long as the connection is not known to be lost. With so much `patience`
    /// it is found out here.
    pub(super) async fn owed<T>(
        &self,
        connection: &Connection,
        patience: Duration,
        answer: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        tokio::select! {
            // What has come counts, however late it is looked at.
            biased;
            answer = answer => answer,
            () = connection.line.lost() => Err(connection.gone()),
            () = self.silence(connection, patience) => {
                self.shared.endpoints.lost(connection);
                Err(connection.gone())
            }
        }
    }

    /// Sees to it that somebody has answered on this connection, before anything is sent on it that must not be
    /// sent twice: whatever went to a server that never said a word would be in doubt for ever.
    pub(super) async fn greet(&self, connection: &Connection) -> Result<(), Status> {
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

    /// Waits until nothing has come from the server for too long, not even the answer to a probe.
    async fn silence(&self, connection: &Connection, patience: Duration) {
        let line = &connection.line;
        let mut quiet = QUIET;
        loop {
            let heard = line.heard();
            in_pieces(quiet).await;
            if line.heard() != heard {
                continue;
            }
            // One probe is enough for all who wait.
            let Ok(_turn) = line.probes.0.try_acquire() else { continue };
            let probed = async {
                let answer = self.probe(connection).await;
                if answer.is_err_and(|status| status.source().is_some()) {
                    // There is no connection. The call will learn that too, and whether it was sent.
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

    async fn probe(&self, connection: &Connection) -> Result<(), Status> {
        // In a box, since every call carries the room for a probe that it hardly ever sends.
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
