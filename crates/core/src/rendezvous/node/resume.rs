//! How a member that lost its lease keeps its membership, provided that no other round was opened meanwhile.
//!
//! This is for a node whose process was suspended, and for a node that no other node can replace. The node repeats its
//! announcement on a new lease, in one transaction that requires `rdzv/round` to be unchanged. So a round that is opened
//! later finds the member's [`ready`](crate::rendezvous::keys::Keys::ready) key and waits for it; if a round was opened
//! before, the node is fenced.

use super::announced::AnnouncedState;
use super::observed::InForce;
use super::{Node, PendingRequest};
use crate::kv::{Time, TxnResult};
use crate::rendezvous::documents::Status;
use crate::rendezvous::messages::{FenceCause, NodeOutput, Purpose};
use crate::rendezvous::txn::{RoundDocuments, RoundGuard};

/// How long a suspended node may take to find out whether it is still a member. Its workers stay suspended meanwhile.
const RESUME_TIMEOUT: Time = Time::from_secs(1);

/// A node that may still be a member of its group.
#[derive(Debug)]
pub(super) struct Resuming {
    /// When the node is fenced; never if no other node can replace it.
    pub(super) until: Option<Time>,
    /// The document in force, if this node coordinated its round.
    own: Option<InForce>,
}

impl Node {
    /// The lease has expired, or may have.
    pub(super) fn session_lost(&mut self, now: Time, slept: bool) {
        let sole = self.config.sole;
        let waits = self.attempt.is_some() || self.timed_out.is_some();
        if self.announced.member_of().is_none() || waits || !(slept || sole) {
            return self.fenced(now, FenceCause::SessionLost);
        }
        let own = self.held_round().cloned();
        let state = self.announced.state;
        self.announced.state = AnnouncedState::Nothing;
        self.fenced(now, FenceCause::SessionLost);
        self.announced.state = state;
        let until = (!sole).then(|| now.saturating_add(RESUME_TIMEOUT));
        self.resuming = Some(Resuming { until, own });
    }

    /// Takes one step towards the membership that the node had.
    pub(super) fn resume(&mut self) {
        let (Some(resuming), Some(round)) = (&self.resuming, self.announced.member_of()) else {
            return;
        };
        let Some(lease) = self.lease else { return self.open_session() };
        let extra = self.observed.rounds_extra();
        let in_force = self.observed.in_force().ok().flatten();
        let is_last = || self.observed.rounds().is_some_and(|rounds| rounds.round == round);
        let (guard, own) = match (in_force, &resuming.own) {
            (Some(in_force), _) if in_force.active.round == round => {
                // A document that still seems to be the node's own is on the lost lease, and about to expire.
                if in_force.active.coordinator.id == self.announced.id()
                    && in_force.active.status == Status::Final
                {
                    (in_force.guard(), Some(&in_force.active))
                } else {
                    (in_force.guard(), None)
                }
            }
            (None, Some(own)) if is_last() => (self.no_active(), Some(&own.active)),
            // The coordinator may be about to resume; the watch will tell.
            (None, _) if is_last() => return,
            _ => return self.give_way(),
        };
        if let RoundGuard::NoHistory(_) = guard {
            return self.give_way();
        }
        let remembered = self.remembered(self.observed.history());
        let ops = self.announced.resume_ops(round, remembered, lease);
        let own = own.map(|active| RoundDocuments {
            before: Some(active),
            active,
            stamp: self.stamp(),
            rounds_extra: &extra,
        });
        let txn = self.txns.resume(guard, own, lease, ops);
        self.send_request(Purpose::Resume, txn, PendingRequest::Resume(round));
    }

    pub(super) fn resumed(&mut self, round: u64, reply: &TxnResult) {
        // After a refusal the node decides again, on the documents that the refusal told.
        if !reply.succeeded {
            return;
        }
        // The node may have given way meanwhile. It withdraws its announcement when it enters or leaves.
        let Some(Resuming { own, .. }) = self.resuming.take() else { return };
        self.announced.resumed(round);
        self.resumed_at = Some(reply.revision);
        let mine = self
            .observed
            .active()
            .is_none_or(|active| active.coordinator.id == self.announced.id());
        if let (Some(own), Some(lease), true) = (own, self.lease, mine) {
            let active = self.observed.active().cloned().unwrap_or(own.active);
            self.observed.wrote(active, reply.revision, lease);
            if let Some(own) = self.own(round).cloned() {
                self.coordinate(&own);
            }
        }
    }

    /// Another round was opened, or the server did not tell in time that none was.
    pub(super) fn give_way(&mut self) {
        self.resuming = None;
        self.announced.state = AnnouncedState::Nothing;
        self.outputs.push_back(NodeOutput::Fenced(FenceCause::SessionLost));
    }
}
