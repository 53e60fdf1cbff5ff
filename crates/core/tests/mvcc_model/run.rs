//! One store and one model, led through the same history step by step.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::time::Duration;

use bytes::Bytes;
use rallypoint_core::kv::{KeyRange, KvError, LeaseId, Range, Revision, Time, Watch};
use rallypoint_core::mvcc::{Mvcc, MvccOptions, Record, StreamId, WatchId};

use crate::model::Model;
use crate::steps::{KEYS, LEASES, Source, Step};
use crate::streams::{Slot, Streams};

/// Nothing, or what the store did that it should not.
pub(crate) type Verdict = Result<(), String>;

/// A stream that no history uses.
const INSPECTOR: Slot = 99;

fn same<T: PartialEq + Debug>(what: &str, store: T, model: T) -> Verdict {
    if store == model {
        return Ok(());
    }
    Err(format!("{what} differs\n  store: {store:?}\n  model: {model:?}"))
}

pub(crate) struct Run {
    store: Mvcc,
    model: Model,
    streams: Streams,
    ids: BTreeMap<Slot, StreamId>,
    now: Time,
    /// All records since the store began.
    journal: Vec<Record>,
    /// The newest revision in the journal.
    noted: Revision,
}

impl Run {
    pub(crate) fn new(options: MvccOptions) -> Self {
        let mut store = Mvcc::new(options.clone());
        store.start_journal();
        Self {
            store,
            model: Model::new(options),
            streams: Streams::default(),
            ids: BTreeMap::new(),
            now: Duration::from_secs(1000),
            journal: Vec::new(),
            noted: 1,
        }
    }

    /// Does one step to both, and compares what they answer and what anyone can see afterwards.
    pub(crate) fn step(&mut self, step: &Step) -> Verdict {
        let (store, model, now) = (&mut self.store, &mut self.model, self.now);
        match step {
            Step::Put(put) => {
                let answer = store.put(put.clone());
                if self.had_room(&answer, put.key.len() + put.value.len())? {
                    same("put", answer, self.model.put(put))?;
                }
            }
            Step::Delete(delete) => {
                same("delete", store.delete(delete.clone()), model.delete(delete))?;
            }
            Step::Txn(txn) => {
                let answer = store.txn(txn.clone());
                if self.had_room(&answer, 0)? {
                    same("txn", answer, self.model.txn(txn))?;
                }
            }
            Step::Range(range) => same("range", store.range(range), model.range(range))?,
            Step::ReadTxn(txn) => same("read_txn", store.read_txn(txn), model.read_txn(txn))?,
            Step::Compact(at) => same("compact", store.compact(*at), model.compact(*at))?,
            Step::Publish(revision) => self.publish(*revision)?,
            Step::PublishAll => self.publish(self.model.head())?,
            Step::Grant { id, ttl } => {
                let answer = store.lease_grant(now, *id, *ttl);
                same("lease_grant", answer, model.lease_grant(now, *id, *ttl))?;
            }
            Step::Revoke(id) => {
                same("lease_revoke", store.lease_revoke(*id), model.lease_revoke(*id))?;
            }
            Step::KeepAlive(id) => {
                let answer = store.lease_keep_alive(now, *id);
                same("lease_keep_alive", answer, model.lease_keep_alive(now, *id))?;
            }
            Step::LeaseStatus(id) => self.check_lease(*id)?,
            Step::Wait { millis } => self.now += Duration::from_millis(*millis),
            Step::Expire => same("expire", store.expire(now), model.expire(now))?,
            Step::CloseStream(slot) => self.close(*slot),
            Step::Watch { slot, id, watch } => self.watch(*slot, *id, watch)?,
            Step::Unwatch { slot, id } => {
                let stream = self.open(*slot);
                let was = self.streams.unwatch(*slot, *id);
                same("unwatch", self.store.unwatch(stream, *id), was)?;
            }
            Step::Poll { slot, messages } => self.poll(*slot, *messages).map(drop)?,
            Step::QuietWatches(slot) => {
                let stream = self.open(*slot);
                let named = self.store.quiet_watches(stream);
                self.streams.quiet(&self.model, *slot, &named)?;
            }
            Step::TakeJournal => self.take_journal()?,
            Step::Restart(source) => *self = self.restarted(*source)?,
        }
        self.check_outside()
    }

