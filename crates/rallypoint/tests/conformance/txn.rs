//! Transactions: what runs, what it sees and what it answers.

use bytes::Bytes;
use pb::compare::{CompareResult, TargetUnion};
use rallypoint::proto::etcd as pb;

use crate::ask::{
    absent, always, as_delete, as_put, as_range, as_txn, compare, del, exists, get, op_del, op_get,
    op_put, op_txn, put, revision,
};
use crate::cases;
use crate::context::Context;
use crate::harness::Case;

pub fn cases() -> Vec<Case> {
    cases![
        Shared: the_success_branch, the_failure_branch, answers_come_in_order,
            inner_headers_have_the_revision_alone, a_read_sees_earlier_writes,
            a_read_does_not_see_later_writes, a_read_sees_earlier_deletions,
            previous_pairs_inside, a_put_on_a_lease, an_old_revision_inside, nested,
            nested_conditions_see_the_state_before, nested_conditions_are_not_confused_by_deletions,
            two_levels_deep, compare_and_swap_by_many;
        Quiet: delete_to_the_end_then_put, one_revision_for_all, reading_makes_no_revision, deleting_nothing_makes_no_revision,
            a_read_and_a_write, the_revision_inside_a_read;
    ]
}

async fn the_success_branch(t: Context) {
    let request = pb::TxnRequest {
        compare: vec![absent(t.key("a"))],
        success: vec![op_put(put(t.key("a"), "yes"))],
        failure: vec![op_put(put(t.key("a"), "no"))],
    };
    let answer = t.txn(request).await.unwrap();
    assert!(answer.succeeded);
    assert_eq!(answer.responses.len(), 1);
    assert_eq!(t.pair("a").await, Some(t.new_pair("a", "yes", revision(&answer.header))));
}

async fn the_failure_branch(t: Context) {
    let request = pb::TxnRequest {
        compare: vec![exists(t.key("a"))],
        success: vec![op_put(put(t.key("a"), "yes"))],
        failure: vec![op_put(put(t.key("b"), "no")), op_get(get(t.key("b")))],
    };
    let answer = t.txn(request).await.unwrap();
    assert!(!answer.succeeded);
    assert_eq!(answer.responses.len(), 2);
    assert_eq!(t.pair("a").await, None);
    assert_eq!(t.pair("b").await.unwrap().value, "no");
}

async fn answers_come_in_order(t: Context) {
    t.set("a", "1").await;
    let answer = t
        .txn(always(vec![
            op_get(get(t.key("a"))),
            op_put(put(t.key("b"), "2")),
            op_del(del(t.key("a"))),
            op_txn(always(vec![op_get(get(t.key("b")))])),
            op_get(t.all()),
        ]))
        .await
        .unwrap();
    assert_eq!(as_range(&answer.responses[0]).count, 1);
    assert_eq!(as_put(&answer.responses[1]).prev_kv, None);
    assert_eq!(as_delete(&answer.responses[2]).deleted, 1);
    let inner = as_txn(&answer.responses[3]);
    assert_eq!(as_range(&inner.responses[0]).kvs[0].value, "2");
    assert_eq!(t.names(&as_range(&answer.responses[4]).kvs), ["b"]);
}

async fn inner_headers_have_the_revision_alone(t: Context) {
    t.set("b", "1").await;
    let answer = t
        .txn(always(vec![
            op_put(put(t.key("a"), "1")),
            op_get(get(t.key("a"))),
            op_del(del(t.key("b"))),
            op_txn(always(vec![op_put(put(t.key("c"), "1"))])),
        ]))
        .await
        .unwrap();
    let outer = answer.header.unwrap();
    assert!(outer.cluster_id != 0 && outer.member_id != 0 && outer.raft_term != 0);
    let alone = Some(pb::ResponseHeader { revision: outer.revision, ..Default::default() });
    assert_eq!(as_put(&answer.responses[0]).header, alone);
    assert_eq!(as_range(&answer.responses[1]).header, alone);
    assert_eq!(as_delete(&answer.responses[2]).header, alone);
    let inner = as_txn(&answer.responses[3]);
    // Of an inner transaction it is empty; of what runs inside that it is not.
    assert_eq!(inner.header, Some(pb::ResponseHeader::default()));
    assert_eq!(as_put(&inner.responses[0]).header, alone);
}

async fn a_read_sees_earlier_writes(t: Context) {
    t.set("a", "old").await;
    let answer =
        t.txn(always(vec![op_put(put(t.key("a"), "new")), op_get(get(t.key("a")))])).await.unwrap();
    let pair = &as_range(&answer.responses[1]).kvs[0];
    assert_eq!((&pair.value[..], pair.version), (&b"new"[..], 2));
    assert_eq!(pair.mod_revision, revision(&answer.header));
}

