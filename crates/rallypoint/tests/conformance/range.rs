//! Reading: which keys, as of when.

use bytes::Bytes;
use rallypoint::proto::etcd as pb;

use crate::ask::{get, put, refusal, refused_as, revision};
use crate::cases;
use crate::context::Context;
use crate::harness::Case;

pub fn cases() -> Vec<Case> {
    cases![
        Shared: one_key, a_missing_key, an_empty_key_is_refused, the_end_is_excluded,
            a_prefix_in_byte_order, an_end_at_the_key_is_empty, an_end_before_the_key_is_empty,
            zero_byte_alone_is_a_key, keys_may_be_any_bytes, an_old_revision,
            before_the_first_put_there_is_nothing, around_a_deletion, the_future_is_refused,
            a_negative_revision_is_now, the_count_is_of_that_revision, serializable_is_the_same,
            serializable_in_the_past, a_prefix_of_a_key_is_another_key, many_keys_at_once,
            an_empty_value;
        Quiet: the_header_has_the_current_revision, a_read_makes_no_revision;
        Fresh: a_fresh_store_is_at_revision_one, from_a_key_to_the_end, everything;
    ]
}

async fn one_key(t: Context) {
    let made = t.set("a", "1").await;
    let answer = t.range(get(t.key("a"))).await.unwrap();
    assert_eq!(answer.kvs, [t.new_pair("a", "1", made)]);
    assert_eq!((answer.count, answer.more), (1, false));
    let header = answer.header.unwrap();
    assert_ne!((header.cluster_id, header.member_id, header.raft_term), (0, 0, 0));
    assert!(header.cluster_id != 0 && header.member_id != 0 && header.raft_term != 0);
    assert!(header.revision >= made);
}

async fn a_missing_key(t: Context) {
    let answer = t.range(get(t.key("a"))).await.unwrap();
    assert_eq!((answer.kvs.len(), answer.count, answer.more), (0, 0, false));
}

async fn an_empty_key_is_refused(t: Context) {
    refused_as(t.range(get(Bytes::new())).await, refusal::EMPTY_KEY);
    let to_end = pb::RangeRequest { range_end: "z".into(), ..Default::default() };
    refused_as(t.range(to_end).await, refusal::EMPTY_KEY);
}

async fn the_end_is_excluded(t: Context) {
    for name in ["a", "b", "c", "d"] {
        t.set(name, "").await;
    }
    let answer = t.range(t.span("b", "d")).await.unwrap();
    assert_eq!(t.names(&answer.kvs), ["b", "c"]);
    assert_eq!(answer.count, 2);
    let between = t.range(t.span("aa", "bb")).await.unwrap();
    assert_eq!(t.names(&between.kvs), ["b"]);
}

async fn a_prefix_in_byte_order(t: Context) {
    for name in ["b", "a/", "a", "B", "a\u{7f}", "a0", "~"] {
        t.set(name, "").await;
    }
    let answer = t.range(t.all()).await.unwrap();
    assert_eq!(t.names(&answer.kvs), ["B", "a", "a/", "a0", "a\u{7f}", "b", "~"]);
}

async fn an_end_at_the_key_is_empty(t: Context) {
    t.set("a", "").await;
    let answer = t.range(t.span("a", "a")).await.unwrap();
    assert_eq!((answer.kvs.len(), answer.count), (0, 0));
}

async fn an_end_before_the_key_is_empty(t: Context) {
    t.set("a", "").await;
    t.set("b", "").await;
    let answer = t.range(t.span("b", "a")).await.unwrap();
    assert_eq!((answer.kvs.len(), answer.count, answer.more), (0, 0, false));
}

async fn zero_byte_alone_is_a_key(t: Context) {
    // Without an end it is one key like any other, and nobody has written it.
    let answer = t.range(get(Bytes::from_static(b"\0"))).await.unwrap();
    assert_eq!(answer.count, 0);
}

