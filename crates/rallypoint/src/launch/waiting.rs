//! What the launcher waits for, said where somebody looks: as a live line on a terminal, and in a log ever
//! more seldom.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::console::Console;

/// How often the live line is drawn anew.
const TICK: Duration = Duration::from_secs(1);

/// After how long the log says it, and then again and again after the last.
const SAID_AFTER: [Duration; 4] = [
    Duration::from_secs(1),
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_secs(60),
];

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

    /// What is waited for now, or that nothing is. `detail` has more words, which may change meanwhile.
    pub(super) fn show(&mut self, what: Option<&'static str>, detail: Option<String>) {
        if what != self.current.map(|(what, _)| what) {
            self.current = what.map(|what| (what, Instant::now()));
            (self.said, self.say_at) = (0, Instant::now() + SAID_AFTER[0]);
        }
        let Some((what, since)) = self.current else { return self.console.set_live(None) };
        let waits_for = detail.unwrap_or_else(|| what.to_owned());
        let seconds = since.elapsed().as_secs();
        self.console.set_live(Some(format!("waiting: {waits_for} ({seconds} s)")));
        if Instant::now() < self.say_at {
            return;
        }
        self.said += 1;
        let last = SAID_AFTER[SAID_AFTER.len() - 1];
        self.say_at += SAID_AFTER.get(self.said).copied().unwrap_or(last);
        // Who looks at the live line has seen it.
        if !self.console.has_live_line() {
            tracing::info!(seconds, "waiting: {waits_for}");
        }
    }

    /// Returns when it is time to show it again; never if nothing is waited for.
    pub(super) async fn tick(&self) {
        match self.current {
            Some(_) if self.console.has_live_line() => sleep_until(Instant::now() + TICK).await,
            Some(_) => sleep_until(self.say_at).await,
            None => std::future::pending().await,
        }
    }
}
