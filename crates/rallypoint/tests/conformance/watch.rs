//! Watching: what is told, as it happens.

use bytes::Bytes;
use pb::watch_create_request::FilterType;
use rallypoint::proto::etcd as pb;

use crate::ask::{always, del, op_del, op_put, op_txn, put, revision};
use crate::cases;
use crate::context::{Context, delete_event, put_event};
use crate::differences;
use crate::harness::Case;

pub fn cases() -> Vec<Case> {
    cases![
        Shared: a_put, a_second_put, a_deletion, only_what_comes_after, only_its_key, only_its_range,
            a_lease_is_told, the_previous_pair, no_previous_pair_of_a_new_key,
            the_previous_pair_of_a_deletion, no_previous_pair_unless_asked, without_puts,
            without_deletions, without_anything, a_transaction_in_its_order,
            a_transaction_with_the_previous_pairs, a_nested_transaction,
            a_range_deleted, the_same_value_again, a_failed_transaction_is_silent,
            writers_at_once_in_order, told_after_the_answer;
        Quiet: deleted_and_put_in_one, put_and_deleted_in_one, one_response_for_each_revision;
        Fresh: from_a_key_to_the_end, an_empty_key_is_the_first;
    ]
}

async fn a_put(t: Context) {
    let mut watch = t.watch_all(0).await;
    let made = t.set("a", "1").await;
    let response = watch.next().await;
    assert_eq!(response.events, [put_event(t.new_pair("a", "1", made))]);
    assert!(!response.created && !response.canceled && !response.fragment);
    assert_eq!((response.watch_id, response.compact_revision), (0, 0));
    assert_eq!(response.cancel_reason, "");
    let header = response.header.unwrap();
    assert!(header.revision >= made && header.cluster_id != 0 && header.member_id != 0);
}

async fn a_second_put(t: Context) {
    let first = t.set("a", "1").await;
    let mut watch = t.watch_all(0).await;
    let second = t.set("a", "2").await;
    let pair = pb::KeyValue { create_revision: first, version: 2, ..t.new_pair("a", "2", second) };
    assert_eq!(watch.next().await.events, [put_event(pair)]);
}

async fn a_deletion(t: Context) {
    let lease = t.lease(60).await;
    t.set_on(lease, "a", "1").await;
    let mut watch = t.watch_all(0).await;
    let gone = t.unset("a").await;
    // The key and the revision, and nothing else.
    assert_eq!(watch.next().await.events, [delete_event(t.key("a"), gone)]);
}

async fn only_what_comes_after(t: Context) {
    t.set("a", "1").await;
    let mut watch = t.watch_all(0).await;
    let second = t.set("b", "1").await;
    assert_eq!(watch.next().await.events, [put_event(t.new_pair("b", "1", second))]);
}

async fn only_its_key(t: Context) {
    let mut stream = t.watch_stream();
    stream.create(t.watch_of("b")).await;
    for name in ["a", "b\0", "bb", "c", "B"] {
        t.set(name, "1").await;
    }
    let made = t.set("b", "1").await;
    assert_eq!(stream.next().await.events, [put_event(t.new_pair("b", "1", made))]);
}

async fn only_its_range(t: Context) {
    let mut stream = t.watch_stream();
    stream.create(pb::WatchCreateRequest { range_end: t.key("d"), ..t.watch_of("b") }).await;
    for name in ["a", "d", "b", "e", "c"] {
        t.set(name, name).await;
    }
    let events = stream.events(2).await;
    assert_eq!(t.names(events.iter().map(|event| event.kv.as_ref().unwrap())), ["b", "c"]);
}

async fn a_lease_is_told(t: Context) {
    let lease = t.lease(60).await;
    let mut watch = t.watch_all(0).await;
    let made = t.set_on(lease, "a", "1").await;
    let pair = pb::KeyValue { lease, ..t.new_pair("a", "1", made) };
    assert_eq!(watch.next().await.events, [put_event(pair)]);
}

