//! What the agent is told of its group and its run, in the order in which it happened.
//!
//! A handler tells what is so, not what changed: the news is what follows from it and was not told before.

use std::time::Duration;

use rallypoint_core::agent::{AgentInput, KnownGroup, RestartBudget, membership_events};
use rallypoint_core::kv::Time;
use rallypoint_core::rendezvous::RendezvousView;
use tokio::sync::watch;

use super::wait_reporter::Detail;
use crate::rendezvous::HandlerStatus;
use crate::session::Loss;

/// What happens to the group and the run.
pub(super) struct MembershipEvents {
    source: EventSource,
    /// What was told of this group already.
    told: Vec<AgentInput>,
    fenced: Option<Loss>,
}

enum EventSource {
    /// The handler and the count of restarts report every change.
    Live { status: watch::Receiver<HandlerStatus>, budget: watch::Receiver<RestartBudget> },
    /// It has ended, which it should not, and whether that was told.
    Ended { told: bool },
}

impl MembershipEvents {
    pub(super) fn new(
        status: watch::Receiver<HandlerStatus>,
        budget: watch::Receiver<RestartBudget>,
    ) -> Self {
        let source = EventSource::Live { status, budget };
        Self { source, told: Vec::new(), fenced: None }
    }

    /// Waits until there may be something new. Cancel-safe.
    pub(super) async fn changed(&mut self) {
        let alive = match &mut self.source {
            EventSource::Live { status, budget } => tokio::select! {
                changed = status.changed() => changed.is_ok(),
                changed = budget.changed() => changed.is_ok(),
            },
            EventSource::Ended { told: false } => true,
            EventSource::Ended { told: true } => std::future::pending().await,
        };
        if !alive {
            self.source = EventSource::Ended { told: false };
        }
    }

    /// A new group has formed, or none is there any more: what was told was of another. A session that is
    /// lost now was lost in the new one, even if its meeting was not over yet for us.
    pub(super) fn begin(&mut self) {
        self.told.clear();
        self.fenced = None;
    }

    /// What the node waits for, in more words than the agent has.
    pub(super) fn waits_for(&self) -> Option<Detail> {
        let EventSource::Live { status, .. } = &self.source else { return None };
        let RendezvousView { waits_for, patience, .. } = &status.borrow().view;
        waits_for.clone().map(|waits_for| Detail { waits_for, patience: *patience })
    }

    /// What was not told yet.
    pub(super) fn tell(&mut self, now: Time, known: Option<KnownGroup>) -> Vec<AgentInput> {
        let (mut events, fenced) = match &mut self.source {
            EventSource::Live { status, budget } => {
                let status = status.borrow();
                (membership_events(&status.view, &budget.borrow(), known), status.fenced.clone())
            }
            EventSource::Ended { told: true } => return Vec::new(),
            EventSource::Ended { told } => {
                *told = true;
                // Nobody keeps the session alive, so others take this node's place, if they have not yet.
                let reason = "the rendezvous has ended by itself; this is a bug".to_owned();
                return vec![AgentInput::SessionLost { deadline: now, reason }];
            }
        };
        events.retain(|input| !self.told.contains(input));
        self.told.extend(events.iter().cloned());
        if fenced != self.fenced {
            if let Some(loss) = &fenced {
                let deadline = now.saturating_add(left(loss));
                events.insert(0, AgentInput::SessionLost { deadline, reason: loss.to_string() });
            }
            self.fenced = fenced;
        }
        events
    }
}

/// How long it is until others may take this node's place.
fn left(loss: &Loss) -> Duration {
    match loss {
        Loss::Expired { ttl, silent, .. } => ttl.saturating_sub(*silent),
        Loss::Forgotten { left } => *left,
        // It may have happened already.
        _ => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests;
