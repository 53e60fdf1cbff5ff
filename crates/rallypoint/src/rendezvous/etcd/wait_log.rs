//! The log's reports of what a node waits for.

use std::time::Duration;

use rallypoint_core::rendezvous::RendezvousView;
use tokio::time::Instant;

use crate::log_target::RENDEZVOUS;
use crate::util::reminder::Reminder;

/// The interval between two reports.
const EVERY: [Duration; 1] = [Duration::from_secs(1)];

/// Logs what a node waits for when that changes, but not more often than [`EVERY`] allows.
#[derive(Debug)]
pub(super) struct WaitLog {
    run_id: String,
    reminder: Reminder,
    /// What the log has reported last.
    reported: Option<String>,
    /// The node waits for something else by now.
    is_behind: bool,
}

impl WaitLog {
    pub(super) fn new(run_id: String) -> Self {
        Self { run_id, reminder: Reminder::after(&EVERY), reported: None, is_behind: false }
    }

    /// A rendezvous begins. Most form before the first report is due.
    pub(super) fn begin(&mut self) {
        self.reminder = Reminder::after(&EVERY);
    }

    /// Reports what the node waits for, if that is new and a report is due.
    pub(super) fn update(&mut self, view: &RendezvousView) {
        if view.waits_for != self.reported && self.reminder.is_due() {
            self.reported.clone_from(&view.waits_for);
            if let Some(waits_for) = &view.waits_for {
                tracing::info!(
                    target: RENDEZVOUS,
                    run_id = self.run_id, round = view.round, waits_for, "waiting"
                );
            }
        }
        self.is_behind = view.waits_for != self.reported;
    }

    /// When there is something to report.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        self.is_behind.then(|| self.reminder.due())
    }
}
