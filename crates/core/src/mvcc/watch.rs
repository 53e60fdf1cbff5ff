//! Watches: which keys each of them is about, and how far each of them is.
//!
//! A watch is a position in history, not a queue. Publishing marks the watches that have changes to
//! report and returns the streams to wake; the changes are read from the history when the stream asks for
//! them. A slow reader therefore costs no memory, does not slow other readers, and sees every event
//! once and in order, or learns that its position was compacted (invariant S2).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;

use super::history::History;
use super::spans::Spans;
use crate::kv::{Event, EventKind, KeyRange, Revision, Watch};

/// The id of a stream, which carries any number of watches to one reader.
pub type StreamId = u64;

/// The id of a watch within its stream.
pub type WatchId = i64;

/// The largest number of revisions in one message of a replay; etcd's limit.
const REVISIONS_PER_MESSAGE: Revision = 1000;

/// The size in bytes after which a message is complete. A single revision may be larger and is never split.
const BYTES_PER_MESSAGE: usize = 1 << 20;

/// Why a watch was not created. The messages are etcd's where it has one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WatchRefused {
    /// The requested id is in use on the stream.
    #[error("mvcc: duplicate watch ID provided on the WatchStream")]
    DuplicateId,
    /// The range is empty.
    #[error("mvcc: watcher range is empty")]
    EmptyRange,
    /// The store has reached its limit of watches.
    #[error("rallypoint: {limit} watches exist, which is the limit (max-watches)")]
    TooManyWatches {
        /// The limit in force.
        limit: usize,
    },
}

/// A message of a watch stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchMessage {
    /// Changes, in order; the changes of one revision are in one message.
    Events {
        /// The watch.
        id: WatchId,
        /// The store's revision at the time of the message.
        revision: Revision,
        /// The changes.
        events: Vec<Event>,
    },
    /// The watch has ended: changes that it has not reported yet were compacted.
    Compacted {
        /// The watch.
        id: WatchId,
        /// The oldest revision that a watch can begin at.
        compacted: Revision,
    },
}

#[derive(Debug)]
struct MvccWatcher {
    watch: Watch,
    /// The first revision with a change to report, if there is one yet.
    pending: Option<Revision>,
    /// No message was sent since the last progress notification.
    quiet: bool,
}

#[derive(Debug, Default)]
struct StreamState {
    watchers: BTreeMap<WatchId, MvccWatcher>,
    /// The watches with changes to report, each once, served in turn.
    ready: VecDeque<WatchId>,
    next_id: WatchId,
}

#[derive(Debug, Default)]
pub(super) struct Watchers {
    streams: BTreeMap<StreamId, StreamState>,
    /// The watches of each range. Streams that watch the same range, as members of one group do, share one
    /// entry, and both are ordered, so that a change visits only the watches of its key.
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
        self.streams.insert(self.next_stream, StreamState::default());
        self.next_stream
    }

    pub(super) fn close(&mut self, stream: StreamId) {
        let Some(closed) = self.streams.remove(&stream) else { return };
        for (id, watcher) in closed.watchers {
            self.unlist(&watcher.watch.range, (stream, id));
        }
    }

    /// Adds a watch to a stream. `published` is the newest published revision.
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
        owner.watchers.insert(id, MvccWatcher { watch, pending, quiet: true });
        self.count += 1;
        Ok(id)
    }

    /// Cancels a watch. Returns whether it existed.
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

    /// Marks the watches of `key`, which changed at `revision`. Streams that had no message before are added
    /// to `woken`.
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

    /// The next message of the stream, if it has one.
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
                // The watch is the first in line, and there may be ten thousand more: no search for it.
                owner.ready.pop_front();
                watcher.pending = None;
                self.cancel(stream, id);
                return Some(WatchMessage::Compacted { id, compacted: history.compacted() });
            }
            let (events, next) = collect(history, &watcher.watch, from, published);
            watcher.pending = next;
            // A watch whose changes were all filtered out stays quiet: a progress notification is the
            // only message that will cover them.
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

    /// Whether every watch of the stream has received all changes.
    pub(super) fn is_synced(&self, stream: StreamId) -> bool {
        self.streams.get(&stream).is_none_or(|owner| owner.ready.is_empty())
    }

    pub(super) fn has_watches(&self, stream: StreamId) -> bool {
        self.streams.get(&stream).is_some_and(|owner| !owner.watchers.is_empty())
    }

    /// The watches that requested progress notifications, have received all changes, and have received no
    /// message since the last call.
    pub(super) fn quiet(&mut self, stream: StreamId) -> Vec<WatchId> {
        let Some(owner) = self.streams.get_mut(&stream) else { return Vec::new() };
        let notified = |watcher: &MvccWatcher| watcher.watch.progress_notify;
        let mut quiet = Vec::new();
        for (id, watcher) in owner.watchers.iter_mut().filter(|(_, watcher)| notified(watcher)) {
            if watcher.pending.is_none() && std::mem::replace(&mut watcher.quiet, true) {
                quiet.push(*id);
            }
        }
        quiet
    }
}

/// The events for `watch` from `from` on, as many as fit in one message, and the revision to continue at.
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
