//! Handles of one store, and their time-outs.

use std::sync::Arc;
use std::time::Duration;

use rallypoint::store::{PrefixStore, Store};

use crate::cases;
use crate::harness::{Case, Context, SHORT, missing, text};

pub fn cases() -> Vec<Case> {
    cases![
        a_clone_has_the_same_keys,
        a_clone_outlives_the_first,
        time_outs_are_whole_milliseconds,
        a_time_out_is_obeyed,
        a_time_out_that_never_comes,
        parts_of_parts,
        a_part_has_the_time_out_of_the_whole,
    ]
}

async fn a_clone_has_the_same_keys(t: Context) {
    let clone = t.store.try_clone().await.unwrap();
    t.store.set(b"key", text("1")).await.unwrap();
    assert_eq!(clone.get(b"key").await.unwrap(), "1");
    clone.add(b"sum", 1).await.unwrap();
    assert_eq!(t.store.add(b"sum", 1).await.unwrap(), 2);
}

async fn a_clone_outlives_the_first(t: Context) {
    let clone = t.store.try_clone().await.unwrap();
    t.store.set(b"key", text("1")).await.unwrap();
    let Context { store, other, whole, server: _server } = t;
    drop((store, other, whole));
    assert_eq!(clone.get(b"key").await.unwrap(), "1");
}

async fn time_outs_are_whole_milliseconds(t: Context) {
    t.store.set_timeout(Duration::from_micros(1_234_567));
    assert_eq!(t.store.timeout(), Duration::from_millis(1_234));
    let clone = t.store.try_clone().await.unwrap();
    assert_eq!(clone.timeout(), Duration::from_millis(1_234));
    clone.set_timeout(SHORT);
    assert_eq!(t.store.timeout(), Duration::from_millis(1_234));
}

async fn a_time_out_is_obeyed(t: Context) {
    t.store.set_timeout(SHORT);
    let begin = tokio::time::Instant::now();
    assert_eq!(missing(t.store.get(b"never").await), ["never"]);
    assert!(begin.elapsed() >= SHORT);
}

async fn a_time_out_that_never_comes(t: Context) {
    t.store.set_timeout(Duration::MAX);
    let store = t.store.clone();
    let waiting = t.started(async move { store.get(b"key").await }).await;
    t.other.set(b"key", text("1")).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), "1");
    t.store.wait(&[b"key"], Duration::MAX).await.unwrap();
}

async fn parts_of_parts(t: Context) {
    let outer = Arc::new(PrefixStore::new("outer", t.store.clone()));
    let inner = PrefixStore::new("inner", outer.clone());
    inner.set(b"key", text("1")).await.unwrap();
    inner.queue_push(b"queue", text("2")).await.unwrap();
    inner.barrier(b"start", 1, SHORT).await.unwrap();
    assert_eq!(t.other.get(b"outer/inner/key").await.unwrap(), "1");
    assert_eq!(t.other.queue_pop(b"outer/inner/queue", false).await.unwrap(), "2");
    assert!(outer.check(&[b"inner/key"]).await.unwrap());
    assert!(inner.list_keys().await.unwrap().contains(&"key".into()));
}

async fn a_part_has_the_time_out_of_the_whole(t: Context) {
    let part = PrefixStore::new("part", t.store.clone());
    part.set_timeout(SHORT);
    assert_eq!(t.store.timeout(), SHORT);
    assert_eq!(missing(part.get(b"never").await).len(), 1);
}
