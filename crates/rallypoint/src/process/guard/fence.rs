//! The fence: when workers are killed because their launcher hangs, and when they are only stopped. Pure.

use std::time::Duration;

use rallypoint_core::kv::Time;

/// The interval of a guard's checks. A late check tells that the guard was suspended.
const LOOK: Duration = Duration::from_millis(200);

/// The interval of checks while workers are stopped: another process may continue them.
const LOOK_HELD: Duration = Duration::from_millis(20);

/// A check that is later than this means a suspension.
const LATE: Duration = Duration::from_millis(500);

/// The time that the launcher has, after a suspension of the node, to set a later fence.
const HELD: Duration = Duration::from_secs(1);

/// The action on the workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    /// Stop them until more is known.
    Hold,
    /// Continue them after a stop.
    Release,
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
    Held {
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
    pub(super) fn next_look(&self, now: Time) -> Option<Duration> {
        match self.state {
            FenceState::Ahead => Some(self.at?.saturating_sub(now).min(LOOK)),
            FenceState::Held { .. } => Some(LOOK_HELD),
            FenceState::Passed => Some(LOOK),
        }
    }

    /// A check at `now`. `due` is its scheduled time, unless another event caused it.
    pub(super) fn look(&mut self, due: Option<Time>, now: Time) -> Option<Act> {
        // A running guard would have checked when the fence passed.
        let is_late = self.state == FenceState::Ahead && self.at.is_some_and(|at| now > at + LATE);
        let has_slept = is_late || due.is_some_and(|due| now > due + LATE);
        let has_passed = self.at.is_some_and(|at| now >= at);
        let (state, act) = match (has_passed, &self.state) {
            (false, FenceState::Held { .. }) => (FenceState::Ahead, Some(Act::Release)),
            (false, _) => (FenceState::Ahead, None),
            (true, FenceState::Ahead | FenceState::Held { .. }) if has_slept => {
                (FenceState::Held { until: now + HELD }, Some(Act::Hold))
            }
            (true, FenceState::Held { until }) if now < *until => {
                (FenceState::Held { until: *until }, Some(Act::Hold))
            }
            // At every check: workers may have been started meanwhile.
            (true, _) => (FenceState::Passed, Some(Act::Kill)),
        };
        self.state = state;
        act
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line of a life: what is told before the look, when the look was due and came (in milliseconds), and
    /// what follows.
    type Look = (Option<Option<u64>>, Option<u64>, u64, Option<Act>);

    fn lives(looks: &[Look]) {
        let mut fence = Fence::default();
        let ms = Duration::from_millis;
        for (line, (told, due, now, expected)) in looks.iter().enumerate() {
            if let Some(at) = told {
                fence.set(at.map(ms));
            }
            assert_eq!(fence.look(due.map(ms), ms(*now)), *expected, "line {line}");
        }
    }

    #[test]
    fn a_launcher_that_stands_still_is_fenced_and_stays_so() {
        lives(&[
            (None, None, 0, None),
            (Some(Some(1000)), None, 0, None),
            (None, Some(200), 200, None),
            (Some(Some(1500)), Some(400), 400, None),
            (None, Some(1000), 1000, None),
            (None, Some(1500), 1500, Some(Act::Kill)),
            (None, Some(1700), 1700, Some(Act::Kill)),
            (Some(Some(3000)), Some(1900), 1900, None),
            (Some(None), Some(9000), 9000, None),
        ]);
    }

    #[test]
    fn a_guard_that_slept_holds_the_workers_until_it_knows_more() {
        lives(&[
            (Some(Some(1000)), None, 0, None),
            // By a hundredth too little.
            (None, Some(200), 690, None),
            (None, Some(890), 20_000, Some(Act::Hold)),
            (None, Some(20_020), 20_020, Some(Act::Hold)),
            (Some(Some(30_000)), Some(20_040), 20_040, Some(Act::Release)),
            // Again, and nobody comes.
            (None, Some(20_240), 40_000, Some(Act::Hold)),
            // What is past already is no news, and another sleep begins the time anew.
            (Some(Some(35_000)), Some(40_020), 40_900, Some(Act::Hold)),
            (None, Some(40_920), 41_899, Some(Act::Hold)),
            (None, Some(41_919), 41_919, Some(Act::Hold)),
            (None, Some(42_900), 42_900, Some(Act::Kill)),
        ]);
    }

    #[test]
    fn a_fence_that_it_first_hears_of_after_a_sleep_is_no_other() {
        lives(&[
            (Some(Some(1000)), None, 2000, Some(Act::Hold)),
            (None, Some(2020), 2020, Some(Act::Hold)),
            (Some(Some(4000)), Some(2040), 2040, Some(Act::Release)),
            (None, Some(2240), 2240, None),
        ]);
    }

    #[test]
    fn a_node_that_is_never_fenced_sleeps_as_long_as_it_likes() {
        let mut fence = Fence::default();
        assert_eq!(fence.next_look(Duration::ZERO), None);
        assert_eq!(fence.look(None, Duration::from_secs(9999)), None);
        fence.set(Some(Duration::from_secs(1)));
        assert_eq!(fence.next_look(Duration::ZERO), Some(LOOK));
        assert_eq!(fence.next_look(Duration::from_millis(990)), Some(Duration::from_millis(10)));
        assert_eq!(fence.next_look(Duration::from_secs(5)), Some(Duration::ZERO));
    }
}
