//! When a wait is reported: soon at first, then ever less often.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// The intervals between the reports of one wait.
#[derive(Debug, Clone, Copy)]
enum Intervals {
    /// These in turn, then the last one over and over.
    List(&'static [Duration]),
    /// This one, then twice as much each time.
    Doubling(Duration),
}

impl Intervals {
    fn get(self, used: u32) -> Duration {
        match self {
            Self::List(list) => {
                let last = list.last().copied().unwrap_or(Duration::MAX);
                list.get(used as usize).copied().unwrap_or(last)
            }
            Self::Doubling(first) => first.saturating_mul(1 << used.min(20)),
        }
    }
}

/// Tells when it is time to report, once more, what is waited for.
#[derive(Debug, Clone)]
pub struct Reminder {
    intervals: Intervals,
    /// How many intervals have begun.
    used: u32,
    due: Instant,
}

impl Reminder {
    /// Reports after these intervals in turn, then after the last one over and over.
    pub fn after(intervals: &'static [Duration]) -> Self {
        Self::new(Intervals::List(intervals))
    }

    /// Reports after `first`, then after twice as much each time.
    pub fn doubling(first: Duration) -> Self {
        Self::new(Intervals::Doubling(first))
    }

    fn new(intervals: Intervals) -> Self {
        let mut reminder = Self { intervals, used: 0, due: Instant::now() };
        reminder.begin_interval();
        reminder
    }

    fn begin_interval(&mut self) {
        let now = Instant::now();
        let interval = self.intervals.get(self.used);
        // A century stands for an interval that no clock can hold.
        let century = Duration::from_secs(100 * 365 * 86_400);
        self.due = now.checked_add(interval).unwrap_or(now + century);
        self.used = self.used.saturating_add(1);
    }

    /// Makes a report due now, before the first interval.
    pub fn at_once(mut self) -> Self {
        (self.used, self.due) = (0, Instant::now());
        self
    }

    /// When the next report is due.
    pub fn due(&self) -> Instant {
        self.due
    }

    /// Whether a report is due. If it is, the next one is due an interval from now.
    pub fn is_due(&mut self) -> bool {
        if Instant::now() < self.due {
            return false;
        }
        self.begin_interval();
        true
    }

    /// Waits for `future`, and calls `report` whenever a report is due meanwhile.
    pub async fn during<T>(
        mut self,
        future: impl Future<Output = T>,
        mut report: impl FnMut(),
    ) -> T {
        let mut future = pin!(future);
        loop {
            tokio::select! {
                biased;
                done = &mut future => return done,
                () = sleep_until(self.due) => {
                    if self.is_due() {
                        report();
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_reported_ever_less_often() {
        const LIST: [Duration; 3] =
            [Duration::from_secs(1), Duration::from_secs(10), Duration::from_secs(30)];
        let seconds = |intervals: Intervals| [0, 1, 2, 3].map(|n| intervals.get(n).as_secs());
        assert_eq!(seconds(Intervals::List(&LIST)), [1, 10, 30, 30]);
        assert_eq!(seconds(Intervals::Doubling(Duration::from_secs(4))), [4, 8, 16, 32]);
    }

    #[test]
    fn a_report_may_be_due_at_once_and_the_first_interval_follows() {
        let interval = Duration::from_secs(60);
        let mut reminder = Reminder::doubling(interval).at_once();
        assert!(reminder.is_due());
        assert!(!reminder.is_due());
        let left = reminder.due().saturating_duration_since(Instant::now());
        assert!(interval / 2 < left && left <= interval, "{left:?}");
    }

    #[tokio::test]
    async fn reports_come_during_a_wait_and_not_before_they_are_due() {
        let begun = Instant::now();
        let mut reports = Vec::new();
        let wait = tokio::time::sleep(Duration::from_millis(100));
        let reminder = Reminder::doubling(Duration::from_millis(20));
        reminder.during(wait, || reports.push(begun.elapsed())).await;
        assert!((1..=2).contains(&reports.len()), "{reports:?}");
        assert!(reports[0] >= Duration::from_millis(20), "{reports:?}");
        let never = Reminder::doubling(Duration::MAX);
        never.during(async {}, || panic!("it is not due")).await;
    }
}
