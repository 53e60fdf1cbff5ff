//! What is still there after the server was killed and started again.

use std::time::Duration;

use rallypoint::proto::etcd as pb;

use crate::ask::{get, refusal, refused_as, revision};
use crate::cases;
use crate::context::{Context, delete_event, put_event};
use crate::harness::Case;

pub fn cases() -> Vec<Case> {
    cases![
        Durable: keys_and_revisions, history, compaction, leases_start_over, revoked_leases_stay_so,
            attachments, watches_go_on_from_a_revision, a_lease_dies_after_a_restart, who_it_is,
            twice_in_a_row, a_transaction_whole;
    ]
}

async fn keys_and_revisions(t: Context) {
    t.set("a", "1").await;
    t.set("b", "1").await;
    t.set("a", "2").await;
    let gone = t.unset("b").await;
    let before = t.range(t.all()).await.unwrap();
    let t = t.restart().await;
    let after = t.range(t.all()).await.unwrap();
    assert_eq!(after.kvs, before.kvs);
    assert_eq!(revision(&after.header), gone);
    assert_eq!(t.set("a", "3").await, gone + 1);
    let pair = t.pair("a").await.unwrap();
    assert_eq!((pair.version, pair.create_revision), (3, before.kvs[0].create_revision));
}

async fn history(t: Context) {
    let first = t.set("a", "1").await;
    t.set("a", "2").await;
    let gone = t.unset("a").await;
    let t = t.restart().await;
    let at = |revision| pb::RangeRequest { revision, ..get(t.key("a")) };
    assert_eq!(t.range(at(first)).await.unwrap().kvs, [t.new_pair("a", "1", first)]);
    assert_eq!(t.range(at(gone)).await.unwrap().count, 0);
    refused_as(t.range(at(gone + 1)).await, refusal::FUTURE);
}

async fn compaction(t: Context) {
    let first = t.set("a", "1").await;
    let second = t.set("a", "2").await;
    let third = t.set("a", "3").await;
    t.compact(second).await.unwrap();
    let t = t.restart().await;
    let at = |revision| pb::RangeRequest { revision, ..get(t.key("a")) };
    refused_as(t.range(at(first)).await, refusal::COMPACTED);
    assert_eq!(t.range(at(second)).await.unwrap().kvs[0].value, "2");
    refused_as(t.compact(second).await, refusal::COMPACTED);
    t.compact(third).await.unwrap();
}

async fn leases_start_over(t: Context) {
    let id = t.lease(8).await;
    while t.time_to_live(id).await.ttl > 5 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let t = t.restart().await;
    let status = t.time_to_live(id).await;
    assert_eq!(status.granted_ttl, 8);
    assert!(status.ttl >= 6, "its time starts again: {status:?}");
    refused_as(t.grant(id, 8).await, refusal::LEASE_EXISTS);
}

async fn revoked_leases_stay_so(t: Context) {
    let (revoked, kept) = (t.lease(60).await, t.lease(60).await);
    t.set_on(revoked, "a", "1").await;
    t.revoke(revoked).await.unwrap();
    let t = t.restart().await;
    assert_eq!(t.lease_list().await, [kept]);
    assert_eq!(t.pair("a").await, None);
    refused_as(t.revoke(revoked).await, refusal::LEASE_NOT_FOUND);
}

async fn attachments(t: Context) {
    let (first, second) = (t.lease(60).await, t.lease(60).await);
    for name in ["a", "b", "c"] {
        t.set_on(first, name, "1").await;
    }
    t.set_on(second, "b", "2").await;
    t.set("c", "2").await;
    let t = t.restart().await;
    assert_eq!(t.time_to_live(first).await.keys, [t.key("a")]);
    assert_eq!(t.time_to_live(second).await.keys, [t.key("b")]);
    t.revoke(first).await.unwrap();
    assert_eq!(t.names(&t.range(t.all()).await.unwrap().kvs), ["b", "c"]);
}

async fn watches_go_on_from_a_revision(t: Context) {
    let first = t.set("a", "1").await;
    let gone = t.unset("a").await;
    let t = t.restart().await;
    let mut watch = t.watch_all(first).await;
    let last = t.set("b", "1").await;
    let expected = [
        put_event(t.new_pair("a", "1", first)),
        delete_event(t.key("a"), gone),
        put_event(t.new_pair("b", "1", last)),
    ];
    assert_eq!(watch.events(3).await, expected);
}

async fn a_lease_dies_after_a_restart(t: Context) {
    let id = t.lease(2).await;
    t.set_on(id, "a", "1").await;
    let before = t.now().await;
    let t = t.restart().await;
    let mut watch = t.watch_all(before + 1).await;
    assert_eq!(watch.events(1).await, [delete_event(t.key("a"), before + 1)]);
    assert_eq!(t.time_to_live(id).await.ttl, -1);
}

async fn who_it_is(t: Context) {
    let before = t.range(t.all()).await.unwrap().header.unwrap();
    let t = t.restart().await;
    let after = t.range(t.all()).await.unwrap().header.unwrap();
    assert_eq!((after.cluster_id, after.member_id), (before.cluster_id, before.member_id));
    // etcd counts its restarts here; what matters is that it never goes back.
    assert!(after.raft_term >= before.raft_term, "{after:?} after {before:?}");
}

async fn twice_in_a_row(t: Context) {
    let first = t.set("a", "1").await;
    let t = t.restart().await;
    let second = t.set("a", "2").await;
    assert_eq!(second, first + 1);
    let t = t.restart().await;
    assert_eq!(t.set("a", "3").await, first + 2);
    assert_eq!(t.pair("a").await.unwrap().version, 3);
}

async fn a_transaction_whole(t: Context) {
    use crate::ask::{always, del, op_del, op_put, put};
    t.set("a", "1").await;
    let ops =
        vec![op_put(put(t.key("b"), "2")), op_del(del(t.key("a"))), op_put(put(t.key("c"), "2"))];
    let made = revision(&t.txn(always(ops)).await.unwrap().header);
    let t = t.restart().await;
    let mut watch = t.watch_all(made).await;
    let expected = [
        put_event(t.new_pair("b", "2", made)),
        delete_event(t.key("a"), made),
        put_event(t.new_pair("c", "2", made)),
    ];
    assert_eq!(watch.next().await.events, expected);
}
