//! Deleting keys.

use bytes::Bytes;
use rallypoint::proto::etcd as pb;

use crate::ask::{del, get, put, refusal, refused_as, revision};
use crate::cases;
use crate::context::Context;
use crate::harness::Case;

pub fn cases() -> Vec<Case> {
    cases![
        Shared: one_key, a_range, neighbours_stay, the_previous_pairs_in_key_order,
            no_previous_pairs_unless_asked, no_previous_pairs_of_nothing, an_empty_key_is_refused,
            an_empty_range_deletes_nothing, it_leaves_its_lease, history_stays;
        Quiet: one_revision_for_all, nothing_deleted_makes_no_revision;
        Fresh: from_a_key_to_the_end, everything;
    ]
}

fn span(t: &Context, start: &str, end: &str) -> pb::DeleteRangeRequest {
    pb::DeleteRangeRequest { range_end: t.key(end), ..del(t.key(start)) }
}

async fn one_key(t: Context) {
    let made = t.set("a", "1").await;
    let answer = t.delete(del(t.key("a"))).await.unwrap();
    assert_eq!((answer.deleted, answer.prev_kvs.len()), (1, 0));
    assert!(revision(&answer.header) > made);
    assert_eq!(t.pair("a").await, None);
}

async fn a_range(t: Context) {
    for name in ["a", "b", "c", "d"] {
        t.set(name, "").await;
    }
    assert_eq!(t.delete(span(&t, "b", "d")).await.unwrap().deleted, 2);
    assert_eq!(t.names(&t.range(t.all()).await.unwrap().kvs), ["a", "d"]);
}

async fn neighbours_stay(t: Context) {
    for name in ["a", "a/", "a/1", "a0", "aa"] {
        t.set(name, "").await;
    }
    assert_eq!(t.delete(span(&t, "a/", "a0")).await.unwrap().deleted, 2);
    assert_eq!(t.names(&t.range(t.all()).await.unwrap().kvs), ["a", "a0", "aa"]);
}

async fn the_previous_pairs_in_key_order(t: Context) {
    for name in ["c", "a", "b", "a"] {
        t.set(name, name).await;
    }
    let before = t.range(t.all()).await.unwrap().kvs;
    let request = pb::DeleteRangeRequest { prev_kv: true, ..span(&t, "a", "z") };
    let answer = t.delete(request).await.unwrap();
    assert_eq!(answer.deleted, 3);
    assert_eq!(answer.prev_kvs, before);
    assert_eq!(answer.prev_kvs[0].version, 2);
}

async fn no_previous_pairs_unless_asked(t: Context) {
    t.set("a", "1").await;
    let answer = t.delete(span(&t, "a", "z")).await.unwrap();
    assert_eq!((answer.deleted, answer.prev_kvs), (1, vec![]));
}

async fn no_previous_pairs_of_nothing(t: Context) {
    let request = pb::DeleteRangeRequest { prev_kv: true, ..span(&t, "a", "z") };
    let answer = t.delete(request).await.unwrap();
    assert_eq!((answer.deleted, answer.prev_kvs), (0, vec![]));
}

async fn an_empty_key_is_refused(t: Context) {
    refused_as(t.delete(del(Bytes::new())).await, refusal::EMPTY_KEY);
    let to_end =
        pb::DeleteRangeRequest { range_end: Bytes::from_static(b"\0"), ..del(Bytes::new()) };
    refused_as(t.delete(to_end).await, refusal::EMPTY_KEY);
}

async fn an_empty_range_deletes_nothing(t: Context) {
    t.set("a", "1").await;
    t.set("b", "1").await;
    assert_eq!(t.delete(span(&t, "a", "a")).await.unwrap().deleted, 0);
    assert_eq!(t.delete(span(&t, "b", "a")).await.unwrap().deleted, 0);
    assert_eq!(t.range(t.all()).await.unwrap().count, 2);
}

async fn it_leaves_its_lease(t: Context) {
    let lease = t.lease(60).await;
    t.set_on(lease, "a", "1").await;
    t.set_on(lease, "b", "1").await;
    t.unset("a").await;
    assert_eq!(t.time_to_live(lease).await.keys, [t.key("b")]);
    // And if it comes back without one, the lease has no hold on it.
    t.set("a", "2").await;
    t.revoke(lease).await.unwrap();
    assert_eq!(t.names(&t.range(t.all()).await.unwrap().kvs), ["a"]);
}

async fn history_stays(t: Context) {
    let made = t.set("a", "1").await;
    let gone = t.unset("a").await;
    let old = pb::RangeRequest { revision: gone - 1, ..get(t.key("a")) };
    assert_eq!(t.range(old).await.unwrap().kvs, [t.new_pair("a", "1", made)]);
}

async fn one_revision_for_all(t: Context) {
    for name in ["a", "b", "c"] {
        t.set(name, "").await;
    }
    let before = t.now().await;
    let answer = t.delete(span(&t, "a", "z")).await.unwrap();
    assert_eq!((answer.deleted, revision(&answer.header)), (3, before + 1));
    assert_eq!(t.now().await, before + 1);
}

async fn nothing_deleted_makes_no_revision(t: Context) {
    let before = t.set("a", "1").await;
    for request in [del(t.key("none")), span(&t, "b", "z"), span(&t, "z", "a")] {
        let answer = t.delete(request).await.unwrap();
        assert_eq!((answer.deleted, revision(&answer.header)), (0, before));
    }
    assert_eq!(t.set("a", "2").await, before + 1);
}

async fn from_a_key_to_the_end(t: Context) {
    for key in ["a", "b", "c"] {
        t.put(put(key.into(), "")).await.unwrap();
    }
    let request =
        pb::DeleteRangeRequest { range_end: Bytes::from_static(b"\0"), ..del("b".into()) };
    assert_eq!(t.delete(request).await.unwrap().deleted, 2);
    assert_eq!(t.range(get("a".into())).await.unwrap().count, 1);
}

async fn everything(t: Context) {
    for key in ["a", "b", "c"] {
        t.put(put(key.into(), key)).await.unwrap();
    }
    let zero = Bytes::from_static(b"\0");
    let request =
        pb::DeleteRangeRequest { key: zero.clone(), range_end: zero.clone(), prev_kv: true };
    let answer = t.delete(request).await.unwrap();
    assert_eq!((answer.deleted, answer.prev_kvs.len(), revision(&answer.header)), (3, 3, 5));
    let all = pb::RangeRequest { key: zero.clone(), range_end: zero, ..Default::default() };
    assert_eq!(t.range(all).await.unwrap().count, 0);
}
