//! Work that may wait for a disk, kept off the threads that must not.

use std::fs::{File, TryLockError};
use std::time::Duration;

/// Runs `work` on a thread of its own and waits for it. Its panic is ours.
///
/// If the future is dropped the work goes on to its end.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(join) => match join.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is going away, and whoever waits here with it.
            Err(_) => std::future::pending().await,
        },
    }
}

/// Locks a file for this program alone.
///
/// A child that is just being started has a copy of every open file until it becomes another program, and
/// with it of a lock that we may have let go meanwhile. So it is tried for a moment before the lock counts as
/// somebody else's.
pub(crate) fn try_lock(file: &File) -> Result<(), TryLockError> {
    for _ in 0..20 {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(5)),
            done => return done,
        }
    }
    file.try_lock()
}