async fn keys_may_be_any_bytes(t: Context) {
    let mut keys: Vec<Bytes> = Vec::new();
    for byte in [0u8, 1, 0x7f, 0x80, 0xfe, 0xff] {
        let mut key = t.prefix.clone().into_bytes();
        key.push(byte);
        t.put(put(key.clone().into(), vec![byte, 0, byte])).await.unwrap();
        keys.push(key.into());
    }
    let answer = t.range(t.all()).await.unwrap();
    assert_eq!(answer.kvs.iter().map(|kv| kv.key.clone()).collect::<Vec<_>>(), keys);
    assert_eq!(answer.kvs[5].value.as_ref(), [0xff, 0, 0xff]);
    // [prefix 0xff, prefix 0xff 0x00) holds exactly one.
    let mut end = keys[5].to_vec();
    end.push(0);
    let last = pb::RangeRequest { range_end: end.into(), ..get(keys[5].clone()) };
    assert_eq!(t.range(last).await.unwrap().count, 1);
}

async fn an_old_revision(t: Context) {
    let first = t.set("a", "1").await;
    let second = t.set("a", "2").await;
    let old = pb::RangeRequest { revision: first, ..get(t.key("a")) };
    let answer = t.range(old).await.unwrap();
    assert_eq!(answer.kvs, [t.new_pair("a", "1", first)]);
    assert!(revision(&answer.header) >= second, "the header is of now, not of then");
    let new = pb::RangeRequest { revision: second, ..get(t.key("a")) };
    let pair = t.range(new).await.unwrap().kvs.remove(0);
    assert_eq!((pair.version, pair.create_revision, pair.mod_revision), (2, first, second));
}

async fn before_the_first_put_there_is_nothing(t: Context) {
    let before = t.set("a", "1").await;
    t.set("b", "1").await;
    let old = pb::RangeRequest { revision: before, ..get(t.key("b")) };
    assert_eq!(t.range(old).await.unwrap().count, 0);
    assert_eq!(t.range(pb::RangeRequest { revision: 1, ..t.all() }).await.unwrap().count, 0);
}

async fn around_a_deletion(t: Context) {
    let made = t.set("a", "1").await;
    let gone = t.unset("a").await;
    let again = t.set("a", "2").await;
    let at = async |revision| {
        t.range(pb::RangeRequest { revision, ..get(t.key("a")) }).await.unwrap().kvs
    };
    assert_eq!(at(gone - 1).await, [t.new_pair("a", "1", made)]);
    assert_eq!(at(gone).await, []);
    assert_eq!(at(again).await, [t.new_pair("a", "2", again)]);
}

async fn the_future_is_refused(t: Context) {
    let future = pb::RangeRequest { revision: i64::MAX, ..t.all() };
    refused_as(t.range(future).await, refusal::FUTURE);
    let counted =
        pb::RangeRequest { revision: t.now().await + 1_000_000, count_only: true, ..t.all() };
    refused_as(t.range(counted).await, refusal::FUTURE);
}

async fn a_negative_revision_is_now(t: Context) {
    t.set("a", "1").await;
    t.set("a", "2").await;
    for revision in [-1, i64::MIN] {
        let answer = t.range(pb::RangeRequest { revision, ..t.all() }).await.unwrap();
        assert_eq!(answer.kvs[0].value, "2");
    }
}

async fn the_count_is_of_that_revision(t: Context) {
    t.set("a", "").await;
    let two = t.set("b", "").await;
    t.set("c", "").await;
    t.unset("a").await;
    t.unset("b").await;
    let old = pb::RangeRequest { revision: two, count_only: true, ..t.all() };
    assert_eq!(t.range(old).await.unwrap().count, 2);
    let now = pb::RangeRequest { count_only: true, ..t.all() };
    assert_eq!(t.range(now).await.unwrap().count, 1);
}

async fn serializable_is_the_same(t: Context) {
    let made = t.set("a", "1").await;
    let answer = t.range(pb::RangeRequest { serializable: true, ..t.all() }).await.unwrap();
    assert_eq!(answer.kvs, [t.new_pair("a", "1", made)]);
}

async fn serializable_in_the_past(t: Context) {
    let made = t.set("a", "1").await;
    t.set("a", "2").await;
    let old = pb::RangeRequest { serializable: true, revision: made, ..t.all() };
    assert_eq!(t.range(old).await.unwrap().kvs, [t.new_pair("a", "1", made)]);
    let future = pb::RangeRequest { serializable: true, revision: i64::MAX, ..t.all() };
    refused_as(t.range(future).await, refusal::FUTURE);
}

