//! The requests and results of a versioned key-value store.
//!
//! The rendezvous uses these types, the MVCC store implements them, and `convert` in the `rallypoint` crate converts
//! them to etcd's wire format. They follow etcd's semantics exactly, so that the same types describe Rallypoint's
//! server and an etcd cluster.

mod error;
mod text;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

pub use self::error::KvError;

/// The revision of a store. A fresh store has revision 1, and the first write makes 2; 0 in a request means the newest.
pub type Revision = i64;

/// The id of a lease. 0 means no lease.
pub type LeaseId = i64;

/// A point in time, as the duration since an origin that the caller chooses.
pub type Time = std::time::Duration;

/// A key with its value and its revisions.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct KeyValue {
    /// The key.
    #[serde(with = "text")]
    pub key: Bytes,
    /// The value.
    #[serde(with = "text", default, skip_serializing_if = "Bytes::is_empty")]
    pub value: Bytes,
    /// The revision of the key's creation, or of its last creation after a deletion.
    pub create_revision: Revision,
    /// The revision of the key's last change.
    pub mod_revision: Revision,
    /// The number of puts since the creation; 0 in the event of a deletion.
    pub version: i64,
    /// The lease that the key is attached to, or 0.
    pub lease: LeaseId,
}

/// The keys that a request reads, writes or watches.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyRange {
    /// One key.
    Key(Bytes),
    /// The keys from the first, included, to the second, excluded. Empty if the second is not larger.
    Span(Bytes, Bytes),
    /// This key and all larger keys.
    From(Bytes),
}

impl KeyRange {
    /// One key.
    pub fn key(key: impl Into<Bytes>) -> Self {
        Self::Key(key.into())
    }

    /// Every key in the store.
    pub fn all() -> Self {
        Self::From(Bytes::from_static(b"\0"))
    }

    /// Every key that begins with `prefix`; an empty prefix means every key.
    ///
    /// ```
    /// use rallypoint_core::kv::KeyRange;
    /// assert_eq!(KeyRange::prefix("a"), KeyRange::Span("a".into(), "b".into()));
    /// assert_eq!(KeyRange::prefix(""), KeyRange::all());
    /// ```
    pub fn prefix(prefix: impl Into<Bytes>) -> Self {
        let start: Bytes = prefix.into();
        if start.is_empty() {
            return Self::all();
        }
        match start.iter().rposition(|byte| *byte < 0xff) {
            Some(last) => {
                let mut end = start[..=last].to_vec();
                end[last] += 1;
                Self::Span(start, end.into())
            }
            None => Self::From(start),
        }
    }

    /// The first key that may be in the range.
    pub fn start(&self) -> &Bytes {
        match self {
            Self::Key(start) | Self::Span(start, _) | Self::From(start) => start,
        }
    }

    /// Whether `key` is in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        match self {
            Self::Key(only) => only == key,
            Self::Span(start, end) => start <= key && key < end.as_ref(),
            Self::From(start) => start <= key,
        }
    }

    /// Whether the range can have no key.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Span(start, end) if end <= start)
    }
}

/// The property that pairs are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SortTarget {
    /// The key.
    #[default]
    Key,
    /// The number of puts.
    Version,
    /// The revision of the creation.
    Create,
    /// The revision of the last change.
    Mod,
    /// The value.
    Value,
}

/// The direction in which pairs are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SortOrder {
    /// The order of the store: ascending.
    #[default]
    None,
    /// Smallest first.
    Ascend,
    /// Largest first.
    Descend,
}

/// A request to read keys.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Range {
    /// Which keys.
    pub range: KeyRange,
    /// The revision to read at; 0 or less for the newest.
    pub revision: Revision,
    /// The largest number of pairs to return; 0 or less for all.
    pub limit: i64,
    /// The property to sort by.
    pub sort_target: SortTarget,
    /// The direction to sort in.
    pub sort_order: SortOrder,
    /// Leave the values out.
    pub keys_only: bool,
    /// Leave the pairs out, count only.
    pub count_only: bool,
    /// Drop pairs last changed before this revision; 0 for none.
    pub min_mod_revision: Revision,
    /// Drop pairs last changed after this revision; 0 for none.
    pub max_mod_revision: Revision,
    /// Drop pairs created before this revision; 0 for none.
    pub min_create_revision: Revision,
    /// Drop pairs created after this revision; 0 for none.
    pub max_create_revision: Revision,
}

