//! What one connection may have under way at one time.
//!
//! Each call costs memory for as long as its client likes. So a connection has so many at most, fewer of
//! those that last, and hardly any before it has shown a token where one is asked for. Whoever is over a
//! limit is told which.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

/// HTTP/2's own limit, of which clients are told when they connect; they wait rather than exceed it.
pub(super) const MOST_STREAMS: u32 = 4_000;

/// Watch and keep-alive streams. Fewer than HTTP/2's limit, so that one more is refused and not waited
/// for, and short calls go on beside them. A stream carries any number of watches.
const MOST_LASTING: usize = 2_000;

/// Calls before a token: a login, and the questions whether we are up.
const MOST_BEFORE_TOKEN: usize = 16;

/// The calls of one connection.
pub(super) struct Calls {
    lasting: Arc<Semaphore>,
    before_token: Arc<Semaphore>,
    /// It has shown a token.
    known: AtomicBool,
}

/// A place among the calls of a connection, given back when the last copy is dropped.
#[derive(Debug, Clone)]
#[expect(dead_code, reason = "it is held, not read")]
pub(super) struct Place(Arc<OwnedSemaphorePermit>);

impl Calls {
    pub(super) fn new() -> Self {
        Self {
            lasting: Arc::new(Semaphore::new(MOST_LASTING)),
            before_token: Arc::new(Semaphore::new(MOST_BEFORE_TOKEN)),
            known: AtomicBool::new(false),
        }
    }

    /// A valid token came with a call.
    pub(super) fn show_token(&self) {
        self.known.store(true, Ordering::Relaxed);
    }

    /// A place for a call without a token where one is asked for; none is needed by those who have shown
    /// one before.
    pub(super) fn before_token(&self) -> Result<Option<Place>, Status> {
        if self.known.load(Ordering::Relaxed) {
            return Ok(None);
        }
        place(&self.before_token).map(Some).ok_or_else(|| {
            Status::resource_exhausted(format!(
                "rallypoint: {MOST_BEFORE_TOKEN} calls without a token are under way on this \
                 connection, which is the limit; authenticate first"
            ))
        })
    }

    /// A place for a stream that lasts.
    pub(super) fn lasting(&self) -> Result<Place, Status> {
        place(&self.lasting).ok_or_else(|| {
            Status::resource_exhausted(format!(
                "rallypoint: {MOST_LASTING} watch and keep-alive streams are open on this connection, \
                 which is the limit; put several watches on one stream, or use another connection"
            ))
        })
    }
}

fn place(room: &Arc<Semaphore>) -> Option<Place> {
    room.clone().try_acquire_owned().ok().map(|permit| Place(Arc::new(permit)))
}
