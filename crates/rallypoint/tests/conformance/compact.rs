//! Forgetting the past.

use bytes::Bytes;
use rallypoint::proto::etcd as pb;

use crate::ask::{always, as_range, get, op_get, refusal, refused_as, revision};
use crate::cases;
use crate::context::Context;
use crate::harness::Case;

pub fn cases() -> Vec<Case> {
    cases![
        Quiet: to_the_present, physically, it_makes_no_revision, only_once, not_backwards,
            not_into_the_future, the_past_is_refused, its_own_revision_is_readable,
            what_lives_is_kept, versions_and_creation_are_kept, between_two_versions,
            a_deleted_key, the_deletion_itself, a_counted_past_is_refused, a_past_inside_a_transaction,
            leases_are_kept;
        Fresh: to_nothing_once, to_less_than_nothing, of_a_fresh_store, everything_at_every_revision;
    ]
}

fn at(t: &Context, revision: i64) -> pb::RangeRequest {
    pb::RangeRequest { revision, ..t.all() }
}

async fn to_the_present(t: Context) {
    t.set("a", "1").await;
    let now = t.set("a", "2").await;
    let header = t.compact(now).await.unwrap().header.unwrap();
    assert_eq!(header.revision, now);
    assert!(header.cluster_id != 0 && header.member_id != 0 && header.raft_term != 0);
}

async fn physically(t: Context) {
    let old = t.set("a", "1").await;
    let now = t.set("a", "2").await;
    let request = pb::CompactionRequest { revision: now, physical: true };
    assert_eq!(revision(&t.kv().compact(request).await.unwrap().into_inner().header), now);
    refused_as(t.range(at(&t, old)).await, refusal::COMPACTED);
}

async fn it_makes_no_revision(t: Context) {
    let now = t.set("a", "1").await;
    t.compact(now).await.unwrap();
    assert_eq!(t.set("a", "2").await, now + 1);
}

async fn only_once(t: Context) {
    let now = t.set("a", "1").await;
    t.compact(now).await.unwrap();
    refused_as(t.compact(now).await, refusal::COMPACTED);
}

async fn not_backwards(t: Context) {
    let old = t.set("a", "1").await;
    let now = t.set("a", "2").await;
    t.compact(now).await.unwrap();
    refused_as(t.compact(old).await, refusal::COMPACTED);
    refused_as(t.compact(1).await, refusal::COMPACTED);
    refused_as(t.compact(0).await, refusal::COMPACTED);
    refused_as(t.compact(-1).await, refusal::COMPACTED);
}

async fn not_into_the_future(t: Context) {
    let now = t.set("a", "1").await;
    refused_as(t.compact(now + 1).await, refusal::FUTURE);
    refused_as(t.compact(i64::MAX).await, refusal::FUTURE);
    // And nothing was forgotten by it.
    t.compact(now).await.unwrap();
}

async fn the_past_is_refused(t: Context) {
    let first = t.set("a", "1").await;
    let second = t.set("a", "2").await;
    let third = t.set("a", "3").await;
    t.compact(second).await.unwrap();
    refused_as(t.range(at(&t, first)).await, refusal::COMPACTED);
    refused_as(t.range(at(&t, 1)).await, refusal::COMPACTED);
    assert_eq!(t.range(at(&t, third)).await.unwrap().kvs[0].value, "3");
}

async fn its_own_revision_is_readable(t: Context) {
    t.set("a", "1").await;
    let second = t.set("a", "2").await;
    t.set("a", "3").await;
    t.compact(second).await.unwrap();
    assert_eq!(t.range(at(&t, second)).await.unwrap().kvs[0].value, "2");
}

async fn what_lives_is_kept(t: Context) {
    for name in ["a", "b", "c"] {
        t.set(name, name).await;
    }
    let before = t.range(t.all()).await.unwrap().kvs;
    let now = t.set("d", "d").await;
    t.compact(now).await.unwrap();
    assert_eq!(t.range(t.all()).await.unwrap().kvs[..3], before);
    assert_eq!(t.range(at(&t, now)).await.unwrap().count, 4);
}

async fn versions_and_creation_are_kept(t: Context) {
    let first = t.set("a", "1").await;
    t.set("a", "2").await;
    let third = t.set("a", "3").await;
    t.compact(third).await.unwrap();
    let fourth = t.set("a", "4").await;
    let pair = t.pair("a").await.unwrap();
    assert_eq!((pair.version, pair.create_revision, pair.mod_revision), (4, first, fourth));
}