async fn a_read_does_not_see_later_writes(t: Context) {
    t.set("a", "old").await;
    let answer =
        t.txn(always(vec![op_get(get(t.key("a"))), op_put(put(t.key("a"), "new"))])).await.unwrap();
    assert_eq!(as_range(&answer.responses[0]).kvs[0].value, "old");
}

async fn a_read_sees_earlier_deletions(t: Context) {
    t.set("a", "1").await;
    t.set("b", "1").await;
    let answer = t.txn(always(vec![op_del(del(t.key("a"))), op_get(t.all())])).await.unwrap();
    let seen = as_range(&answer.responses[1]);
    assert_eq!(t.names(&seen.kvs), ["b"]);
    assert_eq!(seen.count, 1);
}

async fn previous_pairs_inside(t: Context) {
    let made = t.set("a", "1").await;
    let gone = t.set("b", "1").await;
    let put_a = pb::PutRequest { prev_kv: true, ..put(t.key("a"), "2") };
    let del_b = pb::DeleteRangeRequest { prev_kv: true, ..del(t.key("b")) };
    let answer = t.txn(always(vec![op_put(put_a), op_del(del_b)])).await.unwrap();
    assert_eq!(as_put(&answer.responses[0]).prev_kv, Some(t.new_pair("a", "1", made)));
    assert_eq!(as_delete(&answer.responses[1]).prev_kvs, [t.new_pair("b", "1", gone)]);
}

async fn a_put_on_a_lease(t: Context) {
    let lease = t.lease(60).await;
    let request = pb::PutRequest { lease, ..put(t.key("a"), "1") };
    t.txn(always(vec![op_put(request)])).await.unwrap();
    assert_eq!(t.pair("a").await.unwrap().lease, lease);
    assert_eq!(t.time_to_live(lease).await.keys, [t.key("a")]);
}

async fn an_old_revision_inside(t: Context) {
    let made = t.set("a", "1").await;
    t.set("a", "2").await;
    let old = pb::RangeRequest { revision: made, ..get(t.key("a")) };
    let answer = t.txn(always(vec![op_get(old.clone())])).await.unwrap();
    assert_eq!(as_range(&answer.responses[0]).kvs, [t.new_pair("a", "1", made)]);
    let answer = t.txn(always(vec![op_put(put(t.key("a"), "3")), op_get(old)])).await.unwrap();
    assert_eq!(as_range(&answer.responses[1]).kvs, [t.new_pair("a", "1", made)]);
}

async fn nested(t: Context) {
    t.set("a", "1").await;
    let inner = pb::TxnRequest {
        compare: vec![absent(t.key("a"))],
        success: vec![op_put(put(t.key("b"), "yes"))],
        failure: vec![op_put(put(t.key("b"), "no")), op_get(get(t.key("b")))],
    };
    let answer = t.txn(always(vec![op_txn(inner), op_get(get(t.key("b")))])).await.unwrap();
    assert!(answer.succeeded);
    let inner = as_txn(&answer.responses[0]);
    assert!(!inner.succeeded);
    assert_eq!(inner.responses.len(), 2);
    assert_eq!(as_range(&answer.responses[1]).kvs[0].value, "no");
}

async fn nested_conditions_see_the_state_before(t: Context) {
    let inner = pb::TxnRequest {
        compare: vec![absent(t.key("a"))],
        success: vec![op_put(put(t.key("b"), "a was absent"))],
        failure: vec![op_put(put(t.key("b"), "a was there"))],
    };
    let outer = always(vec![op_put(put(t.key("a"), "1")), op_txn(inner)]);
    assert!(as_txn(&t.txn(outer).await.unwrap().responses[1]).succeeded);
    assert_eq!(t.pair("b").await.unwrap().value, "a was absent");
}

async fn nested_conditions_are_not_confused_by_deletions(t: Context) {
    t.set("a", "1").await;
    let inner = pb::TxnRequest {
        compare: vec![exists(t.key("a"))],
        success: vec![op_get(get(t.key("a")))],
        ..Default::default()
    };
    let outer = always(vec![op_del(del(t.key("a"))), op_txn(inner)]);
    let answer = t.txn(outer).await.unwrap();
    let inner = as_txn(&answer.responses[1]);
    // The condition looks at what was, the read at what is by then.
    assert!(inner.succeeded);
    assert_eq!(as_range(&inner.responses[0]).count, 0);
}

async fn two_levels_deep(t: Context) {
    let third = always(vec![op_put(put(t.key("c"), "3")), op_get(t.all())]);
    let second = always(vec![op_put(put(t.key("b"), "2")), op_txn(third)]);
    let first = always(vec![op_put(put(t.key("a"), "1")), op_txn(second)]);
    let answer = t.txn(first).await.unwrap();
    let third = as_txn(&as_txn(&answer.responses[1]).responses[1]);
    let seen = &as_range(&third.responses[1]).kvs;
    assert_eq!(t.names(seen), ["a", "b", "c"]);
    let made = revision(&answer.header);
    assert!(seen.iter().all(|kv| kv.mod_revision == made));
}

