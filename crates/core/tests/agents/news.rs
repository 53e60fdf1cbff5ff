//! What the agent is told of its group and its run: what follows from what is so and was not told before.

use std::time::Duration;

use rallypoint_core::agent::{Budget, Input, Membership, news};
use rallypoint_core::rendezvous::RendezvousView;

use crate::world::plan::Millis;

/// What was told of the present group.
#[derive(Debug, Default)]
pub(crate) struct News {
    told: Vec<Input>,
    fenced: Option<Millis>,
}

impl News {
    /// A new group has formed, or none is there any more: what was told was of another.
    pub(crate) fn begin(&mut self) {
        *self = Self::default();
    }

    /// What was not told yet. `fenced` is when others may take the place of a node that lost its session.
    pub(crate) fn tell(
        &mut self,
        (view, budget): (&RendezvousView, &Budget),
        known: Option<Membership>,
        fenced: Option<Millis>,
    ) -> Vec<Input> {
        let mut news = news(view, budget, known);
        news.retain(|input| !self.told.contains(input));
        self.told.extend(news.iter().cloned());
        if fenced != self.fenced {
            if let Some(deadline) = fenced {
                let deadline = Duration::from_millis(deadline);
                news.insert(0, Input::SessionLost { deadline, reason: "silence".into() });
            }
            self.fenced = fenced;
        }
        news
    }
}
