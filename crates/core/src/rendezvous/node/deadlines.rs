//! When a node has waited long enough, and what it does then.

use super::resume::Resuming;
use super::{Asked, Meeting, Node};
use crate::kv::Time;
use crate::rendezvous::messages::RendezvousFailure;

/// How long a node that gives up still tries to find out who was missing.
const DIAGNOSIS: Time = Time::from_secs(2);

/// In a group of so many, each node may look who is missing.
const SMALL_GROUP: usize = 256;

impl Node {
    /// When to come back with [`NodeInput::Wake`](super::NodeInput::Wake) if nothing else happens before.
    pub fn next_wake(&self) -> Option<Time> {
        let deadline = self.meeting.and_then(|meeting| meeting.deadline);
        let objecting = self.meeting.and_then(|meeting| meeting.objects_until);
        let diagnosis = self.giving_up.map(|(_, until)| until);
        let duty = self.coordinator.as_ref().and_then(|(duty, _)| duty.next_wake());
        let resuming = self.resuming.as_ref().and_then(|resuming| resuming.until);
        [deadline, diagnosis, duty, resuming, objecting].into_iter().flatten().min()
    }

    pub(in crate::rendezvous) fn check_deadlines(&mut self, now: Time) {
        let late = |resuming: &Resuming| resuming.until.is_some_and(|until| until <= now);
        if self.resuming.as_ref().is_some_and(late) {
            self.give_way();
        }
        self.check_objection(now);
        let over = |meeting: &mut Meeting| meeting.deadline.is_some_and(|end| end <= now);
        if let Some(meeting) = self.meeting.take_if(over) {
            self.give_up_request();
            self.giving_up = Some((meeting, now.saturating_add(DIAGNOSIS)));
        }
        if let Some((meeting, _)) = self.giving_up.filter(|(_, until)| *until <= now) {
            self.give_up_request();
            let waited = now.saturating_sub(meeting.since);
            self.fail(RendezvousFailure::TimedOut { waited, missing: None });
        }
    }

    /// Forgets the request under way if it was for the meeting. What the node was told to do besides is
    /// not over with it.
    pub(in crate::rendezvous) fn give_up_request(&mut self) {
        let of_the_meeting = |asked: &Asked| {
            matches!(
                asked,
                Asked::Open(_)
                    | Asked::Join(_)
                    | Asked::Confirm(_)
                    | Asked::Register(..)
                    | Asked::Diagnose
            )
        };
        self.request.take_if(|(_, asked)| of_the_meeting(asked));
    }

    /// All nodes of a round give up together, and a look at who is there costs the server as many steps as
    /// there are nodes. The coordinator of a large group knows without looking, and tells its log.
    pub(in crate::rendezvous) fn may_ask_who_is_missing(&self) -> bool {
        self.settings.limits.max <= SMALL_GROUP
    }
}
