//! Watching: from a revision in the past, or in the future.

use rallypoint::proto::etcd as pb;

use crate::ask::{always, del, op_del, op_put, put, revision};
use crate::cases;
use crate::context::{Context, delete_event, put_event};
use crate::differences;
use crate::harness::Case;

pub fn cases() -> Vec<Case> {
    cases![
        Shared: from_the_past, from_a_revision_in_between, from_the_present, the_past_then_the_present,
            a_transaction_is_told_whole, deletions_in_the_past, the_past_filtered,
            the_past_with_previous_pairs, a_long_past, from_the_first_revision,
            two_watches_from_different_pasts;
        Quiet: from_the_future, from_the_next_revision, from_before_a_compaction,
            from_the_compacted_revision, a_deletion_at_the_compacted_revision,
            a_transaction_at_the_compacted_revision, a_previous_pair_that_was_compacted,
            a_watch_outlives_a_compaction, compacted_only_when_asked_for, from_the_far_future_compacted;
    ]
}

async fn from_the_past(t: Context) {
    let first = t.set("a", "1").await;
    let second = t.set("b", "1").await;
    let mut watch = t.watch_all(first).await;
    let expected =
        [put_event(t.new_pair("a", "1", first)), put_event(t.new_pair("b", "1", second))];
    assert_eq!(watch.events(2).await, expected);
}

async fn from_a_revision_in_between(t: Context) {
    t.set("a", "1").await;
    let second = t.set("b", "1").await;
    let third = t.set("c", "1").await;
    let mut watch = t.watch_all(second).await;
    let expected =
        [put_event(t.new_pair("b", "1", second)), put_event(t.new_pair("c", "1", third))];
    assert_eq!(watch.events(2).await, expected);
}

async fn from_the_present(t: Context) {
    t.set("a", "1").await;
    let now = t.set("b", "1").await;
    let mut watch = t.watch_all(now).await;
    assert_eq!(watch.events(1).await, [put_event(t.new_pair("b", "1", now))]);
}

async fn the_past_then_the_present(t: Context) {
    let first = t.set("a", "0").await;
    let mut watch = t.watch_all(first).await;
    // Written while the watch catches up: nothing may be lost, doubled or swapped.
    for number in 1..60 {
        t.set("a", &format!("{number}")).await;
    }
    let versions: Vec<i64> =
        watch.events(60).await.iter().map(|e| e.kv.as_ref().unwrap().version).collect();
    assert!(versions.into_iter().eq(1..=60));
}

async fn a_transaction_is_told_whole(t: Context) {
    t.set("b", "1").await;
    let ops =
        vec![op_put(put(t.key("c"), "1")), op_del(del(t.key("b"))), op_put(put(t.key("a"), "1"))];
    let made = revision(&t.txn(always(ops)).await.unwrap().header);
    t.set("later", "1").await;
    let mut watch = t.watch_all(made).await;
    let response = watch.next().await;
    let expected = [
        put_event(t.new_pair("c", "1", made)),
        delete_event(t.key("b"), made),
        put_event(t.new_pair("a", "1", made)),
    ];
    assert_eq!(response.events[..3], expected);
}

async fn deletions_in_the_past(t: Context) {
    let first = t.set("a", "1").await;
    let gone = t.unset("a").await;
    let again = t.set("a", "2").await;
    let mut watch = t.watch_all(first).await;
    let expected = [
        put_event(t.new_pair("a", "1", first)),
        delete_event(t.key("a"), gone),
        put_event(t.new_pair("a", "2", again)),
    ];
    assert_eq!(watch.events(3).await, expected);
}

async fn the_past_filtered(t: Context) {
    let first = t.set("a", "1").await;
    let gone = t.unset("a").await;
    t.set("a", "2").await;
    let mut stream = t.watch_stream();
    let filters = vec![pb::watch_create_request::FilterType::Noput.into()];
    let request = pb::WatchCreateRequest { filters, start_revision: first, ..t.watch_of_all() };
    stream.create(request).await;
    assert_eq!(stream.events(1).await, [delete_event(t.key("a"), gone)]);
}