async fn delete_to_the_end_then_put(t: Context) {
    // A deletion without an end is not seen as overlapping, so the two run in their order. The keys
    // are the last there can be, so that nobody else's are in the way.
    let last = Bytes::from([&b"\xff\xff"[..], t.prefix.as_bytes()].concat());
    t.put(put(last.clone(), "old")).await.unwrap();
    t.put(put(last.clone(), "old")).await.unwrap();
    let to_end = pb::DeleteRangeRequest {
        range_end: Bytes::from_static(b"\0"),
        ..del(Bytes::from([&last[..], b"\0"].concat()))
    };
    let request = always(vec![op_put(put(last.clone(), "new")), op_del(to_end)]);
    t.txn(request).await.unwrap();
    assert_eq!(t.range(get(last)).await.unwrap().kvs[0].value, "new");
}

async fn compare_and_swap_by_many(t: Context) {
    t.set("counter", "0").await;
    let workers = (0..8).map(|_| {
        let (mut kv, key) = (t.kv(), t.key("counter"));
        tokio::spawn(async move {
            for _ in 0..5 {
                loop {
                    let now = kv.range(get(key.clone())).await.unwrap().into_inner().kvs.remove(0);
                    let number: i64 = std::str::from_utf8(&now.value).unwrap().parse().unwrap();
                    let same = TargetUnion::ModRevision(now.mod_revision);
                    let request = pb::TxnRequest {
                        compare: vec![compare(key.clone(), CompareResult::Equal, same)],
                        success: vec![op_put(put(key.clone(), (number + 1).to_string()))],
                        failure: vec![],
                    };
                    if kv.txn(request).await.unwrap().into_inner().succeeded {
                        break;
                    }
                }
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
    let pair = t.pair("counter").await.unwrap();
    assert_eq!((&pair.value[..], pair.version), (&b"40"[..], 41));
}

async fn one_revision_for_all(t: Context) {
    let before = t.set("z", "").await;
    let answer = t
        .txn(always(vec![
            op_put(put(t.key("a"), "1")),
            op_put(put(t.key("b"), "1")),
            op_del(del(t.key("z"))),
            op_txn(always(vec![op_put(put(t.key("c"), "1"))])),
        ]))
        .await
        .unwrap();
    assert_eq!(revision(&answer.header), before + 1);
    assert_eq!(t.now().await, before + 1);
    for name in ["a", "b", "c"] {
        assert_eq!(t.pair(name).await, Some(t.new_pair(name, "1", before + 1)));
    }
}

async fn reading_makes_no_revision(t: Context) {
    let before = t.set("a", "1").await;
    let answer = t.txn(always(vec![op_get(t.all()), op_get(get(t.key("a")))])).await.unwrap();
    assert_eq!(revision(&answer.header), before);
    assert_eq!(revision(&as_range(&answer.responses[0]).header), before);
    assert_eq!(t.set("a", "2").await, before + 1);
}

async fn deleting_nothing_makes_no_revision(t: Context) {
    let before = t.set("a", "1").await;
    let answer = t.txn(always(vec![op_del(del(t.key("none")))])).await.unwrap();
    assert_eq!(revision(&answer.header), before);
    let inner = as_delete(&answer.responses[0]);
    assert_eq!((inner.deleted, revision(&inner.header)), (0, before));
    let not_run = pb::TxnRequest {
        compare: vec![exists(t.key("none"))],
        success: vec![op_put(put(t.key("b"), "1"))],
        failure: vec![],
    };
    assert_eq!(revision(&t.txn(not_run).await.unwrap().header), before);
    assert_eq!(t.now().await, before);
}

async fn a_read_and_a_write(t: Context) {
    let before = t.set("a", "1").await;
    let answer =
        t.txn(always(vec![op_get(get(t.key("a"))), op_put(put(t.key("b"), "1"))])).await.unwrap();
    assert_eq!(revision(&answer.header), before + 1);
}

async fn the_revision_inside_a_read(t: Context) {
    // Before the first write of a transaction its reads are answered at the old revision, after it
    // at the new one.
    let before = t.set("a", "1").await;
    let answer = t
        .txn(always(vec![
            op_get(get(t.key("a"))),
            op_del(del(t.key("none"))),
            op_put(put(t.key("a"), "2")),
            op_get(get(t.key("a"))),
        ]))
        .await
        .unwrap();
    let headers: Vec<i64> = vec![
        revision(&as_range(&answer.responses[0]).header),
        revision(&as_delete(&answer.responses[1]).header),
        revision(&as_put(&answer.responses[2]).header),
        revision(&as_range(&answer.responses[3]).header),
    ];
    assert_eq!(headers, [before, before, before + 1, before + 1]);
}
