//! Watches: who wants to hear of what, and how far each has heard.
//!
//! A watch is a place in history, not a queue. Publishing marks the watches that have something to
//! hear and says which streams to wake; what they hear is read from the history when they ask for
//! it. So a slow reader costs nothing but its place, cannot slow the others, and sees every event
//! once and in order, or learns that its place was compacted away (invariant S2).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;

use super::history::History;
use super::spans::Spans;
use crate::kv::{Event, EventKind, KeyRange, Revision, Watch};

/// Names a stream, which carries any number of watches to one reader.
pub type StreamId = u64;

/// Names a watch within its stream.
pub type WatchId = i64;

/// etcd's limit too: a replay comes in pieces of so many revisions.
const REVISIONS_PER_MESSAGE: Revision = 1000;

/// Enough for one message. A single revision may be larger and is never split here.
const BYTES_PER_MESSAGE: usize = 1 << 20;

/// Why a watch could not be created. The sentences are etcd's where it has one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WatchRefused {
    /// The id asked for is in use on the stream.
    #[error("mvcc: duplicate watch ID provided on the WatchStream")]
    DuplicateId,
    /// No key can ever be in the range.
    #[error("mvcc: watcher range is empty")]
    EmptyRange,
    /// The store has as many watches as it may.
    #[error("rallypoint: {limit} watches exist, which is the limit (max-watches)")]
    TooManyWatches {
        /// The limit in force.
        limit: usize,
    },
}

/// What a stream has to say next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchMessage {
    /// Changes, in order; all those of one revision are in one message.
    Events {
        /// Whose.
        id: WatchId,
        /// The store's revision when it answered.
        revision: Revision,
        /// What changed.
        events: Vec<Event>,
    },
    /// The watch is over: what it had yet to hear was compacted away.
    Compacted {
        /// Whose.
        id: WatchId,
        /// The oldest revision that can be watched from.
        compacted: Revision,
    },
}

#[derive(Debug)]
struct Watcher {
    watch: Watch,
    /// The first revision with something to hear, if there is one yet.
    pending: Option<Revision>,
    /// Nothing was said since the last progress notification.
    quiet: bool,
}

#[derive(Debug, Default)]
struct Stream {
    watchers: BTreeMap<WatchId, Watcher>,
    /// The watches with something to hear, each once, served in turn.
    ready: VecDeque<WatchId>,
    next_id: WatchId,
}

#[derive(Debug, Default)]
pub(super) struct Watchers {
    streams: BTreeMap<StreamId, Stream>,
    /// Who watches what. Streams that watch the same range, as members of one group do, share one
    /// entry, and both are ordered, so a change looks at those alone who watch its key.
    by_key: BTreeMap<Bytes, BTreeSet<(StreamId, WatchId)>>,
    by_range: Spans<BTreeSet<(StreamId, WatchId)>>,
    next_stream: StreamId,
    count: usize,
}

impl Watchers {
    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn open(&mut self) -> StreamId {
        self.next_stream += 1;
        self.streams.insert(self.next_stream, Stream::default());
        self.next_stream
    }

    pub(super) fn close(&mut self, stream: StreamId) {
        let Some(closed) = self.streams.remove(&stream) else { return };
        for (id, watcher) in closed.watchers {
            self.unlist(&watcher.watch.range, (stream, id));
        }
    }

    /// Adds a watch to a stream. `published` is the newest revision that anyone was told of.
    pub(super) fn create(
        &mut self,
        stream: StreamId,
        wanted: Option<WatchId>,
        mut watch: Watch,
        published: Revision,
        limit: usize,
    ) -> Result<WatchId, WatchRefused> {
        if watch.range.is_empty() {
            return Err(WatchRefused::EmptyRange);
        }
        if self.count >= limit {
            return Err(WatchRefused::TooManyWatches { limit });
        }
        let owner = self.streams.entry(stream).or_default();
        let id = match wanted {
            Some(id) if owner.watchers.contains_key(&id) => return Err(WatchRefused::DuplicateId),
            Some(id) => id,
            None => {
                while owner.watchers.contains_key(&owner.next_id) {
                    owner.next_id += 1;
                }
                owner.next_id += 1;
                owner.next_id - 1
            }
        };
        // The range outlives the request, which may be a slice of a network buffer.
        watch.range = owned(&watch.range);
        if watch.start_revision <= 0 {
            watch.start_revision = published + 1;
        }
        let pending = (watch.start_revision <= published).then_some(watch.start_revision);
        if pending.is_some() {
            owner.ready.push_back(id);
        }
        match &watch.range {
            KeyRange::Key(key) => self.by_key.entry(key.clone()).or_default(),
            range => self.by_range.entry(range),
        }
        .insert((stream, id));
        owner.watchers.insert(id, Watcher { watch, pending, quiet: true });
        self.count += 1;
        Ok(id)
    }

    /// Ends a watch, and tells whether there was one.
    pub(super) fn cancel(&mut self, stream: StreamId, id: WatchId) -> bool {
        let Some(owner) = self.streams.get_mut(&stream) else { return false };
        let Some(watcher) = owner.watchers.remove(&id) else { return false };
        if watcher.pending.is_some() {
            owner.ready.retain(|ready| *ready != id);
        }
        self.unlist(&watcher.watch.range, (stream, id));
        true
    }

