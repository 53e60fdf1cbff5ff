//! The events of the node's part in the rendezvous, and of the run as the node sees it.

use super::{Observation, since};
use crate::events::{EventBody, run_events};
use crate::kv::Time;
use crate::rendezvous::documents::{Active, Status};
use crate::rendezvous::{
    AnnouncedState, CommandDone, Node, NodeInput, NodeOutput, RendezvousFailure,
};

/// What the observer remembers of the node.
#[derive(Debug, Default)]
pub(super) struct NodeObserver {
    /// The last state of the run's document.
    active: Option<Active>,
    announced: Option<AnnouncedState>,
    /// When each stage began.
    asked: Option<Time>,
    opened: Option<Time>,
    frozen: Option<Time>,
}

impl NodeObserver {
    pub(super) fn told(
        &mut self,
        now: Time,
        input: &NodeInput,
        node: &Node,
    ) -> Option<Observation> {
        let round = node.active().map_or(0, |active| active.round);
        let event = |body| Observation::new(round, body);
        Some(match input {
            NodeInput::Enter => {
                self.asked = Some(now);
                return None;
            }
            NodeInput::SessionOpened { .. } => event(EventBody::SessionOpened),
            NodeInput::SessionLost { slept, .. } => event(EventBody::SessionLost { slept: *slept }),
            NodeInput::Suspect { node } => event(EventBody::MemberSuspected { node: node.clone() })
                .because("the connection to it ended without a goodbye"),
            NodeInput::ProvedDead { node, .. } => {
                event(EventBody::MemberProvedDead { node: node.clone() }).because(
                    "the host of its liveness socket refused two connections, so none of its processes is left",
                )
            }
            NodeInput::Unreached { round, reason } => {
                let body = EventBody::Unreached { connected: reason.is_none() };
                Observation::new(*round, body).because(reason.as_deref().unwrap_or_default())
            }
            NodeInput::BootstrapStoreFailed { .. }
            | NodeInput::BootstrapStoreReady { .. }
            | NodeInput::Leave
            | NodeInput::Close { .. }
            | NodeInput::Reopen
            | NodeInput::Snapshot { .. }
            | NodeInput::ActiveChanged { .. }
            | NodeInput::Answered { .. }
            | NodeInput::Watching { .. }
            | NodeInput::Watched { .. }
            | NodeInput::WatchBroken { .. }
            | NodeInput::Wake => return None,
        })
    }

    /// The events of what the node knows now, and did not know before.
    pub(super) fn observed(&mut self, now: Time, node: &Node, events: &mut Vec<Observation>) {
        if self.active.as_ref() != node.active() {
            events.extend(self.active_changed(now, node));
            self.active = node.active().cloned();
        }
        let announced = node.announced();
        if self.announced != Some(announced) {
            events.extend(self.announced(now, announced));
            self.announced = Some(announced);
        }
    }

    fn active_changed(&mut self, now: Time, node: &Node) -> Vec<Observation> {
        let Some(active) = node.active() else { return self.gone().into_iter().collect() };
        let mut events = run_events(self.active.as_ref(), active);
        for event in &mut events {
            match &mut event.body {
                EventBody::RoundOpened { .. } => {
                    // A later stage tells nothing of when this one began.
                    let is_new = active.status == Status::Joinable;
                    (self.opened, self.frozen) = (is_new.then_some(now), None);
                }
                EventBody::RoundFrozen { gather_ms, last_call_ms, .. } => {
                    *gather_ms = since(self.opened.take(), now);
                    *last_call_ms = since(node.last_call_since(), now);
                    self.frozen = (active.status == Status::Frozen).then_some(now);
                }
                EventBody::RoundFinal { confirm_ms, .. } => {
                    *confirm_ms = since(self.frozen.take(), now);
                }
                _ => {}
            }
        }
        events
    }

    /// There is no document of the run any more.
    fn gone(&self) -> Option<Observation> {
        let Active { round, status, coordinator, .. } = self.active.as_ref()?;
        let coordinator = coordinator.id.clone();
        Some(Observation::new(
            *round,
            match status {
                Status::Closed => EventBody::RunReopened,
                _ => EventBody::CoordinatorLost { coordinator },
            },
        ))
    }

    fn announced(&self, now: Time, announced: AnnouncedState) -> Option<Observation> {
        let (round, body) = match announced {
            AnnouncedState::Joined(round) => {
                (round, EventBody::Joined { join_ms: since(self.asked, now) })
            }
            AnnouncedState::LeftOut(round) => (round, EventBody::LeftOut),
            AnnouncedState::Confirmed(round, ranked) => {
                (round, EventBody::Confirmed { rank: ranked.rank, size: ranked.world })
            }
            AnnouncedState::Registered(registration, round) => {
                (round, EventBody::Registered { registered: registration.into() })
            }
            // The agent's group tells it.
            AnnouncedState::Nothing | AnnouncedState::Member(_) => return None,
        };
        Some(Observation::new(round, body))
    }

    pub(super) fn decided(&self, output: &NodeOutput, node: &Node) -> Option<Observation> {
        let round = node.active().map_or(0, |active| active.round);
        let event = |body| Observation::new(round, body);
        Some(match output {
            NodeOutput::EndSession => event(EventBody::ServerStateLost),
            NodeOutput::Fenced(cause) => event(EventBody::PlaceLost { cause: *cause }),
            NodeOutput::Failed(failure) => {
                event(EventBody::RendezvousFailed).because(failed(failure))
            }
            NodeOutput::Done(CommandDone::Left) => event(EventBody::Left),
            NodeOutput::Request { .. }
            | NodeOutput::Watch { .. }
            | NodeOutput::Unwatch
            | NodeOutput::Resync
            | NodeOutput::OpenSession
            | NodeOutput::ServeBootstrapStore { .. }
            | NodeOutput::Formed(_)
            | NodeOutput::Done(_) => return None,
        })
    }
}

/// Why an attempt to become a member ended without a group, in a sentence.
fn failed(failure: &RendezvousFailure) -> String {
    match failure {
        RendezvousFailure::Closed(closed) | RendezvousFailure::NotNeeded(closed) => {
            format!("the run was closed by {}: {}: {}", closed.by, closed.outcome, closed.reason)
        }
        RendezvousFailure::TimedOut { waited, missing } => {
            let missing = missing.as_deref().unwrap_or("no server told what was missing");
            format!("no group formed in {} s: {missing}", waited.as_secs())
        }
        RendezvousFailure::ServerLost { waited, missing: None } => {
            format!("no server has answered for {} s", waited.as_secs())
        }
        RendezvousFailure::ServerLost { waited, missing: Some(missing) } => {
            format!("the server was lost {} s ago: {missing}", waited.as_secs())
        }
        RendezvousFailure::Mismatch { what, ours, theirs, other } => {
            format!("{what} is {ours} here, and {theirs} on {other}")
        }
        RendezvousFailure::Unreadable(error) => error.to_string(),
        RendezvousFailure::CannotServeBootstrapStore { reason } => {
            format!("the bootstrap store cannot be served: {reason}")
        }
    }
}
