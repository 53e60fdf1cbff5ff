//! How a node spends its time. Goodput is the part of `training`.

use std::time::Instant;

use rallypoint_core::events::EventBody;

/// What a node does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Workers run.
    Training,
    /// A group forms.
    Meeting,
    /// Ranks are assigned, and workers are started.
    Starting,
    /// Workers are stopped.
    Stopping,
    /// Anything else: before the first round, in a restart backoff, at the exit barrier.
    Waiting,
}

impl Phase {
    /// The phase that begins with this event.
    pub(super) fn after(body: &EventBody) -> Option<Self> {
        Some(match body {
            EventBody::RendezvousBegan => Self::Meeting,
            EventBody::GroupFormed { .. } => Self::Starting,
            EventBody::WorkersStarted { .. } => Self::Training,
            EventBody::WorkersStopping { .. } => Self::Stopping,
            EventBody::WorkersStopped { .. }
            | EventBody::BarrierReached
            | EventBody::NoGroup
            | EventBody::Finished { .. } => Self::Waiting,
            _ => return None,
        })
    }
}

const PHASES: [(Phase, &str); 5] = [
    (Phase::Training, "training"),
    (Phase::Meeting, "meeting"),
    (Phase::Starting, "starting"),
    (Phase::Stopping, "stopping"),
    (Phase::Waiting, "waiting"),
];

/// The time in each phase.
pub(super) struct Phases {
    current: Phase,
    /// When the phase began: by the clock of the events, and by that of this process.
    since: (u64, Instant),
    /// The time in each phase before the current one, in milliseconds.
    spent: [u64; PHASES.len()],
}

impl Phases {
    pub(super) fn new() -> Self {
        Self { current: Phase::Waiting, since: (0, Instant::now()), spent: [0; PHASES.len()] }
    }

    /// A phase begins, at this time of the events.
    pub(super) fn enter(&mut self, phase: Phase, ms: u64) {
        let before = PHASES.iter().zip(&mut self.spent).find(|((one, _), _)| *one == self.current);
        if let Some((_, spent)) = before {
            *spent += ms.saturating_sub(self.since.0);
        }
        (self.current, self.since) = (phase, (ms, Instant::now()));
    }

    pub(super) fn is_training(&self) -> bool {
        self.current == Phase::Training
    }

    /// The seconds in each phase, up to now.
    pub(super) fn seconds(&self) -> [(&'static str, f64); PHASES.len()] {
        let mut seconds = [("", 0.0); PHASES.len()];
        for (((phase, name), spent), told) in PHASES.iter().zip(self.spent).zip(&mut seconds) {
            let current = (*phase == self.current).then(|| self.since.1.elapsed().as_secs_f64());
            *told = (*name, spent as f64 / 1e3 + current.unwrap_or_default());
        }
        seconds
    }
}
