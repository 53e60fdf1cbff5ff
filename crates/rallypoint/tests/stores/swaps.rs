//! Comparing and appending.

use futures_util::future::join_all;

use crate::cases;
use crate::harness::{Case, Context, text};

pub fn cases() -> Vec<Case> {
    cases![
        none_and_none_expected,
        none_but_one_expected,
        the_one_expected,
        another_than_expected,
        an_empty_one,
        to_nothing,
        one_of_many_wins,
        appended,
        nothing_appended,
        appended_by_many,
    ]
}

async fn none_and_none_expected(t: Context) {
    assert_eq!(t.store.compare_set(b"key", b"", text("new")).await.unwrap(), "new");
    assert_eq!(t.other.get(b"key").await.unwrap(), "new");
}

async fn none_but_one_expected(t: Context) {
    assert_eq!(t.store.compare_set(b"key", b"old", text("new")).await.unwrap(), "old");
    assert!(t.is_missing(b"key").await);
    assert_eq!(t.other.num_keys().await.unwrap(), 0);
}

async fn the_one_expected(t: Context) {
    t.store.set(b"key", text("old")).await.unwrap();
    assert_eq!(t.other.compare_set(b"key", b"old", text("new")).await.unwrap(), "new");
    assert_eq!(t.store.get(b"key").await.unwrap(), "new");
}

async fn another_than_expected(t: Context) {
    t.store.set(b"key", text("old")).await.unwrap();
    assert_eq!(t.other.compare_set(b"key", b"older", text("new")).await.unwrap(), "old");
    assert_eq!(t.other.compare_set(b"key", b"", text("new")).await.unwrap(), "old");
    assert_eq!(t.store.get(b"key").await.unwrap(), "old");
}

async fn an_empty_one(t: Context) {
    t.store.set(b"key", text("")).await.unwrap();
    assert_eq!(t.other.compare_set(b"key", b"x", text("new")).await.unwrap(), "");
    assert_eq!(t.other.compare_set(b"key", b"", text("new")).await.unwrap(), "new");
    assert_eq!(t.store.get(b"key").await.unwrap(), "new");
}

async fn to_nothing(t: Context) {
    t.store.set(b"key", text("old")).await.unwrap();
    assert_eq!(t.other.compare_set(b"key", b"old", text("")).await.unwrap(), "");
    assert!(t.store.check(&[b"key"]).await.unwrap());
    assert_eq!(t.store.get(b"key").await.unwrap(), "");
}

async fn one_of_many_wins(t: Context) {
    let attempts = (0..30).map(|number| {
        let store = if number % 2 == 0 { t.store.clone() } else { t.other.clone() };
        tokio::spawn(async move {
            let mine = text(number.to_string());
            (store.compare_set(b"leader", b"", mine.clone()).await.unwrap(), mine)
        })
    });
    let outcomes = join_all(attempts.collect::<Vec<_>>()).await;
    let leader = t.store.get(b"leader").await.unwrap();
    let mut wins = 0;
    for outcome in outcomes {
        let (seen, mine) = outcome.unwrap();
        assert_eq!(seen, leader);
        wins += usize::from(seen == mine);
    }
    assert_eq!(wins, 1);
}

async fn appended(t: Context) {
    t.store.append(b"key", text("po")).await.unwrap();
    t.other.append(b"key", text("ta")).await.unwrap();
    t.store.append(b"key", text("to")).await.unwrap();
    assert_eq!(t.other.get(b"key").await.unwrap(), "potato");
}

async fn nothing_appended(t: Context) {
    t.store.append(b"key", text("")).await.unwrap();
    assert!(t.other.check(&[b"key"]).await.unwrap());
    assert_eq!(t.other.get(b"key").await.unwrap(), "");
}

async fn appended_by_many(t: Context) {
    let pieces: Vec<String> = (0..20).map(|number| format!("<{number}>")).collect();
    let appendices = pieces.iter().enumerate().map(|(number, piece)| {
        let store = if number % 2 == 0 { t.store.clone() } else { t.other.clone() };
        let piece = text(piece);
        tokio::spawn(async move { store.append(b"key", piece).await.unwrap() })
    });
    for done in join_all(appendices.collect::<Vec<_>>()).await {
        done.unwrap();
    }
    let whole = String::from_utf8(t.store.get(b"key").await.unwrap().to_vec()).unwrap();
    assert_eq!(whole.len(), pieces.concat().len());
    assert!(pieces.iter().all(|piece| whole.contains(piece)), "{whole}");
}
