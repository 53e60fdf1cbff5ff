//! Transactions: what is refused, in which order, and that a refusal changes nothing.

use bytes::Bytes;
use rallypoint::proto::etcd as pb;

use crate::ask::{
    absent, always, as_put, del, exists, get, op_del, op_get, op_put, op_txn, put, refusal,
    refused_as, revision,
};
use crate::cases;
use crate::context::Context;
use crate::differences;
use crate::harness::Case;

pub fn cases() -> Vec<Case> {
    cases![
        Shared: an_empty_key_anywhere_is_refused, an_operation_that_is_none, each_check_in_its_turn, no_operation_among_other_faults,
            puts_are_checked_like_single_ones, too_many_operations, too_many_conditions,
            too_many_in_the_other_branch, a_nested_transaction_has_what_is_left,
            too_many_before_an_empty_key, two_puts_of_one_key, a_put_under_a_deletion,
            a_put_and_a_deletion_of_one_key, a_put_at_the_end_of_a_deletion, both_branches_may_repeat,
            a_branch_that_does_not_run_is_checked, overlapping_deletions, reads_never_conflict,
            a_nested_put_of_the_same_key, a_nested_deletion_over_a_put, two_nested_puts_of_one_key,
            nested_branches_may_repeat;
        Quiet: a_deletion_to_the_end_is_not_seen, an_unknown_lease, a_missing_key_to_keep, a_missing_key_before_an_unknown_lease,
            the_first_failure_is_told, a_key_put_before_it_is_kept, a_future_read, a_negative_revision, a_compacted_read,
            what_does_not_run_cannot_fail, a_nested_failure_fails_all;
    ]
}

fn puts(t: &Context, count: usize) -> Vec<pb::RequestOp> {
    (0..count).map(|number| op_put(put(t.key(&format!("{number:04}")), ""))).collect()
}

async fn an_empty_key_anywhere_is_refused(t: Context) {
    let empty = Bytes::new;
    let condition = pb::TxnRequest { compare: vec![absent(empty())], ..Default::default() };
    refused_as(t.txn(condition).await, refusal::EMPTY_KEY);
    for op in [op_get(get(empty())), op_put(put(empty(), "1")), op_del(del(empty()))] {
        refused_as(t.txn(always(vec![op.clone()])).await, refusal::EMPTY_KEY);
        let other = pb::TxnRequest { failure: vec![op.clone()], ..Default::default() };
        refused_as(t.txn(other).await, refusal::EMPTY_KEY);
        let nested = always(vec![op_txn(always(vec![op]))]);
        refused_as(t.txn(nested).await, refusal::EMPTY_KEY);
    }
}

async fn an_operation_that_is_none(t: Context) {
    let none = pb::RequestOp { request: None };
    refused_as(t.txn(always(vec![none.clone()])).await, refusal::KEY_NOT_FOUND);
    let other = pb::TxnRequest { failure: vec![none], ..Default::default() };
    refused_as(t.txn(other).await, refusal::KEY_NOT_FOUND);
}

async fn each_check_in_its_turn(t: Context) {
    let wrong =
        || op_put(pb::PutRequest { ignore_value: true, ..put(t.key("a"), "a value all the same") });
    let empty = || op_get(get(Bytes::new()));
    let twice = || vec![op_put(put(t.key("a"), "")), op_put(put(t.key("a"), ""))];
    // One operation after the other.
    refused_as(t.txn(always(vec![empty(), wrong()])).await, refusal::EMPTY_KEY);
    refused_as(t.txn(always(vec![wrong(), empty()])).await, refusal::VALUE_PROVIDED);
    // The number of them before what they are, also of those inside.
    let many: Vec<_> = (0..129).map(|_| wrong()).collect();
    refused_as(t.txn(always(many)).await, refusal::TOO_MANY_OPS);
    // Conditions before operations.
    let request = pb::TxnRequest {
        compare: vec![absent(Bytes::new())],
        success: vec![wrong()],
        failure: vec![],
    };
    refused_as(t.txn(request).await, refusal::EMPTY_KEY);
    // Duplicates last of all, wherever they are.
    let ops = vec![op_txn(always(twice())), empty()];
    refused_as(t.txn(always(ops)).await, refusal::EMPTY_KEY);
    let request = pb::TxnRequest { success: twice(), failure: vec![wrong()], ..Default::default() };
    refused_as(t.txn(request).await, refusal::VALUE_PROVIDED);
    let ops = vec![op_txn(always(twice())), op_get(get(t.key("a")))];
    refused_as(t.txn(always(ops)).await, refusal::DUPLICATE_KEY);
}

