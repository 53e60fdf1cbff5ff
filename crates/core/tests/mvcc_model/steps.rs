//! What may happen to a store, and how to draw it at random.
//!
//! Few keys, few values, small revisions: what matters is that things meet. Numbers are absolute, so
//! that a history reads as what it is and shrinks by leaving things out.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use rallypoint_core::kv::{
    Compare, CompareTarget, Delete, KeyRange, LeaseId, Op, Put, Range, Relation, Revision,
    SortOrder, SortTarget, Txn, Watch,
};
use rallypoint_core::mvcc::{MvccOptions, WatchId};

use crate::streams::Slot;

/// Prefixes of each other, and the two ends of the byte range.
pub(crate) const KEYS: [&[u8]; 6] = [b"\0", b"a", b"a\xff", b"b", b"\xff", b"\xff\xff"];
pub(crate) const LEASES: [LeaseId; 3] = [1, 2, -7];

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Put(Put),
    Delete(Delete),
    Txn(Txn),
    Range(Range),
    ReadTxn(Txn),
    Compact(Revision),
    Publish(Revision),
    PublishAll,
    Grant {
        id: LeaseId,
        ttl: i64,
    },
    Revoke(LeaseId),
    KeepAlive(LeaseId),
    LeaseStatus(LeaseId),
    /// Time passes.
    Wait {
        millis: u64,
    },
    Expire,
    CloseStream(Slot),
    Watch {
        slot: Slot,
        id: Option<WatchId>,
        watch: Watch,
    },
    Unwatch {
        slot: Slot,
        id: WatchId,
    },
    /// Asks a stream for this number of messages.
    Poll {
        slot: Slot,
        messages: usize,
    },
    QuietWatches(Slot),
    TakeJournal,
    /// Another store takes over, made of the records of this one.
    Restart(Source),
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Source {
    Journal,
    Dump,
}

pub(crate) fn history() -> impl Strategy<Value = Vec<Step>> {
    vec(step(), 1..100)
}

pub(crate) fn options() -> impl Strategy<Value = MvccOptions> {
    let ops = prop_oneof![6 => Just(128), 1 => Just(4), 1 => Just(2)];
    let keep = prop_oneof![6 => Just(0), 1 => 1..4_i64, 2 => Just(9)];
    let few = prop_oneof![8 => Just(1000), 1 => Just(2_usize)];
    let bytes = prop_oneof![6 => Just(2_usize << 30), 1 => 1500..6000_usize];
    (ops, keep, few.clone(), few, bytes).prop_map(|(ops, keep, leases, watches, bytes)| {
        let mut options = MvccOptions::default();
        options.max_bytes = bytes;
        options.max_txn_ops = ops;
        options.keep_revisions = keep;
        options.max_leases = leases;
        options.max_watches = watches;
        options
    })
}

fn step() -> impl Strategy<Value = Step> {
    let lease = select(&LEASES[..]);
    prop_oneof![
        20 => put().prop_map(Step::Put),
        6 => delete().prop_map(Step::Delete),
        16 => txn(write_op()).prop_map(Step::Txn),
        4 => range().prop_map(Step::Range),
        2 => txn(range().prop_map(Op::Range)).prop_map(Step::ReadTxn),
        2 => revision().prop_map(Step::Compact),
        5 => revision().prop_map(Step::Publish),
        9 => Just(Step::PublishAll),
        6 => (prop_oneof![30 => lease.clone(), 1 => Just(0)], ttl()).prop_map(|(id, ttl)| Step::Grant { id, ttl }),
        2 => lease.clone().prop_map(Step::Revoke),
        2 => lease.clone().prop_map(Step::KeepAlive),
        1 => lease.prop_map(Step::LeaseStatus),
        3 => millis().prop_map(|millis| Step::Wait { millis }),
        3 => Just(Step::Expire),
        1 => slot().prop_map(Step::CloseStream),
        8 => (slot(), watch_id(), watch())
            .prop_map(|(slot, id, watch)| Step::Watch { slot, id, watch }),
        1 => (slot(), 0..3_i64).prop_map(|(slot, id)| Step::Unwatch { slot, id }),
        12 => (slot(), 1..5_usize).prop_map(|(slot, messages)| Step::Poll { slot, messages }),
        2 => slot().prop_map(Step::QuietWatches),
        1 => Just(Step::TakeJournal),
        1 => select(&[Source::Journal, Source::Dump][..]).prop_map(Step::Restart),
    ]
}

// ---- Small things

fn seldom() -> impl Strategy<Value = bool> {
    prop::bool::weighted(0.2)
}

fn slot() -> impl Strategy<Value = Slot> {
    0..2_u8
}

fn watch_id() -> impl Strategy<Value = Option<WatchId>> {
    prop_oneof![3 => Just(None), 1 => (0..3_i64).prop_map(Some)]
}

fn millis() -> impl Strategy<Value = u64> {
    (0..8_u64).prop_map(|halves| halves * 500)
}

fn ttl() -> impl Strategy<Value = i64> {
    select(&[0, 1, 2, 3, 5, -1, 9_000_000_000, 9_000_000_001][..])
}