    fn unlist(&mut self, range: &KeyRange, who: (StreamId, WatchId)) {
        self.count -= 1;
        let emptied = |list: &mut BTreeSet<(StreamId, WatchId)>| {
            list.remove(&who);
            list.is_empty()
        };
        match range {
            KeyRange::Key(key) => {
                if self.by_key.get_mut(key).is_some_and(emptied) {
                    self.by_key.remove(key);
                }
            }
            range => {
                if self.by_range.get_mut(range).is_some_and(emptied) {
                    self.by_range.remove(range);
                }
            }
        }
    }

    /// Marks everyone who watches `key`, which changed at `revision`. Streams that had nothing to
    /// say before are added to `woken`.
    pub(super) fn mark(&mut self, key: &Bytes, revision: Revision, woken: &mut Vec<StreamId>) {
        let streams = &mut self.streams;
        let mut mark = |&(stream, id): &(StreamId, WatchId)| {
            let Some(owner) = streams.get_mut(&stream) else { return };
            let Some(watcher) = owner.watchers.get_mut(&id) else { return };
            if watcher.pending.is_none() && revision >= watcher.watch.start_revision {
                watcher.pending = Some(revision);
                if owner.ready.is_empty() {
                    woken.push(stream);
                }
                owner.ready.push_back(id);
            }
        };
        if let Some(list) = self.by_key.get(key) {
            list.iter().for_each(&mut mark);
        }
        self.by_range.containing(key, &mut |list| list.iter().for_each(&mut mark));
    }

    /// What the stream has to say next, if anything.
    pub(super) fn next(
        &mut self,
        stream: StreamId,
        history: &History,
        published: Revision,
    ) -> Option<WatchMessage> {
        loop {
            let owner = self.streams.get_mut(&stream)?;
            let id = *owner.ready.front()?;
            let watcher = owner.watchers.get_mut(&id).expect("only what exists is ready");
            let from = watcher.pending.expect("only what is pending is ready");
            if from < history.compacted() {
                // It is the first in line, and there may be ten thousand more: no search for it.
                owner.ready.pop_front();
                watcher.pending = None;
                self.cancel(stream, id);
                return Some(WatchMessage::Compacted { id, compacted: history.compacted() });
            }
            let (events, next) = collect(history, &watcher.watch, from, published);
            watcher.pending = next;
            // A watch that is told nothing, for all its changes were filtered out, stays quiet:
            // progress is the only thing that it will ever hear of them.
            watcher.quiet &= events.is_empty();
            owner.ready.pop_front();
            if next.is_some() {
                owner.ready.push_back(id);
            }
            if !events.is_empty() {
                return Some(WatchMessage::Events { id, revision: published, events });
            }
        }
    }

    /// Whether every watch of the stream has heard all there is.
    pub(super) fn is_synced(&self, stream: StreamId) -> bool {
        self.streams.get(&stream).is_none_or(|owner| owner.ready.is_empty())
    }

    pub(super) fn has_watches(&self, stream: StreamId) -> bool {
        self.streams.get(&stream).is_some_and(|owner| !owner.watchers.is_empty())
    }

    /// The watches that want to be told of progress, have heard all there is, and were told nothing
    /// since this was last asked.
    pub(super) fn quiet(&mut self, stream: StreamId) -> Vec<WatchId> {
        let Some(owner) = self.streams.get_mut(&stream) else { return Vec::new() };
        let notified = |watcher: &Watcher| watcher.watch.progress_notify;
        let mut quiet = Vec::new();
        for (id, watcher) in owner.watchers.iter_mut().filter(|(_, watcher)| notified(watcher)) {
            if watcher.pending.is_none() && std::mem::replace(&mut watcher.quiet, true) {
                quiet.push(*id);
            }
        }
        quiet
    }
}

/// The events for `watch` from `from` on, as many as fit in one message, and where to go on.
fn collect(
    history: &History,
    watch: &Watch,
    from: Revision,
    published: Revision,
) -> (Vec<Event>, Option<Revision>) {
    let mut events: Vec<Event> = Vec::new();
    let (mut revisions, mut bytes, mut last) = (0, 0, 0);
    for mut event in history.events(&watch.range, from, published) {
        let wanted = match event.kind {
            EventKind::Put => !watch.no_put,
            EventKind::Delete => !watch.no_delete,
        };
        if !wanted {
            continue;
        }
        let revision = event.kv.mod_revision;
        if revision != last {
            if revisions == REVISIONS_PER_MESSAGE || bytes >= BYTES_PER_MESSAGE {
                return (events, Some(revision));
            }
            revisions += 1;
            last = revision;
        }
        let created = event.kind == EventKind::Put && event.kv.create_revision == revision;
        if watch.prev_kv && !created && revision > history.compacted() {
            event.prev_kv = history.at(&event.kv.key, revision - 1);
        }
        let pairs = [Some(&event.kv), event.prev_kv.as_ref()].into_iter().flatten();
        bytes += pairs.map(|kv| kv.key.len() + kv.value.len()).sum::<usize>();
        events.push(event);
    }
    (events, None)
}

fn owned(range: &KeyRange) -> KeyRange {
    let copy = |bytes: &Bytes| Bytes::copy_from_slice(bytes);
    match range {
        KeyRange::Key(key) => KeyRange::Key(copy(key)),
        KeyRange::Span(start, end) => KeyRange::Span(copy(start), copy(end)),
        KeyRange::From(start) => KeyRange::From(copy(start)),
    }
}
