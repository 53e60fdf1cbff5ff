//! The time-outs of a store's calls.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The default time-out of a store's calls, as in PyTorch.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);

/// A time-out that can be changed while it is in use, in whole milliseconds.
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

/// The remaining time of a call that consists of several requests.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallTimeout {
    begun: Instant,
    whole: Duration,
}

impl CallTimeout {
    pub(super) fn new(whole: Duration) -> Self {
        Self { begun: Instant::now(), whole }
    }

    /// The whole time-out.
    pub(super) fn whole(&self) -> Duration {
        self.whole
    }

    pub(super) fn left(&self) -> Duration {
        self.whole.saturating_sub(self.begun.elapsed())
    }
}
