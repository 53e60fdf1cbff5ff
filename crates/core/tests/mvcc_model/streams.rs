//! What watches must hear: every event of their keys from where they began, once, in order, a
//! revision never torn apart; or that it is gone.
//!
//! Which watch of a stream speaks first is not promised, and neither is when exactly a watch passes
//! over changes that it does not want, so those are the only things that are not pinned down.

use std::collections::{BTreeMap, BTreeSet};

use rallypoint_core::kv::{Event, EventKind, Revision, Watch};
use rallypoint_core::mvcc::{WatchId, WatchMessage, WatchRefused};

use crate::model::{Model, inside};

/// Names a stream of the test, whatever its id in the store.
pub(crate) type Slot = u8;

struct Watcher {
    watch: Watch,
    /// The first revision that it may not have heard of.
    next: Revision,
    /// It began in the past and is not known to have caught up.
    behind: bool,
    /// The stream has not spoken since it was created.
    fresh: bool,
    /// Something that it had to hear is gone: it must be told so, and nothing else.
    doomed: bool,
    /// Whether the next question about progress must name it, if that is certain.
    quiet: Option<bool>,
}

impl Watcher {
    fn wants(&self, event: &Event) -> bool {
        let filtered = match event.kind {
            EventKind::Put => self.watch.no_put,
            EventKind::Delete => self.watch.no_delete,
        };
        !filtered && inside(&self.watch.range, &event.kv.key)
    }

    /// What is published and not heard yet, of its keys, wanted or not.
    fn unheard<'a>(&'a self, model: &'a Model) -> impl Iterator<Item = &'a Event> {
        (self.next.max(1)..=model.published)
            .flat_map(|revision| model.events(revision))
            .filter(|event| inside(&self.watch.range, &event.kv.key))
    }

    /// What it must hear next, all of it.
    fn owed(&self, model: &Model) -> Vec<Event> {
        let with_previous = |event: &Event| Event {
            prev_kv: model
                .pair(&event.kv.key, event.kv.mod_revision - 1)
                .filter(|_| self.watch.prev_kv && event.kv.create_revision != event.kv.mod_revision)
                .cloned(),
            ..event.clone()
        };
        self.unheard(model).filter(|event| self.wants(event)).map(with_previous).collect()
    }

    fn is_owed(&self, model: &Model) -> bool {
        self.doomed || self.unheard(model).any(|event| self.wants(event))
    }

    fn lost(&self, model: &Model) -> bool {
        let gone = |event: &Event| event.kv.mod_revision < model.compacted;
        (self.fresh && self.behind && self.next < model.compacted)
            || self.unheard(model).any(|event| gone(event) && self.wants(event))
    }

    /// Whether it may be told that its place is gone.
    fn may_be_lost(&self, model: &Model) -> bool {
        let gone = |event: &Event| event.kv.mod_revision < model.compacted;
        self.next < model.compacted && (self.behind || self.unheard(model).any(gone))
    }

    fn caught_up(&mut self, model: &Model) {
        self.next = self.next.max(model.published + 1);
        self.behind = false;
    }
}

#[derive(Default)]
struct Stream {
    watchers: BTreeMap<WatchId, Watcher>,
    next_id: WatchId,
    /// Its reader was told that there is something to say, and has not heard the last of it.
    awake: bool,
}

#[derive(Default)]
pub(crate) struct Streams {
    streams: BTreeMap<Slot, Stream>,
}

impl Streams {
    pub(crate) fn open(&mut self, slot: Slot) {
        self.streams.insert(slot, Stream::default());
    }

    pub(crate) fn close(&mut self, slot: Slot) {
        self.streams.remove(&slot);
    }

    pub(crate) fn watch_count(&self) -> usize {
        self.streams.values().map(|stream| stream.watchers.len()).sum()
    }

    pub(crate) fn has_watches(&self, slot: Slot) -> bool {
        !self.stream(slot).watchers.is_empty()
    }

    pub(crate) fn watch(
        &mut self,
        model: &Model,
        slot: Slot,
        wanted: Option<WatchId>,
        mut watch: Watch,
    ) -> Result<WatchId, WatchRefused> {
        if watch.range.is_empty() {
            return Err(WatchRefused::EmptyRange);
        }
        let limit = model.options.max_watches;
        if self.watch_count() >= limit {
            return Err(WatchRefused::TooManyWatches { limit });
        }
        let stream = self.streams.get_mut(&slot).expect("streams are opened first");
        let id = match wanted {
            Some(id) if stream.watchers.contains_key(&id) => {
                return Err(WatchRefused::DuplicateId);
            }
            Some(id) => id,
            None => {
                let taken = |id: &WatchId| stream.watchers.contains_key(id);
                let id = (stream.next_id..).find(|id| !taken(id)).expect("few are taken");
                stream.next_id = id + 1;
                id
            }
        };
        if watch.start_revision <= 0 {
            watch.start_revision = model.published + 1;
        }
        let next = watch.start_revision;
        let behind = next <= model.published;
        // The creator of a watch checks at once whether it has messages.
        stream.awake |= behind;
        let quiet = Some(true);
        let watcher = Watcher { watch, next, behind, fresh: true, doomed: false, quiet };
        stream.watchers.insert(id, watcher);
        Ok(id)
    }

