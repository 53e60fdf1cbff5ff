//! How late the renewals of the lease were of late.

use std::time::Duration;

use rallypoint_core::kv::Time;

/// The length of a window. Of two of them the least value is told, so it is forgotten after five to ten minutes, and an
/// alert ends some time after its cause.
const WINDOW: Duration = Duration::from_secs(300);

/// The least margin of this window, and of the one before.
#[derive(Debug, Default)]
pub(super) struct LeastMargin {
    begun: Time,
    current: Option<Duration>,
    before: Option<Duration>,
}

impl LeastMargin {
    /// A renewal was acknowledged this long before the workers would have been stopped.
    pub(super) fn note(&mut self, now: Time, left: Duration) {
        self.turn(now);
        self.current = Some(self.current.map_or(left, |least| least.min(left)));
    }

    /// The least margin of late, if there was a renewal.
    pub(super) fn least(&mut self, now: Time) -> Option<Duration> {
        self.turn(now);
        self.current.into_iter().chain(self.before).min()
    }

    fn turn(&mut self, now: Time) {
        let age = now.saturating_sub(self.begun);
        if age >= WINDOW {
            // What is older than a window is not of the one before.
            let last = self.current.take();
            self.before = last.filter(|_| age < 2 * WINDOW);
            self.begun = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_renewal_is_forgotten_after_five_to_ten_minutes() {
        let seconds = Duration::from_secs;
        let mut margin = LeastMargin::default();
        assert_eq!(margin.least(seconds(1000)), None);
        margin.note(seconds(1000), seconds(6));
        margin.note(seconds(1010), seconds(2));
        margin.note(seconds(1020), seconds(7));
        assert_eq!(margin.least(seconds(1299)), Some(seconds(2)));
        margin.note(seconds(1310), seconds(5));
        assert_eq!(margin.least(seconds(1320)), Some(seconds(2)));
        margin.note(seconds(1610), seconds(6));
        assert_eq!(margin.least(seconds(1611)), Some(seconds(5)));
        // Nothing was renewed for long.
        assert_eq!(margin.least(seconds(3000)), None);
    }
}