async fn a_prefix_of_a_key_is_another_key(t: Context) {
    t.set("abc", "1").await;
    assert_eq!(t.pair("ab").await, None);
    assert_eq!(t.pair("abcd").await, None);
}

async fn many_keys_at_once(t: Context) {
    // In transactions of as many operations as are allowed.
    let names: Vec<String> = (0..1280).map(|number| format!("{number:05}")).collect();
    for chunk in names.chunks(128) {
        let puts = chunk.iter().map(|name| crate::ask::op_put(put(t.key(name), name.clone())));
        t.txn(crate::ask::always(puts.collect())).await.unwrap();
    }
    let answer = t.range(t.all()).await.unwrap();
    assert_eq!(t.names(&answer.kvs), names);
    assert_eq!((answer.count, answer.more), (1280, false));
    let answer = t.range(pb::RangeRequest { limit: 1000, ..t.all() }).await.unwrap();
    assert_eq!((answer.kvs.len(), answer.count, answer.more), (1000, 1280, true));
}

async fn an_empty_value(t: Context) {
    let made = t.set("a", "").await;
    assert_eq!(t.pair("a").await, Some(t.new_pair("a", "", made)));
}

async fn the_header_has_the_current_revision(t: Context) {
    let made = t.set("a", "1").await;
    let latest = t.set("b", "1").await;
    assert_eq!(latest, made + 1);
    let old = pb::RangeRequest { revision: made, ..t.all() };
    assert_eq!(revision(&t.range(old).await.unwrap().header), latest);
    assert_eq!(revision(&t.range(get(t.key("none"))).await.unwrap().header), latest);
}

async fn a_read_makes_no_revision(t: Context) {
    let before = t.set("a", "1").await;
    for _ in 0..3 {
        t.range(t.all()).await.unwrap();
    }
    assert_eq!(t.set("a", "2").await, before + 1);
}

async fn a_fresh_store_is_at_revision_one(t: Context) {
    let everything = pb::RangeRequest {
        key: Bytes::from_static(b"\0"),
        range_end: Bytes::from_static(b"\0"),
        ..Default::default()
    };
    let answer = t.range(everything.clone()).await.unwrap();
    assert_eq!((revision(&answer.header), answer.count), (1, 0));
    let at_one = pb::RangeRequest { revision: 1, ..everything.clone() };
    assert_eq!(t.range(at_one).await.unwrap().count, 0);
    refused_as(t.range(pb::RangeRequest { revision: 2, ..everything }).await, refusal::FUTURE);
    assert_eq!(t.set("a", "1").await, 2);
}

async fn from_a_key_to_the_end(t: Context) {
    for key in ["a", "b", "c", "\u{7ff}"] {
        t.put(put(key.into(), "")).await.unwrap();
    }
    t.put(put(Bytes::from_static(b"\xff\xff"), "")).await.unwrap();
    let end = Bytes::from_static(b"\0");
    let from = pb::RangeRequest { range_end: end.clone(), ..get("b".into()) };
    assert_eq!(t.range(from).await.unwrap().count, 4);
    let last = pb::RangeRequest { range_end: end.clone(), ..get(Bytes::from_static(b"\xff")) };
    assert_eq!(t.range(last).await.unwrap().kvs[0].key.as_ref(), b"\xff\xff");
    let past = pb::RangeRequest { range_end: end, ..get(Bytes::from_static(b"\xff\xff\xff")) };
    assert_eq!(t.range(past).await.unwrap().count, 0);
}

async fn everything(t: Context) {
    for key in ["b", "a", "\u{1}"] {
        t.put(put(key.into(), "")).await.unwrap();
    }
    t.put(put(Bytes::from_static(b"\0"), "first")).await.unwrap();
    let zero = Bytes::from_static(b"\0");
    let all = pb::RangeRequest { key: zero.clone(), range_end: zero, ..Default::default() };
    let answer = t.range(all).await.unwrap();
    let keys: Vec<&[u8]> = answer.kvs.iter().map(|kv| kv.key.as_ref()).collect();
    assert_eq!(keys, [&b"\0"[..], b"\x01", b"a", b"b"]);
    assert_eq!(revision(&answer.header), 5);
}
