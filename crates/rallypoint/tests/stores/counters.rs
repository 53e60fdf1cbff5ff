//! Counters.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use rallypoint::store::StoreError;

use crate::cases;
use crate::harness::{Case, Context, text};

pub fn cases() -> Vec<Case> {
    cases![
        they_begin_at_nothing,
        nothing_added_reads,
        nothing_added_creates,
        their_value_is_their_digits,
        back_and_forth,
        as_far_as_they_go,
        further_than_they_go,
        on_what_was_set,
        on_what_was_appended,
        on_what_was_swapped,
        set_again,
        deleted,
        on_no_number,
        everyone_gets_a_sum_of_its_own,
        everyone_adds_something_else,
        additions_and_swaps_at_once,
    ]
}

async fn they_begin_at_nothing(t: Context) {
    assert_eq!(t.store.add(b"sum", 1).await.unwrap(), 1);
    assert_eq!(t.other.add(b"sum", 1).await.unwrap(), 2);
    assert_eq!(t.store.add(b"another", -5).await.unwrap(), -5);
}

async fn nothing_added_reads(t: Context) {
    t.store.add(b"sum", 41).await.unwrap();
    assert_eq!(t.other.add(b"sum", 0).await.unwrap(), 41);
    assert_eq!(t.other.add(b"sum", 1).await.unwrap(), 42);
}

async fn nothing_added_creates(t: Context) {
    assert_eq!(t.store.add(b"sum", 0).await.unwrap(), 0);
    assert_eq!(t.other.get(b"sum").await.unwrap(), "0");
    assert_eq!(t.other.num_keys().await.unwrap(), 1);
}

async fn their_value_is_their_digits(t: Context) {
    for (amount, value) in [(7, "7"), (93, "100"), (-101, "-1"), (1, "0")] {
        t.store.add(b"sum", amount).await.unwrap();
        assert_eq!(t.other.get(b"sum").await.unwrap(), value);
        assert_eq!(t.other.multi_get(&[b"sum"]).await.unwrap(), [value]);
    }
    assert_eq!(t.other.list_keys().await.unwrap(), ["sum"]);
}

async fn back_and_forth(t: Context) {
    let mut sum = 0;
    for amount in [1, -3, 1000, 0, -1, 12_345_678_901, -12_345_678_901, 255, -256] {
        sum += amount;
        assert_eq!(t.store.add(b"sum", amount).await.unwrap(), sum);
    }
}

async fn as_far_as_they_go(t: Context) {
    assert_eq!(t.store.add(b"high", i64::MAX).await.unwrap(), i64::MAX);
    assert_eq!(t.store.add(b"low", i64::MIN).await.unwrap(), i64::MIN);
    assert_eq!(t.other.get(b"low").await.unwrap(), i64::MIN.to_string());
    assert_eq!(t.store.add(b"low", i64::MAX).await.unwrap(), -1);
    assert_eq!(t.store.add(b"high", i64::MIN).await.unwrap(), -1);
}

async fn further_than_they_go(t: Context) {
    t.store.add(b"sum", i64::MAX).await.unwrap();
    // What the counter is worth afterwards is not said; the store goes on.
    assert!(t.store.add(b"sum", 1).await.is_err());
    assert_eq!(t.store.add(b"another", 1).await.unwrap(), 1);
    t.store.set(b"sum", text("1")).await.unwrap();
    assert_eq!(t.store.add(b"sum", 1).await.unwrap(), 2);
}

async fn on_what_was_set(t: Context) {
    t.store.set(b"sum", text("5")).await.unwrap();
    assert_eq!(t.other.add(b"sum", 1).await.unwrap(), 6);
    assert_eq!(t.other.add(b"sum", -7).await.unwrap(), -1);
    assert_eq!(t.store.get(b"sum").await.unwrap(), "-1");
    t.store.set(b"low", text(i64::MIN.to_string())).await.unwrap();
    assert_eq!(t.other.add(b"low", 1).await.unwrap(), i64::MIN + 1);
}

