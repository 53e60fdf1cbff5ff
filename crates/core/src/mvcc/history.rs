//! Every version of every key since the last compaction.
//!
//! Two views of the same facts: by key, each with its versions in order, for reads; and by
//! revision, the list of changes, for watches that replay.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use bytes::Bytes;

use crate::kv::{Event, EventKind, KeyRange, KeyValue, LeaseId, Revision};

/// The revision of a store in which nothing has happened.
const FIRST: Revision = 1;

/// The events of a range with at most this many keys are read from the keys' own lists of versions.
const NARROW: usize = 16;

#[derive(Debug, Clone)]
pub(super) struct Version {
    pub(super) revision: Revision,
    /// The position among the changes of one revision: a transaction may delete a key and put it again.
    sub: u32,
    pub(super) create_revision: Revision,
    pub(super) version: i64,
    pub(super) lease: LeaseId,
    /// `None` is the tombstone of a deletion.
    pub(super) value: Option<Bytes>,
}

impl Version {
    fn pair(&self, key: &Bytes, value: &Bytes) -> KeyValue {
        KeyValue {
            key: key.clone(),
            value: value.clone(),
            create_revision: self.create_revision,
            mod_revision: self.revision,
            version: self.version,
            lease: self.lease,
        }
    }

    /// The pair, unless this is a deletion.
    pub(super) fn live(&self, key: &Bytes) -> Option<KeyValue> {
        self.value.as_ref().map(|value| self.pair(key, value))
    }

    fn event(&self, key: &Bytes) -> Event {
        let (kind, kv) = match &self.value {
            Some(value) => (EventKind::Put, self.pair(key, value)),
            None => {
                let tombstone = KeyValue {
                    key: key.clone(),
                    mod_revision: self.revision,
                    ..KeyValue::default()
                };
                (EventKind::Delete, tombstone)
            }
        };
        Event { kind, kv, prev_kv: None }
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.value.as_ref().map_or(0, Bytes::len)
    }

    /// The memory of the key while this is its newest version: 0 if it is deleted.
    fn live_bytes(&self, key: &[u8]) -> usize {
        if self.value.is_some() { self.bytes() + key_bytes(key) } else { 0 }
    }
}

fn key_bytes(key: &[u8]) -> usize {
    key.len() + size_of::<(Bytes, Vec<Version>)>()
}

#[derive(Debug, Clone)]
struct KeyChange {
    revision: Revision,
    sub: u32,
    key: Bytes,
}

#[derive(Debug)]
pub(super) struct History {
    keys: BTreeMap<Bytes, Vec<Version>>,
    /// Every change at or after `compacted`, in order.
    changes: VecDeque<KeyChange>,
    head: Revision,
    /// The oldest revision that can be read, or -1 before the first compaction.
    compacted: Revision,
    bytes: usize,
    live: usize,
}

impl Default for History {
    fn default() -> Self {
        Self {
            keys: BTreeMap::new(),
            changes: VecDeque::new(),
            head: FIRST,
            compacted: -1,
            bytes: 0,
            live: 0,
        }
    }
}

impl History {
    /// The newest revision, published or not.
    pub(super) fn head(&self) -> Revision {
        self.head
    }

    pub(super) fn compacted(&self) -> Revision {
        self.compacted
    }

    /// The approximate memory of all versions, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The part of it that the newest versions of current keys take, which no compaction frees.
    pub(super) fn live(&self) -> usize {
        self.live
    }

    // ---- Reading

    /// The pair of `key` as of `revision`.
    pub(super) fn at(&self, key: &[u8], revision: Revision) -> Option<KeyValue> {
        let (key, versions) = self.keys.get_key_value(key)?;
        version_at(versions, revision)?.live(key)
    }

    /// The newest pair of `key`, also if it is part of a transaction under way.
    pub(super) fn latest(&self, key: &[u8]) -> Option<KeyValue> {
        self.at(key, Revision::MAX)
    }

