//! Exponential backoff: how long to wait before an operation is retried.

use std::time::Duration;

/// How much of a delay is random.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Jitter {
    /// Nothing: the operation concerns this process alone.
    None,
    /// The second half, so that ten thousand nodes that lost one server do not return as one.
    Half,
    /// All of it, so that writers that collided once do not collide again.
    Full,
}

/// A delay that doubles with each failure, up to a limit.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    jitter: Jitter,
    /// The first retry is made without a delay.
    is_first_immediate: bool,
    failures: u32,
}

impl Backoff {
    /// Delays from `first` to `longest`, half of each at random.
    pub(crate) const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, jitter: Jitter::Half, is_first_immediate: false, failures: 0 }
    }

    /// Makes the delays exact.
    pub(crate) const fn without_jitter(mut self) -> Self {
        self.jitter = Jitter::None;
        self
    }

    /// Makes the whole of each delay random.
    pub(crate) const fn with_full_jitter(mut self) -> Self {
        self.jitter = Jitter::Full;
        self
    }

    /// Makes the first retry at once.
    pub(crate) const fn with_immediate_first(mut self) -> Self {
        self.is_first_immediate = true;
        self
    }

    /// The delay after `failures` earlier failures, given a random number from 0 to 1.
    pub(crate) fn delay(&self, failures: u32, random: f64) -> Duration {
        if failures == 0 && self.is_first_immediate {
            return Duration::ZERO;
        }
        let longest = self.first.saturating_mul(1 << failures.min(20)).min(self.longest);
        let random = random.clamp(0.0, 1.0);
        match self.jitter {
            Jitter::None => longest,
            Jitter::Half => longest.mul_f64(0.5 + random / 2.0),
            Jitter::Full => longest.mul_f64(random),
        }
    }

    /// Counts a failure and returns the delay after it.
    pub(crate) fn next_delay(&mut self) -> Duration {
        let delay = self.delay(self.failures, fastrand::f64());
        self.failures = self.failures.saturating_add(1);
        delay
    }

    /// Counts a failure and waits for the delay after it.
    pub(crate) async fn wait(&mut self) {
        sleep(self.next_delay()).await;
    }

    /// Starts again with the first delay, after a success.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

/// Waits for `delay`. A delay of zero is none at all, whereas tokio's timer rounds it up to a millisecond.
pub(super) async fn sleep(delay: Duration) {
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_millis(50);
    const LONGEST: Duration = Duration::from_secs(2);

    #[test]
    fn delays_double_up_to_the_limit_and_half_of_each_is_random() {
        let backoff = Backoff::new(FIRST, LONGEST);
        let millis = |failures, random| backoff.delay(failures, random).as_millis();
        assert_eq!(millis(0, 1.0), 50);
        assert_eq!(millis(0, 0.0), 25);
        assert_eq!(millis(1, 1.0), 100);
        assert_eq!(millis(2, 0.5), 150);
        assert_eq!(millis(u32::MAX, 1.0), 2000);
        assert_eq!(millis(u32::MAX, 7.0), 2000);
    }

    #[test]
    fn a_success_begins_with_the_first_delay_again() {
        let mut backoff = Backoff::new(FIRST, LONGEST).without_jitter();
        let delays = [0; 3].map(|_| backoff.next_delay().as_millis());
        assert_eq!(delays, [50, 100, 200]);
        backoff.reset();
        assert_eq!(backoff.next_delay(), FIRST);
    }

    #[test]
    fn the_first_retry_may_be_immediate_and_the_whole_delay_random() {
        let mut backoff = Backoff::new(FIRST, LONGEST).without_jitter().with_immediate_first();
        assert_eq!([0; 2].map(|_| backoff.next_delay().as_millis()), [0, 100]);
        let backoff = Backoff::new(FIRST, LONGEST).with_full_jitter();
        assert_eq!(backoff.delay(3, 0.0), Duration::ZERO);
        assert_eq!(backoff.delay(3, 1.0).as_millis(), 400);
    }
}
