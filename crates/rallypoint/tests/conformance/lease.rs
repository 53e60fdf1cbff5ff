//! Leases: granting, asking, and what is attached to them.

use rallypoint::proto::etcd as pb;

use crate::ask::{always, op_put, put, refusal, refused_as, revision};
use crate::cases;
use crate::context::{Context, delete_event};
use crate::harness::Case;

pub fn cases() -> Vec<Case> {
    cases![
        Shared: the_server_picks_an_id, an_id_of_our_own, a_negative_id, a_taken_id_is_refused,
            a_revoked_id_is_free, a_short_life_is_raised, the_longest_life, too_long_a_life_is_refused,
            too_long_before_taken, what_is_left, what_is_left_without_keys,
            nothing_is_left_of_an_unknown_one, an_unknown_one_cannot_be_revoked, revoked_only_once,
            all_leases, a_put_without_a_lease_detaches, a_put_with_another_moves,
            a_put_again_attaches_once, many_keys_on_one, a_transaction_attaches_all,
            a_key_that_left_survives;
        Quiet: granting_makes_no_revision, revoking_nothing_makes_no_revision,
            revoking_deletes_in_one_revision, revoking_deletes_in_key_order;
        Fresh: no_leases_at_first, leases_in_order_of_what_is_left;
    ]
}

async fn the_server_picks_an_id(t: Context) {
    let first = t.grant(0, 60).await.unwrap();
    let second = t.grant(0, 60).await.unwrap();
    assert!(first.id > 0 && second.id > 0 && first.id != second.id);
    assert_eq!((first.ttl, first.error.as_str()), (60, ""));
    let header = first.header.unwrap();
    assert!(header.revision >= 1 && header.cluster_id != 0 && header.member_id != 0);
}

async fn an_id_of_our_own(t: Context) {
    let id = t.lease_id();
    let answer = t.grant(id, 77).await.unwrap();
    assert_eq!((answer.id, answer.ttl), (id, 77));
    assert!(t.lease_list().await.contains(&id));
}

async fn a_negative_id(t: Context) {
    let id = -t.lease_id();
    assert_eq!(t.grant(id, 60).await.unwrap().id, id);
    t.set_on(id, "a", "1").await;
    assert_eq!(t.pair("a").await.unwrap().lease, id);
    t.revoke(id).await.unwrap();
    assert_eq!(t.pair("a").await, None);
}

async fn a_taken_id_is_refused(t: Context) {
    let id = t.lease(60).await;
    refused_as(t.grant(id, 60).await, refusal::LEASE_EXISTS);
    refused_as(t.grant(id, 5).await, refusal::LEASE_EXISTS);
    assert_eq!(t.time_to_live(id).await.granted_ttl, 60);
}

async fn a_revoked_id_is_free(t: Context) {
    let id = t.lease(60).await;
    t.set_on(id, "a", "1").await;
    t.revoke(id).await.unwrap();
    assert_eq!(t.grant(id, 30).await.unwrap().id, id);
    let status = t.time_to_live(id).await;
    assert_eq!((status.granted_ttl, status.keys.len()), (30, 0));
}

async fn a_short_life_is_raised(t: Context) {
    for ttl in [1, 0, -1, i64::MIN] {
        let answer = t.grant(t.lease_id(), ttl).await.unwrap();
        assert_eq!(answer.ttl, 2, "asked for {ttl}");
        assert_eq!(t.time_to_live(answer.id).await.granted_ttl, 2);
        t.revoke(answer.id).await.unwrap();
    }
    assert_eq!(t.grant(t.lease_id(), 3).await.unwrap().ttl, 3);
}

async fn the_longest_life(t: Context) {
    let answer = t.grant(t.lease_id(), 9_000_000_000).await.unwrap();
    assert_eq!(answer.ttl, 9_000_000_000);
    let status = t.time_to_live(answer.id).await;
    assert_eq!(status.granted_ttl, 9_000_000_000);
    assert!((8_999_999_990..=9_000_000_000).contains(&status.ttl), "{status:?}");
}