    pub(crate) fn unwatch(&mut self, slot: Slot, id: WatchId) -> bool {
        let stream = self.streams.get_mut(&slot).expect("streams are opened first");
        stream.watchers.remove(&id).is_some()
    }

    pub(crate) fn wake(&mut self, slot: Slot) {
        self.streams.get_mut(&slot).expect("streams are opened first").awake = true;
    }

    fn stream(&self, slot: Slot) -> &Stream {
        &self.streams[&slot]
    }

    /// Whether some watch of the stream has something to hear that it must not miss.
    pub(crate) fn is_owed(&self, model: &Model, slot: Slot) -> bool {
        self.stream(slot).watchers.values().any(|watcher| watcher.is_owed(model))
    }

    /// A stream that has something to say to a reader who does not know.
    pub(crate) fn forgotten(&self, model: &Model) -> Option<Slot> {
        let asleep = |slot: &&Slot| !self.stream(**slot).awake && self.is_owed(model, **slot);
        self.streams.keys().find(asleep).copied()
    }

    // ---- Hearing

    /// Judges what the stream said next. Says what is wrong with it, if anything.
    pub(crate) fn heard(
        &mut self,
        model: &Model,
        slot: Slot,
        message: Option<WatchMessage>,
    ) -> Result<(), String> {
        let stream = self.streams.get_mut(&slot).expect("streams are opened first");
        for watcher in stream.watchers.values_mut() {
            watcher.doomed |= watcher.lost(model);
            watcher.fresh = false;
        }
        match message {
            None => {
                for (id, watcher) in &mut stream.watchers {
                    if watcher.doomed {
                        return Err(format!("watch {id} was not told that it was compacted"));
                    }
                    let owed = watcher.owed(model);
                    if !owed.is_empty() {
                        return Err(format!("watch {id} did not hear {owed:?}"));
                    }
                    watcher.caught_up(model);
                }
                stream.awake = false;
            }
            Some(WatchMessage::Events { id, revision, events }) => {
                let watcher = stream.watchers.get_mut(&id).ok_or("events for no watch")?;
                let owed = watcher.owed(model);
                if watcher.doomed || owed != events || events.is_empty() {
                    let doomed = if watcher.doomed { "that it was compacted, not " } else { "" };
                    return Err(format!("watch {id} heard {events:?}\n  owed {doomed}{owed:?}"));
                }
                if revision != model.published {
                    return Err(format!("at {revision} instead of {}", model.published));
                }
                watcher.caught_up(model);
                watcher.quiet = Some(false);
            }
            Some(WatchMessage::Compacted { id, compacted }) => {
                let watcher = stream.watchers.remove(&id).ok_or("the end of no watch")?;
                if compacted != model.compacted || !(watcher.doomed || watcher.may_be_lost(model)) {
                    return Err(format!("watch {id} lost nothing, but heard of {compacted}"));
                }
            }
        }
        Ok(())
    }

    /// Judges which watches the store called quiet.
    pub(crate) fn quiet(
        &mut self,
        model: &Model,
        slot: Slot,
        named: &[WatchId],
    ) -> Result<(), String> {
        let stream = self.streams.get_mut(&slot).expect("streams are opened first");
        let named: BTreeSet<WatchId> = named.iter().copied().collect();
        if let Some(stranger) = named.iter().find(|id| !stream.watchers.contains_key(id)) {
            return Err(format!("{stranger} is no watch"));
        }
        for (id, watcher) in &mut stream.watchers {
            let is_named = named.contains(id);
            if !watcher.watch.progress_notify {
                if is_named {
                    return Err(format!("watch {id} did not ask for progress"));
                }
                continue;
            }
            watcher.doomed |= watcher.lost(model);
            if watcher.is_owed(model) {
                if is_named {
                    return Err(format!("watch {id} was told of progress before its events"));
                }
            } else if watcher.behind || watcher.unheard(model).next().is_some() {
                // It may or may not have passed over what it does not want.
                if is_named && watcher.quiet == Some(false) {
                    return Err(format!("watch {id} is not quiet"));
                }
                watcher.quiet = if is_named { Some(true) } else { None };
            } else {
                if watcher.quiet.is_some_and(|quiet| quiet != is_named) {
                    return Err(format!("watch {id} is quiet: {:?}", watcher.quiet));
                }
                watcher.quiet = Some(true);
            }
        }
        Ok(())
    }
}