async fn between_two_versions(t: Context) {
    let first = t.set("a", "1").await;
    let between = t.set("b", "1").await;
    let third = t.set("a", "3").await;
    t.compact(between).await.unwrap();
    // The newest version that is not younger is kept: it is the one to read there.
    assert_eq!(t.range(at(&t, between)).await.unwrap().kvs[0], t.new_pair("a", "1", first));
    assert_eq!(t.range(at(&t, third)).await.unwrap().kvs[0].value, "3");
    refused_as(t.range(at(&t, first)).await, refusal::COMPACTED);
}

async fn a_deleted_key(t: Context) {
    t.set("a", "1").await;
    t.unset("a").await;
    let now = t.set("b", "1").await;
    t.compact(now).await.unwrap();
    assert_eq!(t.names(&t.range(at(&t, now)).await.unwrap().kvs), ["b"]);
    let made = t.set("a", "2").await;
    assert_eq!(t.pair("a").await, Some(t.new_pair("a", "2", made)));
}

async fn the_deletion_itself(t: Context) {
    t.set("a", "1").await;
    let gone = t.unset("a").await;
    t.compact(gone).await.unwrap();
    assert_eq!(t.range(at(&t, gone)).await.unwrap().count, 0);
    assert_eq!(t.pair("a").await, None);
}

async fn a_counted_past_is_refused(t: Context) {
    let old = t.set("a", "1").await;
    let now = t.set("a", "2").await;
    t.compact(now).await.unwrap();
    let count = pb::RangeRequest { count_only: true, ..at(&t, old) };
    refused_as(t.range(count).await, refusal::COMPACTED);
    let one = pb::RangeRequest { revision: old, ..get(t.key("none")) };
    refused_as(t.range(one).await, refusal::COMPACTED);
}

async fn a_past_inside_a_transaction(t: Context) {
    t.set("a", "1").await;
    let second = t.set("a", "2").await;
    t.set("a", "3").await;
    t.compact(second).await.unwrap();
    let answer = t.txn(always(vec![op_get(at(&t, second))])).await.unwrap();
    assert_eq!(as_range(&answer.responses[0]).kvs[0].value, "2");
    let bad = always(vec![op_get(at(&t, second - 1))]);
    refused_as(t.txn(bad).await, refusal::COMPACTED);
}

async fn leases_are_kept(t: Context) {
    let id = t.lease(60).await;
    let now = t.set_on(id, "a", "1").await;
    t.compact(now).await.unwrap();
    assert_eq!(t.time_to_live(id).await.keys, [t.key("a")]);
    t.revoke(id).await.unwrap();
    assert_eq!(t.pair("a").await, None);
}

async fn to_nothing_once(t: Context) {
    t.set("a", "1").await;
    // A store that was never compacted takes 0 for a compaction, and from then on it was.
    t.compact(0).await.unwrap();
    refused_as(t.compact(0).await, refusal::COMPACTED);
    assert_eq!(t.range(at(&t, 2)).await.unwrap().count, 1);
    assert_eq!(t.range(at(&t, 1)).await.unwrap().count, 0);
    t.compact(1).await.unwrap();
}

async fn to_less_than_nothing(t: Context) {
    refused_as(t.compact(-1).await, refusal::COMPACTED);
    refused_as(t.compact(i64::MIN).await, refusal::COMPACTED);
    t.compact(0).await.unwrap();
}

async fn of_a_fresh_store(t: Context) {
    refused_as(t.compact(2).await, refusal::FUTURE);
    assert_eq!(revision(&t.compact(1).await.unwrap().header), 1);
    refused_as(t.compact(1).await, refusal::COMPACTED);
    assert_eq!(t.set("a", "1").await, 2);
}

async fn everything_at_every_revision(t: Context) {
    // What was readable before is readable after, from the compacted revision on.
    let everything = |revision| pb::RangeRequest {
        key: Bytes::from_static(b"\0"),
        range_end: Bytes::from_static(b"\0"),
        revision,
        ..Default::default()
    };
    for round in 0..4 {
        for name in ["a", "b", "c"] {
            t.set(name, &format!("{round}")).await;
        }
        t.unset(["a", "b", "c", "a"][round]).await;
    }
    let last = t.now().await;
    let mut seen = Vec::new();
    for revision in 1..=last {
        seen.push(t.range(everything(revision)).await.unwrap().kvs);
    }
    for compacted in [3, 4, 9, 10, last] {
        t.compact(compacted).await.unwrap();
        for revision in 1..=last {
            let answer = t.range(everything(revision)).await;
            if revision < compacted {
                refused_as(answer, refusal::COMPACTED);
            } else {
                assert_eq!(answer.unwrap().kvs, seen[revision as usize - 1], "at {revision}");
            }
        }
    }
}
