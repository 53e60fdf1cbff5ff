//! A multi-version key-value store with leases and watches, with the semantics of etcd's.
//!
//! - `history`: every version of every key since the last compaction.
//! - `check`: validation of a request by itself.
//! - `range`, `txn`: reads and transactions on top of the history.
//! - `lease`: the time to live of keys. `watch`: the watchers of a key, which `spans` finds.
//! - `space`: how much history is kept, and which writes are refused when memory runs out.
//! - `record`: the facts that a log must keep to restore the store after a restart.
//!
//! # Writing and publishing
//!
//! A write takes effect at once for the writes after it, but readers and watches see it only when it
//! is [published](Mvcc::publish). In between the owner of the store may write it to a log. A revision
//! that a client has seen is therefore never lost, and readers never wait for a disk: they read the last
//! published revision.

mod check;
mod history;
mod lease;
mod range;
mod record;
mod space;
mod spans;
mod txn;
mod watch;

use bytes::Bytes;

pub use self::record::Record;
pub use self::watch::{StreamId, WatchId, WatchMessage, WatchRefused};

use self::history::{History, Write};
use self::lease::Leases;
use self::watch::Watchers;
use crate::kv::{
    Delete, DeleteResult, EventKind, KeyRange, KvError, LeaseId, LeaseStatus, Put, PutResult,
    Range, RangeResult, Revision, Time, Txn, TxnResult, Watch,
};

/// The limits of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MvccOptions {
    /// Limit of operations in one branch of a transaction, inner ones included. etcd: 128.
    pub max_txn_ops: usize,
    /// The shortest time to live of a lease in seconds; a shorter request is raised to it. etcd: 2.
    pub min_lease_ttl: i64,
    /// Limit of leases at one time.
    pub max_leases: usize,
    /// Limit of watches at one time.
    pub max_watches: usize,
    /// Limit of memory for keys, values and their history, in bytes. etcd: 2 GiB.
    ///
    /// History takes a quarter of it at most and is compacted when a put needs the memory, unless
    /// `keep_revisions` is 0. An eighth is reserved for small writes.
    pub max_bytes: usize,
    /// The number of revisions to keep, as far as `max_bytes` allows; older ones are compacted
    /// automatically. 0 keeps all until a client compacts, as etcd does by default.
    pub keep_revisions: Revision,
}

impl Default for MvccOptions {
    fn default() -> Self {
        Self {
            max_txn_ops: 128,
            min_lease_ttl: 2,
            max_leases: 1_000_000,
            max_watches: 1_000_000,
            max_bytes: 2 << 30,
            keep_revisions: 100_000,
        }
    }
}

/// A replayed record whose revision does not follow the revision before it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("revision {revision} follows revision {head}")]
pub struct OutOfOrder {
    /// The revision of the record.
    pub revision: Revision,
    /// The newest revision before it.
    pub head: Revision,
}

/// The store. See the [module](self) for the difference between writing and publishing.
#[derive(Debug, Default)]
pub struct Mvcc {
    history: History,
    leases: Leases,
    watchers: Watchers,
    /// The newest published revision, or 0 before the first publication.
    published: Revision,
    journal: Option<Vec<Record>>,
    options: MvccOptions,
}