async fn no_operation_among_other_faults(t: Context) {
    let none = || pb::RequestOp { request: None };
    let empty = || op_get(get(Bytes::new()));
    let many: Vec<_> = (0..129).map(|_| none()).collect();
    let first = if differences::of(t.arm).no_operation_is_the_first_fault {
        [refusal::KEY_NOT_FOUND, refusal::KEY_NOT_FOUND]
    } else {
        [refusal::EMPTY_KEY, refusal::TOO_MANY_OPS]
    };
    refused_as(t.txn(always(vec![empty(), none()])).await, first[0]);
    refused_as(t.txn(always(many)).await, first[1]);
}

async fn puts_are_checked_like_single_ones(t: Context) {
    t.set("a", "1").await;
    let value = pb::PutRequest { ignore_value: true, ..put(t.key("a"), "2") };
    refused_as(t.txn(always(vec![op_put(value)])).await, refusal::VALUE_PROVIDED);
    let lease = pb::PutRequest { ignore_lease: true, lease: 1, ..put(t.key("a"), "2") };
    refused_as(t.txn(always(vec![op_put(lease)])).await, refusal::LEASE_PROVIDED);
}

async fn too_many_operations(t: Context) {
    refused_as(t.txn(always(puts(&t, 129))).await, refusal::TOO_MANY_OPS);
    assert_eq!(t.range(t.all()).await.unwrap().count, 0);
    assert_eq!(t.txn(always(puts(&t, 128))).await.unwrap().responses.len(), 128);
    assert_eq!(t.range(t.all()).await.unwrap().count, 128);
}

async fn too_many_conditions(t: Context) {
    let conditions = |count| pb::TxnRequest {
        compare: (0..count).map(|_| absent(t.key("a"))).collect(),
        ..Default::default()
    };
    refused_as(t.txn(conditions(129)).await, refusal::TOO_MANY_OPS);
    assert!(t.txn(conditions(128)).await.unwrap().succeeded);
}

async fn too_many_in_the_other_branch(t: Context) {
    let request = pb::TxnRequest { failure: puts(&t, 129), ..Default::default() };
    refused_as(t.txn(request).await, refusal::TOO_MANY_OPS);
    // Not their sum: each list for itself.
    let request = pb::TxnRequest {
        compare: (0..128).map(|_| absent(t.key("a"))).collect(),
        success: puts(&t, 128),
        failure: puts(&t, 128),
    };
    assert!(t.txn(request).await.unwrap().succeeded);
}

async fn a_nested_transaction_has_what_is_left(t: Context) {
    let with = |inner: usize| {
        let reads = |count| (0..count).map(|_| op_get(get(t.key("a")))).collect::<Vec<_>>();
        let mut ops = reads(99);
        ops.push(op_txn(always(reads(inner))));
        always(ops)
    };
    assert_eq!(t.txn(with(28)).await.unwrap().responses.len(), 100);
    refused_as(t.txn(with(29)).await, refusal::TOO_MANY_OPS);
}

async fn too_many_before_an_empty_key(t: Context) {
    let mut ops = puts(&t, 128);
    ops.push(op_put(put(Bytes::new(), "")));
    refused_as(t.txn(always(ops)).await, refusal::TOO_MANY_OPS);
    // And an empty key before a duplicate one.
    let ops =
        vec![op_put(put(t.key("a"), "")), op_put(put(t.key("a"), "")), op_get(get(Bytes::new()))];
    refused_as(t.txn(always(ops)).await, refusal::EMPTY_KEY);
}

