//! What a node knows of the document in force, and as of when.
//!
//! It hears of it from two sides, its watch and the answers to its own requests, in either order. The
//! later revision counts.

use crate::kv::{Event, EventKind, KeyValue, LeaseId, Revision};
use crate::rendezvous::documents::{Active, DocumentError, Extra, Rounds, RunHistory, decode};
use crate::rendezvous::txn::{Found, Guard};

/// The document in force, with its place in history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::rendezvous) struct InForce {
    pub(in crate::rendezvous) active: Active,
    /// When it was written.
    pub(in crate::rendezvous) revision: Revision,
    /// The lease that it lives on.
    pub(in crate::rendezvous) lease: LeaseId,
}

impl InForce {
    /// That it still is.
    pub(in crate::rendezvous) fn guard(&self) -> Guard {
        Guard::At(self.active.history, self.revision)
    }
}

#[derive(Debug, Default)]
pub(in crate::rendezvous) struct Knowledge {
    /// Everything that happened up to here is known; nothing at all if none.
    revision: Option<Revision>,
    /// The history that the run has on the server; none if it has none yet, or it is not known.
    history: Option<RunHistory>,
    /// The document in force; if it cannot be read, why, and when it was written.
    in_force: Option<Result<InForce, (DocumentError, Revision)>>,
    /// What `rdzv/round` says, and since when.
    rounds: Option<(Rounds, Revision)>,
}

impl Knowledge {
    /// Everything up to here is known.
    pub(in crate::rendezvous) fn revision(&self) -> Revision {
        self.revision.unwrap_or(0)
    }

    pub(in crate::rendezvous) fn is_known(&self) -> bool {
        self.revision.is_some()
    }

    pub(in crate::rendezvous) fn history(&self) -> Option<RunHistory> {
        self.history
    }

    pub(in crate::rendezvous) fn in_force(&self) -> Result<Option<&InForce>, &DocumentError> {
        let read = self.in_force.as_ref();
        read.map(|read| read.as_ref().map_err(|(error, _)| error)).transpose()
    }

    /// When the document was written that cannot be read, if it is so.
    pub(in crate::rendezvous) fn unreadable_since(&self) -> Option<Revision> {
        match &self.in_force {
            Some(Err((_, revision))) => Some(*revision),
            _ => None,
        }
    }

    /// The document, if there is one that can be read.
    pub(in crate::rendezvous) fn active(&self) -> Option<&Active> {
        self.in_force().ok().flatten().map(|in_force| &in_force.active)
    }

    pub(in crate::rendezvous) fn rounds(&self) -> Option<&Rounds> {
        self.rounds.as_ref().map(|(rounds, _)| rounds)
    }

    /// What `rdzv/round` says that this version does not know.
    pub(in crate::rendezvous) fn rounds_extra(&self) -> Extra {
        self.rounds().map(|rounds| rounds.extra.clone()).unwrap_or_default()
    }

    /// That no document is in force, as far as is known; `begins` names the history if none has begun.
    pub(in crate::rendezvous) fn absent(&self, begins: RunHistory) -> Guard {
        match (self.history, &self.rounds) {
            (Some(history), Some((_, revision))) => Guard::Absent(history, *revision),
            _ => Guard::Nothing(begins),
        }
    }

    /// Nothing is known any more.
    pub(in crate::rendezvous) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Whether what was found belongs to another history than the one that is known. Nothing at all may have been
    /// found before that began.
    pub(in crate::rendezvous) fn is_of_another(
        &self,
        revision: Revision,
        found: &Found<'_>,
    ) -> bool {
        let is_late = found.history().is_none() && Some(revision) < self.revision;
        self.history.is_some() && found.history() != self.history && !is_late
    }

    /// Takes in what was read of all documents at once.
    pub(in crate::rendezvous) fn look(&mut self, revision: Revision, found: &Found<'_>) {
        if self.revision > Some(revision) {
            return;
        }
        self.history = found.history();
        self.rounds = None;
        self.learn(revision, found.active);
        match found.rounds.map(|kv| (decode::<Rounds>(&kv.key, &kv.value), kv.mod_revision)) {
            None => {}
            Some((Ok(rounds), since)) => self.rounds = Some((rounds, since)),
            // Without it no round can be begun. What is in force, if anything, says more.
            Some((Err(error), _)) if self.in_force.is_none() => {
                self.in_force = Some(Err((error, 0)));
            }
            Some((Err(_), _)) => {}
        }
    }

    /// Takes in what the watch saw. False if it is of another history: then nothing is known any more.
    #[must_use]
    pub(in crate::rendezvous) fn follow(&mut self, events: &[Event]) -> bool {
        let before = self.history;
        for event in events {
            let active = (event.kind == EventKind::Put).then_some(&event.kv);
            if self.revision < Some(event.kv.mod_revision) {
                self.learn(event.kv.mod_revision, active);
            }
        }
        before.is_none() || before == self.history
    }

    /// A request of our own put this in force.
    pub(in crate::rendezvous) fn wrote(
        &mut self,
        active: Active,
        revision: Revision,
        lease: LeaseId,
    ) {
        if self.revision < Some(revision) {
            self.revision = Some(revision);
            self.in_force = Some(Ok(InForce { active, revision, lease }));
            self.derive();
        }
    }

    /// A request of our own took the document away.
    pub(in crate::rendezvous) fn deleted(&mut self, revision: Revision) {
        if self.revision < Some(revision) {
            self.learn(revision, None);
        }
    }

    fn learn(&mut self, revision: Revision, active: Option<&KeyValue>) {
        self.revision = Some(revision);
        let read = |kv: &KeyValue| {
            let active = decode(&kv.key, &kv.value);
            let active = active.map_err(|error| (error, kv.mod_revision))?;
            Ok(InForce { active, revision: kv.mod_revision, lease: kv.lease })
        };
        self.in_force = active.map(read);
        self.derive();
    }

    /// `rdzv/round` is written whenever the document in force is, with the fields of both that nobody here knows.
    fn derive(&mut self) {
        let Some(Ok(InForce { active, revision, .. })) = &self.in_force else { return };
        let mut extra = self.rounds.take().map(|(rounds, _)| rounds.extra).unwrap_or_default();
        extra.extend(active.extra.clone());
        self.rounds = Some((active.rounds(extra), *revision));
        self.history = Some(active.history);
    }
}