impl Mvcc {
    /// An empty store.
    pub fn new(options: MvccOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// The limits of the store.
    pub fn options(&self) -> &MvccOptions {
        &self.options
    }

    /// From now on, records are kept for [`Mvcc::take_journal`].
    pub fn start_journal(&mut self) {
        self.journal.get_or_insert_default();
    }

    /// The newest revision that readers see.
    pub fn revision(&self) -> Revision {
        self.published.max(1)
    }

    /// The newest revision, published or not.
    pub fn head(&self) -> Revision {
        self.history.head()
    }

    /// The oldest revision that can be read, or -1 before the first compaction.
    pub fn compacted(&self) -> Revision {
        self.history.compacted()
    }

    /// The approximate memory of keys, values and their history, in bytes.
    pub fn bytes(&self) -> usize {
        self.history.bytes()
    }

    /// The part of [`Mvcc::bytes`] that the current pairs take, which no compaction frees.
    pub fn live_bytes(&self) -> usize {
        self.history.live()
    }

    // ---- Reading

    /// Reads keys as of the last published revision, or an older one.
    pub fn range(&self, range: &Range) -> Result<RangeResult, KvError> {
        check::range(&range.range)?;
        range::range(&self.history, range, self.revision())
    }

    /// Runs a transaction that only reads, as of the last published revision.
    ///
    /// # Panics
    ///
    /// If the transaction is not [read-only](Txn::is_read_only).
    pub fn read_txn(&self, txn: &Txn) -> Result<TxnResult, KvError> {
        assert!(txn.is_read_only(), "read_txn is called for transactions that only read");
        check::txn(txn, self.options.max_txn_ops)?;
        let now = self.revision();
        let plan = txn::plan(&self.history, now, txn);
        txn::check_plan(self, &plan, now)?;
        Ok(txn::read(&self.history, &plan, now))
    }

    // ---- Writing

    /// Writes a key.
    pub fn put(&mut self, put: Put) -> Result<PutResult, KvError> {
        check::put(&put)?;
        // This is etcd's order, which is reversed inside a transaction.
        self.check_lease(&put)?;
        self.check_ignored(&put)?;
        self.make_room(self.put_bytes(&put))?;
        Ok(self.write(|writing| writing.put(&put)))
    }

    /// Deletes keys.
    pub fn delete(&mut self, delete: Delete) -> Result<DeleteResult, KvError> {
        check::range(&delete.range)?;
        Ok(self.write(|writing| writing.delete(&delete)))
    }

    /// Runs a transaction on the newest state. All of its changes are one revision.
    pub fn txn(&mut self, txn: Txn) -> Result<TxnResult, KvError> {
        check::txn(&txn, self.options.max_txn_ops)?;
        self.make_room(self.txn_bytes(&txn))?;
        let now = self.history.head();
        let plan = txn::plan(&self.history, now, &txn);
        txn::check_plan(self, &plan, now)?;
        Ok(self.write(|writing| txn::run(writing, &plan)))
    }

    /// Discards the history before `revision`, which must be published.
    pub fn compact(&mut self, revision: Revision) -> Result<(), KvError> {
        if revision <= self.history.compacted() {
            return Err(KvError::Compacted);
        }
        if revision > self.revision() {
            return Err(KvError::FutureRevision);
        }
        self.history.compact(revision);
        self.note(Record::Compacted { revision });
        Ok(())
    }

    fn check_ignored(&self, put: &Put) -> Result<(), KvError> {
        if (put.ignore_value || put.ignore_lease) && self.history.latest(&put.key).is_none() {
            return Err(KvError::KeyNotFound);
        }
        Ok(())
    }

    fn check_lease(&self, put: &Put) -> Result<(), KvError> {
        if put.lease != 0 && !self.leases.contains(put.lease) {
            return Err(KvError::LeaseNotFound);
        }
        Ok(())
    }

    /// Runs `change` as one transaction and adds its events to the journal, if there is one.
    fn write<T>(&mut self, change: impl FnOnce(&mut Writing<'_>) -> T) -> T {
        let before = self.history.head();
        let mut writing = Writing { write: self.history.write(), leases: &mut self.leases };
        let answer = change(&mut writing);
        let revision = writing.write.commit();
        if revision > before && self.journal.is_some() {
            let events = self.history.events(&KeyRange::all(), revision, revision).collect();
            self.note(Record::Write { revision, events });
        }
        answer
    }

    fn note(&mut self, record: Record) {
        if let Some(journal) = &mut self.journal {
            journal.push(record);
        }
    }

    // ---- Publishing

    /// Lets readers and watches see everything up to `revision`. Returns the streams that had no message
    /// before and have one now.
    ///
    /// A revision that is published already changes nothing, and a future one stands for the newest.
    pub fn publish(&mut self, revision: Revision) -> Vec<StreamId> {
        let seen = self.revision();
        let revision = revision.clamp(seen, self.head());
        let mut woken = Vec::new();
        for (revision, key) in self.history.changed_keys(seen + 1, revision) {
            self.watchers.mark(key, revision, &mut woken);
        }
        self.published = revision;
        self.trim();
        woken
    }

    /// Lets readers and watches see every revision.
    pub fn publish_all(&mut self) -> Vec<StreamId> {
        self.publish(self.history.head())
    }

    // ---- Leases

    /// Grants a lease and returns its time to live, which is at least the shortest one allowed.
    pub fn lease_grant(&mut self, now: Time, id: LeaseId, ttl: i64) -> Result<i64, KvError> {
        if self.leases.len() >= self.options.max_leases {
            return Err(KvError::TooManyLeases { limit: self.options.max_leases });
        }
        let ttl = self.leases.grant(now, id, ttl, self.options.min_lease_ttl)?;
        self.note(Record::LeaseGranted { id, ttl });
        Ok(ttl)
    }

    /// Revokes a lease and deletes its keys, in one revision if there are any.
    pub fn lease_revoke(&mut self, id: LeaseId) -> Result<Revision, KvError> {
        let keys = self.leases.remove(id)?;
        let revision = self.write(|writing| {
            keys.iter().for_each(|key| writing.write.delete(key));
            writing.revision()
        });
        self.note(Record::LeaseRevoked { id });
        Ok(revision)
    }

    /// Renews a lease and returns its time to live; `None` if there is no such lease.
    pub fn lease_keep_alive(&mut self, now: Time, id: LeaseId) -> Option<i64> {
        self.leases.renew(now, id)
    }

    /// The state of a lease; `None` if there is no such lease.
    pub fn lease_status(&self, now: Time, id: LeaseId) -> Option<LeaseStatus> {
        self.leases.status(now, id)
    }

    /// All leases, in the order of their expiry.
    pub fn leases(&self) -> impl Iterator<Item = LeaseId> {
        self.leases.iter().map(|(id, _)| id)
    }

    /// Expires every lease whose time is up, each in a revision of its own, and returns their number.
    pub fn expire(&mut self, now: Time) -> usize {
        let mut count = 0;
        while let Some(id) = self.leases.expired(now) {
            self.lease_revoke(id).expect("an expired lease exists");
            count += 1;
        }
        count
    }

    /// The moment at which the next lease expires unless it is renewed.
    pub fn next_expiry(&self) -> Option<Time> {
        self.leases.next_end()
    }

    // ---- Watches

    /// Opens a stream, which carries any number of watches.
    pub fn open_stream(&mut self) -> StreamId {
        self.watchers.open()
    }

    /// Closes a stream and all of its watches.
    pub fn close_stream(&mut self, stream: StreamId) {
        self.watchers.close(stream);
    }

    /// Adds a watch to a stream, with the given id or the next free one.
    pub fn watch(
        &mut self,
        stream: StreamId,
        id: Option<WatchId>,
        watch: Watch,
    ) -> Result<WatchId, WatchRefused> {
        let published = self.revision();
        self.watchers.create(stream, id, watch, published, self.options.max_watches)
    }

    /// Cancels a watch. Returns whether it existed.
    pub fn unwatch(&mut self, stream: StreamId, id: WatchId) -> bool {
        self.watchers.cancel(stream, id)
    }

    /// The next message of the stream, if it has one.
    pub fn next_message(&mut self, stream: StreamId) -> Option<WatchMessage> {
        let published = self.revision();
        self.watchers.next(stream, &self.history, published)
    }

    /// Whether every watch of the stream has received all published changes.
    pub fn is_synced(&self, stream: StreamId) -> bool {
        self.watchers.is_synced(stream)
    }

    /// Whether the stream has any watch.
    pub fn has_watches(&self, stream: StreamId) -> bool {
        self.watchers.has_watches(stream)
    }

    /// The watches that requested progress notifications and have received no message since the last call.
    pub fn quiet_watches(&mut self, stream: StreamId) -> Vec<WatchId> {
        self.watchers.quiet(stream)
    }

    /// The number of watches.
    pub fn watch_count(&self) -> usize {
        self.watchers.len()
    }

    /// The number of leases.
    pub fn lease_count(&self) -> usize {
        self.leases.len()
    }

    // ---- Journal and restore

    /// The records since the last call, to be written to a log.
    pub fn take_journal(&mut self) -> Vec<Record> {
        self.journal.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The shortest list of records that restores this store, published or not.
    pub fn dump(&self) -> Vec<Record> {
        let leases = self.leases.iter().map(|(id, ttl)| Record::LeaseGranted { id, ttl });
        let writes = self.history.dump().into_iter();
        let mut records: Vec<Record> = leases
            .chain(writes.map(|(revision, events)| Record::Write { revision, events }))
            .collect();
        // The events of the newest revision may all be compacted.
        records.push(Record::Write { revision: self.history.head(), events: Vec::new() });
        if self.history.compacted() >= 0 {
            records.push(Record::Compacted { revision: self.history.compacted() });
        }
        records
    }

    /// Replays one record of a journal or a dump. Leases start with their full time to live at `now`.
    pub fn restore(&mut self, now: Time, record: &Record) -> Result<(), OutOfOrder> {
        match record {
            Record::Write { revision, events } => {
                let head = self.history.head();
                if *revision < head || (*revision == head && !events.is_empty()) {
                    return Err(OutOfOrder { revision: *revision, head });
                }
                for (sub, event) in events.iter().enumerate() {
                    if let Some(before) = self.history.latest(&event.kv.key) {
                        self.leases.detach(before.lease, &before.key);
                    }
                    let key = self.history.restore(*revision, sub as u32, event);
                    if event.kind == EventKind::Put {
                        self.leases.attach(event.kv.lease, key);
                    }
                }
                self.history.restore_head(*revision);
            }
            Record::LeaseGranted { id, ttl } => self.leases.insert(now, *id, *ttl),
            Record::LeaseRevoked { id } => drop(self.leases.remove(*id)),
            Record::Compacted { revision } if *revision > self.history.compacted() => {
                self.history.compact(*revision);
            }
            Record::Compacted { .. } => {}
        }
        self.published = self.history.head();
        Ok(())
    }
}

/// A transaction under way, with the leases that its keys are attached to.
struct Writing<'a> {
    write: Write<'a>,
    leases: &'a mut Leases,
}

impl Writing<'_> {
    fn history(&self) -> &History {
        self.write.history()
    }

    fn revision(&self) -> Revision {
        self.write.revision()
    }

    fn put(&mut self, put: &Put) -> PutResult {
        let before = self.history().latest(&put.key);
        let (mut value, mut lease) = (&put.value, put.lease);
        if let Some(before) = &before {
            if put.ignore_value {
                value = &before.value;
            }
            if put.ignore_lease {
                lease = before.lease;
            }
            self.leases.detach(before.lease, &put.key);
        }
        let key = self.write.put(&put.key, value, lease);
        self.leases.attach(lease, key);
        PutResult { revision: self.revision(), prev_kv: before.filter(|_| put.prev_kv) }
    }

    fn delete(&mut self, delete: &Delete) -> DeleteResult {
        let doomed: Vec<(Bytes, LeaseId)> = self
            .history()
            .range(&delete.range, Revision::MAX)
            .map(|(key, version)| (key.clone(), version.lease))
            .collect();
        let mut prev_kvs = Vec::new();
        for (key, lease) in &doomed {
            if delete.prev_kv {
                prev_kvs.extend(self.history().latest(key));
            }
            self.leases.detach(*lease, key);
            self.write.delete(key);
        }
        DeleteResult { revision: self.revision(), deleted: doomed.len() as i64, prev_kvs }
    }
}