    /// Lets everything be heard, then looks at all there is to see, and again after both ways of
    /// restarting.
    pub(crate) fn finish(&mut self) -> Verdict {
        let slots: Vec<Slot> = self.ids.keys().copied().collect();
        for publish in [false, true] {
            if publish {
                self.publish(self.model.head())?;
            }
            for slot in &slots {
                self.drain(*slot)?;
            }
        }
        slots.into_iter().for_each(|slot| self.close(slot));
        self.inspect()?;
        for source in [Source::Journal, Source::Dump] {
            let mut again = self.restarted(source)?;
            again.inspect().map_err(|why| format!("after a restart from the {source:?}: {why}"))?;
        }
        Ok(())
    }

    // ---- Space

    /// Whether a write was not refused for want of room. The model has no bytes: it takes the store's
    /// word for how many there are, and judges what follows from that.
    fn had_room<T>(&mut self, answer: &Result<T, KvError>, more: usize) -> Result<bool, String> {
        self.forget_as_the_store_did(more)?;
        if !matches!(answer, Err(KvError::NoSpace)) {
            return Ok(true);
        }
        let (store, options) = (&self.store, &self.model.options);
        // What a transaction would put is not known here; it is small.
        let more = if more == 0 { 200 } else { more };
        let kept = options.keep_revisions == 0 || store.compacted().max(1) == store.revision();
        if store.live_bytes() + more > options.max_bytes
            || (kept && store.bytes() + more > options.max_bytes)
        {
            return Ok(false);
        }
        let (live, all) = (store.live_bytes(), store.bytes());
        Err(format!("refused with {live} bytes of pairs, {all} in all"))
    }

    /// Nothing may be forgotten without need, nor before it was seen.
    fn forget_as_the_store_did(&mut self, more: usize) -> Verdict {
        let (store, model) = (&self.store, &mut self.model);
        if store.compacted() == model.compacted {
            return Ok(());
        }
        let needed = model.options.keep_revisions > 0 && model.options.max_bytes < 10_000;
        if !needed || store.compacted() < model.compacted || store.compacted() > model.published {
            let (by, to) = (store.bytes() + more, store.compacted());
            return Err(format!("history up to {to} was forgotten for {by} bytes"));
        }
        model.compacted = store.compacted();
        Ok(())
    }

    /// After everyone was told, history takes no more than its share.
    fn check_history(&self) -> Verdict {
        let (store, options) = (&self.store, &self.model.options);
        let history = store.bytes() - store.live_bytes();
        let forgotten = store.compacted().max(1) == store.revision();
        if options.keep_revisions > 0 && history > options.max_bytes / 4 && !forgotten {
            return Err(format!("history takes {history} bytes of {}", options.max_bytes));
        }
        Ok(())
    }

    // ---- Publishing and watching

    fn publish(&mut self, revision: Revision) -> Verdict {
        let woken = self.store.publish(revision);
        self.model.publish(revision);
        self.forget_as_the_store_did(0)?;
        self.check_history()?;
        let distinct: BTreeSet<StreamId> = woken.iter().copied().collect();
        same("number of streams woken", woken.len(), distinct.len())?;
        let mut found = 0;
        for (slot, stream) in &self.ids {
            if distinct.contains(stream) {
                self.streams.wake(*slot);
                found += 1;
            }
        }
        same("number of streams woken that exist", woken.len(), found)
    }

    fn open(&mut self, slot: Slot) -> StreamId {
        *self.ids.entry(slot).or_insert_with(|| {
            self.streams.open(slot);
            self.store.open_stream()
        })
    }

    fn close(&mut self, slot: Slot) {
        if let Some(stream) = self.ids.remove(&slot) {
            self.store.close_stream(stream);
            self.streams.close(slot);
        }
    }

    fn watch(&mut self, slot: Slot, id: Option<WatchId>, watch: &Watch) -> Verdict {
        let stream = self.open(slot);
        let answer = self.store.watch(stream, id, watch.clone());
        same("watch", answer, self.streams.watch(&self.model, slot, id, watch.clone()))
    }