async fn two_puts_of_one_key(t: Context) {
    let ops = vec![op_put(put(t.key("a"), "1")), op_put(put(t.key("a"), "1"))];
    refused_as(t.txn(always(ops)).await, refusal::DUPLICATE_KEY);
    assert_eq!(t.pair("a").await, None);
}

fn span(t: &Context, start: &str, end: &str) -> pb::RequestOp {
    op_del(pb::DeleteRangeRequest { range_end: t.key(end), ..del(t.key(start)) })
}

async fn a_put_under_a_deletion(t: Context) {
    let write = op_put(put(t.key("b"), "1"));
    for ops in [vec![write.clone(), span(&t, "a", "c")], vec![span(&t, "a", "c"), write]] {
        refused_as(t.txn(always(ops)).await, refusal::DUPLICATE_KEY);
    }
}

async fn a_put_and_a_deletion_of_one_key(t: Context) {
    let ops = vec![op_del(del(t.key("a"))), op_put(put(t.key("a"), "1"))];
    refused_as(t.txn(always(ops)).await, refusal::DUPLICATE_KEY);
}

async fn a_put_at_the_end_of_a_deletion(t: Context) {
    t.set("a", "1").await;
    let ops = vec![span(&t, "a", "b"), op_put(put(t.key("b"), "1"))];
    t.txn(always(ops)).await.unwrap();
    assert_eq!(t.names(&t.range(t.all()).await.unwrap().kvs), ["b"]);
}

async fn both_branches_may_repeat(t: Context) {
    let request = pb::TxnRequest {
        compare: vec![exists(t.key("a"))],
        success: vec![op_del(del(t.key("a")))],
        failure: vec![op_put(put(t.key("a"), "1"))],
    };
    assert!(!t.txn(request.clone()).await.unwrap().succeeded);
    assert!(t.txn(request).await.unwrap().succeeded);
    assert_eq!(t.pair("a").await, None);
}

async fn a_branch_that_does_not_run_is_checked(t: Context) {
    let twice = vec![op_put(put(t.key("a"), "1")), op_put(put(t.key("a"), "2"))];
    let request = pb::TxnRequest {
        compare: vec![exists(t.key("none"))],
        success: twice,
        failure: vec![op_put(put(t.key("b"), "1"))],
    };
    refused_as(t.txn(request).await, refusal::DUPLICATE_KEY);
    assert_eq!(t.pair("b").await, None);
}

async fn overlapping_deletions(t: Context) {
    for name in ["a", "b", "c"] {
        t.set(name, "").await;
    }
    let ops = vec![span(&t, "a", "c"), span(&t, "b", "d"), op_del(del(t.key("a")))];
    let answer = t.txn(always(ops)).await.unwrap();
    let deleted: Vec<i64> =
        answer.responses.iter().map(|op| crate::ask::as_delete(op).deleted).collect();
    assert_eq!(deleted, [2, 1, 0]);
}

async fn reads_never_conflict(t: Context) {
    let ops = vec![
        op_get(get(t.key("a"))),
        op_put(put(t.key("a"), "1")),
        op_get(get(t.key("a"))),
        op_get(t.all()),
    ];
    assert!(t.txn(always(ops)).await.unwrap().succeeded);
}

async fn a_nested_put_of_the_same_key(t: Context) {
    let write = || op_put(put(t.key("a"), "1"));
    let inner = always(vec![write()]);
    refused_as(t.txn(always(vec![write(), op_txn(inner)])).await, refusal::DUPLICATE_KEY);
    // Also in the branch that does not run, and whichever comes first.
    let inner = pb::TxnRequest { failure: vec![write()], ..Default::default() };
    refused_as(t.txn(always(vec![op_txn(inner), write()])).await, refusal::DUPLICATE_KEY);
}

