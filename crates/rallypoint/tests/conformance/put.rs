//! Writing one key.

use bytes::Bytes;
use rallypoint::proto::etcd as pb;

use crate::ask::{put, refusal, refused_as, revision};
use crate::cases;
use crate::context::Context;
use crate::harness::Case;

pub fn cases() -> Vec<Case> {
    cases![
        Shared: a_new_key, a_second_put, after_a_deletion_it_is_new, no_previous_pair_unless_asked,
            the_previous_pair, no_previous_pair_of_a_new_key, no_previous_pair_after_a_deletion,
            an_empty_key_is_refused, a_value_to_ignore_is_refused, a_lease_to_ignore_is_refused,
            refusals_come_in_order, ignore_value_without_a_key, ignore_lease_without_a_key,
            ignore_value_keeps_it, ignore_lease_keeps_it, ignore_both_is_a_touch,
            ignore_value_with_the_previous_pair, ignore_value_detaches, an_unknown_lease_is_refused,
            an_unknown_lease_before_a_missing_key, a_value_of_a_mebibyte;
        Quiet: every_put_makes_one_revision, the_same_value_again, a_refused_put_leaves_no_trace;
    ]
}

async fn a_new_key(t: Context) {
    let answer = t.put(put(t.key("a"), "1")).await.unwrap();
    assert_eq!(answer.prev_kv, None);
    let made = revision(&answer.header);
    assert_eq!(t.pair("a").await, Some(t.new_pair("a", "1", made)));
}

async fn a_second_put(t: Context) {
    let first = t.set("a", "1").await;
    let second = t.set("a", "2").await;
    assert!(second > first);
    let expected =
        pb::KeyValue { create_revision: first, version: 2, ..t.new_pair("a", "2", second) };
    assert_eq!(t.pair("a").await, Some(expected));
}

async fn after_a_deletion_it_is_new(t: Context) {
    t.set("a", "1").await;
    t.set("a", "2").await;
    t.unset("a").await;
    let made = t.set("a", "3").await;
    assert_eq!(t.pair("a").await, Some(t.new_pair("a", "3", made)));
}

async fn no_previous_pair_unless_asked(t: Context) {
    t.set("a", "1").await;
    assert_eq!(t.put(put(t.key("a"), "2")).await.unwrap().prev_kv, None);
}

async fn the_previous_pair(t: Context) {
    let lease = t.lease(60).await;
    t.set("a", "1").await;
    t.set_on(lease, "a", "2").await;
    let before = t.pair("a").await;
    let request = pb::PutRequest { prev_kv: true, ..put(t.key("a"), "3") };
    let answer = t.put(request).await.unwrap();
    assert_eq!(answer.prev_kv, before);
    let before = answer.prev_kv.unwrap();
    assert_eq!((before.version, before.lease, &before.value[..]), (2, lease, &b"2"[..]));
}

async fn no_previous_pair_of_a_new_key(t: Context) {
    let request = pb::PutRequest { prev_kv: true, ..put(t.key("a"), "1") };
    assert_eq!(t.put(request).await.unwrap().prev_kv, None);
}

async fn no_previous_pair_after_a_deletion(t: Context) {
    t.set("a", "1").await;
    t.unset("a").await;
    let request = pb::PutRequest { prev_kv: true, ..put(t.key("a"), "1") };
    assert_eq!(t.put(request).await.unwrap().prev_kv, None);
}

async fn an_empty_key_is_refused(t: Context) {
    refused_as(t.put(put(Bytes::new(), "1")).await, refusal::EMPTY_KEY);
}

async fn a_value_to_ignore_is_refused(t: Context) {
    t.set("a", "1").await;
    let request = pb::PutRequest { ignore_value: true, ..put(t.key("a"), "2") };
    refused_as(t.put(request).await, refusal::VALUE_PROVIDED);
}

async fn a_lease_to_ignore_is_refused(t: Context) {
    let lease = t.lease(60).await;
    t.set("a", "1").await;
    let request = pb::PutRequest { ignore_lease: true, lease, ..put(t.key("a"), "2") };
    refused_as(t.put(request).await, refusal::LEASE_PROVIDED);
}

async fn refusals_come_in_order(t: Context) {
    let all_wrong = pb::PutRequest {
        ignore_value: true,
        ignore_lease: true,
        lease: 1,
        ..put(Bytes::new(), "1")
    };
    refused_as(t.put(all_wrong.clone()).await, refusal::EMPTY_KEY);
    let with_key = pb::PutRequest { key: t.key("a"), ..all_wrong };
    refused_as(t.put(with_key.clone()).await, refusal::VALUE_PROVIDED);
    let without_value = pb::PutRequest { value: Bytes::new(), ..with_key };
    refused_as(t.put(without_value.clone()).await, refusal::LEASE_PROVIDED);
    let without_lease = pb::PutRequest { lease: 0, ..without_value };
    refused_as(t.put(without_lease).await, refusal::KEY_NOT_FOUND);
}

