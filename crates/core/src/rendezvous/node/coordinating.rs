//! The node as the coordinator of a round: it runs the [`Coordinator`] and sends its requests.

use super::Node;
use super::observed::InForce;
use crate::events::Stamp;
use crate::kv::{Time, Txn, TxnResult};
use crate::rendezvous::coordinator::{Coordinator, CoordinatorStep};
use crate::rendezvous::documents::{Active, Status};
use crate::rendezvous::messages::{NodeOutput, Purpose, WatchSetId};
use crate::rendezvous::txn::OwnedRound;

impl Node {
    /// The coordinator, if this is its present set of watches.
    pub(super) fn coordinator_of(&mut self, id: WatchSetId) -> Option<&mut Coordinator> {
        self.coordinator
            .as_mut()
            .filter(|(_, watch)| *watch == id)
            .map(|(coordinator, _)| coordinator)
    }

    /// The document in force, if this node wrote it as the coordinator of its round, on its present lease.
    pub(super) fn held_round(&self) -> Option<&InForce> {
        let in_force = self.observed.in_force().ok().flatten()?;
        let InForce { active, lease, .. } = in_force;
        let own = active.coordinator.id == self.announced.id()
            && active.status != Status::Closed
            && Some(*lease) == self.lease;
        own.then_some(in_force)
    }

    /// The document in force, if it is of this round and this node coordinates it.
    pub(super) fn own(&self, round: u64) -> Option<&InForce> {
        self.held_round().filter(|own| own.active.round == round)
    }

    /// Becomes the coordinator of a round whose document is on the lease of this node.
    pub(super) fn coordinate(&mut self, own: &InForce) {
        let coordinator = self.coordinator.take();
        let slow = coordinator.map(|(coordinator, _)| coordinator.slow()).unwrap_or_default();
        self.resign();
        let begun = (&own.active, own.revision);
        self.coordinator = Some((Coordinator::new(&self.config, begun, slow), 0));
    }

    /// Stops coordinating.
    pub(super) fn resign(&mut self) {
        self.coordinator_requests.clear();
        self.next_round_reason = None;
        if self.coordinator.take().is_some() {
            self.outputs.push_back(NodeOutput::Unwatch);
        }
    }

    /// Does everything that the coordinator of the round can do now, if this node is the coordinator.
    pub(super) fn run_coordinator(&mut self, now: Time) {
        loop {
            let Some((coordinator, _)) = &self.coordinator else { return };
            let round = coordinator.round();
            let Some((in_force, lease)) = self.own(round).cloned().zip(self.lease) else {
                return self.resign();
            };
            let extra = self.observed.rounds_extra();
            let Some((coordinator, _)) = &mut self.coordinator else { return };
            let InForce { active, revision, .. } = &in_force;
            let stamp = Stamp { node_id: self.announced.id(), now, started: self.config.started };
            let revision = *revision;
            let own = OwnedRound { active, revision, lease, stamp, rounds_extra: &extra };
            let history_since = self.history_since;
            if let Some(formed) = self.memory.member_in(Some(active.history)) {
                coordinator.proves_dead(formed, self.memory.dead());
            }
            match coordinator.advance(now, (&self.config, &self.txns), own, history_since) {
                None => return,
                Some(CoordinatorStep::Watch(watches)) => {
                    let id = self.next_id();
                    if let Some((_, watch)) = &mut self.coordinator {
                        *watch = id;
                    }
                    self.outputs.push_back(NodeOutput::Watch { id, watches });
                }
                Some(CoordinatorStep::Request(purpose, txn, active)) => {
                    self.send_as_coordinator(purpose, txn, active);
                }
                Some(CoordinatorStep::NextRound(reason)) => self.next_round_reason = Some(reason),
                Some(CoordinatorStep::Fail(failure)) => return self.fail(failure),
            }
        }
    }

    fn send_as_coordinator(&mut self, purpose: Purpose, txn: Txn, active: Option<Box<Active>>) {
        let id = self.send(purpose, txn);
        self.coordinator_requests.insert(id, (purpose, active));
    }

    /// Reads the reply to a request of the coordinator. `active` is the document in force if the request succeeded.
    pub(super) fn coordinator_answered(
        &mut self,
        now: Time,
        (purpose, active): (Purpose, Option<Box<Active>>),
        reply: &TxnResult,
    ) {
        let Some((coordinator, _)) = &mut self.coordinator else { return };
        if purpose == Purpose::ReadMembership {
            if !coordinator.membership_read(reply) {
                self.server_state_lost(now);
                self.outputs.push_back(NodeOutput::Resync);
            }
            return;
        }
        let round = coordinator.round();
        if !reply.succeeded {
            if self.observe(now, reply) {
                return;
            }
        } else if let (Some(active), Some(lease)) = (active.clone(), self.lease) {
            self.observed.wrote(*active, reply.revision, lease);
        }
        // A refused request may have been executed at its first attempt.
        let done = match &active {
            Some(active) => self.own(round).is_some_and(|own| own.active == **active),
            None => reply.succeeded,
        };
        let still_coordinates = self.own(round).is_some();
        match &mut self.coordinator {
            Some((coordinator, _)) if done => coordinator.succeeded(now, purpose, &self.config),
            Some((coordinator, _)) if still_coordinates => coordinator.refused(purpose),
            _ => {}
        }
    }

    /// The coordinator abandons its round and opens the next one.
    pub(super) fn open_next_round(&mut self) {
        let Some((coordinator, _)) = &self.coordinator else { return };
        let (round, remembered) = (coordinator.round(), coordinator.remembered());
        let guard = self.own(round).map(InForce::guard);
        if let (Some(guard), Some(reason), Some(lease)) =
            (guard, self.next_round_reason.take(), self.lease)
        {
            self.earlier.round = self.earlier.round.max(remembered.round);
            self.open(guard, reason, lease);
        }
    }
}
