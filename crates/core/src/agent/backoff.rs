//! Backoff between restarts: workers that fail at their start would otherwise use up all restarts within seconds.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Workers that fail sooner than this after their start had a short life.
const SHORT_LIFE: Duration = Duration::from_secs(60);

/// Exponential backoff between restarts of workers with short lives.
///
/// ```
/// use std::time::Duration;
/// use rallypoint_core::agent::RestartBackoff;
///
/// let delay = RestartBackoff::default();
/// assert_eq!(delay.after(1), Duration::ZERO);
/// assert_eq!(delay.after(2), Duration::from_secs(1));
/// assert_eq!(delay.after(3), Duration::from_secs(2));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartBackoff {
    /// The first pause, after the second short life in a row. Each further pause is twice as long.
    pub first: Duration,
    /// The longest pause.
    pub longest: Duration,
}

impl Default for RestartBackoff {
    fn default() -> Self {
        Self { first: Duration::from_secs(1), longest: Duration::from_secs(30) }
    }
}

impl RestartBackoff {
    /// The pause after this number of short lives in a row. A first failure is never delayed.
    pub fn after(self, short_lives: u32) -> Duration {
        let Some(doublings) = short_lives.checked_sub(2) else { return Duration::ZERO };
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.longest)
    }
}

/// The number of short lives in a row after workers `lived` this long, given the number `before`.
pub(super) fn in_a_row(before: u32, lived: Duration) -> u32 {
    if lived < SHORT_LIFE { before.saturating_add(1) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_the_longest() {
        let seconds = Duration::from_secs;
        let delay =
            |first, longest| RestartBackoff { first: seconds(first), longest: seconds(longest) };
        for (delay, short_lives, expected) in [
            (RestartBackoff::default(), 0, 0),
            (RestartBackoff::default(), 1, 0),
            (RestartBackoff::default(), 2, 1),
            (RestartBackoff::default(), 3, 2),
            (RestartBackoff::default(), 6, 16),
            (RestartBackoff::default(), 7, 30),
            (RestartBackoff::default(), u32::MAX, 30),
            (delay(0, 0), 9, 0),
            (delay(5, 5), 1, 0),
            (delay(5, 5), 2, 5),
            (delay(5, 5), 40, 5),
            (delay(3, 1000), 4, 12),
        ] {
            assert_eq!(delay.after(short_lives), seconds(expected), "{delay:?} {short_lives}");
        }
    }

    #[test]
    fn a_long_life_makes_up_for_the_short_ones() {
        for (before, lived, expected) in [(0, 0, 1), (1, 59, 2), (5, 60, 0), (0, 3600, 0)] {
            assert_eq!(in_a_row(before, Duration::from_secs(lived)), expected, "{before} {lived}");
        }
    }
}