async fn ignore_value_without_a_key(t: Context) {
    let request = pb::PutRequest { ignore_value: true, ..put(t.key("a"), "") };
    refused_as(t.put(request.clone()).await, refusal::KEY_NOT_FOUND);
    t.set("a", "1").await;
    t.unset("a").await;
    refused_as(t.put(request).await, refusal::KEY_NOT_FOUND);
}

async fn ignore_lease_without_a_key(t: Context) {
    let request = pb::PutRequest { ignore_lease: true, ..put(t.key("a"), "1") };
    refused_as(t.put(request).await, refusal::KEY_NOT_FOUND);
    assert_eq!(t.pair("a").await, None);
}

async fn ignore_value_keeps_it(t: Context) {
    let lease = t.lease(60).await;
    let first = t.set("a", "1").await;
    let request = pb::PutRequest { ignore_value: true, lease, ..put(t.key("a"), "") };
    let second = revision(&t.put(request).await.unwrap().header);
    let expected =
        pb::KeyValue { create_revision: first, version: 2, lease, ..t.new_pair("a", "1", second) };
    assert_eq!(t.pair("a").await, Some(expected));
    assert_eq!(t.time_to_live(lease).await.keys, [t.key("a")]);
}

async fn ignore_lease_keeps_it(t: Context) {
    let lease = t.lease(60).await;
    t.set_on(lease, "a", "1").await;
    let request = pb::PutRequest { ignore_lease: true, ..put(t.key("a"), "2") };
    t.put(request).await.unwrap();
    let pair = t.pair("a").await.unwrap();
    assert_eq!((&pair.value[..], pair.lease, pair.version), (&b"2"[..], lease, 2));
    assert_eq!(t.time_to_live(lease).await.keys, [t.key("a")]);
}

async fn ignore_both_is_a_touch(t: Context) {
    let lease = t.lease(60).await;
    let first = t.set_on(lease, "a", "1").await;
    let request = pb::PutRequest { ignore_lease: true, ignore_value: true, ..put(t.key("a"), "") };
    let second = revision(&t.put(request).await.unwrap().header);
    let pair = t.pair("a").await.unwrap();
    assert_eq!((&pair.value[..], pair.lease, pair.version), (&b"1"[..], lease, 2));
    assert_eq!((pair.create_revision, pair.mod_revision), (first, second));
}

async fn ignore_value_with_the_previous_pair(t: Context) {
    let made = t.set("a", "1").await;
    let request = pb::PutRequest { ignore_value: true, prev_kv: true, ..put(t.key("a"), "") };
    assert_eq!(t.put(request).await.unwrap().prev_kv, Some(t.new_pair("a", "1", made)));
}

async fn ignore_value_detaches(t: Context) {
    // Only the value is kept: a put without a lease still takes the key off its lease.
    let lease = t.lease(60).await;
    t.set_on(lease, "a", "1").await;
    t.put(pb::PutRequest { ignore_value: true, ..put(t.key("a"), "") }).await.unwrap();
    assert_eq!(t.pair("a").await.unwrap().lease, 0);
    assert!(t.time_to_live(lease).await.keys.is_empty());
}

async fn an_unknown_lease_is_refused(t: Context) {
    for lease in [t.lease_id(), -1] {
        let request = pb::PutRequest { lease, ..put(t.key("a"), "1") };
        refused_as(t.put(request).await, refusal::LEASE_NOT_FOUND);
    }
    assert_eq!(t.pair("a").await, None);
}

async fn an_unknown_lease_before_a_missing_key(t: Context) {
    let lease = t.lease_id();
    let request = pb::PutRequest { lease, ignore_value: true, ..put(t.key("a"), "") };
    refused_as(t.put(request).await, refusal::LEASE_NOT_FOUND);
}

async fn a_value_of_a_mebibyte(t: Context) {
    let value: Bytes = (0..1 << 20).map(|index| (index % 251) as u8).collect::<Vec<u8>>().into();
    t.put(put(t.key("a"), value.clone())).await.unwrap();
    assert_eq!(t.pair("a").await.unwrap().value, value);
}

async fn every_put_makes_one_revision(t: Context) {
    let first = t.set("a", "1").await;
    assert_eq!(t.set("b", "1").await, first + 1);
    assert_eq!(t.set("a", "2").await, first + 2);
    assert_eq!(t.now().await, first + 2);
}

async fn the_same_value_again(t: Context) {
    let first = t.set("a", "1").await;
    assert_eq!(t.set("a", "1").await, first + 1);
    assert_eq!(t.pair("a").await.unwrap().version, 2);
}

async fn a_refused_put_leaves_no_trace(t: Context) {
    let before = t.set("a", "1").await;
    let unknown = pb::PutRequest { lease: t.lease_id(), ..put(t.key("a"), "2") };
    t.put(unknown).await.unwrap_err();
    let missing = pb::PutRequest { ignore_lease: true, ..put(t.key("b"), "2") };
    t.put(missing).await.unwrap_err();
    assert_eq!(t.now().await, before);
    assert_eq!(t.pair("a").await, Some(t.new_pair("a", "1", before)));
}
