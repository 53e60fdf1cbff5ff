//! What a node knows of the document in force, and as of when.
//!
//! It hears of it from two sides, its watch and the answers to its own requests, in either order. The
//! later revision counts.

use super::document::{Active, Corrupt, Rounds, decode};
use crate::kv::{Event, EventKind, KeyValue, LeaseId, OpResult, Revision, TxnResult};

/// The document in force, with its place in history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InForce {
    pub(super) active: Active,
    /// When it was written.
    pub(super) revision: Revision,
    /// The lease that it lives on.
    pub(super) lease: LeaseId,
}

#[derive(Debug)]
pub(super) struct Knowledge {
    active_key: String,
    round_key: String,
    /// Everything that happened up to here is known; nothing at all if none.
    revision: Option<Revision>,
    /// The document in force; if it cannot be read, why, and when it was written.
    in_force: Result<Option<InForce>, (Corrupt, Revision)>,
    /// What `rdzv/round` says, as far as it is known.
    rounds: Option<Rounds>,
}

impl Knowledge {
    pub(super) fn new(active_key: String, round_key: String) -> Self {
        Self { active_key, round_key, revision: None, in_force: Ok(None), rounds: None }
    }

    /// Everything up to here is known.
    pub(super) fn revision(&self) -> Revision {
        self.revision.unwrap_or(0)
    }

    pub(super) fn is_known(&self) -> bool {
        self.revision.is_some()
    }

    pub(super) fn in_force(&self) -> Result<Option<&InForce>, &Corrupt> {
        self.in_force.as_ref().map(Option::as_ref).map_err(|(corrupt, _)| corrupt)
    }

    /// When the document was written that cannot be read, if it is so.
    pub(super) fn unreadable_since(&self) -> Option<Revision> {
        self.in_force.as_ref().err().map(|(_, revision)| *revision)
    }

    /// The document, if there is one that can be read.
    pub(super) fn active(&self) -> Option<&Active> {
        self.in_force().ok().flatten().map(|in_force| &in_force.active)
    }

    pub(super) fn rounds(&self) -> Option<Rounds> {
        self.rounds
    }

    /// Nothing is known any more.
    pub(super) fn forget(&mut self) {
        (self.revision, self.in_force, self.rounds) = (None, Ok(None), None);
    }

    /// Takes in what was read. An answer to a request may have told of something later, unless the server
    /// has `forgotten` all that.
    pub(super) fn look(&mut self, revision: Revision, active: Option<&KeyValue>, forgotten: bool) {
        if forgotten {
            self.revision = None;
        }
        self.learn(revision, active);
    }

    /// Takes in what the watch saw.
    pub(super) fn follow(&mut self, events: &[Event]) {
        for event in events {
            let active = (event.kind == EventKind::Put).then_some(&event.kv);
            self.learn(event.kv.mod_revision, active);
        }
    }

    /// Takes in what a refused request was told.
    pub(super) fn told(&mut self, result: &TxnResult) {
        for found in &result.results {
            let OpResult::Range(range) = found else { continue };
            // Only the two documents are asked for by their keys; which is which, the key says, and a
            // document that is not there says nothing. The first is the one in force.
            match range.kvs.first() {
                Some(kv) if kv.key == self.active_key => self.learn(result.revision, Some(kv)),
                Some(kv) if kv.key == self.round_key => match decode(&kv.key, &kv.value) {
                    Ok(rounds) if self.revision <= Some(result.revision) => {
                        self.rounds = Some(rounds);
                    }
                    Ok(_) => {}
                    // Without it no round can be begun. What is in force was told just before.
                    Err(corrupt) if matches!(self.in_force, Ok(None)) => {
                        self.in_force = Err((corrupt, 0));
                    }
                    Err(_) => {}
                },
                _ => {}
            }
        }
        let absent = |index: usize| matches!(result.results.get(index), Some(OpResult::Range(range)) if range.kvs.is_empty());
        if absent(0) {
            self.learn(result.revision, None);
        }
        if absent(1) && self.revision <= Some(result.revision) {
            self.rounds = None;
        }
    }

    /// A request of our own put this in force.
    pub(super) fn wrote(&mut self, active: Active, revision: Revision, lease: LeaseId) {
        if self.revision < Some(revision) {
            self.revision = Some(revision);
            self.rounds = Some(active.rounds());
            self.in_force = Ok(Some(InForce { active, revision, lease }));
        }
    }

    /// A request of our own took the document away.
    pub(super) fn deleted(&mut self, revision: Revision) {
        self.learn(revision, None);
    }

    fn learn(&mut self, revision: Revision, active: Option<&KeyValue>) {
        if self.revision >= Some(revision) {
            return;
        }
        self.revision = Some(revision);
        let read = |kv: &KeyValue| {
            let active = decode(&kv.key, &kv.value);
            let active = active.map_err(|corrupt| (corrupt, kv.mod_revision))?;
            Ok(InForce { active, revision: kv.mod_revision, lease: kv.lease })
        };
        self.in_force = active.map(read).transpose();
        if let Some(active) = self.active() {
            self.rounds = Some(active.rounds());
        }
    }
}
