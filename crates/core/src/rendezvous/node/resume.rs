//! A node that lost its session because it stood still, or that nobody can replace, keeps its place if no other
//! round was opened meanwhile.
//!
//! It says again what it had said under the lease that is gone, in one transaction that asks that `rdzv/round` be
//! unchanged. So a round that is opened later finds its member's [`ready`](crate::rendezvous::keys::Keys::ready) key and waits for
//! it, and after one that was opened before the node is fenced like any other.

use super::observed::InForce;
use super::{Asked, Node, Place};
use crate::kv::{Time, TxnResult};
use crate::rendezvous::documents::{Status, encode};
use crate::rendezvous::messages::{FenceCause, NodeOutput, Purpose};
use crate::rendezvous::txn::{Documents, Guard, Whereabouts};

/// How long a node that stood still may take to find out whether it still has its place. Its workers stand still
/// meanwhile.
const PATIENCE: Time = Time::from_secs(1);

/// A node that may still have its place.
#[derive(Debug)]
pub(in crate::rendezvous) struct Resuming {
    /// It is fenced then; never if nobody can take its place.
    pub(in crate::rendezvous) until: Option<Time>,
    /// The document in force, if it was this node's own.
    own: Option<InForce>,
}

impl Node {
    /// The lease is gone, or may be.
    pub(in crate::rendezvous) fn session_lost(&mut self, now: Time, slept: bool) {
        let sole = self.settings.sole;
        let waits = self.meeting.is_some() || self.giving_up.is_some();
        if !matches!(self.place, Place::Member(_)) || waits || !(slept || sole) {
            return self.fenced(now, FenceCause::SessionLost);
        }
        let own = self.holds().cloned();
        let place = self.place;
        self.place = Place::Nowhere;
        self.fenced(now, FenceCause::SessionLost);
        self.place = place;
        let until = (!sole).then(|| now.saturating_add(PATIENCE));
        self.resuming = Some(Resuming { until, own });
    }

    /// One step towards the place that the node had.
    pub(in crate::rendezvous) fn resume(&mut self) {
        let (Some(resuming), Place::Member(round)) = (&self.resuming, self.place) else { return };
        let Some(lease) = self.lease else {
            if !self.opening_session {
                self.opening_session = true;
                self.outputs.push_back(NodeOutput::OpenSession);
            }
            return;
        };
        let extra = self.knowledge.rounds_extra();
        let in_force = self.knowledge.in_force().ok().flatten();
        let (guard, own) = match (in_force, &resuming.own) {
            (Some(in_force), _) if in_force.active.round == round => {
                // Of one that still seems to be its own, the lease is over: it goes in a moment.
                if in_force.active.coordinator.id == self.node.id
                    && in_force.active.status == Status::Final
                {
                    (in_force.guard(), Some(&in_force.active))
                } else {
                    (in_force.guard(), None)
                }
            }
            (None, Some(own))
                if self.knowledge.rounds().is_some_and(|rounds| rounds.round == round) =>
            {
                (self.absent(), Some(&own.active))
            }
            // Its coordinator may be about to come back; the watch will tell.
            (None, _) if self.knowledge.rounds().is_some_and(|rounds| rounds.round == round) => {
                return;
            }
            _ => return self.give_way(),
        };
        if let Guard::Nothing(_) = guard {
            return self.give_way();
        }
        let keys = &self.settings.keys;
        let id = &self.node.id;
        let joined = self.settings.joined(&self.node, self.arrived, self.seat, self.earlier);
        let here = Whereabouts::default()
            .put(keys.node(id), encode(&self.node), lease)
            .put(keys.member(round, id), encode(&joined), lease)
            .put(keys.ready(round, id), "", lease)
            .delete(keys.suspect(id));
        let own = own.map(|active| Documents { active, rounds_extra: &extra });
        let txn = self.settings.resume(guard, own, lease, here);
        self.joined_rounds.insert(round);
        self.confirmed_rounds.insert(round);
        self.ask(Purpose::Resume, txn, Asked::Resume(round));
    }

    /// Others have gone ahead, or nobody could say in time that they have not.
    pub(in crate::rendezvous) fn give_way(&mut self) {
        self.resuming = None;
        self.place = Place::Nowhere;
        self.outputs.push_back(NodeOutput::Fenced(FenceCause::SessionLost));
    }

    pub(in crate::rendezvous) fn resume_answered(&mut self, round: u64, result: &TxnResult) {
        // If it was refused, it decides anew on what it was told.
        if !result.succeeded {
            return;
        }
        // It may have given way meanwhile. What it put goes when it enters or leaves.
        let Some(Resuming { own, .. }) = self.resuming.take() else { return };
        self.listed = true;
        self.resumed = Some(result.revision);
        self.place = Place::Member(round);
        let mine =
            self.knowledge.active().is_none_or(|active| active.coordinator.id == self.node.id);
        if let (Some(own), Some(lease), true) = (own, self.lease, mine) {
            let active = self.knowledge.active().cloned().unwrap_or(own.active);
            self.knowledge.wrote(active, result.revision, lease);
            if let Some(own) = self.own(round).cloned() {
                self.coordinate(&own);
            }
        }
    }
}
