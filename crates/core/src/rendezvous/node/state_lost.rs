//! The histories of a run: a server that has lost its state begins another one, and for a node that is the loss of its
//! session.

use super::Node;
use crate::kv::{Time, TxnResult};
use crate::rendezvous::documents::Earlier;
use crate::rendezvous::messages::{FenceCause, NodeOutput};
use crate::rendezvous::txn::ActiveSnapshot;

impl Node {
    /// Takes in a snapshot of the documents in force.
    pub(super) fn snapshot_read(&mut self, now: Time, reply: &TxnResult, another_server: bool) {
        let snapshot = ActiveSnapshot::of_refusal(reply);
        let began_again = another_server && self.observed.is_known();
        if began_again || self.observed.is_of_another(reply.revision, &snapshot) {
            self.server_state_lost(now);
        }
        self.observe(now, reply);
    }

    /// Takes in the documents in force from a snapshot or a refusal. True if they belong to another history than the
    /// one observed before.
    pub(super) fn observe(&mut self, now: Time, reply: &TxnResult) -> bool {
        let snapshot = ActiveSnapshot::of_refusal(reply);
        let is_another = self.observed.is_of_another(reply.revision, &snapshot);
        if is_another {
            self.server_state_lost(now);
        }
        self.observed.snapshot(reply.revision, &snapshot);
        is_another
    }

    /// The server has lost its state, and with it the history that this node observed. That is the loss of the session,
    /// whatever the lease: the announcement on it is gone, and another group may form.
    pub(super) fn server_state_lost(&mut self, now: Time) {
        let rounds = self.observed.rounds();
        let observed = Earlier {
            round: rounds.map_or(0, |rounds| rounds.round),
            formed: rounds.map_or(0, |rounds| rounds.formed),
        };
        let last = self.announced.previous.map_or_else(Earlier::default, |previous| Earlier {
            round: previous.round,
            formed: previous.round,
        });
        self.earlier = self.earlier.max(observed).max(last);
        if self.lease.is_some() {
            // The node is not told of renewals: the server may have answered until now.
            self.memory.hears(now);
        }
        self.memory.moves_on();
        let held = self.lease.is_some() && self.announced.member_of().is_some();
        self.announced.server_state_lost(held);
        self.observed.forget();
        self.replied_revision = 0;
        self.sent_after.clear();
        self.resumed_at = None;
        self.suspected_coordinator = None;
        self.next_history = self.next_history.wrapping_add(1);
        if self.lease.is_some() || self.opening_session {
            self.outputs.push_back(NodeOutput::EndSession);
        }
        if let Some((_, pending)) = self.request.take() {
            self.history_ended(pending);
        }
        self.fenced(now, FenceCause::ServerStateLost);
    }
}
