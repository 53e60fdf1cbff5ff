//! Values: writing, reading, deleting.

use std::sync::Arc;

use bytes::Bytes;
use rallypoint::store::{Store, StoreError};

use crate::cases;
use crate::harness::{Case, Context, LONG, SHORT, missing, text};

pub fn cases() -> Vec<Case> {
    cases![
        set_and_got,
        the_last_one_counts,
        empty_ones,
        any_bytes,
        names_beside_one_another,
        a_large_one,
        got_when_it_comes,
        not_got_in_time,
        several,
        several_of_one_name,
        several_that_come_later,
        several_not_in_time,
        more_than_a_transaction_holds,
        none,
        deleted,
        deleted_and_written_again,
    ]
}

async fn set_and_got(t: Context) {
    t.store.set(b"key", text("value")).await.unwrap();
    assert_eq!(t.store.get(b"key").await.unwrap(), "value");
    assert_eq!(t.other.get(b"key").await.unwrap(), "value");
}

async fn the_last_one_counts(t: Context) {
    for value in ["1", "two", "", "3"] {
        t.store.set(b"key", text(value)).await.unwrap();
        assert_eq!(t.other.get(b"key").await.unwrap(), value);
    }
}

async fn empty_ones(t: Context) {
    t.store.set(b"", text("a value without a name")).await.unwrap();
    t.store.set(b"a name without a value", Bytes::new()).await.unwrap();
    assert_eq!(t.other.get(b"").await.unwrap(), "a value without a name");
    assert_eq!(t.other.get(b"a name without a value").await.unwrap(), "");
    assert!(t.other.check(&[b"", b"a name without a value"]).await.unwrap());
}

async fn any_bytes(t: Context) {
    let all: Vec<u8> = (0..=255).collect();
    t.store.set(&all, all.clone().into()).await.unwrap();
    assert_eq!(t.other.get(&all).await.unwrap(), all);
    for byte in [0, b'/', b':', b'=', b'+', b'-', b'>', 0xff] {
        t.store.set(&[byte], Bytes::from(vec![byte, byte])).await.unwrap();
    }
    for byte in [0, b'/', b':', b'=', b'+', b'-', b'>', 0xff] {
        assert_eq!(t.other.get(&[byte]).await.unwrap(), vec![byte, byte]);
    }
}

/// Names of which one is the beginning of another must not be taken for one another.
async fn names_beside_one_another(t: Context) {
    let names: [&[u8]; 9] = [b"a", b"a/", b"a/b", b"aa", b"a=", b"a+00", b"a>", b"1:a", b"1:a="];
    for (number, name) in names.iter().enumerate() {
        t.store.set(name, text(number.to_string())).await.unwrap();
    }
    for (number, name) in names.iter().enumerate() {
        assert_eq!(t.other.get(name).await.unwrap(), number.to_string());
    }
    assert!(t.store.delete_key(b"a").await.unwrap());
    assert!(t.is_missing(b"a").await);
    assert!(t.other.check(&names[1..]).await.unwrap());
}

async fn a_large_one(t: Context) {
    let value = Bytes::from(vec![7; 1 << 20]);
    t.store.set(b"large", value.clone()).await.unwrap();
    assert_eq!(t.other.get(b"large").await.unwrap(), value);
}

async fn got_when_it_comes(t: Context) {
    let store = t.store.clone();
    let waiting = t.started(async move { store.get(b"late").await }).await;
    t.other.set(b"late", text("but here")).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), "but here");
}

async fn not_got_in_time(t: Context) {
    t.store.set_timeout(SHORT);
    t.store.set(b"another", text("1")).await.unwrap();
    assert_eq!(missing(t.store.get(b"never").await), ["never"]);
    // Nothing is out of step afterwards.
    t.other.set(b"never", text("after all")).await.unwrap();
    assert_eq!(t.store.get(b"never").await.unwrap(), "after all");
}

async fn several(t: Context) {
    let pairs: [(&[u8], Bytes); 3] = [(b"a", text("1")), (b"b", text("")), (b"c", text("3"))];
    t.store.multi_set(&pairs).await.unwrap();
    let found = t.other.multi_get(&[b"c", b"a", b"b", b"c"]).await.unwrap();
    assert_eq!(found, ["3", "1", "", "3"]);
}

async fn several_of_one_name(t: Context) {
    let pairs: [(&[u8], Bytes); 3] = [(b"a", text("1")), (b"b", text("2")), (b"a", text("3"))];
    t.store.multi_set(&pairs).await.unwrap();
    assert_eq!(t.other.multi_get(&[b"a", b"b"]).await.unwrap(), ["3", "2"]);
}

async fn several_that_come_later(t: Context) {
    t.store.set(b"b", text("2")).await.unwrap();
    let store = t.store.clone();
    let waiting = t.started(async move { store.multi_get(&[b"a", b"b", b"c"]).await }).await;
    t.other.set(b"c", text("3")).await.unwrap();
    t.other.add(b"a", 1).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), ["1", "2", "3"]);
}

async fn several_not_in_time(t: Context) {
    t.store.set_timeout(SHORT);
    t.store.set(b"b", text("2")).await.unwrap();
    let mut names = missing(t.store.multi_get(&[b"c", b"b", b"a"]).await);
    names.sort();
    assert_eq!(names, ["a", "c"]);
}

async fn more_than_a_transaction_holds(t: Context) {
    let names: Vec<String> = (0..300).map(|number| format!("key {number}")).collect();
    let pairs: Vec<_> = names.iter().map(|name| (name.as_bytes(), text(name))).collect();
    t.store.multi_set(&pairs).await.unwrap();
    let keys: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
    assert_eq!(t.other.multi_get(&keys).await.unwrap(), names);
    assert!(t.other.check(&keys).await.unwrap());
    assert_eq!(t.other.num_keys().await.unwrap(), 300);
}

async fn none(t: Context) {
    t.store.multi_set(&[]).await.unwrap();
    assert_eq!(t.store.multi_get(&[]).await.unwrap(), Vec::<Bytes>::new());
    assert!(t.store.check(&[]).await.unwrap());
    t.store.wait(&[], SHORT).await.unwrap();
}

async fn deleted(t: Context) {
    assert!(!t.store.delete_key(b"key").await.unwrap());
    t.store.set(b"key", text("value")).await.unwrap();
    assert!(t.other.delete_key(b"key").await.unwrap());
    assert!(!t.store.delete_key(b"key").await.unwrap());
    assert!(t.is_missing(b"key").await);
    t.store.set_timeout(SHORT);
    assert_eq!(missing(t.store.get(b"key").await), ["key"]);
}

async fn deleted_and_written_again(t: Context) {
    t.store.set(b"key", text("old")).await.unwrap();
    t.store.delete_key(b"key").await.unwrap();
    let waits: Arc<dyn Store> = t.store.clone();
    let waiting = t.started(async move { waits.wait(&[b"key"], LONG).await }).await;
    t.other.set(b"key", text("new")).await.unwrap();
    let done: Result<(), StoreError> = waiting.await.unwrap();
    done.unwrap();
    assert_eq!(t.store.get(b"key").await.unwrap(), "new");
}
