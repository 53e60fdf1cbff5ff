//! What the agent is told of its group and its run: what follows from what is so and was not told before.

use std::time::Duration;

use rallypoint_core::agent::{AgentInput, KnownGroup, RestartBudget, membership_events};
use rallypoint_core::rendezvous::RendezvousView;

use crate::world::plan::Millis;

/// What was told of the present group.
#[derive(Debug, Default)]
pub(crate) struct Events {
    told: Vec<AgentInput>,
    fenced: Option<Millis>,
}

impl Events {
    /// A new group has formed, or none is there any more: what was told was of another.
    pub(crate) fn begin(&mut self) {
        *self = Self::default();
    }

    /// What was not told yet. `fenced` is when others may take the place of a node that lost its session.
    pub(crate) fn tell(
        &mut self,
        (view, budget): (&RendezvousView, &RestartBudget),
        known: Option<KnownGroup>,
        fenced: Option<Millis>,
    ) -> Vec<AgentInput> {
        let mut events = membership_events(view, budget, known);
        events.retain(|input| !self.told.contains(input));
        self.told.extend(events.iter().cloned());
        if fenced != self.fenced {
            if let Some(deadline) = fenced {
                let deadline = Duration::from_millis(deadline);
                events.insert(0, AgentInput::SessionLost { deadline, reason: "silence".into() });
            }
            self.fenced = fenced;
        }
        events
    }
}