    /// The live keys of `range` as of `revision`, in order.
    pub(super) fn range<'a>(
        &'a self,
        range: &'a KeyRange,
        revision: Revision,
    ) -> impl Iterator<Item = (&'a Bytes, &'a Version)> {
        self.versions_in(range).filter_map(move |(key, versions)| {
            let version = version_at(versions, revision)?;
            version.value.is_some().then_some((key, version))
        })
    }

    fn versions_in<'a>(
        &'a self,
        range: &'a KeyRange,
    ) -> impl Iterator<Item = (&'a Bytes, &'a Vec<Version>)> {
        let (start, end) = match range {
            KeyRange::Key(key) => (key, Bound::Included(key.as_ref())),
            KeyRange::From(start) => (start, Bound::Unbounded),
            // The map panics if the first bound is larger than the second.
            KeyRange::Span(start, end) => (start, Bound::Excluded(end.max(start).as_ref())),
        };
        self.keys.range::<[u8], _>((Bound::Included(start.as_ref()), end))
    }

    /// The changes to keys in `range` from `from` to `to`, both included, in order.
    pub(super) fn events<'a>(
        &'a self,
        range: &'a KeyRange,
        from: Revision,
        to: Revision,
    ) -> Box<dyn Iterator<Item = Event> + 'a> {
        // The lists of a few keys are shorter than the list of all changes, which ten thousand watches of
        // one key each would otherwise all go through.
        if self.versions_in(range).nth(NARROW).is_none() {
            let lists = self.versions_in(range).map(|(key, versions)| {
                let first = versions.partition_point(|version| version.revision < from);
                let behind = versions.partition_point(|version| version.revision <= to);
                (key, versions.get(first..behind).unwrap_or_default())
            });
            return Box::new(merged(lists.collect()));
        }
        Box::new(
            self.changes(from, to)
                .filter(|change| range.contains(&change.key))
                .map(|change| self.event(change)),
        )
    }

    /// The keys that changed from `from` to `to`, with the revision of each change, in order.
    pub(super) fn changed_keys(
        &self,
        from: Revision,
        to: Revision,
    ) -> impl Iterator<Item = (Revision, &Bytes)> {
        self.changes(from, to).map(|change| (change.revision, &change.key))
    }

    fn changes(&self, from: Revision, to: Revision) -> impl Iterator<Item = &KeyChange> {
        let first = self.changes.partition_point(|change| change.revision < from);
        self.changes.range(first..).take_while(move |change| change.revision <= to)
    }

    fn event(&self, change: &KeyChange) -> Event {
        let versions = self.keys.get(&change.key).expect("a change that is listed has its version");
        let place = (change.revision, change.sub);
        let index = versions.partition_point(|version| (version.revision, version.sub) < place);
        versions[index].event(&change.key)
    }

    // ---- Writing

    /// Begins a transaction. It gets a revision of its own if it changes anything.
    pub(super) fn write(&mut self) -> Write<'_> {
        Write { history: self, sub: 0 }
    }

    /// Adds a version and returns the key as it is stored.
    fn push(&mut self, key: &[u8], version: Version) -> Bytes {
        let change = KeyChange { revision: version.revision, sub: version.sub, key: Bytes::new() };
        self.bytes += version.bytes() + size_of::<KeyChange>();
        self.live += version.live_bytes(key);
        // The key is copied once, when it is new: the given slice may keep a whole network buffer
        // alive, and every later version shares the copy.
        let key = if let Some((key, versions)) = self.keys.get_key_value(key) {
            self.live -= versions.last().map_or(0, |before| before.live_bytes(key));
            let key = key.clone();
            self.keys.get_mut(&key).expect("it was there just now").push(version);
            key
        } else {
            let key = Bytes::copy_from_slice(key);
            self.bytes += key_bytes(&key);
            self.keys.insert(key.clone(), vec![version]);
            key
        };
        self.changes.push_back(KeyChange { key: key.clone(), ..change });
        key
    }

    /// Discards what no reader at `revision` or later can see.
    ///
    /// A deletion exactly at `revision` is kept, so that a watch that starts there still reports it.
    pub(super) fn compact(&mut self, revision: Revision) {
        self.compacted = revision;
        let old = self.changes.partition_point(|change| change.revision < revision);
        for change in self.changes.drain(..old).collect::<Vec<_>>() {
            self.bytes = self.bytes.saturating_sub(size_of::<KeyChange>());
            self.compact_key(&change.key, revision);
        }
        // The keys that changed exactly at `revision` keep that version and lose the ones before.
        let at: Vec<Bytes> =
            self.changed_keys(revision, revision).map(|(_, key)| key.clone()).collect();
        for key in at {
            self.compact_key(&key, revision);
        }
    }

    fn compact_key(&mut self, key: &Bytes, revision: Revision) {
        let Some(versions) = self.keys.get_mut(key) else { return };
        let visible = versions.partition_point(|version| version.revision <= revision);
        let Some(newest) = visible.checked_sub(1) else { return };
        // All versions made at `revision` itself are events that a watch may still ask for.
        let keep = if versions[newest].revision == revision {
            versions.partition_point(|version| version.revision < revision)
        } else if versions[newest].value.is_some() {
            newest
        } else {
            visible
        };
        let freed: usize = versions.drain(..keep).map(|version| version.bytes()).sum();
        self.bytes = self.bytes.saturating_sub(freed);
        if versions.is_empty() {
            self.keys.remove(key);
            self.bytes = self.bytes.saturating_sub(key_bytes(key));
        }
    }

    // ---- Restoring

    /// Restores an event of `revision`, as it was logged.
    pub(super) fn restore(&mut self, revision: Revision, sub: u32, event: &Event) -> Bytes {
        let kv = &event.kv;
        let version = Version {
            revision,
            sub,
            create_revision: kv.create_revision,
            version: kv.version,
            lease: kv.lease,
            value: match event.kind {
                EventKind::Put => Some(Bytes::copy_from_slice(&kv.value)),
                EventKind::Delete => None,
            },
        };
        self.push(&kv.key, version)
    }

    pub(super) fn restore_head(&mut self, revision: Revision) {
        self.head = revision;
    }

    /// Every event of this history in order, as [`History::restore`] takes them.
    pub(super) fn dump(&self) -> BTreeMap<Revision, Vec<Event>> {
        let mut all: BTreeMap<Revision, Vec<Event>> = BTreeMap::new();
        for (key, versions) in &self.keys {
            for version in versions.iter().filter(|version| version.revision < self.compacted) {
                all.entry(version.revision).or_default().push(version.event(key));
            }
        }
        for change in &self.changes {
            all.entry(change.revision).or_default().push(self.event(change));
        }
        all
    }
}

