//! The vocabulary of a versioned key-value store.
//!
//! The rendezvous sits above these types, the store below them, and one file of the `rallypoint`
//! crate translates them to etcd's wire. They follow etcd's meanings exactly, so that the same words
//! describe our server and a real cluster.

mod error;

use bytes::Bytes;

pub use self::error::KvError;

/// A point in a store's history. A fresh store is at 1, the first write makes 2; 0 stands for "now".
pub type Revision = i64;

/// Names a lease. 0 stands for "no lease".
pub type LeaseId = i64;

/// A moment, as time since an origin that the caller chose once and for all.
pub type Time = std::time::Duration;

/// A key with its value and its place in history.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyValue {
    /// The key.
    pub key: Bytes,
    /// The value.
    pub value: Bytes,
    /// The revision at which the key came to life (again).
    pub create_revision: Revision,
    /// The revision of its last change.
    pub mod_revision: Revision,
    /// How many puts since it came to life; 0 in the event of a deletion.
    pub version: i64,
    /// The lease that the key lives on, or 0.
    pub lease: LeaseId,
}

/// Which keys a request is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyRange {
    /// One key.
    Key(Bytes),
    /// From the first key, included, to the second, excluded. Empty if they are the wrong way round.
    Span(Bytes, Bytes),
    /// This key and everything after it.
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

    /// Whether no key at all can be in the range.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Span(start, end) if end <= start)
    }
}

/// What to sort by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SortTarget {
    /// The key.
    #[default]
    Key,
    /// The number of puts.
    Version,
    /// When the key came to life.
    Create,
    /// When it last changed.
    Mod,
    /// The value.
    Value,
}

/// Which way to sort.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SortOrder {
    /// As the store finds them: ascending.
    #[default]
    None,
    /// Smallest first.
    Ascend,
    /// Largest first.
    Descend,
}

/// Reads keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// Which keys.
    pub range: KeyRange,
    /// As of which revision; 0 or less for now.
    pub revision: Revision,
    /// At most so many pairs; 0 or less for all.
    pub limit: i64,
    /// What to sort by.
    pub sort_target: SortTarget,
    /// Which way.
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
    /// Reads `range` as it is now, whole.
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

/// What a [`Range`] found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RangeResult {
    /// The store's revision when it answered.
    pub revision: Revision,
    /// The pairs.
    pub kvs: Vec<KeyValue>,
    /// Whether the limit cut some off.
    pub more: bool,
    /// How many keys there are in the range, whatever the limit and the filters.
    pub count: i64,
}

/// Writes one key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Put {
    /// The key.
    pub key: Bytes,
    /// Its new value.
    pub value: Bytes,
    /// The lease it shall live on, or 0.
    pub lease: LeaseId,
    /// Answer with the pair that was there before.
    pub prev_kv: bool,
    /// Keep the value that is there.
    pub ignore_value: bool,
    /// Keep the lease that is there.
    pub ignore_lease: bool,
}

impl Put {
    /// Writes `value` to `key`, on no lease.
    pub fn new(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self { key: key.into(), value: value.into(), ..Self::default() }
    }

    /// The same, living on `lease`.
    pub fn on_lease(self, lease: LeaseId) -> Self {
        Self { lease, ..self }
    }
}

/// The answer to a [`Put`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PutResult {
    /// The revision that the put made.
    pub revision: Revision,
    /// What was there before, if asked for.
    pub prev_kv: Option<KeyValue>,
}

/// Deletes keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delete {
    /// Which keys.
    pub range: KeyRange,
    /// Answer with the pairs that were there.
    pub prev_kv: bool,
}

impl From<KeyRange> for Delete {
    fn from(range: KeyRange) -> Self {
        Self { range, prev_kv: false }
    }
}

/// The answer to a [`Delete`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeleteResult {
    /// The revision that the deletion made, or the current one if it deleted nothing.
    pub revision: Revision,
    /// How many keys went.
    pub deleted: i64,
    /// What they held, if asked for.
    pub prev_kvs: Vec<KeyValue>,
}

/// How a [`Compare`] relates what the store has to what it was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// The store's is the same.
    Equal,
    /// The store's is another.
    NotEqual,
    /// The store's is larger.
    Greater,
    /// The store's is smaller.
    Less,
}

/// What a [`Compare`] looks at, and with what it compares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The number of puts; 0 for a key that does not exist.
    Version(i64),
    /// The revision of its creation; 0 for a key that does not exist.
    Create(Revision),
    /// The revision of its last change; 0 for a key that does not exist.
    Mod(Revision),
    /// The value. For a key that does not exist the comparison fails, whatever the relation.
    Value(Bytes),
    /// The lease; 0 for none, also for a key that does not exist.
    Lease(LeaseId),
}

/// One condition of a [`Txn`]. It must hold for every key in its range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compare {
    /// Which keys.
    pub range: KeyRange,
    /// How the two sides must relate.
    pub relation: Relation,
    /// What is compared.
    pub target: Target,
}

