//! How long the calls of a store wait.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// How long a store's calls wait unless it is told otherwise, as in PyTorch.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);

/// A time-out that can be changed while others use it, in whole milliseconds.
#[derive(Debug)]
pub(super) struct Timeout(AtomicU64);

impl Timeout {
    pub(super) fn new(timeout: Duration) -> Self {
        Self(AtomicU64::new(milliseconds(timeout)))
    }

    pub(super) fn get(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }

    pub(super) fn set(&self, timeout: Duration) {
        self.0.store(milliseconds(timeout), Ordering::Relaxed);
    }
}

impl Clone for Timeout {
    fn clone(&self) -> Self {
        Self::new(self.get())
    }
}

fn milliseconds(timeout: Duration) -> u64 {
    u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)
}

/// How long a call that consists of several parts may still take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    begun: Instant,
    whole: Duration,
}

impl Patience {
    pub(super) fn new(whole: Duration) -> Self {
        Self { begun: Instant::now(), whole }
    }

    /// What it was in the beginning.
    pub(super) fn whole(&self) -> Duration {
        self.whole
    }

    pub(super) fn left(&self) -> Duration {
        self.whole.saturating_sub(self.begun.elapsed())
    }
}
