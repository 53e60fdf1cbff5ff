//! Counters: right sums for few requests, whatever else happens to their value.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use rallypoint::client::{Client, ClientError};
use rallypoint::core::kv::KeyRange;
use rallypoint::store::{EtcdStore, Store, StoreError};

use super::{on_each_server, store};
use crate::client::client;
use crate::support::{Etcd, Proxy, Version};

/// Stores on connections of their own.
pub(super) async fn several(endpoint: &str, count: usize) -> Vec<(Client, EtcdStore)> {
    let clients = join_all((0..count).map(|_| client([endpoint]))).await;
    clients.into_iter().map(|client| (client.clone(), store(&client))).collect()
}

fn requests(stores: &[(Client, EtcdStore)]) -> u64 {
    stores.iter().map(|(client, _)| client.traffic().requests).sum()
}

#[tokio::test]
async fn a_thousand_additions_at_once_are_a_thousand_requests() {
    on_each_server(async |endpoint| {
        let stores = several(&endpoint, 8).await;
        let adders = (0..1000).map(|number| stores[number % 8].1.add(b"n", 1));
        let sums: BTreeSet<i64> =
            join_all(adders).await.into_iter().map(|sum| sum.unwrap()).collect();
        assert_eq!(sums, (1..=1000).collect());
        let asked = requests(&stores);
        assert!(asked <= 1100, "1000 additions took {asked} requests");
        let (client, store) = &stores[0];
        assert_eq!(store.get(b"n").await.unwrap(), "1000");
        assert_eq!(client.range(KeyRange::prefix("/job/")).await.unwrap().count, 2);
    })
    .await;
}

#[tokio::test]
async fn amounts_of_any_size_at_once_come_to_their_sum() {
    on_each_server(async |endpoint| {
        let stores = several(&endpoint, 4).await;
        // Whatever the order, no sum on the way is too large.
        let amounts: Vec<i64> = (0..300).map(|_| fastrand::i64(-1 << 54..1 << 54)).collect();
        let adders = amounts
            .iter()
            .enumerate()
            .map(|(place, amount)| stores[place % 4].1.add(b"n", *amount));
        for sum in join_all(adders).await {
            sum.unwrap();
        }
        let asked = requests(&stores);
        assert!(asked <= 330, "300 additions took {asked} requests");
        let total: i64 = amounts.iter().sum();
        assert_eq!(stores[0].1.add(b"n", 0).await.unwrap(), total, "{amounts:?}");
        assert_eq!(stores[0].1.get(b"n").await.unwrap(), total.to_string());
    })
    .await;
}

#[tokio::test]
async fn the_largest_amounts_are_right_and_a_sum_beyond_them_is_an_error() {
    on_each_server(async |endpoint| {
        let store = store(&client([endpoint]).await);
        assert_eq!(store.add(b"n", i64::MAX).await.unwrap(), i64::MAX);
        assert_eq!(store.add(b"n", i64::MIN).await.unwrap(), -1);
        assert_eq!(store.add(b"n", -i64::MAX).await.unwrap(), i64::MIN);
        let error = store.add(b"n", -1).await.unwrap_err();
        assert!(matches!(error, StoreError::Corrupt { .. }));
        let words = "the value of \"n\" is unusable: -9223372036854775808 and -1 make more than 64 \
                     bits hold";
        assert_eq!(error.to_string(), words);
        // It has no effect, so others may go on.
        assert_eq!(store.get(b"n").await.unwrap(), i64::MIN.to_string());
        store.add(b"n", i64::MIN).await.unwrap_err();
        assert_eq!(store.add(b"n", 1).await.unwrap(), i64::MIN + 1);
        // All digits at once, in a counter that began with something else.
        store.set(b"m", "-1".into()).await.unwrap();
        assert_eq!(store.add(b"m", i64::MAX).await.unwrap(), i64::MAX - 1);
        assert_eq!(store.add(b"m", -i64::MAX).await.unwrap(), -1);
    })
    .await;
}

#[tokio::test]
async fn a_counter_is_a_value_and_a_value_a_counter() {
    on_each_server(async |endpoint| {
        let client = client([endpoint]).await;
        let store = store(&client);
        assert_eq!(store.add(b"n", 0).await.unwrap(), 0);
        assert_eq!(store.get(b"n").await.unwrap(), "0");
        assert_eq!(store.add(b"n", 5).await.unwrap(), 5);
        assert_eq!(store.add(b"n", -7).await.unwrap(), -2);
        assert_eq!(store.compare_set(b"n", b"0", "9".into()).await.unwrap(), "-2");
        assert_eq!(store.compare_set(b"n", b"-2", "9".into()).await.unwrap(), "9");
        assert_eq!(store.add(b"n", 1).await.unwrap(), 10);
        store.append(b"n", "0".into()).await.unwrap();
        assert_eq!(store.add(b"n", 1).await.unwrap(), 101);
        store.set(b"n", " +40\n".into()).await.unwrap();
        assert_eq!(store.get(b"n").await.unwrap(), " +40\n");
        let before = client.traffic().requests;
        assert_eq!(store.add(b"n", 2).await.unwrap(), 42);
        assert_eq!(client.traffic().requests - before, 2, "one to learn what it began with");
        assert_eq!(store.multi_get(&[b"n", b"n"]).await.unwrap(), ["42", "42"]);
        assert_eq!(store.num_keys().await.unwrap(), 1);
        assert!(store.delete_key(b"n").await.unwrap());
        assert!(!store.delete_key(b"n").await.unwrap());
        assert_eq!(store.add(b"n", 1).await.unwrap(), 1);

        store.set(b"n", "many".into()).await.unwrap();
        let error = store.add(b"n", 1).await.unwrap_err().to_string();
        let words = "the value of \"n\" is unusable: \"many\" is no whole number, so nothing can be \
                     added to it";
        assert_eq!(error, words);
        assert_eq!(store.get(b"n").await.unwrap(), "many");
    })
    .await;
}

#[tokio::test]
async fn what_many_append_at_once_is_there_once() {
    on_each_server(async |endpoint| {
        let stores = several(&endpoint, 4).await;
        let pieces: Vec<String> = (0..40).map(|number| format!("<{number}>")).collect();
        let appends = pieces
            .iter()
            .enumerate()
            .map(|(place, piece)| stores[place % 4].1.append(b"a", piece.clone().into()));
        for done in join_all(appends).await {
            done.unwrap();
        }
        let whole = stores[0].1.get(b"a").await.unwrap();
        let whole = String::from_utf8(whole.to_vec()).unwrap();
        let mut found: Vec<&str> = whole.split_inclusive('>').collect();
        let mut wanted: Vec<&str> = pieces.iter().map(String::as_str).collect();
        found.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(found, wanted);
    })
    .await;
}

#[tokio::test]
async fn an_addition_whose_answer_is_lost_is_not_repeated() {
    let etcd = Etcd::start(Version::V3_5).await;
    let direct = store(&client([etcd.endpoint()]).await);
    let proxy = Proxy::start(etcd.endpoint()).await;
    let behind = client([proxy.endpoint()]).await.with_timeout(Duration::from_secs(1));
    let behind = store(&behind);
    assert_eq!(behind.add(b"n", 1).await.unwrap(), 1);
    proxy.hang();
    let error = behind.add(b"n", 1).await.unwrap_err();
    let unknown = matches!(error, StoreError::Client(ClientError::OutcomeUnknown { .. }));
    assert!(unknown, "{error}");
    proxy.heal();
    assert_eq!(direct.add(b"n", 0).await.unwrap(), 1);
}
