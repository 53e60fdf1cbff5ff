//! Barriers.

use futures_util::future::join_all;
use rallypoint::store::StoreError;

use crate::cases;
use crate::harness::{Case, Context, LONG, SHORT};

pub fn cases() -> Vec<Case> {
    cases![alone, everyone_waits_for_the_last, not_everyone_came, two_at_once, used_again]
}

async fn alone(t: Context) {
    t.store.barrier(b"start", 1, LONG).await.unwrap();
}

async fn everyone_waits_for_the_last(t: Context) {
    let waiting: Vec<_> = (0..15)
        .map(|number| {
            let store = if number % 2 == 0 { t.store.clone() } else { t.other.clone() };
            tokio::spawn(async move { store.barrier(b"start", 16, LONG).await })
        })
        .collect();
    tokio::time::sleep(SHORT).await;
    assert!(waiting.iter().all(|task| !task.is_finished()));
    t.other.barrier(b"start", 16, LONG).await.unwrap();
    for done in join_all(waiting).await {
        done.unwrap().unwrap();
    }
}

async fn not_everyone_came(t: Context) {
    match t.store.barrier(b"start", 3, SHORT).await {
        Err(StoreError::Barrier { key, arrived, world_size, .. }) => {
            assert_eq!((key.as_str(), world_size), ("start", 3));
            assert!(matches!(arrived, None | Some(1)), "{arrived:?}");
        }
        other => panic!("{other:?}"),
    }
    // It was counted all the same.
    let store = t.store.clone();
    let waiting = t.started(async move { store.barrier(b"start", 3, LONG).await }).await;
    t.other.barrier(b"start", 3, LONG).await.unwrap();
    waiting.await.unwrap().unwrap();
}

async fn two_at_once(t: Context) {
    let store = t.store.clone();
    let waiting = t.started(async move { store.barrier(b"one", 2, LONG).await }).await;
    t.other.barrier(b"another", 1, LONG).await.unwrap();
    assert!(!waiting.is_finished());
    t.other.barrier(b"one", 2, LONG).await.unwrap();
    waiting.await.unwrap().unwrap();
}

/// A key serves one barrier: used again, it lets everyone through.
async fn used_again(t: Context) {
    let both = [&t.store, &t.other].map(|store| store.barrier(b"start", 2, LONG));
    for done in join_all(both).await {
        done.unwrap();
    }
    t.store.barrier(b"start", 2, LONG).await.unwrap();
}
