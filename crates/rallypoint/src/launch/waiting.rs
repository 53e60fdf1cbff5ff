//! What the launcher waits for, said where somebody looks: as a live line on a terminal, and in a log ever
//! more seldom.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::console::Console;

/// What takes no longer is not worth a live line.
const SHOWN_AFTER: Duration = Duration::from_millis(300);

/// How often the live line is drawn anew.
const TICK: Duration = Duration::from_secs(1);

/// After how long the log says it, and then again and again after the last.
const SAID_AFTER: [Duration; 4] = [
    Duration::from_secs(1),
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_secs(60),
];

/// So long before the log says it, the time that is left is asked for: the answer comes a moment later.
const ASKED_BEFORE: Duration = Duration::from_millis(50);

/// More words for what is waited for. They may change meanwhile.
pub(super) struct Detail {
    pub(super) waits_for: String,
    /// How long it is waited for at most.
    pub(super) patience: Option<Duration>,
}

/// Someone who waits, most of the time for nothing.
pub(super) struct Waiting {
    console: Arc<Console>,
    /// What is waited for in a word, and since when.
    current: Option<(&'static str, Instant)>,
    /// How often the log has said so.
    said: usize,
    /// When it does next.
    say_at: Instant,
}

impl Waiting {
    pub(super) fn new(console: Arc<Console>) -> Self {
        Self { console, current: None, said: 0, say_at: Instant::now() }
    }

    /// What is waited for now, or that nothing is.
    pub(super) fn show(&mut self, what: Option<&'static str>, detail: Option<Detail>) {
        if what != self.current.map(|(what, _)| what) {
            self.current = what.map(|what| (what, Instant::now()));
            (self.said, self.say_at) = (0, Instant::now() + SAID_AFTER[0]);
        }
        let current = self.current.filter(|(_, since)| since.elapsed() >= SHOWN_AFTER);
        let Some((what, since)) = current else { return self.console.set_live(None) };
        let detail =
            detail.unwrap_or_else(|| Detail { waits_for: what.to_owned(), patience: None });
        let seconds = since.elapsed().as_secs();
        let of = detail.patience.map(|time| format!(" of {}", time.as_secs())).unwrap_or_default();
        // A narrow terminal cuts off names rather than the time.
        let (what, names) = match detail.waits_for.split_once("; ") {
            Some((what, names)) => (what, format!("; {names}")),
            None => (detail.waits_for.as_str(), String::new()),
        };
        let line = format!("waiting: {what} ({seconds}{of} s){names}");
        self.console.set_live(Some(line.clone()));
        if Instant::now() < self.say_at {
            return;
        }
        self.said += 1;
        let last = SAID_AFTER[SAID_AFTER.len() - 1];
        self.say_at += SAID_AFTER.get(self.said).copied().unwrap_or(last);
        // Who looks at the live line has seen it.
        if !self.console.has_live_line() {
            tracing::info!("{line}");
        }
    }

    /// Returns when it is time to show it again; never if nothing is waited for.
    pub(super) async fn tick(&self) {
        let Some((_, since)) = self.current else { return std::future::pending().await };
        let shown = since + SHOWN_AFTER;
        let next = match self.console.has_live_line() {
            true if Instant::now() < shown => shown,
            true => Instant::now() + TICK,
            false => match self.say_at - ASKED_BEFORE {
                asked if Instant::now() < asked => asked,
                _ => self.say_at,
            },
        };
        sleep_until(next).await;
    }
}
