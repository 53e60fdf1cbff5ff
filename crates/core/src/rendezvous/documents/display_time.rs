//! A time of day in a shared document, for people to read.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A time of day by the clock of the host that wrote it, in milliseconds since 1970. It is for display only: clocks of
/// hosts differ, so no decision may depend on it (invariant A5), and it has no order by which one could.
///
/// ```
/// use std::time::Duration;
/// use rallypoint_core::rendezvous::documents::DisplayTime;
/// let opened = DisplayTime::from_unix_millis(1_000);
/// let now = opened.plus(Duration::from_secs(5));
/// assert_eq!(now.elapsed_since(opened), Duration::from_secs(5));
/// assert_eq!(opened.elapsed_since(now), Duration::ZERO, "the clocks differ");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DisplayTime(u64);

impl DisplayTime {
    /// The time so many milliseconds after 1970 began.
    pub const fn from_unix_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// The milliseconds since 1970 began.
    pub const fn unix_millis(self) -> u64 {
        self.0
    }

    /// The time so much later.
    #[must_use]
    pub fn plus(self, time: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)))
    }

    /// The time so much earlier.
    #[must_use]
    pub fn minus(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)))
    }

    /// The time between `earlier` and this, for display; zero if the clocks of the two authors contradict it.
    pub fn elapsed_since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}