async fn with_previous(t: &Context) -> crate::context::WatchStream {
    let mut stream = t.watch_stream();
    stream.create(pb::WatchCreateRequest { prev_kv: true, ..t.watch_of_all() }).await;
    stream
}

async fn the_previous_pair(t: Context) {
    let first = t.set("a", "1").await;
    let mut watch = with_previous(&t).await;
    t.set("a", "2").await;
    t.set("a", "3").await;
    let events = watch.events(2).await;
    assert_eq!(events[0].prev_kv, Some(t.new_pair("a", "1", first)));
    let second = events[0].kv.clone().unwrap();
    assert_eq!(second.version, 2);
    assert_eq!(events[1].prev_kv, Some(second));
}

async fn no_previous_pair_of_a_new_key(t: Context) {
    t.set("a", "1").await;
    t.unset("a").await;
    let mut watch = with_previous(&t).await;
    t.set("a", "2").await;
    t.set("b", "2").await;
    let events = watch.events(2).await;
    assert!(events.iter().all(|event| event.prev_kv.is_none()), "{events:?}");
}

async fn the_previous_pair_of_a_deletion(t: Context) {
    let made = t.set("a", "1").await;
    let mut watch = with_previous(&t).await;
    let gone = t.unset("a").await;
    let expected =
        pb::Event { prev_kv: Some(t.new_pair("a", "1", made)), ..delete_event(t.key("a"), gone) };
    assert_eq!(watch.next().await.events, [expected]);
}

async fn no_previous_pair_unless_asked(t: Context) {
    t.set("a", "1").await;
    let mut watch = t.watch_all(0).await;
    t.set("a", "2").await;
    assert_eq!(watch.next().await.events[0].prev_kv, None);
}

async fn filtered(t: &Context, filters: &[FilterType]) -> crate::context::WatchStream {
    let mut stream = t.watch_stream();
    let filters = filters.iter().map(|filter| i32::from(*filter)).collect();
    stream.create(pb::WatchCreateRequest { filters, ..t.watch_of_all() }).await;
    stream
}

async fn without_puts(t: Context) {
    let mut watch = filtered(&t, &[FilterType::Noput]).await;
    t.set("a", "1").await;
    let gone = t.unset("a").await;
    assert_eq!(watch.next().await.events, [delete_event(t.key("a"), gone)]);
}

async fn without_deletions(t: Context) {
    let mut watch = filtered(&t, &[FilterType::Nodelete]).await;
    let first = t.set("a", "1").await;
    t.unset("a").await;
    let second = t.set("a", "2").await;
    let expected =
        [put_event(t.new_pair("a", "1", first)), put_event(t.new_pair("a", "2", second))];
    assert_eq!(watch.events(2).await, expected);
}

async fn without_anything(t: Context) {
    let mut watch = filtered(&t, &[FilterType::Noput, FilterType::Nodelete]).await;
    // A second watch on the same stream shows that the first had its chance.
    watch.create(t.watch_of_all()).await;
    t.set("a", "1").await;
    t.unset("a").await;
    let mut told = 0;
    while told < 2 {
        let response = watch.next().await;
        assert_eq!(response.watch_id, 1);
        told += response.events.len();
    }
}

async fn a_transaction_in_its_order(t: Context) {
    t.set("b", "0").await;
    let mut watch = t.watch_all(0).await;
    let ops =
        vec![op_put(put(t.key("c"), "1")), op_del(del(t.key("b"))), op_put(put(t.key("a"), "1"))];
    let made = revision(&t.txn(always(ops)).await.unwrap().header);
    let expected = [
        put_event(t.new_pair("c", "1", made)),
        delete_event(t.key("b"), made),
        put_event(t.new_pair("a", "1", made)),
    ];
    assert_eq!(watch.next().await.events, expected);
}

