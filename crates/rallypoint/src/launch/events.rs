//! Membership events for the agent, in the order in which they happened.
//!
//! The handler reports states, not changes: an event is an input that follows from the state and was not given before.

use std::time::Duration;

use rallypoint_core::agent::{AgentInput, KnownGroup, RestartBudget, membership_events};
use rallypoint_core::kv::Time;
use rallypoint_core::rendezvous::RendezvousView;
use tokio::sync::watch;

use super::wait_reporter::Detail;
use crate::rendezvous::HandlerStatus;
use crate::session::Loss;

/// The events of the group and the run.
pub(super) struct MembershipEvents {
    /// The id of this node.
    node: String,
    source: EventSource,
    /// The inputs already given for this group.
    told: Vec<AgentInput>,
    fenced: Option<Loss>,
}

enum EventSource {
    /// The handler and the restart counter report every change.
    Live { status: watch::Receiver<HandlerStatus>, budget: watch::Receiver<RestartBudget> },
    /// The handler has ended, which is a bug, and whether the agent was told.
    Ended { told: bool },
}

impl MembershipEvents {
    pub(super) fn new(
        node: String,
        status: watch::Receiver<HandlerStatus>,
        budget: watch::Receiver<RestartBudget>,
    ) -> Self {
        let source = EventSource::Live { status, budget };
        Self { node, source, told: Vec::new(), fenced: None }
    }

    /// Waits until there may be a new event. Cancel-safe.
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

    /// Starts over for a new group, or for none. A session that is lost now belongs to the new group, even if the
    /// agent has not heard of that group yet.
    pub(super) fn begin(&mut self) {
        self.told.clear();
        self.fenced = None;
    }

    /// What the node waits for, in more detail than the agent knows.
    pub(super) fn waits_for(&self) -> Option<Detail> {
        let EventSource::Live { status, .. } = &self.source else { return None };
        let RendezvousView { waits_for, patience, .. } = &status.borrow().view;
        waits_for.clone().map(|waits_for| Detail { waits_for, patience: *patience })
    }

    /// The events that were not given yet.
    pub(super) fn tell(&mut self, now: Time, known: Option<KnownGroup>) -> Vec<AgentInput> {
        let (mut events, fenced) = match &mut self.source {
            EventSource::Live { status, budget } => {
                let (status, budget) = (status.borrow(), budget.borrow());
                let mut events = membership_events(&status.view, &budget, known);
                let evicted = budget.eviction_of(&self.node).cloned();
                events.extend(evicted.map(AgentInput::Evicted));
                (events, status.fenced.clone())
            }
            EventSource::Ended { told: true } => return Vec::new(),
            EventSource::Ended { told } => {
                *told = true;
                // Nothing renews the lease any more, so another node may take this node's rank.
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

/// The time until another node may take this node's rank.
fn left(loss: &Loss) -> Duration {
    match loss {
        Loss::Expired { ttl, silent, .. } => ttl.saturating_sub(*silent),
        Loss::Forgotten { left } | Loss::ServerEnded { left, .. } => *left,
        // It may have taken it already.
        _ => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests;
