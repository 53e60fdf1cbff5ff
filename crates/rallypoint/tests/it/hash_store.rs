//! The store in memory: what a wait leaves behind.

use std::time::Duration;

use rallypoint::store::{HashStore, Store, StoreError};
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(60);

/// Polls a future once.
async fn begin<F: Future + Unpin>(future: &mut F) {
    assert!(timeout(Duration::ZERO, future).await.is_err(), "it has to wait");
}

#[tokio::test]
async fn a_dropped_pop_takes_nothing() {
    let store = HashStore::default();
    let mut dropped = store.queue_pop(b"q", true);
    let mut woken = store.queue_pop(b"q", true);
    let mut next = store.queue_pop(b"q", true);
    begin(&mut dropped).await;
    begin(&mut woken).await;
    begin(&mut next).await;
    drop(dropped);
    store.queue_push(b"q", "x".into()).await.unwrap();
    // It was woken for the element, and is dropped before it can take it.
    drop(woken);
    assert_eq!(timeout(SOON, next).await.unwrap().unwrap(), "x");
    assert_eq!(store.queue_len(b"q").await.unwrap(), 0);
}

#[tokio::test]
async fn a_waiter_that_does_not_pop_passes_its_wake_up_on() {
    let store = HashStore::default();
    let mut sees = store.wait(&[b"q"], SOON);
    let mut takes = store.queue_pop(b"q", true);
    begin(&mut sees).await;
    begin(&mut takes).await;
    store.queue_push(b"q", "x".into()).await.unwrap();
    sees.await.unwrap();
    assert_eq!(timeout(SOON, takes).await.unwrap().unwrap(), "x");
}

#[tokio::test]
async fn a_time_out_names_what_is_missing() {
    let store = HashStore::default();
    store.set(b"there", "".into()).await.unwrap();
    let missed = store.wait(&[b"there", b"a", b"b"], Duration::from_millis(1)).await.unwrap_err();
    let StoreError::Timeout { missing, .. } = missed else { panic!("{missed}") };
    assert_eq!(missing, ["a", "b"]);
}

#[tokio::test]
async fn clones_share_keys_and_not_the_time_out() {
    let store = HashStore::default();
    let clone = store.try_clone().await.unwrap();
    clone.set_timeout(Duration::from_millis(1));
    clone.set(b"k", "v".into()).await.unwrap();
    assert_eq!(store.get(b"k").await.unwrap(), "v");
    assert_eq!(store.timeout(), Duration::from_secs(300));
}
