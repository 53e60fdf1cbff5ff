//! A client of stores on the wire of PyTorch's `TCPStore`: of [`AgentStore`](super::AgentStore), and of
//! PyTorch's own server.

mod calls;
mod connection;
mod message;
mod presence;

use std::io::{self, ErrorKind};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::timeout;

use self::connection::{ROUND_TRIP, StoreConnection};
pub(crate) use self::presence::{Presence, PresenceEnd};
use super::timeout::{CallTimeout, Timeout};
use super::{DEFAULT_TIMEOUT, StoreError};
use crate::log_target::STORE;
use crate::util::backoff::Backoff;
use crate::util::retry::retry;

/// The number of idle connections that are kept for later calls.
const MAX_IDLE: usize = 4;

/// The backoff between attempts to connect.
const CONNECT_BACKOFF: Backoff = Backoff::new(Duration::from_millis(10), Duration::from_secs(1));

/// How long a server may take to answer after the time-out of a call.
const LAST_WORD: Duration = Duration::from_secs(1);

/// A store at a server that speaks the wire of PyTorch's `TCPStore`.
///
/// Each call has a connection of its own, so that a waiting call does not block other calls, and dropping its
/// future is always safe: the connection is closed with it. A few connections are kept for later calls. When a
/// write returns, it has been executed, and every client sees it.
///
/// A server that does not answer any more is awaited for the time-out of the call and a second; then the keys
/// that the call waited for count as missing. Calls that do not wait have a time-out of a minute.
///
/// A server that was restarted at the same address is another, empty store; the wire does not distinguish
/// them.
///
/// ```no_run
/// use std::time::Duration;
/// use rallypoint::store::{Store, TcpStore};
///
/// # async fn example() -> Result<(), rallypoint::store::StoreError> {
/// let store = TcpStore::connect("10.0.0.1:29500", Duration::from_secs(30)).await?;
/// let rank = store.add(b"arrived", 1).await? - 1;
/// store.set(format!("address/{rank}").as_bytes(), "10.0.0.7:7000".into()).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TcpStore {
    address: String,
    connect_timeout: Duration,
    idle: Mutex<Vec<StoreConnection>>,
    timeout: Timeout,
}

impl TcpStore {
    /// Connects to `address`: a name or an IP address, a colon and a port; an IPv6 address has brackets.
    /// Since the server may start later than its clients, attempts are repeated until `timeout` is over.
    pub async fn connect(address: &str, timeout: Duration) -> Result<Self, StoreError> {
        let patience = CallTimeout::new(timeout);
        let failed = |error: io::Error, delay| {
            // An invalid address stays invalid.
            if patience.left() <= delay || error.kind() == ErrorKind::InvalidInput {
                let (address, waited) = (address.to_owned(), timeout - patience.left());
                return Err(StoreError::Connect { address, waited, source: error });
            }
            tracing::debug!(target: STORE, %error, address, "no store yet");
            Ok(())
        };
        let attempt = || open(address, patience.left());
        let connection = retry(CONNECT_BACKOFF, attempt, failed).await?;
        Ok(Self {
            address: address.to_owned(),
            connect_timeout: timeout,
            idle: Mutex::new(vec![connection]),
            timeout: Timeout::new(DEFAULT_TIMEOUT),
        })
    }

    /// The address that was given.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Runs `deed` on a connection, which is kept if it succeeds.
    async fn with<T>(
        &self,
        deed: impl AsyncFnOnce(&mut StoreConnection) -> io::Result<T>,
    ) -> Result<T, StoreError> {
        let mut connection = self.take().await?;
        let done = deed(&mut connection).await.map_err(|error| self.lost(error))?;
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE {
            idle.push(connection);
        }
        Ok(done)
    }

    async fn take(&self) -> Result<StoreConnection, StoreError> {
        loop {
            let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            match idle {
                Some(connection) if connection.is_quiet() => return Ok(connection),
                Some(ended) => drop(ended),
                None => {
                    return open(&self.address, ROUND_TRIP).await.map_err(|error| self.lost(error));
                }
            }
        }
    }

    fn lost(&self, source: io::Error) -> StoreError {
        StoreError::Connection { address: self.address.clone(), source }
    }
}

/// Opens a connection in time.
async fn open(address: &str, patience: Duration) -> io::Result<StoreConnection> {
    let opened = timeout(patience, StoreConnection::open(address)).await;
    opened.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
}

/// What comes of a call that waits, unless the server leaves it without an answer for too long. The
/// connection, if there is one by then, is closed.
async fn in_time<T>(
    patience: CallTimeout,
    call: impl Future<Output = Result<T, StoreError>>,
    late: impl FnOnce() -> StoreError,
) -> Result<T, StoreError> {
    let limit = patience.left().saturating_add(LAST_WORD);
    timeout(limit, call).await.unwrap_or_else(|_| Err(late()))
}

fn timed_out(patience: CallTimeout, missing: &[&[u8]]) -> StoreError {
    let missing = missing.iter().map(|key| name(key)).collect();
    StoreError::Timeout { waited: patience.whole(), missing }
}

fn name(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}
