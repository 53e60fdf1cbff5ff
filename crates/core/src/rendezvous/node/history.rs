//! The histories of a run: a server that lost its memory begins another, and that is the loss of the session.

use super::{Node, Place};
use crate::kv::{Time, TxnResult};
use crate::rendezvous::documents::Earlier;
use crate::rendezvous::messages::{FenceCause, NodeOutput};
use crate::rendezvous::txn::Found;

impl Node {
    /// Takes in what is in force, as it was read.
    pub(in crate::rendezvous) fn looked(
        &mut self,
        now: Time,
        result: &TxnResult,
        another_server: bool,
    ) {
        let found = Found::refused(result);
        let began_anew = another_server && self.knowledge.is_known();
        if began_anew || self.knowledge.is_of_another(result.revision, &found) {
            self.forgot(now);
        }
        self.learn(now, result);
    }

    /// Takes in what a request was told that read what is in force, or was refused. True if that is another
    /// history than the one that was known.
    pub(in crate::rendezvous) fn learn(&mut self, now: Time, result: &TxnResult) -> bool {
        let found = Found::refused(result);
        let is_another = self.knowledge.is_of_another(result.revision, &found);
        if is_another {
            self.forgot(now);
        }
        self.knowledge.look(result.revision, &found);
        is_another
    }

    /// The server has lost its memory, and with it the history that this node knows. That is the loss of the
    /// session, whatever its lease: what was announced on it is gone, and others may begin anew.
    pub(in crate::rendezvous) fn forgot(&mut self, now: Time) {
        let rounds = self.knowledge.rounds();
        let known = Earlier {
            round: rounds.map_or(0, |rounds| rounds.round),
            formed: rounds.map_or(0, |rounds| rounds.formed),
        };
        let seat = self.seat.map_or_else(Earlier::default, |seat| Earlier {
            round: seat.round,
            formed: seat.round,
        });
        self.earlier = self.earlier.max(known).max(seat);
        let held = self.lease.is_some() && matches!(self.place, Place::Member(_));
        if let Some(seat) = &mut self.seat {
            seat.held = held;
        }
        self.knowledge.forget();
        self.heard = 0;
        self.knew.clear();
        self.resumed = None;
        self.doubted = None;
        self.arrived = None;
        self.begins = self.begins.wrapping_add(1);
        if self.lease.is_some() || self.opening_session {
            self.outputs.push_back(NodeOutput::EndSession);
        }
        if let Some((_, asked)) = self.request.take() {
            self.take_up_again(asked);
        }
        self.fenced(now, FenceCause::ServerForgot);
    }
}
