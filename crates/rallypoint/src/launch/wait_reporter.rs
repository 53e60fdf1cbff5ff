//! Reports what the launcher waits for: as a live line on a terminal, and in the log at increasing intervals.

use std::sync::Arc;
use std::time::Duration;

use rallypoint_core::status::age;
use tokio::time::{Instant, sleep_until};

use super::console::Console;
use crate::log_target::LAUNCH;
use crate::util::reminder::Reminder;

/// Shorter waits have no live line.
const SHOWN_AFTER: Duration = Duration::from_millis(300);

/// The interval at which the live line is redrawn.
const TICK: Duration = Duration::from_secs(1);

/// The delays before the log reports a wait; the last one repeats.
const SAID_AFTER: [Duration; 5] = [
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_secs(60),
];

/// The time before a log report at which the remaining time is requested, since the answer takes a moment.
const ASKED_BEFORE: Duration = Duration::from_millis(50);

/// Details of a wait. They may change while it lasts.
pub(super) struct Detail {
    pub(super) waits_for: String,
    /// The time limit of the wait.
    pub(super) patience: Option<Duration>,
}

impl Detail {
    /// With a remark, before names.
    pub(super) fn with(mut self, remark: &str) -> Self {
        let end = self.waits_for.find("; ").unwrap_or(self.waits_for.len());
        self.waits_for.insert_str(end, &format!("; {remark}"));
        self
    }
}

/// Reports the current wait, if there is one.
pub(super) struct WaitReporter {
    console: Arc<Console>,
    /// The current wait, and its start.
    current: Option<(&'static str, Instant)>,
    /// When the log reports this wait.
    reminder: Reminder,
}

impl WaitReporter {
    pub(super) fn new(console: Arc<Console>) -> Self {
        Self { console, current: None, reminder: Reminder::after(&SAID_AFTER) }
    }

    /// Sets the current wait, or none, and reports it when it is due.
    pub(super) fn show(&mut self, what: Option<&'static str>, detail: Option<Detail>) {
        if what != self.current.map(|(what, _)| what) {
            self.current = what.map(|what| (what, Instant::now()));
            self.reminder = Reminder::after(&SAID_AFTER);
        }
        let current = self.current.filter(|(_, since)| since.elapsed() >= SHOWN_AFTER);
        let Some((what, since)) = current else { return self.console.set_live(None) };
        let detail =
            detail.unwrap_or_else(|| Detail { waits_for: what.to_owned(), patience: None });
        let waited = since.elapsed();
        let seconds = waited.as_secs();
        let left = |limit: Duration| format!(", {} left", age(limit.saturating_sub(waited)));
        let left = detail.patience.map(left).unwrap_or_default();
        // Names come last, so that a narrow terminal cuts them off rather than the time.
        let (what, names) = match detail.waits_for.split_once("; ") {
            Some((what, names)) => (what, format!("; {names}")),
            None => (detail.waits_for.as_str(), String::new()),
        };
        let line = format!("waiting: {what} ({seconds} s{left}){names}");
        self.console.set_live(Some(line.clone()));
        // The live line shows it already.
        if self.reminder.is_due() && !self.console.has_live_line() {
            tracing::info!(target: LAUNCH, "{line}");
        }
    }

    /// Returns when the next report is due; never without a wait.
    pub(super) async fn tick(&self) {
        let Some((_, since)) = self.current else { return std::future::pending().await };
        let shown = since + SHOWN_AFTER;
        let next = match self.console.has_live_line() {
            true if Instant::now() < shown => shown,
            true => Instant::now() + TICK,
            false => match self.reminder.due() - ASKED_BEFORE {
                asked if Instant::now() < asked => asked,
                _ => self.reminder.due(),
            },
        };
        sleep_until(next).await;
    }
}