impl Range {
    /// A request for all pairs of `range` at the newest revision.
    pub fn new(range: KeyRange) -> Self {
        Self {
            range,
            revision: 0,
            limit: 0,
            sort_target: SortTarget::default(),
            sort_order: SortOrder::default(),
            keys_only: false,
            count_only: false,
            min_mod_revision: 0,
            max_mod_revision: 0,
            min_create_revision: 0,
            max_create_revision: 0,
        }
    }
}

impl From<KeyRange> for Range {
    fn from(range: KeyRange) -> Self {
        Self::new(range)
    }
}

/// The result of a [`Range`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RangeResult {
    /// The store's revision at the time of the read.
    pub revision: Revision,
    /// The pairs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kvs: Vec<KeyValue>,
    /// Whether the limit has left out some pairs.
    pub more: bool,
    /// The number of keys in the range, regardless of the limit and the filters.
    pub count: i64,
}

/// A request to write one key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Put {
    /// The key.
    pub key: Bytes,
    /// Its new value.
    pub value: Bytes,
    /// The lease to attach the key to, or 0.
    pub lease: LeaseId,
    /// Return the previous pair.
    pub prev_kv: bool,
    /// Keep the current value.
    pub ignore_value: bool,
    /// Keep the current lease.
    pub ignore_lease: bool,
}

impl Put {
    /// A request to write `value` to `key`, without a lease.
    pub fn new(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self { key: key.into(), value: value.into(), ..Self::default() }
    }

    /// Attaches the key to `lease`.
    pub fn on_lease(self, lease: LeaseId) -> Self {
        Self { lease, ..self }
    }
}

/// The result of a [`Put`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PutResult {
    /// The revision that the put made.
    pub revision: Revision,
    /// The previous pair, if requested and there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prev_kv: Option<KeyValue>,
}

/// A request to delete keys.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Delete {
    /// Which keys.
    pub range: KeyRange,
    /// Return the deleted pairs.
    pub prev_kv: bool,
}

impl From<KeyRange> for Delete {
    fn from(range: KeyRange) -> Self {
        Self { range, prev_kv: false }
    }
}

/// The result of a [`Delete`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DeleteResult {
    /// The revision that the deletion made, or the current one if it deleted nothing.
    pub revision: Revision,
    /// The number of deleted keys.
    pub deleted: i64,
    /// The deleted pairs, if requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prev_kvs: Vec<KeyValue>,
}

/// The relation that a [`Compare`] demands between the store's side and the given one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Relation {
    /// Both are equal.
    Equal,
    /// Both differ.
    NotEqual,
    /// The store's side is larger.
    Greater,
    /// The store's side is smaller.
    Less,
}

/// The property that a [`Compare`] reads, and the value to compare it with.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CompareTarget {
    /// The number of puts since the creation; 0 for a key that does not exist.
    Version(i64),
    /// The revision of the key's creation; 0 for a key that does not exist.
    Create(Revision),
    /// The revision of the key's last change; 0 for a key that does not exist.
    Mod(Revision),
    /// The value. For a key that does not exist the comparison fails, whatever the relation.
    Value(Bytes),
    /// The lease; 0 for none, also for a key that does not exist.
    Lease(LeaseId),
}

/// One condition of a [`Txn`]. It must hold for every key in its range.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Compare {
    /// Which keys.
    pub range: KeyRange,
    /// The relation between the two sides.
    pub relation: Relation,
    /// The property and the value to compare it with.
    pub target: CompareTarget,
}

impl Compare {
    /// Holds if the key does not exist.
    pub fn absent(key: impl Into<Bytes>) -> Self {
        Self {
            range: KeyRange::key(key),
            relation: Relation::Equal,
            target: CompareTarget::Create(0),
        }
    }

    /// Holds if the key exists.
    pub fn exists(key: impl Into<Bytes>) -> Self {
        Self { relation: Relation::Greater, ..Self::absent(key) }
    }

    /// Holds if the key last changed at exactly `revision`.
    pub fn unchanged_since(key: impl Into<Bytes>, revision: Revision) -> Self {
        Self {
            range: KeyRange::key(key),
            relation: Relation::Equal,
            target: CompareTarget::Mod(revision),
        }
    }
}

/// One operation of a [`Txn`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Op {
    /// Reads keys.
    Range(Range),
    /// Writes a key.
    Put(Put),
    /// Deletes keys.
    Delete(Delete),
    /// A transaction inside the transaction.
    Txn(Txn),
}