async fn a_nested_deletion_over_a_put(t: Context) {
    let inner = always(vec![span(&t, "a", "c")]);
    let ops = vec![op_put(put(t.key("b"), "1")), op_txn(inner)];
    refused_as(t.txn(always(ops)).await, refusal::DUPLICATE_KEY);
    let inner = always(vec![op_put(put(t.key("b"), "1"))]);
    let ops = vec![span(&t, "a", "c"), op_txn(inner)];
    refused_as(t.txn(always(ops)).await, refusal::DUPLICATE_KEY);
}

async fn two_nested_puts_of_one_key(t: Context) {
    let inner = || op_txn(always(vec![op_put(put(t.key("a"), "1"))]));
    refused_as(t.txn(always(vec![inner(), inner()])).await, refusal::DUPLICATE_KEY);
}

async fn nested_branches_may_repeat(t: Context) {
    let inner = pb::TxnRequest {
        compare: vec![exists(t.key("a"))],
        success: vec![op_put(put(t.key("b"), "there"))],
        failure: vec![op_put(put(t.key("b"), "not there"))],
    };
    t.txn(always(vec![op_txn(inner)])).await.unwrap();
    assert_eq!(t.pair("b").await.unwrap().value, "not there");
}

async fn a_deletion_to_the_end_is_not_seen(t: Context) {
    // etcd takes such a range for an empty one when it looks for duplicates, and then runs both.
    let last = Bytes::from([&b"\xff\xff\xff"[..], t.prefix.as_bytes()].concat());
    t.put(put(last.clone(), "old")).await.unwrap();
    let to_end =
        pb::DeleteRangeRequest { range_end: Bytes::from_static(b"\0"), ..del(last.clone()) };
    let write = pb::PutRequest { prev_kv: true, ..put(last.clone(), "new") };
    let answer = t.txn(always(vec![op_del(to_end), op_put(write)])).await.unwrap();
    assert_eq!(as_put(&answer.responses[1]).prev_kv, None);
    let pair = t.range(get(last.clone())).await.unwrap().kvs.remove(0);
    let made = revision(&answer.header);
    assert_eq!((pair.version, pair.create_revision, pair.mod_revision), (1, made, made));
    t.delete(del(last)).await.unwrap();
}

async fn refused_whole(t: &Context, bad: pb::RequestOp, refusal: refusal::Refusal) {
    let before = t.set("there", "1").await;
    let write = op_put(put(t.key("new"), "1"));
    for ops in [vec![write.clone(), bad.clone()], vec![bad, write]] {
        refused_as(t.txn(always(ops)).await, refusal);
    }
    assert_eq!(t.pair("new").await, None);
    assert_eq!(t.now().await, before);
}

async fn an_unknown_lease(t: Context) {
    let bad = pb::PutRequest { lease: t.lease_id(), ..put(t.key("there"), "2") };
    refused_whole(&t, op_put(bad), refusal::LEASE_NOT_FOUND).await;
}

async fn a_missing_key_to_keep(t: Context) {
    let bad = pb::PutRequest { ignore_value: true, ..put(t.key("none"), "") };
    refused_whole(&t, op_put(bad), refusal::KEY_NOT_FOUND).await;
    let bad = pb::PutRequest { ignore_lease: true, ..put(t.key("none"), "1") };
    refused_whole(&t, op_put(bad), refusal::KEY_NOT_FOUND).await;
}

async fn a_missing_key_before_an_unknown_lease(t: Context) {
    // The other way round than for a put by itself.
    let lease = t.lease_id();
    let bad = pb::PutRequest { lease, ignore_value: true, ..put(t.key("none"), "") };
    let refusal = match differences::of(t.arm).a_missing_key_comes_before_its_lease {
        true => refusal::KEY_NOT_FOUND,
        false => refusal::LEASE_NOT_FOUND,
    };
    refused_whole(&t, op_put(bad), refusal).await;
}