impl Compare {
    /// Holds if the key does not exist.
    pub fn absent(key: impl Into<Bytes>) -> Self {
        Self { range: KeyRange::key(key), relation: Relation::Equal, target: Target::Create(0) }
    }

    /// Holds if the key exists.
    pub fn exists(key: impl Into<Bytes>) -> Self {
        Self { relation: Relation::Greater, ..Self::absent(key) }
    }

    /// Holds if the key last changed at exactly `revision`.
    pub fn unchanged_since(key: impl Into<Bytes>, revision: Revision) -> Self {
        Self { range: KeyRange::key(key), relation: Relation::Equal, target: Target::Mod(revision) }
    }
}

/// One operation of a [`Txn`].
#[derive(Debug, Clone, PartialEq, Eq)]
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

/// If every comparison holds, one list of operations; if not, the other. All of it in one revision.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Txn {
    /// The conditions; none at all count as true.
    pub compares: Vec<Compare>,
    /// What to do if all of them hold.
    pub success: Vec<Op>,
    /// What to do otherwise.
    pub failure: Vec<Op>,
}

impl Txn {
    /// A transaction with these conditions and nothing to do yet.
    pub fn when(compares: impl IntoIterator<Item = Compare>) -> Self {
        Self { compares: compares.into_iter().collect(), ..Self::default() }
    }

    /// What to do if the conditions hold.
    pub fn then(self, ops: impl IntoIterator<Item = Op>) -> Self {
        Self { success: ops.into_iter().collect(), ..self }
    }

    /// What to do if they do not.
    pub fn otherwise(self, ops: impl IntoIterator<Item = Op>) -> Self {
        Self { failure: ops.into_iter().collect(), ..self }
    }

    /// Several reads at one revision, all of which may be cancelled without harm.
    ///
    /// An etcd before 3.5.5 crashes when a transaction is cancelled that could not write
    /// (etcd-io/etcd#14110). So there is a write, of a key that the first read names, in the branch that
    /// never runs.
    pub fn reading(ranges: impl IntoIterator<Item = Range>) -> Self {
        let ops: Vec<Op> = ranges.into_iter().map(Op::Range).collect();
        let never = ops.first().and_then(|op| match op {
            Op::Range(range) => Some(Op::Delete(KeyRange::key(range.range.start().clone()).into())),
            _ => None,
        });
        Self::default().then(ops).otherwise(never)
    }

    /// Whether nothing that it may come to do changes anything. Without conditions, the branch for when
    /// they do not hold never runs.
    pub fn is_read_only(&self) -> bool {
        let failure = if self.compares.is_empty() { &[] } else { self.failure.as_slice() };
        self.success.iter().chain(failure).all(|op| match op {
            Op::Range(_) => true,
            Op::Put(_) | Op::Delete(_) => false,
            Op::Txn(inner) => inner.is_read_only(),
        })
    }
}

/// The answer to one [`Op`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpResult {
    /// Of a read.
    Range(RangeResult),
    /// Of a write.
    Put(PutResult),
    /// Of a deletion.
    Delete(DeleteResult),
    /// Of an inner transaction.
    Txn(TxnResult),
}

/// The answer to a [`Txn`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TxnResult {
    /// The revision that the transaction made, or the current one if it changed nothing.
    pub revision: Revision,
    /// Whether the conditions held.
    pub succeeded: bool,
    /// One answer for each operation of the branch that ran.
    pub results: Vec<OpResult>,
}

/// What a lease has left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseStatus {
    /// The time to live that it was granted, in seconds.
    pub granted_ttl: i64,
    /// Whole seconds left.
    pub remaining_ttl: i64,
    /// The keys that live on it, in order.
    pub keys: Vec<Bytes>,
}

/// Whether an [`Event`] is a write or a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// The key was written.
    Put,
    /// The key was deleted, or its lease ran out.
    Delete,
}

/// One change to one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// The pair after it. A deletion has the key and the revision, nothing else.
    pub kv: KeyValue,
    /// The pair before the revision, if the watch asked for it and it is still known.
    pub prev_kv: Option<KeyValue>,
}

/// Asks to be told of changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watch {
    /// Which keys.
    pub range: KeyRange,
    /// The first revision to tell of: in the past, it is replayed; in the future, it is waited for;
    /// 0 for what comes after now.
    pub start_revision: Revision,
    /// Send the pair before each change too.
    pub prev_kv: bool,
    /// Leave writes out.
    pub no_put: bool,
    /// Leave deletions out.
    pub no_delete: bool,
    /// Say now and then how far the watch is, when there is nothing else to say.
    pub progress_notify: bool,
}

impl Watch {
    /// Watches `range` from now on.
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

    /// The same, from `revision` on.
    pub fn from_revision(self, revision: Revision) -> Self {
        Self { start_revision: revision, ..self }
    }
}
