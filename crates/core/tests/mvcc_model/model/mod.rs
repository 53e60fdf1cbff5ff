//! What the store must do, in the plainest way there is: a full copy of the key space after every
//! revision, and loops over it. Nothing is shared with the store but the vocabulary.
//!
//! It must never be clever: a bug that both sides have is a bug that no test sees.

mod lease;
mod range;
mod txn;

use std::collections::BTreeMap;

use bytes::Bytes;
use rallypoint_core::kv::{
    Delete, DeleteResult, Event, EventKind, KeyRange, KeyValue, KvError, LeaseId, Put, PutResult,
    Range, RangeResult, Revision, Time,
};
use rallypoint_core::mvcc::{Mvcc, MvccOptions};

use self::lease::Lease;

/// Every key that exists, with its pair.
pub(crate) type State = BTreeMap<Bytes, KeyValue>;

#[derive(Clone)]
pub(crate) struct Model {
    pub(crate) options: MvccOptions,
    /// The key space after each revision, and what changed in it; the index is the revision.
    states: Vec<State>,
    events: Vec<Vec<Event>>,
    pub(crate) published: Revision,
    pub(crate) compacted: Revision,
    leases: BTreeMap<LeaseId, Lease>,
}

impl Model {
    pub(crate) fn new(options: MvccOptions) -> Self {
        Self {
            options,
            states: vec![State::new(); 2],
            events: vec![Vec::new(); 2],
            published: 1,
            compacted: -1,
            leases: BTreeMap::new(),
        }
    }

    /// The same store after a restart: all of it is seen, and leases start over.
    pub(crate) fn restarted(&self, now: Time) -> Self {
        let mut again = self.clone();
        again.published = self.head();
        for lease in again.leases.values_mut() {
            lease.ends = now + lease.full();
        }
        again
    }

    pub(crate) fn head(&self) -> Revision {
        self.states.len() as Revision - 1
    }

    /// What the pairs that exist take: each as much as an empty one, and its bytes.
    pub(crate) fn live_bytes(&self) -> usize {
        let mut one = Mvcc::default();
        one.put(Put::new("k", "")).expect("there is room for one");
        let each = one.live_bytes() - 1;
        let pairs = self.states[self.head() as usize].values();
        pairs.map(|kv| each + kv.key.len() + kv.value.len()).sum()
    }

    /// What revision `revision` changed, in order.
    pub(crate) fn events(&self, revision: Revision) -> &[Event] {
        &self.events[revision as usize]
    }

    /// The pair of `key` after `revision`, if that can still be asked for.
    pub(crate) fn pair(&self, key: &[u8], revision: Revision) -> Option<&KeyValue> {
        if revision < self.compacted { None } else { self.states[revision as usize].get(key) }
    }

    /// All that a restart must bring back, and no more: the pairs that were there when history
    /// begins, and what happened since.
    pub(crate) fn remembered(&self) -> BTreeMap<Revision, Vec<Event>> {
        let begin = self.compacted.max(0);
        let mut all: BTreeMap<Revision, Vec<Event>> = BTreeMap::new();
        for kv in self.states[begin as usize].values().filter(|kv| kv.mod_revision < begin) {
            let event = Event { kind: EventKind::Put, kv: kv.clone(), prev_kv: None };
            all.entry(kv.mod_revision).or_default().push(event);
        }
        for revision in begin..=self.head() {
            all.insert(revision, self.events(revision).to_vec());
        }
        all.retain(|_, events| !events.is_empty());
        all
    }

    // ---- Requests

    pub(crate) fn range(&self, range: &Range) -> Result<RangeResult, KvError> {
        txn::check_key(range.range.start())?;
        self.check_revision(range.revision, self.published)?;
        Ok(self.read(range, self.published, &self.states[self.published as usize]))
    }

    pub(crate) fn put(&mut self, put: &Put) -> Result<PutResult, KvError> {
        txn::check_put(put)?;
        // A put by itself looks for the lease first, a put in a transaction for the key.
        self.check_lease(put)?;
        self.check_ignore(put)?;
        let mut draft = Draft::new(self);
        let answer = draft.put(put);
        draft.commit();
        Ok(answer)
    }

    pub(crate) fn delete(&mut self, delete: &Delete) -> Result<DeleteResult, KvError> {
        txn::check_key(delete.range.start())?;
        let mut draft = Draft::new(self);
        let answer = draft.delete(delete);
        draft.commit();
        Ok(answer)
    }

