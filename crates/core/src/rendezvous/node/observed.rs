//! What a node has observed of the shared documents, and at which revision.
//!
//! There are two sources, the watch and the replies to the node's own requests, in either order. The later revision
//! counts.

use crate::kv::{Event, EventKind, KeyValue, LeaseId, Revision};
use crate::rendezvous::documents::{Active, DocumentError, Extra, Rounds, RunHistory, decode};
use crate::rendezvous::txn::{ActiveSnapshot, RoundGuard};

/// The document in force, as it was observed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InForce {
    pub(super) active: Active,
    /// The revision at which it was written.
    pub(super) revision: Revision,
    /// The lease that the document is on.
    pub(super) lease: LeaseId,
}

impl InForce {
    /// The guard that the document is still in force.
    pub(super) fn guard(&self) -> RoundGuard {
        RoundGuard::Active(self.active.history, self.revision)
    }
}

/// The shared documents, as a node has observed them.
#[derive(Debug, Default)]
pub(super) struct Observed {
    /// The revision up to which every change is known; none if nothing is known.
    revision: Option<Revision>,
    /// The history of the run on the server; none if none has begun, or nothing is known.
    history: Option<RunHistory>,
    /// The document in force; if it cannot be read, the error and the revision at which it was written.
    in_force: Option<Result<InForce, (DocumentError, Revision)>>,
    /// `rdzv/round`, and the revision at which it was written.
    rounds: Option<(Rounds, Revision)>,
}

impl Observed {
    /// The revision up to which every change is known; 0 if nothing is known.
    pub(super) fn revision(&self) -> Revision {
        self.revision.unwrap_or(0)
    }

    pub(super) fn is_known(&self) -> bool {
        self.revision.is_some()
    }

    pub(super) fn history(&self) -> Option<RunHistory> {
        self.history
    }

    pub(super) fn in_force(&self) -> Result<Option<&InForce>, &DocumentError> {
        let read = self.in_force.as_ref();
        read.map(|read| read.as_ref().map_err(|(error, _)| error)).transpose()
    }

    /// The revision at which the document in force was written, if it cannot be read.
    pub(super) fn unreadable_since(&self) -> Option<Revision> {
        match &self.in_force {
            Some(Err((_, revision))) => Some(*revision),
            _ => None,
        }
    }

    /// The document in force, if it can be read.
    pub(super) fn active(&self) -> Option<&Active> {
        self.in_force().ok().flatten().map(|in_force| &in_force.active)
    }

    pub(super) fn rounds(&self) -> Option<&Rounds> {
        self.rounds.as_ref().map(|(rounds, _)| rounds)
    }

    /// The fields of `rdzv/round` that this version does not know.
    pub(super) fn rounds_extra(&self) -> Extra {
        self.rounds().map(|rounds| rounds.extra.clone()).unwrap_or_default()
    }

    /// The guard that no document is in force. `begins` is the history that begins if the run has none.
    pub(super) fn no_active(&self, begins: RunHistory) -> RoundGuard {
        match (self.history, &self.rounds) {
            (Some(history), Some((_, revision))) => RoundGuard::NoActive(history, *revision),
            _ => RoundGuard::NoHistory(begins),
        }
    }

    /// Forgets everything.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Whether a snapshot belongs to another history than the observed one. A snapshot without a history may be older
    /// than the beginning of the observed one.
    pub(super) fn is_of_another(&self, revision: Revision, snapshot: &ActiveSnapshot<'_>) -> bool {
        let is_late = snapshot.history().is_none() && Some(revision) < self.revision;
        self.history.is_some() && snapshot.history() != self.history && !is_late
    }

    /// Takes in a snapshot of all documents.
    pub(super) fn snapshot(&mut self, revision: Revision, snapshot: &ActiveSnapshot<'_>) {
        if self.revision > Some(revision) {
            return;
        }
        self.history = snapshot.history();
        self.rounds = None;
        self.set_active(revision, snapshot.active);
        match snapshot.rounds.map(|kv| (decode::<Rounds>(&kv.key, &kv.value), kv.mod_revision)) {
            None => {}
            Some((Ok(rounds), since)) => self.rounds = Some((rounds, since)),
            // Without `rdzv/round` no round can be opened. The document in force, if there is one, says more.
            Some((Err(error), _)) if self.in_force.is_none() => {
                self.in_force = Some(Err((error, 0)));
            }
            Some((Err(_), _)) => {}
        }
    }

    /// Takes in the events of the watch. False if they belong to another history than the observed one.
    #[must_use]
    pub(super) fn follow(&mut self, events: &[Event]) -> bool {
        let before = self.history;
        for event in events {
            let active = (event.kind == EventKind::Put).then_some(&event.kv);
            if self.revision < Some(event.kv.mod_revision) {
                self.set_active(event.kv.mod_revision, active);
            }
        }
        before.is_none() || before == self.history
    }

    /// The node's own request put this document in force.
    pub(super) fn wrote(&mut self, active: Active, revision: Revision, lease: LeaseId) {
        if self.revision < Some(revision) {
            self.revision = Some(revision);
            self.in_force = Some(Ok(InForce { active, revision, lease }));
            self.derive();
        }
    }

    /// The node's own request deleted the document in force.
    pub(super) fn deleted(&mut self, revision: Revision) {
        if self.revision < Some(revision) {
            self.set_active(revision, None);
        }
    }

    fn set_active(&mut self, revision: Revision, active: Option<&KeyValue>) {
        self.revision = Some(revision);
        let read = |kv: &KeyValue| {
            let active = decode(&kv.key, &kv.value);
            let active = active.map_err(|error| (error, kv.mod_revision))?;
            Ok(InForce { active, revision: kv.mod_revision, lease: kv.lease })
        };
        self.in_force = active.map(read);
        self.derive();
    }

    /// Derives `rdzv/round` from the document in force: both are written together, with the unknown fields of both.
    fn derive(&mut self) {
        let Some(Ok(InForce { active, revision, .. })) = &self.in_force else { return };
        let mut extra = self.rounds.take().map(|(rounds, _)| rounds.extra).unwrap_or_default();
        extra.extend(active.extra.clone());
        self.rounds = Some((active.rounds(extra), *revision));
        self.history = Some(active.history);
    }
}
