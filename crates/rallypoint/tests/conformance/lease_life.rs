//! Leases: keeping them alive, and letting them die.

use std::time::{Duration, Instant};

use rallypoint::proto::etcd as pb;

use crate::ask::{del, get, refusal, refused_as, revision};
use crate::cases;
use crate::context::{Context, delete_event};
use crate::harness::Case;

pub fn cases() -> Vec<Case> {
    cases![
        Shared: kept_alive, answers_in_the_order_of_requests, an_unknown_one_has_nothing_left,
            a_revoked_one_has_nothing_left, a_stream_ends_when_we_end_it, two_streams_for_one_lease,
            keeping_alive_starts_the_time_again, it_dies_in_time_and_not_before,
            its_keys_die_in_one_revision, a_dead_one_is_unknown, a_lease_without_keys_dies,
            a_key_moved_in_time_survives, kept_alive_past_its_time, deleting_keys_keeps_the_lease;
        Quiet: keeping_alive_makes_no_revision;
    ]
}

async fn kept_alive(t: Context) {
    let id = t.lease(60).await;
    let mut stream = t.keep_alives();
    for _ in 0..3 {
        stream.send(id).await;
        let answer = stream.next().await;
        assert_eq!((answer.id, answer.ttl), (id, 60));
        let header = answer.header.unwrap();
        assert!(header.revision >= 1 && header.cluster_id != 0 && header.member_id != 0);
    }
}

async fn answers_in_the_order_of_requests(t: Context) {
    let (first, second, none) = (t.lease(60).await, t.lease(90).await, t.lease_id());
    let mut stream = t.keep_alives();
    let asked = [second, first, none, first, second];
    for id in asked {
        stream.send(id).await;
    }
    for id in asked {
        let ttl = if id == first {
            60
        } else if id == second {
            90
        } else {
            0
        };
        let answer = stream.next().await;
        assert_eq!((answer.id, answer.ttl), (id, ttl));
    }
}

async fn an_unknown_one_has_nothing_left(t: Context) {
    let mut stream = t.keep_alives();
    for id in [t.lease_id(), 0, -3] {
        stream.send(id).await;
        let answer = stream.next().await;
        assert_eq!((answer.id, answer.ttl), (id, 0));
        assert!(revision(&answer.header) >= 1);
    }
}

async fn a_revoked_one_has_nothing_left(t: Context) {
    let id = t.lease(60).await;
    let mut stream = t.keep_alives();
    stream.send(id).await;
    assert_eq!(stream.next().await.ttl, 60);
    t.revoke(id).await.unwrap();
    stream.send(id).await;
    assert_eq!(stream.next().await.ttl, 0);
}

async fn a_stream_ends_when_we_end_it(t: Context) {
    let id = t.lease(60).await;
    let mut stream = t.keep_alives();
    stream.send(id).await;
    stream.next().await;
    stream.finish().await;
}

async fn two_streams_for_one_lease(t: Context) {
    let id = t.lease(60).await;
    let (mut first, mut second) = (t.keep_alives(), t.keep_alives());
    first.send(id).await;
    second.send(id).await;
    assert_eq!((first.next().await.ttl, second.next().await.ttl), (60, 60));
}

async fn keeping_alive_starts_the_time_again(t: Context) {
    let id = t.lease(5).await;
    let mut stream = t.keep_alives();
    while t.time_to_live(id).await.ttl > 2 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    stream.send(id).await;
    assert_eq!(stream.next().await.ttl, 5);
    assert_eq!(t.time_to_live(id).await.ttl, 4);
}

/// Waits until `name` is gone and says how long it took.
async fn until_gone(t: &Context, name: &str, since: Instant) -> Duration {
    while t.pair(name).await.is_some() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    since.elapsed()
}

async fn it_dies_in_time_and_not_before(t: Context) {
    let asked = Instant::now();
    let id = t.lease(3).await;
    let granted = Instant::now();
    t.set_on(id, "a", "1").await;
    let life = until_gone(&t, "a", asked).await;
    // Never early; late by a scan and what a busy machine takes.
    assert!(granted.elapsed() >= Duration::from_millis(2990), "gone after {life:?}");
    assert!(life < Duration::from_millis(6000), "gone only after {life:?}");
}

