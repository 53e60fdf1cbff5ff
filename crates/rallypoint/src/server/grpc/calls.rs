//! How many calls one connection may have under way at one time.
//!
//! Each call costs memory for as long as its client keeps it open. A connection therefore has a limit of
//! calls, a lower one of lasting streams, and a much lower one before it has shown a token where one is
//! required. The status of a refused call names the limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

/// HTTP/2's own limit, which clients learn when they connect; they wait rather than exceed it.
pub(in crate::server) const MOST_STREAMS: u32 = 4_000;

/// Limit of watch and keep-alive streams. It is lower than HTTP/2's limit, so that one more is refused and
/// not waited for, and short calls go on beside them. A stream carries any number of watches.
const MOST_LASTING: usize = 2_000;

/// Limit of calls before a token: a login, and health checks.
const MOST_BEFORE_TOKEN: usize = 16;

/// The calls of one connection.
#[derive(Debug)]
pub(in crate::server) struct Calls {
    lasting: Arc<Semaphore>,
    before_token: Arc<Semaphore>,
    /// The connection has shown a token.
    authenticated: AtomicBool,
    /// Calls whose response has not begun.
    under_way: AtomicUsize,
}

/// A call whose response has not begun, until this is dropped.
#[derive(Debug)]
pub(in crate::server) struct CallUnderWay(Arc<Calls>);

impl Drop for CallUnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A permit for one call of a connection, returned when the last copy is dropped.
#[derive(Debug, Clone)]
#[expect(dead_code, reason = "it is held, not read")]
pub(super) struct CallPermit(Arc<OwnedSemaphorePermit>);

impl Calls {
    /// The calls of a new connection.
    pub(in crate::server) fn new() -> Self {
        Self {
            lasting: Arc::new(Semaphore::new(MOST_LASTING)),
            before_token: Arc::new(Semaphore::new(MOST_BEFORE_TOKEN)),
            authenticated: AtomicBool::new(false),
            under_way: AtomicUsize::new(0),
        }
    }

    /// A call begins.
    pub(in crate::server) fn begin(self: &Arc<Self>) -> CallUnderWay {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        CallUnderWay(self.clone())
    }

    /// Whether there are calls whose response has not begun.
    pub(in crate::server) fn are_under_way(&self) -> bool {
        self.under_way.load(Ordering::Relaxed) > 0
    }

    /// Notes that a valid token came with a call.
    pub(super) fn show_token(&self) {
        self.authenticated.store(true, Ordering::Relaxed);
    }

    /// A permit for a call without a token where one is required; a connection that has shown a token
    /// before needs none.
    pub(super) fn before_token(&self) -> Result<Option<CallPermit>, Status> {
        if self.authenticated.load(Ordering::Relaxed) {
            return Ok(None);
        }
        permit(&self.before_token).map(Some).ok_or_else(|| {
            Status::resource_exhausted(format!(
                "rallypoint: {MOST_BEFORE_TOKEN} calls without a token are under way on this \
                 connection, which is the limit; authenticate first"
            ))
        })
    }

    /// A permit for a lasting stream.
    pub(super) fn lasting(&self) -> Result<CallPermit, Status> {
        permit(&self.lasting).ok_or_else(|| {
            Status::resource_exhausted(format!(
                "rallypoint: {MOST_LASTING} watch and keep-alive streams are open on this connection, \
                 which is the limit; put several watches on one stream, or use another connection"
            ))
        })
    }
}

fn permit(semaphore: &Arc<Semaphore>) -> Option<CallPermit> {
    semaphore.clone().try_acquire_owned().ok().map(|permit| CallPermit(Arc::new(permit)))
}
