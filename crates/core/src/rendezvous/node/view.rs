//! What a node knows of its group and its run, for those who ask.

use super::{Late, Node, Place};
use crate::kv::Time;
use crate::rendezvous::documents::{Active, Status};
use crate::rendezvous::messages::{RendezvousView, RunClosed};

/// How a run was closed by this document.
pub(in crate::rendezvous) fn run_closed(closed: &Active) -> RunClosed {
    let Active { coordinator, outcome, reason, .. } = closed;
    let outcome = outcome.unwrap_or_default();
    RunClosed { by: coordinator.clone(), outcome, reason: reason.clone() }
}

impl Node {
    /// What the node knows, for those who ask.
    pub fn view(&self, now: Time) -> RendezvousView {
        let active = self.knowledge.active();
        let closed = active.filter(|active| active.status == Status::Closed);
        let has_ended = |active: &&Active| matches!(active.status, Status::Frozen | Status::Final);
        let member_of = match self.place {
            Place::Member(round) => Some(round),
            _ => None,
        };
        let group = active
            .filter(|active| active.status == Status::Final && Some(active.round) == member_of);
        let (lost, lost_names) = group.map(|group| self.lost(group)).unwrap_or_default();
        let nodes_waiting = match (member_of, group) {
            (None, _) => 0,
            // Whether the place is still its own will be known in a moment.
            _ if self.resuming.is_some() => 0,
            (Some(_), Some(group)) => group.waiting + lost,
            // The others have gone ahead, or the coordinator is gone.
            (Some(_), None) => usize::from(closed.is_none()),
        };
        RendezvousView {
            known: self.knowledge.is_known(),
            session: self.lease.is_some(),
            round: active.map_or(0, |active| active.round),
            formed: self.formed_round(),
            member_of,
            nodes_waiting,
            lost: lost_names,
            replaced_by: active
                .filter(|active| member_of.is_some_and(|round| active.round > round))
                .filter(has_ended)
                .map(|active| active.round),
            closed: closed.map(run_closed),
            waits_for: self.meeting.map(|_| self.waits_for(now)),
            patience: self.meeting.and_then(|meeting| {
                meeting.deadline.map(|deadline| deadline.saturating_sub(meeting.since))
            }),
        }
    }

    /// The last round that formed a group, as far as is known; 0 if none did.
    pub(in crate::rendezvous) fn formed_round(&self) -> u64 {
        self.knowledge.rounds().map_or(0, |rounds| rounds.formed)
    }

    /// What the node waits for, in a sentence.
    pub(in crate::rendezvous) fn waits_for(&self, now: Time) -> String {
        if self.lease.is_none() {
            return "a session with the server".to_owned();
        }
        if let Some(why) = self.coordinator.as_ref().and_then(|(duty, _)| duty.why(now)) {
            return why;
        }
        let Some(active) = self.knowledge.active() else {
            return "a round to begin".to_owned();
        };
        let Active { round, world, coordinator, .. } = active;
        match (active.status, self.place) {
            (Status::Joinable, Place::Late(Late::Objector, _)) => {
                let Active { limits: theirs, .. } = active;
                let ours = self.settings.limits;
                format!(
                    "others who disagree with {coordinator}: it has min:max nodes {theirs}, this node {ours}"
                )
            }
            (Status::Joinable, _) => format!("more nodes to join round {round} of {coordinator}"),
            (Status::Frozen, Place::Confirmed(..)) => {
                format!("the other nodes of round {round} to confirm, {world} in all")
            }
            (_, Place::Late(Late::Spare, _)) => {
                format!("a place to become free; round {round} is full with {world} nodes")
            }
            _ => format!("the {world} nodes of round {round} to make room"),
        }
    }
}