async fn its_keys_die_in_one_revision(t: Context) {
    let id = t.lease(2).await;
    for name in ["b", "c", "a"] {
        t.set_on(id, name, "1").await;
    }
    let mut watch = t.watch_all(0).await;
    let response = watch.next().await;
    let gone = response.events[0].kv.as_ref().unwrap().mod_revision;
    let expected: Vec<pb::Event> =
        ["a", "b", "c"].map(|name| delete_event(t.key(name), gone)).into();
    assert_eq!(response.events, expected);
    let before = pb::RangeRequest { revision: gone - 1, ..t.all() };
    assert_eq!(t.range(before).await.unwrap().count, 3);
    let after = pb::RangeRequest { revision: gone, ..t.all() };
    assert_eq!(t.range(after).await.unwrap().count, 0);
}

async fn a_dead_one_is_unknown(t: Context) {
    let id = t.lease(2).await;
    t.set_on(id, "a", "1").await;
    until_gone(&t, "a", Instant::now()).await;
    let status = t.time_to_live(id).await;
    assert_eq!((status.ttl, status.granted_ttl), (-1, 0));
    assert!(!t.lease_list().await.contains(&id));
    refused_as(t.revoke(id).await, refusal::LEASE_NOT_FOUND);
    let late = pb::PutRequest { lease: id, key: t.key("a"), ..Default::default() };
    refused_as(t.put(late).await, refusal::LEASE_NOT_FOUND);
    let mut stream = t.keep_alives();
    stream.send(id).await;
    assert_eq!(stream.next().await.ttl, 0);
    assert_eq!(t.grant(id, 60).await.unwrap().id, id);
}

async fn a_lease_without_keys_dies(t: Context) {
    let id = t.lease(2).await;
    while t.lease_list().await.contains(&id) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(t.time_to_live(id).await.ttl, -1);
}

async fn a_key_moved_in_time_survives(t: Context) {
    let (short, long) = (t.lease(2).await, t.lease(60).await);
    t.set_on(short, "mark", "1").await;
    t.set_on(short, "moved", "1").await;
    t.set_on(short, "freed", "1").await;
    t.set_on(long, "moved", "2").await;
    t.set("freed", "2").await;
    until_gone(&t, "mark", Instant::now()).await;
    assert_eq!(t.names(&t.range(t.all()).await.unwrap().kvs), ["freed", "moved"]);
}

async fn kept_alive_past_its_time(t: Context) {
    let (kept, left) = (t.lease(2).await, t.lease(2).await);
    t.set_on(kept, "kept", "1").await;
    t.set_on(left, "left", "1").await;
    let mut stream = t.keep_alives();
    let started = Instant::now();
    // The one that is left alone is the clock.
    while t.pair("left").await.is_some() || started.elapsed() < Duration::from_millis(2600) {
        stream.send(kept).await;
        assert_eq!(stream.next().await.ttl, 2);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(t.pair("kept").await.is_some());
    until_gone(&t, "kept", started).await;
}

async fn deleting_keys_keeps_the_lease(t: Context) {
    let id = t.lease(60).await;
    t.set_on(id, "a", "1").await;
    t.delete(del(t.key("a"))).await.unwrap();
    let status = t.time_to_live(id).await;
    assert_eq!((status.granted_ttl, status.keys.len()), (60, 0));
    t.set_on(id, "b", "1").await;
    assert_eq!(t.range(get(t.key("b"))).await.unwrap().kvs[0].lease, id);
}

async fn keeping_alive_makes_no_revision(t: Context) {
    let id = t.lease(60).await;
    let before = t.set("a", "1").await;
    let mut stream = t.keep_alives();
    stream.send(id).await;
    assert_eq!(revision(&stream.next().await.header), before);
    assert_eq!(t.now().await, before);
}
