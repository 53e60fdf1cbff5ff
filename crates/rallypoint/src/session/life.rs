//! How long a lease surely lives: arithmetic on moments, and the clock they come from.

use std::time::Duration;

use rallypoint_core::kv::Time;
use rustix::time::{ClockId, clock_gettime};

/// This moment, on a clock that nobody can set and that goes on while the machine is suspended.
pub(super) fn now() -> Time {
    // Elsewhere the monotonic clock is the nearest there is; on Linux it stands still in a suspended
    // machine, while the server's does not.
    #[cfg(target_os = "linux")]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    const CLOCK: ClockId = ClockId::Monotonic;
    let now = clock_gettime(CLOCK);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// This part of the time to live is not used: a server may end a lease to the millisecond, and whoever
/// lost it must have noticed, and have stopped what it runs, by then. Two renewals still fit before it.
const RESERVE: u32 = 8;

/// The life of a lease as seen from this side. Once over it is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Life {
    ttl: Duration,
    /// When the last renewal that was acknowledged had been sent.
    sent: Time,
    over: bool,
}

impl Life {
    pub(super) fn new(sent: Time, ttl: Duration) -> Self {
        Self { ttl, sent, over: false }
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

    /// Whether it is over at `now`, and then for good.
    pub(super) fn check(&mut self, now: Time) -> bool {
        self.over |= self.left(now).is_zero();
        self.over
    }

    /// Takes note of a renewal sent at `sent` whose acknowledgement is seen at `now`. One that comes
    /// after the end changes nothing, and returns false: somebody may have acted on the end already.
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
            let mut life = Life::new(at(100.0), at(8.0));
            for (seen, sent) in renewals {
                life.renewed(at(*seen), at(*sent), at(8.0));
            }
            assert_eq!(life.check(at(moment)), over, "{renewals:?} at {moment}");
        }
    }

    #[test]
    fn what_is_over_stays_over() {
        let mut life = Life::new(at(100.0), at(10.0));
        assert!(life.check(at(111.0)));
        assert!(!life.renewed(at(111.0), at(110.9), at(10.0)));
        // Not even a clock that went backwards helps.
        assert!(life.check(at(101.0)));
        assert_eq!(life.left(at(101.0)), Duration::ZERO);
    }

    #[test]
    fn the_clock_runs() {
        let before = now();
        std::thread::sleep(Duration::from_millis(2));
        assert!(now() - before >= Duration::from_millis(2));
    }
}