async fn the_first_failure_is_told(t: Context) {
    let lease = op_put(pb::PutRequest { lease: t.lease_id(), ..put(t.key("a"), "1") });
    let key = op_put(pb::PutRequest { ignore_value: true, ..put(t.key("none"), "") });
    let read = op_get(pb::RangeRequest { revision: i64::MAX, ..get(t.key("a")) });
    let in_order = differences::of(t.arm).operations_are_checked_in_order;
    let of_read = |write| if in_order { refusal::FUTURE } else { write };
    for (ops, refusal) in [
        ([&lease, &key, &read], refusal::LEASE_NOT_FOUND),
        ([&key, &read, &lease], refusal::KEY_NOT_FOUND),
        ([&read, &lease, &key], of_read(refusal::LEASE_NOT_FOUND)),
        ([&read, &key, &lease], of_read(refusal::KEY_NOT_FOUND)),
    ] {
        let ops = ops.into_iter().cloned().collect();
        refused_as(t.txn(always(ops)).await, refusal);
    }
}

async fn a_key_put_before_it_is_kept(t: Context) {
    // What an operation needs must be there before the transaction, not only before the operation.
    let first = always(vec![op_put(put(t.key("a"), "1"))]);
    let keep = pb::PutRequest { ignore_value: true, ..put(t.key("b"), "") };
    t.txn(always(vec![op_txn(first), op_put(keep.clone())])).await.unwrap_err();
    t.set("b", "1").await;
    t.txn(always(vec![op_put(keep)])).await.unwrap();
    let pair = t.pair("b").await.unwrap();
    assert_eq!((&pair.value[..], pair.version), (&b"1"[..], 2));
}

async fn a_future_read(t: Context) {
    let bad = pb::RangeRequest { revision: t.now().await + 100, ..get(t.key("a")) };
    refused_as(t.txn(always(vec![op_get(bad.clone())])).await, refusal::FUTURE);
    refused_whole(&t, op_get(bad), refusal::FUTURE).await;
}

async fn a_negative_revision(t: Context) {
    // A read by itself takes it for now; inside a transaction it is older than the compaction.
    let now = t.set("a", "1").await;
    t.compact(now).await.unwrap();
    let read = pb::RangeRequest { revision: -1, ..get(t.key("a")) };
    assert_eq!(t.range(read.clone()).await.unwrap().count, 1);
    refused_as(t.txn(always(vec![op_get(read.clone())])).await, refusal::COMPACTED);
    refused_whole(&t, op_get(read), refusal::COMPACTED).await;
}

async fn a_compacted_read(t: Context) {
    let old = t.set("a", "1").await;
    let new = t.set("a", "2").await;
    t.compact(new).await.unwrap();
    let bad = pb::RangeRequest { revision: old, ..get(t.key("a")) };
    refused_as(t.txn(always(vec![op_get(bad.clone())])).await, refusal::COMPACTED);
    refused_whole(&t, op_get(bad), refusal::COMPACTED).await;
}

async fn what_does_not_run_cannot_fail(t: Context) {
    let request = pb::TxnRequest {
        compare: vec![exists(t.key("none"))],
        success: vec![
            op_put(pb::PutRequest { lease: t.lease_id(), ..put(t.key("a"), "1") }),
            op_put(pb::PutRequest { ignore_value: true, ..put(t.key("b"), "") }),
            op_get(pb::RangeRequest { revision: i64::MAX, ..get(t.key("a")) }),
        ],
        failure: vec![op_put(put(t.key("c"), "1"))],
    };
    assert!(!t.txn(request).await.unwrap().succeeded);
    assert_eq!(t.names(&t.range(t.all()).await.unwrap().kvs), ["c"]);
}

async fn a_nested_failure_fails_all(t: Context) {
    let bad = pb::PutRequest { lease: t.lease_id(), ..put(t.key("a"), "1") };
    let inner = op_txn(always(vec![op_put(bad)]));
    refused_whole(&t, inner, refusal::LEASE_NOT_FOUND).await;
    let bad = pb::RangeRequest { revision: i64::MAX, ..get(t.key("a")) };
    let inner = op_txn(always(vec![op_get(bad)]));
    refused_whole(&t, inner, refusal::FUTURE).await;
}