async fn the_past_with_previous_pairs(t: Context) {
    let first = t.set("a", "1").await;
    t.set("a", "2").await;
    t.unset("a").await;
    t.set("a", "3").await;
    let mut stream = t.watch_stream();
    let request =
        pb::WatchCreateRequest { prev_kv: true, start_revision: first, ..t.watch_of_all() };
    stream.create(request).await;
    let before: Vec<Option<i64>> =
        stream.events(4).await.iter().map(|e| e.prev_kv.as_ref().map(|kv| kv.version)).collect();
    assert_eq!(before, [None, Some(1), Some(2), None]);
}

async fn a_long_past(t: Context) {
    // More revisions than etcd packs into one response.
    let first = t.set("a", "0").await;
    let mut writers = Vec::new();
    for writer in 0..10 {
        let (mut kv, key) = (t.kv(), t.key(&format!("{writer}")));
        writers.push(tokio::spawn(async move {
            for _ in 0..130 {
                kv.put(put(key.clone(), "")).await.unwrap();
            }
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let mut watch = t.watch_all(first).await;
    let revisions: Vec<i64> =
        watch.events(1301).await.iter().map(|e| e.kv.as_ref().unwrap().mod_revision).collect();
    assert!(revisions.windows(2).all(|pair| pair[0] < pair[1]));
}

async fn from_the_first_revision(t: Context) {
    let made = t.set("a", "1").await;
    let mut watch = t.watch_all(1).await;
    assert_eq!(watch.events(1).await, [put_event(t.new_pair("a", "1", made))]);
}

async fn two_watches_from_different_pasts(t: Context) {
    let first = t.set("a", "1").await;
    let second = t.set("a", "2").await;
    let mut stream = t.watch_stream();
    let from = |start_revision| pb::WatchCreateRequest { start_revision, ..t.watch_of_all() };
    stream.send(pb::watch_request::RequestUnion::CreateRequest(from(second))).await;
    stream.send(pb::watch_request::RequestUnion::CreateRequest(from(first))).await;
    let (mut created, mut told) = (0, [0, 0]);
    while told != [1, 2] || created != 2 {
        let response = stream.next().await;
        if response.created {
            assert_eq!(response.watch_id, created);
            created += 1;
        } else {
            assert!(response.watch_id < created, "an event before the creation");
            told[response.watch_id as usize] += response.events.len();
        }
    }
}

async fn from_the_future(t: Context) {
    let now = t.set("a", "1").await;
    let mut watch = t.watch_all(now + 3).await;
    t.set("a", "2").await;
    t.set("a", "3").await;
    let made = t.set("b", "4").await;
    assert_eq!(made, now + 3);
    assert_eq!(watch.next().await.events, [put_event(t.new_pair("b", "4", made))]);
}

async fn from_the_next_revision(t: Context) {
    let now = t.set("a", "1").await;
    let mut watch = t.watch_all(now + 1).await;
    let made = t.set("b", "1").await;
    assert_eq!(watch.next().await.events, [put_event(t.new_pair("b", "1", made))]);
}

async fn from_before_a_compaction(t: Context) {
    let first = t.set("a", "1").await;
    let second = t.set("a", "2").await;
    t.compact(second).await.unwrap();
    let mut stream = t.watch_stream();
    let request = pb::WatchCreateRequest { start_revision: first, ..t.watch_of_all() };
    let created = stream.create(request).await;
    assert!(!created.canceled);
    let response = stream.next().await;
    assert!(response.canceled && !response.created);
    assert_eq!((response.watch_id, response.compact_revision), (created.watch_id, second));
    assert_eq!((response.events.len(), response.cancel_reason.as_str()), (0, ""));
    assert_eq!(revision(&response.header), 0);
    // The stream goes on, and the id is free again.
    let request = pb::WatchCreateRequest { start_revision: second, ..t.watch_of_all() };
    stream.create(request).await;
    assert_eq!(stream.next().await.events[0].kv.as_ref().unwrap().mod_revision, second);
}

async fn from_the_compacted_revision(t: Context) {
    t.set("a", "1").await;
    let second = t.set("b", "2").await;
    let third = t.set("c", "3").await;
    t.compact(second).await.unwrap();
    let mut watch = t.watch_all(second).await;
    let expected =
        [put_event(t.new_pair("b", "2", second)), put_event(t.new_pair("c", "3", third))];
    assert_eq!(watch.events(2).await, expected);
}

async fn a_deletion_at_the_compacted_revision(t: Context) {
    t.set("a", "1").await;
    let gone = t.unset("a").await;
    t.compact_physically(gone).await;
    let later = t.set("b", "1").await;
    let mut expected = vec![delete_event(t.key("a"), gone), put_event(t.new_pair("b", "1", later))];
    if !differences::of(t.arm).deletion_at_compaction {
        expected.remove(0);
    }
    let mut watch = t.watch_all(gone).await;
    assert_eq!(watch.events(expected.len()).await, expected);
}

async fn a_transaction_at_the_compacted_revision(t: Context) {
    t.set("b", "1").await;
    let ops = vec![op_del(del(t.key("b"))), op_put(put(t.key("a"), "1"))];
    let made = revision(&t.txn(always(ops)).await.unwrap().header);
    t.compact_physically(made).await;
    let mut expected = vec![delete_event(t.key("b"), made), put_event(t.new_pair("a", "1", made))];
    if !differences::of(t.arm).deletion_at_compaction {
        expected.remove(0);
    }
    let mut watch = t.watch_all(made).await;
    assert_eq!(watch.events(expected.len()).await, expected);
}

async fn a_previous_pair_that_was_compacted(t: Context) {
    t.set("a", "1").await;
    let second = t.set("a", "2").await;
    let third = t.set("a", "3").await;
    t.compact(second).await.unwrap();
    let mut stream = t.watch_stream();
    let request =
        pb::WatchCreateRequest { prev_kv: true, start_revision: second, ..t.watch_of_all() };
    stream.create(request).await;
    let events = stream.events(2).await;
    // What came before the compacted revision is unknown; what came at it is not.
    assert_eq!(events[0].prev_kv, None);
    assert_eq!(events[1].kv.as_ref().unwrap().mod_revision, third);
    assert_eq!(events[1].prev_kv.as_ref().unwrap().mod_revision, second);
}

async fn a_watch_outlives_a_compaction(t: Context) {
    let first = t.set("a", "1").await;
    let mut watch = t.watch_all(first).await;
    assert_eq!(watch.events(1).await.len(), 1);
    let second = t.set("a", "2").await;
    t.compact(second).await.unwrap();
    let third = t.set("a", "3").await;
    let told: Vec<i64> =
        watch.events(2).await.iter().map(|e| e.kv.as_ref().unwrap().mod_revision).collect();
    assert_eq!(told, [second, third]);
}

async fn compacted_only_when_asked_for(t: Context) {
    // A watch of one key that never changed is as compacted as any.
    let old = t.set("a", "1").await;
    let now = t.set("a", "2").await;
    t.compact(now).await.unwrap();
    let mut stream = t.watch_stream();
    let request = pb::WatchCreateRequest { start_revision: old, ..t.watch_of("none") };
    stream.create(request).await;
    let response = stream.next().await;
    assert_eq!((response.canceled, response.compact_revision), (true, now));
    // From now on it is not.
    stream.create(t.watch_of("none")).await;
    t.set("none", "1").await;
    assert_eq!(stream.next().await.events.len(), 1);
}

async fn from_the_far_future_compacted(t: Context) {
    // A watch that waits for a revision is not hurt by a compaction before it.
    let now = t.set("a", "1").await;
    let mut watch = t.watch_all(now + 2).await;
    let next = t.set("a", "2").await;
    t.compact(next).await.unwrap();
    let made = t.set("b", "1").await;
    assert_eq!(made, now + 2);
    assert_eq!(watch.next().await.events, [put_event(t.new_pair("b", "1", made))]);
}