/// A transaction: one list of operations if every comparison holds, another one if not, all in one revision.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Txn {
    /// The conditions. An empty list holds.
    pub compares: Vec<Compare>,
    /// The operations if all conditions hold.
    pub success: Vec<Op>,
    /// The operations if a condition does not hold.
    pub failure: Vec<Op>,
}

impl Txn {
    /// A transaction with these conditions and no operations.
    pub fn when(compares: impl IntoIterator<Item = Compare>) -> Self {
        Self { compares: compares.into_iter().collect(), ..Self::default() }
    }

    /// Sets the operations for the case that the conditions hold.
    pub fn then(self, ops: impl IntoIterator<Item = Op>) -> Self {
        Self { success: ops.into_iter().collect(), ..self }
    }

    /// Sets the operations for the case that a condition does not hold.
    pub fn otherwise(self, ops: impl IntoIterator<Item = Op>) -> Self {
        Self { failure: ops.into_iter().collect(), ..self }
    }

    /// Several reads at one revision, in a transaction that may be cancelled on every etcd.
    ///
    /// An etcd before 3.5.5 crashes when a read-only transaction is cancelled (etcd-io/etcd#14110). The
    /// branch that never runs therefore has a write, of a key that the first read names.
    pub fn reading(ranges: impl IntoIterator<Item = Range>) -> Self {
        let ops: Vec<Op> = ranges.into_iter().map(Op::Range).collect();
        let never = ops.first().and_then(|op| match op {
            Op::Range(range) => Some(Op::Delete(KeyRange::key(range.range.start().clone()).into())),
            _ => None,
        });
        Self::default().then(ops).otherwise(never)
    }

    /// Whether no operation that may run changes anything. Without conditions, the `failure` branch never
    /// runs.
    pub fn is_read_only(&self) -> bool {
        let failure = if self.compares.is_empty() { &[] } else { self.failure.as_slice() };
        self.success.iter().chain(failure).all(|op| match op {
            Op::Range(_) => true,
            Op::Put(_) | Op::Delete(_) => false,
            Op::Txn(inner) => inner.is_read_only(),
        })
    }
}

/// The result of one [`Op`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OpResult {
    /// The result of a read.
    Range(RangeResult),
    /// The result of a write.
    Put(PutResult),
    /// The result of a deletion.
    Delete(DeleteResult),
    /// The result of an inner transaction.
    Txn(TxnResult),
}

/// The result of a [`Txn`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TxnResult {
    /// The revision that the transaction made, or the current one if it changed nothing.
    pub revision: Revision,
    /// Whether the conditions held.
    pub succeeded: bool,
    /// One result for each operation of the branch that ran.
    pub results: Vec<OpResult>,
}

/// The state of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseStatus {
    /// The granted time to live in seconds.
    pub granted_ttl: i64,
    /// The remaining time to live in whole seconds.
    pub remaining_ttl: i64,
    /// The keys that are attached to the lease, in order.
    pub keys: Vec<Bytes>,
}

/// Whether an [`Event`] is a write or a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The key was written.
    Put,
    /// The key was deleted, or its lease has expired.
    Delete,
}

/// One change to one key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The kind of the change.
    pub kind: EventKind,
    /// The pair after the change. That of a deletion has the key and the revision alone.
    pub kv: KeyValue,
    /// The pair before the revision, if the watch requested it and it is not compacted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prev_kv: Option<KeyValue>,
}

/// A request to watch keys.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Watch {
    /// Which keys.
    pub range: KeyRange,
    /// The first revision to report: a past one is replayed, a future one is awaited, and 0 stands for
    /// the next one.
    pub start_revision: Revision,
    /// Report the pair before each change too.
    pub prev_kv: bool,
    /// Leave out writes.
    pub no_put: bool,
    /// Leave out deletions.
    pub no_delete: bool,
    /// Send a progress notification from time to time when there are no changes.
    pub progress_notify: bool,
}

impl Watch {
    /// A request to watch `range` from now on.
    pub fn new(range: KeyRange) -> Self {
        Self {
            range,
            start_revision: 0,
            prev_kv: false,
            no_put: false,
            no_delete: false,
            progress_notify: false,
        }
    }

    /// Begins the watch at `revision`.
    pub fn from_revision(self, revision: Revision) -> Self {
        Self { start_revision: revision, ..self }
    }
}