async fn too_long_a_life_is_refused(t: Context) {
    for ttl in [9_000_000_001, i64::MAX] {
        refused_as(t.grant(t.lease_id(), ttl).await, refusal::TTL_TOO_LARGE);
        refused_as(t.grant(0, ttl).await, refusal::TTL_TOO_LARGE);
    }
}

async fn too_long_before_taken(t: Context) {
    let id = t.lease(60).await;
    refused_as(t.grant(id, 9_000_000_001).await, refusal::TTL_TOO_LARGE);
}

async fn what_is_left(t: Context) {
    let id = t.lease(60).await;
    t.set_on(id, "b", "1").await;
    t.set_on(id, "a", "1").await;
    let status = t.time_to_live(id).await;
    assert_eq!((status.id, status.granted_ttl), (id, 60));
    assert!((55..60).contains(&status.ttl), "whole seconds, rounded down: {}", status.ttl);
    assert_eq!(status.keys, [t.key("a"), t.key("b")]);
    assert!(revision(&status.header) > 1);
}

async fn what_is_left_without_keys(t: Context) {
    let id = t.lease(60).await;
    t.set_on(id, "a", "1").await;
    let request = pb::LeaseTimeToLiveRequest { id, keys: false };
    let answer = t.leases().lease_time_to_live(request).await.unwrap().into_inner();
    assert!(answer.keys.is_empty());
    assert_eq!(answer.granted_ttl, 60);
}

async fn nothing_is_left_of_an_unknown_one(t: Context) {
    for id in [t.lease_id(), 0, -5] {
        let status = t.time_to_live(id).await;
        assert_eq!((status.id, status.ttl, status.granted_ttl), (id, -1, 0));
        assert!(status.keys.is_empty());
        assert!(revision(&status.header) >= 1);
    }
}

async fn an_unknown_one_cannot_be_revoked(t: Context) {
    for id in [t.lease_id(), 0, -5] {
        refused_as(t.revoke(id).await, refusal::LEASE_NOT_FOUND);
    }
}

async fn revoked_only_once(t: Context) {
    let id = t.lease(60).await;
    t.revoke(id).await.unwrap();
    refused_as(t.revoke(id).await, refusal::LEASE_NOT_FOUND);
    assert_eq!(t.time_to_live(id).await.ttl, -1);
    assert!(!t.lease_list().await.contains(&id));
}

async fn all_leases(t: Context) {
    let (first, second) = (t.lease(60).await, t.lease(60).await);
    let list = t.lease_list().await;
    assert!(list.contains(&first) && list.contains(&second));
}

async fn a_put_without_a_lease_detaches(t: Context) {
    let id = t.lease(60).await;
    t.set_on(id, "a", "1").await;
    t.set("a", "2").await;
    assert_eq!(t.pair("a").await.unwrap().lease, 0);
    assert!(t.time_to_live(id).await.keys.is_empty());
    t.revoke(id).await.unwrap();
    assert_eq!(t.pair("a").await.unwrap().value, "2");
}

async fn a_put_with_another_moves(t: Context) {
    let (first, second) = (t.lease(60).await, t.lease(60).await);
    t.set_on(first, "a", "1").await;
    t.set_on(second, "a", "2").await;
    assert!(t.time_to_live(first).await.keys.is_empty());
    assert_eq!(t.time_to_live(second).await.keys, [t.key("a")]);
    t.revoke(first).await.unwrap();
    assert_eq!(t.pair("a").await.unwrap().lease, second);
    t.revoke(second).await.unwrap();
    assert_eq!(t.pair("a").await, None);
}

async fn a_put_again_attaches_once(t: Context) {
    let id = t.lease(60).await;
    t.set_on(id, "a", "1").await;
    t.set_on(id, "a", "2").await;
    assert_eq!(t.time_to_live(id).await.keys, [t.key("a")]);
    let pair = t.pair("a").await.unwrap();
    assert_eq!((pair.version, pair.lease), (2, id));
}