async fn a_transaction_with_the_previous_pairs(t: Context) {
    let a = t.set("a", "1").await;
    let b = t.set("b", "1").await;
    let mut watch = with_previous(&t).await;
    let ops = vec![op_put(put(t.key("a"), "2")), op_del(del(t.key("b")))];
    t.txn(always(ops)).await.unwrap();
    let events = watch.next().await.events;
    assert_eq!(events[0].prev_kv, Some(t.new_pair("a", "1", a)));
    assert_eq!(events[1].prev_kv, Some(t.new_pair("b", "1", b)));
}

async fn put_and_deleted_in_one(t: Context) {
    // Possible with a deletion that has no end, since that is not seen as a duplicate.
    let key = Bytes::from([&b"\xff\xff\xff\xff"[..], t.prefix.as_bytes()].concat());
    let mut stream = t.watch_stream();
    stream.create(pb::WatchCreateRequest { key: key.clone(), ..Default::default() }).await;
    let to_end =
        pb::DeleteRangeRequest { range_end: Bytes::from_static(b"\0"), ..del(key.clone()) };
    let ops = vec![op_put(put(key.clone(), "1")), op_del(to_end)];
    let made = revision(&t.txn(always(ops)).await.unwrap().header);
    let pair = pb::KeyValue { key: key.clone(), ..t.new_pair("", "1", made) };
    assert_eq!(stream.next().await.events, [put_event(pair), delete_event(key, made)]);
}

async fn deleted_and_put_in_one(t: Context) {
    let key = Bytes::from([&b"\xff\xff\xff\xff\xff"[..], t.prefix.as_bytes()].concat());
    let first = revision(&t.put(put(key.clone(), "1")).await.unwrap().header);
    let mut stream = t.watch_stream();
    let request = pb::WatchCreateRequest { key: key.clone(), prev_kv: true, ..Default::default() };
    stream.create(request).await;
    let to_end =
        pb::DeleteRangeRequest { range_end: Bytes::from_static(b"\0"), ..del(key.clone()) };
    let ops = vec![op_del(to_end.clone()), op_put(put(key.clone(), "2"))];
    let second = revision(&t.txn(always(ops)).await.unwrap().header);
    let pair = |value, made| pb::KeyValue { key: key.clone(), ..t.new_pair("", value, made) };
    let gone = pb::Event { prev_kv: Some(pair("1", first)), ..delete_event(key.clone(), second) };
    // A key that comes to life has nothing before it, whatever there was at the revision before.
    assert_eq!(stream.next().await.events, [gone, put_event(pair("2", second))]);
    t.delete(del(key)).await.unwrap();
}

async fn a_nested_transaction(t: Context) {
    let mut watch = t.watch_all(0).await;
    let inner = always(vec![op_put(put(t.key("b"), "1"))]);
    let ops = vec![op_put(put(t.key("c"), "1")), op_txn(inner), op_put(put(t.key("a"), "1"))];
    let made = revision(&t.txn(always(ops)).await.unwrap().header);
    let expected: Vec<pb::Event> =
        ["c", "b", "a"].map(|name| put_event(t.new_pair(name, "1", made))).into();
    assert_eq!(watch.next().await.events, expected);
}

async fn a_range_deleted(t: Context) {
    for name in ["c", "a", "b"] {
        t.set(name, "").await;
    }
    let mut watch = t.watch_all(0).await;
    let all = t.all();
    let request = pb::DeleteRangeRequest { key: all.key, range_end: all.range_end, prev_kv: false };
    let gone = revision(&t.delete(request).await.unwrap().header);
    let expected: Vec<pb::Event> =
        ["a", "b", "c"].map(|name| delete_event(t.key(name), gone)).into();
    assert_eq!(watch.next().await.events, expected);
}

async fn the_same_value_again(t: Context) {
    t.set("a", "1").await;
    let mut watch = t.watch_all(0).await;
    t.set("a", "1").await;
    assert_eq!(watch.next().await.events[0].kv.as_ref().unwrap().version, 2);
}

async fn a_failed_transaction_is_silent(t: Context) {
    let mut watch = t.watch_all(0).await;
    let bad = pb::PutRequest { lease: t.lease_id(), ..put(t.key("b"), "1") };
    t.txn(always(vec![op_put(put(t.key("a"), "1")), op_put(bad)])).await.unwrap_err();
    let made = t.set("c", "1").await;
    assert_eq!(watch.next().await.events, [put_event(t.new_pair("c", "1", made))]);
}