async fn on_what_was_appended(t: Context) {
    t.store.add(b"sum", 1).await.unwrap();
    t.store.append(b"sum", text("0")).await.unwrap();
    assert_eq!(t.other.get(b"sum").await.unwrap(), "10");
    assert_eq!(t.other.add(b"sum", 1).await.unwrap(), 11);
}

async fn on_what_was_swapped(t: Context) {
    t.store.add(b"sum", 6).await.unwrap();
    assert_eq!(t.other.compare_set(b"sum", b"5", text("50")).await.unwrap(), "6");
    assert_eq!(t.other.compare_set(b"sum", b"6", text("10")).await.unwrap(), "10");
    assert_eq!(t.store.add(b"sum", 1).await.unwrap(), 11);
}

async fn set_again(t: Context) {
    t.store.add(b"sum", 1000).await.unwrap();
    t.store.set(b"sum", text("1")).await.unwrap();
    assert_eq!(t.other.get(b"sum").await.unwrap(), "1");
    assert_eq!(t.other.add(b"sum", 1).await.unwrap(), 2);
    t.store.multi_set(&[(b"sum", text("8"))]).await.unwrap();
    assert_eq!(t.other.add(b"sum", 1).await.unwrap(), 9);
}

async fn deleted(t: Context) {
    t.store.add(b"sum", 1000).await.unwrap();
    assert!(t.store.delete_key(b"sum").await.unwrap());
    assert!(t.is_missing(b"sum").await);
    assert_eq!(t.other.num_keys().await.unwrap(), 0);
    assert_eq!(t.other.add(b"sum", 1).await.unwrap(), 1);
}

async fn on_no_number(t: Context) {
    for value in ["hello", "", "1.5", "99999999999999999999"] {
        t.other.set(b"word", text(value)).await.unwrap();
        let outcome = t.store.add(b"word", 1).await;
        assert!(outcome.is_err(), "{value:?}: {outcome:?}");
        if let Err(StoreError::Corrupt { key, what }) = outcome {
            assert!(key.ends_with("word") && what.contains(value), "{key} {what}");
        }
        // Nothing has changed, and everyone goes on.
        assert_eq!(t.other.get(b"word").await.unwrap(), value);
    }
    assert_eq!(t.other.add(b"sum", 1).await.unwrap(), 1);
    assert_eq!(t.store.add(b"sum", 1).await.unwrap(), 2);
}

async fn everyone_gets_a_sum_of_its_own(t: Context) {
    let additions = (0..100).map(|number| {
        let store = if number % 2 == 0 { t.store.clone() } else { t.other.clone() };
        tokio::spawn(async move { store.add(b"sum", 1).await.unwrap() })
    });
    let sums: Vec<_> = join_all(additions.collect::<Vec<_>>()).await;
    let sums: BTreeSet<i64> = sums.into_iter().map(Result::unwrap).collect();
    assert_eq!(sums, (1..=100).collect());
}

async fn everyone_adds_something_else(t: Context) {
    let amounts: Vec<i64> = (-20..=40).map(|number| number * 37).collect();
    let additions = amounts.iter().map(|amount| {
        let (store, amount) = (t.store.clone(), *amount);
        tokio::spawn(async move { store.add(b"sum", amount).await.unwrap() })
    });
    join_all(additions.collect::<Vec<_>>()).await;
    assert_eq!(t.other.add(b"sum", 0).await.unwrap(), amounts.iter().sum::<i64>());
}

/// A swap sees a sum that was there, and no addition is lost to it.
async fn additions_and_swaps_at_once(t: Context) {
    t.store.set(b"sum", text("0")).await.unwrap();
    let store = t.store.clone();
    let adding = tokio::spawn(async move {
        for _ in 0..50 {
            store.add(b"sum", 1).await.unwrap();
        }
    });
    let mut swapped = 0;
    while swapped < 5 {
        let before = t.other.get(b"sum").await.unwrap();
        let number: i64 = std::str::from_utf8(&before).unwrap().parse().unwrap();
        let desired = text((number + 1000).to_string());
        if t.other.compare_set(b"sum", &before, desired.clone()).await.unwrap() == desired {
            swapped += 1;
        }
    }
    adding.await.unwrap();
    assert_eq!(t.other.add(b"sum", 0).await.unwrap(), 5050);
}