async fn many_keys_on_one(t: Context) {
    let id = t.lease(60).await;
    let ops = (0..100)
        .map(|number| pb::PutRequest { lease: id, ..put(t.key(&format!("{number:03}")), "") })
        .map(op_put)
        .collect();
    t.txn(always(ops)).await.unwrap();
    assert_eq!(t.time_to_live(id).await.keys.len(), 100);
    t.revoke(id).await.unwrap();
    assert_eq!(t.range(t.all()).await.unwrap().count, 0);
}

async fn a_transaction_attaches_all(t: Context) {
    let (first, second) = (t.lease(60).await, t.lease(60).await);
    t.set_on(first, "a", "1").await;
    let ops = vec![
        op_put(pb::PutRequest { lease: second, ..put(t.key("a"), "2") }),
        op_put(pb::PutRequest { lease: first, ..put(t.key("b"), "2") }),
    ];
    t.txn(always(ops)).await.unwrap();
    assert_eq!(t.time_to_live(first).await.keys, [t.key("b")]);
    assert_eq!(t.time_to_live(second).await.keys, [t.key("a")]);
}

async fn a_key_that_left_survives(t: Context) {
    let id = t.lease(60).await;
    t.set_on(id, "a", "1").await;
    t.set_on(id, "b", "1").await;
    t.unset("b").await;
    t.set("b", "2").await;
    t.revoke(id).await.unwrap();
    assert_eq!(t.names(&t.range(t.all()).await.unwrap().kvs), ["b"]);
}

async fn granting_makes_no_revision(t: Context) {
    let before = t.set("a", "1").await;
    let answer = t.grant(t.lease_id(), 60).await.unwrap();
    assert_eq!(revision(&answer.header), before);
    assert_eq!(t.set("a", "2").await, before + 1);
}

async fn revoking_nothing_makes_no_revision(t: Context) {
    let id = t.lease(60).await;
    let before = t.set("a", "1").await;
    assert_eq!(revision(&t.revoke(id).await.unwrap().header), before);
    assert_eq!(t.now().await, before);
}

async fn revoking_deletes_in_one_revision(t: Context) {
    let id = t.lease(60).await;
    for name in ["a", "b", "c"] {
        t.set_on(id, name, "1").await;
    }
    let before = t.now().await;
    assert_eq!(revision(&t.revoke(id).await.unwrap().header), before + 1);
    assert_eq!(t.now().await, before + 1);
    assert_eq!(t.range(t.all()).await.unwrap().count, 0);
}

async fn revoking_deletes_in_key_order(t: Context) {
    let id = t.lease(60).await;
    for name in ["c", "a", "d", "b"] {
        t.set_on(id, name, "1").await;
    }
    let mut watch = t.watch_all(0).await;
    let gone = t.now().await + 1;
    t.revoke(id).await.unwrap();
    let response = watch.next().await;
    let expected: Vec<pb::Event> =
        ["a", "b", "c", "d"].map(|name| delete_event(t.key(name), gone)).into();
    assert_eq!(response.events, expected);
    assert_eq!(revision(&response.header), gone);
}

async fn no_leases_at_first(t: Context) {
    assert!(t.lease_list().await.is_empty());
}

async fn leases_in_order_of_what_is_left(t: Context) {
    for (id, ttl) in [(1, 100), (2, 50), (3, 200)] {
        t.grant(id, ttl).await.unwrap();
    }
    assert_eq!(t.lease_list().await, [2, 1, 3]);
    let mut stream = t.keep_alives();
    t.grant(4, 101).await.unwrap();
    stream.send(1).await;
    assert_eq!(stream.next().await.ttl, 100);
    assert_eq!(t.lease_list().await, [2, 1, 4, 3]);
}