    pub(crate) fn compact(&mut self, revision: Revision) -> Result<(), KvError> {
        if revision <= self.compacted {
            return Err(KvError::Compacted);
        }
        if revision > self.published {
            return Err(KvError::FutureRevision);
        }
        self.compacted = revision;
        Ok(())
    }

    /// Publishing never goes back, and never ahead of what was written.
    pub(crate) fn publish(&mut self, revision: Revision) {
        self.published = self.published.max(revision.min(self.head()));
        let keep = self.options.keep_revisions;
        if keep > 0 && self.published - self.compacted.max(1) > keep + keep / 8 {
            self.compacted = self.published - keep;
        }
    }

    // ---- Checks against the state

    fn check_revision(&self, asked: Revision, now: Revision) -> Result<(), KvError> {
        match asked {
            ..=0 => Ok(()),
            _ if asked > now => Err(KvError::FutureRevision),
            _ if asked < self.compacted => Err(KvError::Compacted),
            _ => Ok(()),
        }
    }

    fn check_lease(&self, put: &Put) -> Result<(), KvError> {
        if put.lease != 0 && !self.leases.contains_key(&put.lease) {
            return Err(KvError::LeaseNotFound);
        }
        Ok(())
    }

    fn check_ignore(&self, put: &Put) -> Result<(), KvError> {
        let exists = self.states[self.head() as usize].contains_key(&put.key);
        if (put.ignore_value || put.ignore_lease) && !exists {
            return Err(KvError::KeyNotFound);
        }
        Ok(())
    }
}

/// A write under way, on a copy of the key space.
struct Draft<'a> {
    model: &'a mut Model,
    state: State,
    events: Vec<Event>,
}

impl<'a> Draft<'a> {
    fn new(model: &'a mut Model) -> Self {
        let state = model.states[model.head() as usize].clone();
        Self { model, state, events: Vec::new() }
    }

    /// The revision of the answers: the next one as soon as anything changed.
    fn revision(&self) -> Revision {
        self.model.head() + Revision::from(!self.events.is_empty())
    }

    fn put(&mut self, put: &Put) -> PutResult {
        let next = self.model.head() + 1;
        let before = self.state.get(&put.key).cloned();
        let mut kv = KeyValue {
            key: put.key.clone(),
            value: put.value.clone(),
            create_revision: next,
            mod_revision: next,
            version: 1,
            lease: put.lease,
        };
        if let Some(before) = &before {
            kv.create_revision = before.create_revision;
            kv.version = before.version + 1;
            if put.ignore_value {
                kv.value = before.value.clone();
            }
            if put.ignore_lease {
                kv.lease = before.lease;
            }
        }
        self.events.push(Event { kind: EventKind::Put, kv: kv.clone(), prev_kv: None });
        self.state.insert(put.key.clone(), kv);
        PutResult { revision: self.revision(), prev_kv: before.filter(|_| put.prev_kv) }
    }

    fn delete(&mut self, delete: &Delete) -> DeleteResult {
        let doomed: Vec<KeyValue> =
            self.state.values().filter(|kv| inside(&delete.range, &kv.key)).cloned().collect();
        doomed.iter().for_each(|kv| self.delete_key(&kv.key));
        DeleteResult {
            revision: self.revision(),
            deleted: doomed.len() as i64,
            prev_kvs: if delete.prev_kv { doomed } else { Vec::new() },
        }
    }

    fn delete_key(&mut self, key: &Bytes) {
        self.state.remove(key);
        let mod_revision = self.model.head() + 1;
        let kv = KeyValue { key: key.clone(), mod_revision, ..KeyValue::default() };
        self.events.push(Event { kind: EventKind::Delete, kv, prev_kv: None });
    }

    /// One revision for everything, or none for nothing.
    fn commit(self) {
        if !self.events.is_empty() {
            self.model.states.push(self.state);
            self.model.events.push(self.events);
        }
    }
}

/// Whether `key` is in `range`, in the words of the wire: `[key, range_end)`.
pub(crate) fn inside(range: &KeyRange, key: &[u8]) -> bool {
    match range {
        KeyRange::Key(only) => key == only.as_ref(),
        KeyRange::Span(from, to) => key >= from.as_ref() && key < to.as_ref(),
        KeyRange::From(from) => key >= from.as_ref(),
    }
}
