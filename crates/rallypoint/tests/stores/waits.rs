//! Checking and waiting.

use std::time::Duration;

use futures_util::future::join_all;

use crate::cases;
use crate::harness::{Case, Context, LONG, SHORT, missing, text};

pub fn cases() -> Vec<Case> {
    cases![
        checked,
        a_queue_is_there_while_it_has_something,
        over_at_once,
        over_with_the_last_key,
        ended_by_a_set,
        ended_by_an_addition,
        ended_by_an_appendix,
        ended_by_a_swap,
        ended_by_several,
        ended_by_a_queue,
        not_ended_by_others,
        only_the_missing_are_named,
        no_time_at_all,
        many_at_once,
        others_call_meanwhile,
        given_up,
        in_step_after_many_time_outs,
    ]
}

async fn checked(t: Context) {
    assert!(!t.store.check(&[b"a"]).await.unwrap());
    t.store.set(b"a", text("1")).await.unwrap();
    assert!(t.other.check(&[b"a"]).await.unwrap());
    assert!(t.other.check(&[b"a", b"a"]).await.unwrap());
    assert!(!t.other.check(&[b"a", b"b"]).await.unwrap());
    t.store.add(b"b", 0).await.unwrap();
    assert!(t.other.check(&[b"a", b"b"]).await.unwrap());
}

async fn a_queue_is_there_while_it_has_something(t: Context) {
    t.store.queue_push(b"queue", text("1")).await.unwrap();
    assert!(t.other.check(&[b"queue"]).await.unwrap());
    t.other.wait(&[b"queue"], LONG).await.unwrap();
    t.store.queue_pop(b"queue", false).await.unwrap();
    assert!(t.is_missing(b"queue").await);
}

async fn over_at_once(t: Context) {
    t.store.set(b"a", text("1")).await.unwrap();
    t.store.set(b"b", text("2")).await.unwrap();
    t.other.wait(&[b"a", b"b", b"a"], LONG).await.unwrap();
}

async fn over_with_the_last_key(t: Context) {
    let store = t.store.clone();
    let waiting = t.started(async move { store.wait(&[b"a", b"b", b"c"], LONG).await }).await;
    for key in [b"c", b"a"] {
        t.other.set(key, text("1")).await.unwrap();
        assert!(!waiting.is_finished());
    }
    t.other.set(b"b", text("1")).await.unwrap();
    waiting.await.unwrap().unwrap();
}

/// Waits for `key`, then does `write`, which should end it.
async fn ended_by(t: &Context, write: impl AsyncFnOnce()) {
    let store = t.store.clone();
    let waiting = t.started(async move { store.wait(&[b"key"], LONG).await }).await;
    assert!(!waiting.is_finished());
    write().await;
    waiting.await.unwrap().unwrap();
}

async fn ended_by_a_set(t: Context) {
    ended_by(&t, async || t.other.set(b"key", text("")).await.unwrap()).await;
}

async fn ended_by_an_addition(t: Context) {
    ended_by(&t, async || assert_eq!(t.other.add(b"key", 2).await.unwrap(), 2)).await;
}

async fn ended_by_an_appendix(t: Context) {
    ended_by(&t, async || t.other.append(b"key", text("")).await.unwrap()).await;
}

async fn ended_by_a_swap(t: Context) {
    ended_by(&t, async || {
        assert_eq!(t.other.compare_set(b"key", b"", text("1")).await.unwrap(), "1");
    })
    .await;
}

async fn ended_by_several(t: Context) {
    ended_by(&t, async || {
        t.other.multi_set(&[(b"another", text("1")), (b"key", text("2"))]).await.unwrap();
    })
    .await;
}

async fn ended_by_a_queue(t: Context) {
    ended_by(&t, async || t.other.queue_push(b"key", text("1")).await.unwrap()).await;
    // Waiting took nothing.
    assert_eq!(t.store.queue_len(b"key").await.unwrap(), 1);
}

async fn not_ended_by_others(t: Context) {
    let store = t.store.clone();
    let waiting = t.started(async move { store.wait(&[b"key"], LONG).await }).await;
    t.other.set(b"key2", text("1")).await.unwrap();
    t.other.set(b"ke", text("1")).await.unwrap();
    t.other.compare_set(b"key", b"something", text("1")).await.unwrap();
    t.other.delete_key(b"key").await.unwrap();
    tokio::time::sleep(Duration::from_millis(30)).await;
    assert!(!waiting.is_finished());
    t.other.set(b"key", text("1")).await.unwrap();
    waiting.await.unwrap().unwrap();
}

async fn only_the_missing_are_named(t: Context) {
    t.store.set(b"b", text("1")).await.unwrap();
    let mut names = missing(t.store.wait(&[b"a", b"b", b"c"], SHORT).await);
    names.sort();
    assert_eq!(names, ["a", "c"]);
}

async fn no_time_at_all(t: Context) {
    assert_eq!(missing(t.store.wait(&[b"a"], Duration::ZERO).await), ["a"]);
    t.store.set(b"a", text("1")).await.unwrap();
    t.store.wait(&[b"a"], Duration::ZERO).await.unwrap();
}

async fn many_at_once(t: Context) {
    let waiting = (0..50).map(|_| {
        let store = t.store.clone();
        tokio::spawn(async move { store.wait(&[b"start"], LONG).await })
    });
    let waiting: Vec<_> = waiting.collect();
    tokio::time::sleep(Duration::from_millis(50)).await;
    t.other.set(b"start", text("1")).await.unwrap();
    for done in join_all(waiting).await {
        done.unwrap().unwrap();
    }
}

/// Waiting does not block other users of the same handle.
async fn others_call_meanwhile(t: Context) {
    let store = t.store.clone();
    let waiting = t.started(async move { store.get(b"late").await }).await;
    t.store.set(b"key", text("1")).await.unwrap();
    assert_eq!(t.store.get(b"key").await.unwrap(), "1");
    assert_eq!(t.store.add(b"sum", 1).await.unwrap(), 1);
    assert!(!waiting.is_finished());
    t.store.set(b"late", text("2")).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), "2");
}

/// A call that is dropped leaves nothing behind that a later one would trip over.
async fn given_up(t: Context) {
    for number in 0..20 {
        let waiting = t.store.get(b"never");
        let patience = Duration::from_millis(number);
        assert!(tokio::time::timeout(patience, waiting).await.is_err());
        assert_eq!(t.store.add(b"sum", 1).await.unwrap(), number as i64 + 1);
    }
    t.other.set(b"never", text("after all")).await.unwrap();
    assert_eq!(t.store.get(b"never").await.unwrap(), "after all");
}

/// Timeouts that race with what is waited for, whichever wins.
async fn in_step_after_many_time_outs(t: Context) {
    for number in 0..100_i64 {
        let key = format!("key {number}");
        let (store, name) = (t.other.clone(), key.clone());
        let writes = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_micros(number as u64 * 20)).await;
            store.set(name.as_bytes(), text("1")).await
        });
        let done = t.store.wait(&[key.as_bytes()], Duration::from_millis(1)).await;
        if done.is_err() {
            assert_eq!(missing(done), [key.as_str()]);
        }
        assert_eq!(t.store.add(b"sum", 1).await.unwrap(), number + 1);
        writes.await.unwrap().unwrap();
        assert_eq!(t.store.get(key.as_bytes()).await.unwrap(), "1");
    }
}
