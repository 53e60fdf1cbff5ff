//! The fence: when workers are killed because their launcher hangs, and when they are only stopped. Pure logic.

use std::time::Duration;

use rallypoint_core::kv::Time;

/// The interval of a guard's checks. A late check tells that the guard was suspended.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// The interval of checks while workers are stopped: another process may continue them.
const STOPPED_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// A check that is later than this means a suspension.
const LATE: Duration = Duration::from_millis(500);

/// The time that the launcher has, after a suspension of the node, to set a later fence.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// The action on the workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FenceAction {
    /// Stop them until more is known.
    Stop,
    /// Continue them after a stop.
    Continue,
    Kill,
}

/// The fence, and its state.
#[derive(Debug, Default)]
pub(super) struct Fence {
    at: Option<Time>,
    state: FenceState,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum FenceState {
    #[default]
    Ahead,
    /// The fence passed while the guard was suspended.
    Stopped {
        until: Time,
    },
    Passed,
}

impl Fence {
    /// Sets a fence, or none. It applies from the next check.
    pub(super) fn set(&mut self, at: Option<Time>) {
        self.at = at;
    }

    pub(super) fn at(&self) -> Option<Time> {
        self.at
    }

    /// The time of the next check; `None` without a fence.
    pub(super) fn next_check(&self, now: Time) -> Option<Duration> {
        match self.state {
            FenceState::Ahead => Some(self.at?.saturating_sub(now).min(CHECK_INTERVAL)),
            FenceState::Stopped { .. } => Some(STOPPED_CHECK_INTERVAL),
            FenceState::Passed => Some(CHECK_INTERVAL),
        }
    }

    /// A check at `now`. `due` is its scheduled time, unless another event caused it.
    pub(super) fn check(&mut self, due: Option<Time>, now: Time) -> Option<FenceAction> {
        // A running guard would have checked when the fence passed.
        let is_late = self.state == FenceState::Ahead && self.at.is_some_and(|at| now > at + LATE);
        let has_slept = is_late || due.is_some_and(|due| now > due + LATE);
        let has_passed = self.at.is_some_and(|at| now >= at);
        let (state, act) = match (has_passed, &self.state) {
            (false, FenceState::Stopped { .. }) => (FenceState::Ahead, Some(FenceAction::Continue)),
            (false, _) => (FenceState::Ahead, None),
            (true, FenceState::Ahead | FenceState::Stopped { .. }) if has_slept => {
                (FenceState::Stopped { until: now + STOP_TIMEOUT }, Some(FenceAction::Stop))
            }
            (true, FenceState::Stopped { until }) if now < *until => {
                (FenceState::Stopped { until: *until }, Some(FenceAction::Stop))
            }
            // At every check: workers may have been started meanwhile.
            (true, _) => (FenceState::Passed, Some(FenceAction::Kill)),
        };
        self.state = state;
        act
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A check: the fence that is set before it, its scheduled and actual time (in milliseconds), and the expected
    /// action.
    type Check = (Option<Option<u64>>, Option<u64>, u64, Option<FenceAction>);

    fn run(checks: &[Check]) {
        let mut fence = Fence::default();
        let ms = Duration::from_millis;
        for (line, (told, due, now, expected)) in checks.iter().enumerate() {
            if let Some(at) = told {
                fence.set(at.map(ms));
            }
            assert_eq!(fence.check(due.map(ms), ms(*now)), *expected, "line {line}");
        }
    }

    #[test]
    fn workers_of_a_hanging_launcher_are_killed_at_every_check() {
        run(&[
            (None, None, 0, None),
            (Some(Some(1000)), None, 0, None),
            (None, Some(200), 200, None),
            (Some(Some(1500)), Some(400), 400, None),
            (None, Some(1000), 1000, None),
            (None, Some(1500), 1500, Some(FenceAction::Kill)),
            (None, Some(1700), 1700, Some(FenceAction::Kill)),
            (Some(Some(3000)), Some(1900), 1900, None),
            (Some(None), Some(9000), 9000, None),
        ]);
    }

    #[test]
    fn after_a_suspension_the_guard_stops_the_workers_before_it_kills_them() {
        run(&[
            (Some(Some(1000)), None, 0, None),
            // Just below the limit of a late check.
            (None, Some(200), 690, None),
            (None, Some(890), 20_000, Some(FenceAction::Stop)),
            (None, Some(20_020), 20_020, Some(FenceAction::Stop)),
            (Some(Some(30_000)), Some(20_040), 20_040, Some(FenceAction::Continue)),
            // Another suspension, and no later fence.
            (None, Some(20_240), 40_000, Some(FenceAction::Stop)),
            // A fence in the past changes nothing, and another suspension restarts the timeout.
            (Some(Some(35_000)), Some(40_020), 40_900, Some(FenceAction::Stop)),
            (None, Some(40_920), 41_899, Some(FenceAction::Stop)),
            (None, Some(41_919), 41_919, Some(FenceAction::Stop)),
            (None, Some(42_900), 42_900, Some(FenceAction::Kill)),
        ]);
    }

    #[test]
    fn a_fence_that_is_set_after_it_has_passed_counts_as_a_suspension() {
        run(&[
            (Some(Some(1000)), None, 2000, Some(FenceAction::Stop)),
            (None, Some(2020), 2020, Some(FenceAction::Stop)),
            (Some(Some(4000)), Some(2040), 2040, Some(FenceAction::Continue)),
            (None, Some(2240), 2240, None),
        ]);
    }

    #[test]
    fn without_a_fence_there_are_no_checks() {
        let mut fence = Fence::default();
        assert_eq!(fence.next_check(Duration::ZERO), None);
        assert_eq!(fence.check(None, Duration::from_secs(9999)), None);
        fence.set(Some(Duration::from_secs(1)));
        assert_eq!(fence.next_check(Duration::ZERO), Some(CHECK_INTERVAL));
        assert_eq!(fence.next_check(Duration::from_millis(990)), Some(Duration::from_millis(10)));
        assert_eq!(fence.next_check(Duration::from_secs(5)), Some(Duration::ZERO));
    }
}