async fn writers_at_once_in_order(t: Context) {
    let mut watch = t.watch_all(0).await;
    let writers = (0..8).map(|writer| {
        let (mut kv, key) = (t.kv(), t.key(&format!("{writer}")));
        tokio::spawn(async move {
            for number in 0..20 {
                kv.put(put(key.clone(), format!("{number}"))).await.unwrap();
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    let events = watch.events(160).await;
    for writer in writers {
        writer.await.unwrap();
    }
    let revisions: Vec<i64> = events.iter().map(|e| e.kv.as_ref().unwrap().mod_revision).collect();
    assert!(revisions.windows(2).all(|pair| pair[0] < pair[1]), "{revisions:?}");
    for writer in 0..8 {
        let key = t.key(&format!("{writer}"));
        let versions = events.iter().filter_map(|e| e.kv.as_ref()).filter(|kv| kv.key == key);
        assert!(versions.map(|kv| kv.version).eq(1..=20));
    }
}

async fn told_after_the_answer(t: Context) {
    // A client that saw revision r in an answer and requests progress receives r first.
    let in_order = differences::of(t.arm).progress_after_events;
    let mut watch = t.watch_all(0).await;
    for number in 0..20 {
        let made = t.set("a", &format!("{number}")).await;
        watch.ask_progress().await;
        let mut told = false;
        loop {
            let response = watch.next().await;
            if response.events.is_empty() {
                assert_eq!(response.watch_id, -1);
                let ahead = !told && revision(&response.header) >= made;
                assert!(!(ahead && in_order), "progress ahead of events");
                break;
            }
            told |= response.events[0].kv.as_ref().unwrap().mod_revision == made;
        }
        while !told {
            told = watch.next().await.events[0].kv.as_ref().unwrap().mod_revision == made;
        }
    }
}

async fn one_response_for_each_revision(t: Context) {
    let mut watch = t.watch_all(0).await;
    for name in ["a", "b", "c"] {
        let made = t.set(name, "1").await;
        let response = watch.next().await;
        assert_eq!(response.events, [put_event(t.new_pair(name, "1", made))]);
        assert_eq!(revision(&response.header), made);
    }
}

async fn from_a_key_to_the_end(t: Context) {
    let mut stream = t.watch_stream();
    let to_end = Bytes::from_static(b"\0");
    stream
        .create(pb::WatchCreateRequest { key: "b".into(), range_end: to_end, ..Default::default() })
        .await;
    for key in ["a", "c", "b"] {
        t.put(put(key.into(), "")).await.unwrap();
    }
    t.put(put(Bytes::from_static(b"\xff\xff"), "")).await.unwrap();
    let events = stream.events(3).await;
    let keys: Vec<&[u8]> = events.iter().map(|e| e.kv.as_ref().unwrap().key.as_ref()).collect();
    assert_eq!(keys, [&b"c"[..], b"b", b"\xff\xff"]);
}

async fn an_empty_key_is_the_first(t: Context) {
    let mut stream = t.watch_stream();
    let zero = Bytes::from_static(b"\0");
    let all = pb::WatchCreateRequest { range_end: zero.clone(), ..Default::default() };
    assert_eq!(stream.create(all).await.watch_id, 0);
    assert_eq!(stream.create(pb::WatchCreateRequest::default()).await.watch_id, 1);
    t.put(put("a".into(), "")).await.unwrap();
    t.put(put(zero, "")).await.unwrap();
    let mut told = Vec::new();
    for _ in 0..3 {
        let response = stream.next().await;
        let key = response.events[0].kv.as_ref().unwrap().key.clone();
        told.push((response.watch_id, key.to_vec()));
    }
    told.sort();
    assert_eq!(told, [(0, b"\0".to_vec()), (0, b"a".to_vec()), (1, b"\0".to_vec())]);
}
