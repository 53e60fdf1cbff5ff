//! The clock of a lease: how long the lease surely lives, and whether it expired while the process was suspended.

use std::time::Duration;

use rallypoint_core::kv::Time;

/// The unused fraction of the time to live: a server may expire a lease to the millisecond, and by then its owner
/// must have noticed the loss and stopped its work. Two renewals still fit before it.
const RESERVE: u32 = 8;

/// The fraction that is left when work is stopped by force. Between noticing the loss and that time lies another
/// such fraction.
const LAST_RESERVE: u32 = 16;

/// How often the clock is checked in one time to live.
const LOOKS: u32 = 8;

/// A check that is late by no more than this was delayed by load, not by a suspended process.
const LATE: Duration = Duration::from_millis(500);

/// How long the process was suspended between two checks of the clock that should have been `often` apart; `None` if
/// they were, or nearly so. The result is a lower bound: the beginning of the suspension is unknown.
fn slept(gap: Duration, often: Duration) -> Option<Duration> {
    gap.checked_sub(often).filter(|late| *late > LATE)
}

/// The life of a lease, as its owner can be sure of it. An expired clock stays expired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LeaseClock {
    ttl: Duration,
    /// When the last acknowledged renewal was sent.
    sent: Time,
    /// When the clock was last checked.
    looked: Time,
    over: bool,
    slept: Option<Duration>,
}

impl LeaseClock {
    /// The clock of a lease that was requested at `sent` and granted by `now`.
    pub(super) fn new(now: Time, sent: Time, ttl: Duration) -> Self {
        Self { ttl, sent, looked: now, over: false, slept: None }
    }

    pub(super) fn ttl(&self) -> Duration {
        self.ttl
    }

    /// How long ago the last acknowledged renewal was sent.
    pub(super) fn silent(&self, now: Time) -> Duration {
        now.saturating_sub(self.sent)
    }

    /// How much is left if nothing else happens.
    pub(super) fn left(&self, now: Time) -> Duration {
        let usable = self.ttl - self.ttl / RESERVE;
        if self.over { Duration::ZERO } else { usable.saturating_sub(self.silent(now)) }
    }

    /// When everything must be dead that may only run while the lease is held.
    pub(super) fn fence_at(&self) -> Time {
        self.sent.saturating_add(self.ttl - self.ttl / LAST_RESERVE)
    }

    /// The longest interval between two reads of the clock.
    pub(super) fn often(&self) -> Duration {
        self.ttl / LOOKS
    }

    /// For how long the process did not run when the lease expired, if that is why it was not renewed.
    pub(super) fn slept(&self) -> Option<Duration> {
        self.slept
    }

    /// Whether it is over at `now`, and then for good.
    pub(super) fn check(&mut self, now: Time) -> bool {
        if !self.over {
            self.over = self.left(now).is_zero();
            if self.over {
                self.slept = slept(now.saturating_sub(self.looked), self.often());
            }
            self.looked = now;
        }
        self.over
    }

    /// Takes note of a renewal sent at `sent` whose acknowledgement is seen at `now`. One that comes
    /// after the end changes nothing, and returns false: the loss may have been acted on already.
    pub(super) fn renewed(&mut self, now: Time, sent: Time, ttl: Duration) -> bool {
        if self.check(now) {
            return false;
        }
        self.sent = self.sent.max(sent);
        self.ttl = ttl;
        true
    }

    /// Ends it.
    pub(super) fn end(&mut self) {
        self.over = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Time {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn a_lease_lives_from_the_sending_of_its_last_acknowledged_renewal() {
        // A lease of 8 s, of which 7 are used, granted at 100; then renewals (seen at, sent at), and
        // whether it is over at.
        type Renewals = &'static [(f64, f64)];
        let table: [(Renewals, f64, bool); 9] = [
            (&[], 100.0, false),
            (&[], 106.9, false),
            (&[], 107.0, true),
            (&[(104.0, 103.0)], 109.9, false),
            (&[(104.0, 103.0)], 110.0, true),
            // Acknowledged late but in time: it still counts from when it was sent.
            (&[(106.9, 103.0)], 110.0, true),
            // Acknowledged after the end: it does not bring the lease back.
            (&[(107.0, 106.0)], 108.0, true),
            // Stopped for a minute, then an old acknowledgement is read.
            (&[(160.0, 103.0)], 160.0, true),
            // An acknowledgement that is older than the last one takes nothing away.
            (&[(106.0, 105.0), (106.5, 103.0)], 111.9, false),
        ];
        for (renewals, moment, over) in table {
            let mut life = LeaseClock::new(at(100.0), at(100.0), at(8.0));
            for (seen, sent) in renewals {
                life.renewed(at(*seen), at(*sent), at(8.0));
            }
            assert_eq!(life.check(at(moment)), over, "{renewals:?} at {moment}");
        }
    }

    #[test]
    fn what_is_over_stays_over() {
        let mut life = LeaseClock::new(at(100.0), at(100.0), at(10.0));
        assert!(life.check(at(111.0)));
        assert!(!life.renewed(at(111.0), at(110.9), at(10.0)));
        // Not even a clock that went backwards helps.
        assert!(life.check(at(101.0)));
        assert_eq!(life.left(at(101.0)), Duration::ZERO);
    }

    #[test]
    fn a_lease_that_ran_out_in_sleep_says_so() {
        // A lease of 8 s, of which 7 are used, granted at 100 and looked at every second; the looks, and what is known
        // at the last of them.
        type Looks = &'static [f64];
        let table: [(Looks, bool, Option<f64>); 9] = [
            (&[101.0, 102.0], false, None),
            // The servers could not be reached.
            (&[101.0, 102.0, 103.0, 104.0, 105.0, 106.0, 107.0], true, None),
            // A machine with too much to do is no reason.
            (&[101.3, 102.7, 104.2, 105.7, 107.2], true, None),
            // Asleep past the end.
            (&[101.0, 113.0], true, Some(11.0)),
            (&[101.0, 102.0, 103.0, 104.0, 105.0, 106.0, 107.6], true, Some(0.6)),
            (&[107.0], true, Some(6.0)),
            // Asleep, but awake again before the end: then it was not the sleep alone.
            (&[101.0, 105.0, 106.0, 107.0], true, None),
            // Once over, a later sleep says nothing.
            (&[101.0, 102.0, 103.0, 104.0, 105.0, 106.0, 107.0, 190.0], true, None),
            (&[101.0, 113.0, 114.0, 190.0], true, Some(11.0)),
        ];
        for (looks, over, slept) in table {
            let mut life = LeaseClock::new(at(100.0), at(100.0), at(8.0));
            let last = looks.iter().fold(false, |_, look| life.check(at(*look)));
            let told = life.slept().map(|slept| (slept.as_secs_f64() * 1000.0).round() / 1000.0);
            assert_eq!((last, told), (over, slept), "{looks:?}");
        }
    }

    #[test]
    fn what_must_be_dead_is_dead_before_the_server_lets_go() {
        let mut life = LeaseClock::new(at(101.0), at(100.0), at(16.0));
        assert_eq!(life.fence_at(), at(115.0));
        assert!(life.renewed(at(106.0), at(105.0), at(16.0)));
        assert_eq!(life.fence_at(), at(120.0));
        // By then it was noticed for as long as is left.
        assert_eq!(life.left(at(119.0)), Duration::ZERO);
        // A renewal that came too late moves nothing.
        assert!(!life.renewed(at(119.0), at(118.0), at(16.0)));
        assert_eq!(life.fence_at(), at(120.0));
    }
}