fn revision() -> impl Strategy<Value = Revision> {
    prop_oneof![2 => 0..8_i64, 2 => 5..18_i64, 1 => -1..30_i64]
}

fn key() -> impl Strategy<Value = Bytes> {
    let some = select(&KEYS[..]).prop_map(Bytes::from_static);
    prop_oneof![300 => some, 1 => Just(Bytes::new())]
}

fn value() -> impl Strategy<Value = Bytes> {
    select(&["", "x", "y"][..]).prop_map(Bytes::from)
}

fn lease() -> impl Strategy<Value = LeaseId> {
    prop_oneof![3 => Just(0), 1 => select(&LEASES[..])]
}

fn key_range() -> impl Strategy<Value = KeyRange> {
    prop_oneof![
        3 => key().prop_map(KeyRange::Key),
        3 => key().prop_map(KeyRange::prefix),
        3 => (key(), key()).prop_map(|(from, to)| KeyRange::Span(from, to)),
        2 => key().prop_map(KeyRange::From),
        2 => Just(KeyRange::all()),
    ]
}

// ---- Requests

fn put() -> impl Strategy<Value = Put> {
    let rarely = || prop::bool::weighted(0.06);
    let flags = (any::<bool>(), rarely(), rarely(), rarely());
    (key(), value(), lease(), flags).prop_map(|(key, value, lease, flags)| {
        let (prev_kv, ignore_value, ignore_lease, contrary) = flags;
        Put {
            key,
            // Mostly without the contradiction that is refused.
            value: if ignore_value && !contrary { Bytes::new() } else { value },
            lease: if ignore_lease && !contrary { 0 } else { lease },
            prev_kv,
            ignore_value,
            ignore_lease,
        }
    })
}

fn delete() -> impl Strategy<Value = Delete> {
    (key_range(), any::<bool>()).prop_map(|(range, prev_kv)| Delete { range, prev_kv })
}

fn range() -> impl Strategy<Value = Range> {
    let revision = prop_oneof![2 => Just(0), 1 => revision()];
    let plain = (key_range(), revision.clone())
        .prop_map(|(range, revision)| Range { revision, ..Range::new(range) });
    let targets = [
        SortTarget::Key,
        SortTarget::Version,
        SortTarget::Create,
        SortTarget::Mod,
        SortTarget::Value,
    ];
    let orders = [SortOrder::None, SortOrder::Ascend, SortOrder::Descend];
    let bound = prop_oneof![3 => Just(0), 1 => 1..10_i64];
    let full = (
        (key_range(), revision, -1..4_i64),
        (select(targets.to_vec()), select(orders.to_vec()), seldom(), seldom()),
        (bound.clone(), bound.clone(), bound.clone(), bound),
    )
        .prop_map(
            |((range, revision, limit), (target, order, keys_only, count_only), bounds)| Range {
                range,
                revision,
                limit,
                sort_target: target,
                sort_order: order,
                keys_only,
                count_only,
                min_mod_revision: bounds.0,
                max_mod_revision: bounds.1,
                min_create_revision: bounds.2,
                max_create_revision: bounds.3,
            },
        );
    prop_oneof![1 => plain, 2 => full]
}

fn compare() -> impl Strategy<Value = Compare> {
    let relations = [Relation::Equal, Relation::NotEqual, Relation::Greater, Relation::Less];
    let target = prop_oneof![
        (0..4_i64).prop_map(CompareTarget::Version),
        (0..10_i64).prop_map(CompareTarget::Create),
        (0..12_i64).prop_map(CompareTarget::Mod),
        value().prop_map(CompareTarget::Value),
        lease().prop_map(CompareTarget::Lease),
    ];
    (key_range(), select(relations.to_vec()), target)
        .prop_map(|(range, relation, target)| Compare { range, relation, target })
}

fn write_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        5 => put().prop_map(Op::Put),
        2 => delete().prop_map(Op::Delete),
        2 => range().prop_map(Op::Range),
    ]
}

/// Up to three transactions deep, of operations drawn from `op`.
fn txn(op: impl Strategy<Value = Op> + 'static) -> impl Strategy<Value = Txn> {
    let of = |ops: BoxedStrategy<Op>| {
        (vec(compare(), 0..3), vec(ops.clone(), 0..4), vec(ops, 0..4))
            .prop_map(|(compares, success, failure)| Txn { compares, success, failure })
    };
    let ops = op.boxed();
    let inner = of(ops.clone()).prop_map(Op::Txn);
    let deeper = of(prop_oneof![4 => ops.clone(), 1 => inner].boxed()).prop_map(Op::Txn);
    of(prop_oneof![5 => ops, 1 => deeper].boxed())
}

fn watch() -> impl Strategy<Value = Watch> {
    let start = prop_oneof![1 => Just(0), 2 => revision()];
    (key_range(), start, any::<bool>(), (seldom(), seldom(), any::<bool>())).prop_map(
        |(range, start_revision, prev_kv, (no_put, no_delete, progress_notify))| Watch {
            range,
            start_revision,
            prev_kv,
            no_put,
            no_delete,
            progress_notify,
        },
    )
}