/// Merges the events of several keys, each in order, into the order of all.
fn merged<'a>(mut lists: Vec<(&'a Bytes, &'a [Version])>) -> impl Iterator<Item = Event> + 'a {
    std::iter::from_fn(move || {
        let begun = lists.iter_mut().filter(|(_, versions)| !versions.is_empty());
        let (key, versions) =
            begun.min_by_key(|(_, versions)| (versions[0].revision, versions[0].sub))?;
        let (first, rest) = versions.split_first()?;
        *versions = rest;
        Some(first.event(key))
    })
}

fn version_at(versions: &[Version], revision: Revision) -> Option<&Version> {
    // Nearly every read is of the newest version.
    match versions.last() {
        Some(newest) if newest.revision <= revision => Some(newest),
        _ => {
            let after = versions.partition_point(|version| version.revision <= revision);
            versions.get(after.checked_sub(1)?)
        }
    }
}

/// A transaction under way: its changes are in the history, its revision is not in force yet.
pub(super) struct Write<'a> {
    history: &'a mut History,
    sub: u32,
}

impl Write<'_> {
    /// The revision that reads inside the transaction see and its results carry.
    pub(super) fn revision(&self) -> Revision {
        self.history.head + Revision::from(self.sub > 0)
    }

    pub(super) fn history(&self) -> &History {
        self.history
    }

    pub(super) fn put(&mut self, key: &[u8], value: &[u8], lease: LeaseId) -> Bytes {
        let revision = self.history.head + 1;
        let (create_revision, version) = match self.history.latest(key) {
            Some(before) => (before.create_revision, before.version + 1),
            None => (revision, 1),
        };
        let value = Some(Bytes::copy_from_slice(value));
        let sub = self.sub;
        self.push(key, Version { revision, sub, create_revision, version, lease, value })
    }

    pub(super) fn delete(&mut self, key: &[u8]) {
        let revision = self.history.head + 1;
        let sub = self.sub;
        let tombstone =
            Version { revision, sub, create_revision: 0, version: 0, lease: 0, value: None };
        self.push(key, tombstone);
    }

    fn push(&mut self, key: &[u8], version: Version) -> Bytes {
        self.sub += 1;
        self.history.push(key, version)
    }

    /// Puts the revision in force if anything changed, and returns the newest one.
    pub(super) fn commit(self) -> Revision {
        let revision = self.revision();
        self.history.head = revision;
        revision
    }
}
