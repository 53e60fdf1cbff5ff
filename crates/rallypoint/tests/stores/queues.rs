//! Queues.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use rallypoint::store::StoreError;

use crate::cases;
use crate::harness::{Case, Context, SHORT, missing, text};

pub fn cases() -> Vec<Case> {
    cases![
        first_in_first_out,
        their_length,
        nothing_in_it,
        waited_for,
        not_waited_for_long_enough,
        beside_a_value,
        one_push_is_one_pop,
        every_item_once,
        many_waiting,
        any_bytes,
    ]
}

async fn first_in_first_out(t: Context) {
    for number in 0..30 {
        let store = if number % 2 == 0 { &t.store } else { &t.other };
        store.queue_push(b"queue", text(number.to_string())).await.unwrap();
    }
    for number in 0..30 {
        let store = if number % 3 == 0 { &t.store } else { &t.other };
        assert_eq!(store.queue_pop(b"queue", number % 2 == 0).await.unwrap(), number.to_string());
    }
}

async fn their_length(t: Context) {
    assert_eq!(t.store.queue_len(b"queue").await.unwrap(), 0);
    for length in 1..=3 {
        t.store.queue_push(b"queue", text("same")).await.unwrap();
        assert_eq!(t.other.queue_len(b"queue").await.unwrap(), length);
    }
    t.store.queue_push(b"queue2", text("1")).await.unwrap();
    t.other.queue_pop(b"queue", false).await.unwrap();
    assert_eq!(t.store.queue_len(b"queue").await.unwrap(), 2);
}

async fn nothing_in_it(t: Context) {
    let empty = t.store.queue_pop(b"queue", false).await;
    assert!(matches!(empty, Err(StoreError::QueueEmpty { .. })), "{empty:?}");
    t.store.queue_push(b"queue", text("1")).await.unwrap();
    t.store.queue_pop(b"queue", false).await.unwrap();
    let empty = t.store.queue_pop(b"queue", false).await;
    assert!(matches!(empty, Err(StoreError::QueueEmpty { .. })), "{empty:?}");
}

async fn waited_for(t: Context) {
    let store = t.store.clone();
    let waiting = t.started(async move { store.queue_pop(b"queue", true).await }).await;
    t.other.queue_push(b"queue", text("1")).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), "1");
    assert_eq!(t.store.queue_len(b"queue").await.unwrap(), 0);
}

async fn not_waited_for_long_enough(t: Context) {
    t.store.set_timeout(SHORT);
    assert_eq!(missing(t.store.queue_pop(b"queue", true).await), ["queue"]);
    t.other.queue_push(b"queue", text("1")).await.unwrap();
    assert_eq!(t.store.queue_pop(b"queue", true).await.unwrap(), "1");
}

/// A queue and a value of one name do not know of each other.
async fn beside_a_value(t: Context) {
    t.store.set(b"name", text("value")).await.unwrap();
    t.store.queue_push(b"name", text("item")).await.unwrap();
    assert_eq!(t.other.get(b"name").await.unwrap(), "value");
    assert!(t.other.delete_key(b"name").await.unwrap());
    assert_eq!(t.other.queue_len(b"name").await.unwrap(), 1);
    t.store.add(b"name", 3).await.unwrap();
    assert_eq!(t.other.queue_pop(b"name", false).await.unwrap(), "item");
    assert_eq!(t.other.get(b"name").await.unwrap(), "3");
}

async fn one_push_is_one_pop(t: Context) {
    let pops = [t.store.clone(), t.store.clone(), t.other.clone()]
        .map(|store| tokio::spawn(async move { store.queue_pop(b"queue", true).await.unwrap() }));
    tokio::time::sleep(SHORT / 2).await;
    for number in 0..3 {
        t.other.queue_push(b"queue", text(number.to_string())).await.unwrap();
    }
    let items: BTreeSet<_> = join_all(pops).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(items.len(), 3);
    assert_eq!(t.store.queue_len(b"queue").await.unwrap(), 0);
}

async fn every_item_once(t: Context) {
    let pushes = (0..4).map(|producer| {
        let store = t.store.clone();
        tokio::spawn(async move {
            for number in 0..15 {
                store.queue_push(b"queue", text(format!("{producer} {number:02}"))).await.unwrap();
            }
            Vec::new()
        })
    });
    let pops = (0..4).map(|_| {
        let store = t.other.clone();
        tokio::spawn(async move {
            let mut items = Vec::new();
            for _ in 0..15 {
                items.push(store.queue_pop(b"queue", true).await.unwrap());
            }
            items
        })
    });
    let mut all = BTreeSet::new();
    for items in join_all(pushes.chain(pops).collect::<Vec<_>>()).await {
        let items = items.unwrap();
        // A consumer sees what one producer pushed in the order in which it was pushed.
        for producer in 0..4 {
            let name = format!("{producer} ");
            let of_it: Vec<_> = items.iter().filter(|i| i.starts_with(name.as_bytes())).collect();
            assert!(of_it.is_sorted(), "{of_it:?}");
        }
        all.extend(items);
    }
    assert_eq!(all.len(), 60);
    assert_eq!(t.store.queue_len(b"queue").await.unwrap(), 0);
}

/// Those who wait and go away take nothing with them.
async fn many_waiting(t: Context) {
    for _ in 0..10 {
        let waiting = t.store.queue_pop(b"queue", true);
        assert!(tokio::time::timeout(SHORT / 20, waiting).await.is_err());
    }
    let store = t.store.clone();
    let waiting = t.started(async move { store.queue_pop(b"queue", true).await }).await;
    t.other.queue_push(b"queue", text("1")).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), "1");
}

async fn any_bytes(t: Context) {
    let all: Vec<u8> = (0..=255).collect();
    t.store.queue_push(&all, all.clone().into()).await.unwrap();
    t.store.queue_push(&all, text("")).await.unwrap();
    assert_eq!(t.other.queue_pop(&all, false).await.unwrap(), all);
    assert_eq!(t.other.queue_pop(&all, false).await.unwrap(), "");
}
