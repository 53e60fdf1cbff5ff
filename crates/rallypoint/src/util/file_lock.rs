//! Advisory locks on files that one process at a time may use.

use std::fs::{File, TryLockError};
use std::time::Duration;

/// Locks a file for this process alone.
///
/// A child that is just being started has a copy of every open file until it executes another program, and
/// with it a copy of a lock that this process may have released meanwhile. The lock is therefore tried for
/// 100 ms before it counts as held by another process.
pub(crate) fn try_lock(file: &File) -> Result<(), TryLockError> {
    for _ in 0..20 {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(5)),
            done => return done,
        }
    }
    file.try_lock()
}