    /// Asks for messages, and tells whether there was nothing more to say.
    fn poll(&mut self, slot: Slot, messages: usize) -> Result<bool, String> {
        let stream = self.open(slot);
        for _ in 0..messages {
            let message = self.store.next_message(stream);
            let is_last = message.is_none();
            self.streams.heard(&self.model, slot, message)?;
            if is_last {
                same("is_synced", self.store.is_synced(stream), true)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn drain(&mut self, slot: Slot) -> Verdict {
        // Each watch has at most one message to say, since histories are short.
        let most = self.streams.watch_count() + 1;
        same("stream falls silent", self.poll(slot, most)?, true)
    }

    // ---- Surviving

    fn take_journal(&mut self) -> Verdict {
        for record in self.store.take_journal() {
            if let Record::Write { revision, events } = &record {
                same("revision in the journal", *revision, self.noted + 1)?;
                same("events in the journal", &events[..], self.model.events(*revision))?;
                self.noted = *revision;
            }
            self.journal.push(record);
        }
        same("newest revision in the journal", self.noted, self.model.head())
    }

    fn dump(&self) -> Result<Vec<Record>, String> {
        let records = self.store.dump();
        let mut writes = BTreeMap::new();
        for record in &records {
            if let Record::Write { revision, events } = record
                && !events.is_empty()
            {
                writes.insert(*revision, events.clone());
            }
        }
        same("dump", writes, self.model.remembered())?;
        Ok(records)
    }

    fn restarted(&mut self, source: Source) -> Result<Self, String> {
        self.take_journal()?;
        let journal = match source {
            Source::Journal => self.journal.clone(),
            Source::Dump => self.dump()?,
        };
        let mut store = Mvcc::new(self.model.options.clone());
        for record in &journal {
            store.restore(self.now, record).map_err(|error| format!("{record:?}: {error}"))?;
        }
        same("bytes after a restart", store.bytes(), self.store.bytes())?;
        store.start_journal();
        Ok(Self {
            store,
            model: self.model.restarted(self.now),
            streams: Streams::default(),
            ids: BTreeMap::new(),
            now: self.now,
            journal,
            noted: self.noted,
        })
    }

    // ---- Looking

    /// What can be seen at a glance, after each step.
    fn check_outside(&self) -> Verdict {
        let (store, model) = (&self.store, &self.model);
        same("revision", store.revision(), model.published)?;
        same("head", store.head(), model.head())?;
        same("bytes of the pairs that exist", store.live_bytes(), model.live_bytes())?;
        same("compacted", store.compacted(), model.compacted)?;
        same("lease_count", store.lease_count(), model.lease_count())?;
        same("next_expiry", store.next_expiry(), model.next_expiry())?;
        same("watch_count", store.watch_count(), self.streams.watch_count())?;
        for (slot, stream) in &self.ids {
            same("has_watches", store.has_watches(*stream), self.streams.has_watches(*slot))?;
            let claims = store.is_synced(*stream);
            if claims && self.streams.is_owed(model, *slot) {
                return Err(format!("stream {slot} is called synced and is not"));
            }
        }
        same("stream that was not woken", self.streams.forgotten(model), None)
    }

    fn check_lease(&self, id: LeaseId) -> Verdict {
        let answer = self.store.lease_status(self.now, id);
        same("lease_status", answer, self.model.lease_status(self.now, id))
    }

    /// All that can be read at any revision, watched from any revision, and asked of leases.
    fn inspect(&mut self) -> Verdict {
        for revision in -1..=self.model.head() + 1 {
            let range = Range { revision, ..Range::new(KeyRange::all()) };
            same("range", self.store.range(&range), self.model.range(&range))?;
            self.replay(KeyRange::all(), revision)?;
        }
        for key in KEYS.map(Bytes::from_static) {
            self.replay(KeyRange::Key(key.clone()), self.model.compacted)?;
            self.replay(KeyRange::prefix(key), self.model.compacted + 1)?;
        }
        for id in LEASES {
            self.check_lease(id)?;
        }
        let listed: Vec<LeaseId> = self.store.leases().collect();
        let mut sorted = listed.clone();
        sorted.sort_by_key(|id| self.model.lease_ends(*id));
        same("order of leases", &listed, &sorted)?;
        same("number of leases", listed.len(), self.model.lease_count())?;
        self.check_outside()
    }

    fn replay(&mut self, range: KeyRange, start: Revision) -> Verdict {
        let watch = Watch { prev_kv: true, ..Watch::new(range).from_revision(start) };
        self.watch(INSPECTOR, None, &watch)?;
        self.drain(INSPECTOR).map_err(|why| format!("replay from {start}: {why}"))?;
        self.close(INSPECTOR);
        Ok(())
    }
}
