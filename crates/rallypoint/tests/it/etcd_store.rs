//! The store on etcd: the same on our own server and on real ones.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use rallypoint::client::{Client, ClientError};
use rallypoint::core::kv::{KeyRange, Put};
use rallypoint::store::{EtcdStore, Store, StoreError};
use tokio::time::{sleep, timeout};

use crate::client::client;
use crate::support::{Embedded, Etcd, Proxy, Version};

/// Runs `body` on our own server and on each real one.
pub(crate) async fn on_each_server(body: impl AsyncFn(String)) {
    let embedded = Embedded::memory().await;
    body(embedded.endpoint()).await;
    for version in [Version::V3_4, Version::V3_5] {
        let etcd = Etcd::start(version).await;
        body(etcd.endpoint()).await;
    }
}

const SHORT: Duration = Duration::from_millis(300);

fn store(client: &Client) -> EtcdStore {
    EtcdStore::new(client.clone(), "/job/", 0, Duration::from_secs(20))
}

#[tokio::test]
async fn what_is_set_is_found_as_it_is() {
    on_each_server(async |endpoint| {
        let client = client([endpoint]).await;
        let store = store(&client);
        assert_eq!(store.timeout(), Duration::from_secs(20));
        store.set(b"a", "1".into()).await.unwrap();
        store.set(b"\0\xff/", Bytes::from_static(b"\xff\0")).await.unwrap();
        assert_eq!(store.get(b"a").await.unwrap(), "1");
        assert_eq!(store.get(b"\0\xff/").await.unwrap(), &b"\xff\0"[..]);
        let raw = client.range(KeyRange::key("/job/a")).await.unwrap();
        assert_eq!(raw.kvs[0].value, "1");
        store.set(b"a", "".into()).await.unwrap();
        assert_eq!(store.get(b"a").await.unwrap(), "");

        assert!(store.check(&[b"a", b"\0\xff/"]).await.unwrap());
        assert!(!store.check(&[b"a", b"b"]).await.unwrap());
        assert!(store.check(&[]).await.unwrap());
        store.wait(&[], Duration::ZERO).await.unwrap();
        // Nothing needs to be waited for.
        store.wait(&[b"a", b"a"], Duration::ZERO).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn what_is_set_lives_on_the_lease() {
    on_each_server(async |endpoint| {
        let client = client([endpoint]).await;
        let lease = client.lease_grant(60, None).await.unwrap().id;
        let store = EtcdStore::new(client.clone(), "/job/", lease, SHORT);
        store.set(b"a", "1".into()).await.unwrap();
        store.multi_set(&[(b"b", "2".into())]).await.unwrap();
        store.add(b"c", 3).await.unwrap();
        let status = client.lease_time_to_live(lease, true).await.unwrap().unwrap();
        // Real servers name them in any order.
        let keys: BTreeSet<Bytes> = status.keys.into_iter().collect();
        assert_eq!(keys, ["/job/a", "/job/b", "/job/c"].map(Bytes::from).into());
        client.lease_revoke(lease).await.unwrap();
        assert!(!store.check(&[b"a"]).await.unwrap());
        let error = store.set(b"a", "1".into()).await.unwrap_err().to_string();
        assert!(error.contains("requested lease not found"), "{error}");
    })
    .await;
}

#[tokio::test]
async fn waiting_ends_when_the_last_key_comes() {
    on_each_server(async |endpoint| {
        let client = client([endpoint]).await;
        let store = store(&client);
        store.set(b"b", "there".into()).await.unwrap();
        // Next to it lies what nobody asked for.
        store.set(b"b0", "".into()).await.unwrap();
        let waiting = [
            tokio::spawn({
                let store = store.clone();
                async move { store.multi_get(&[b"c", b"b", b"a", b"c"]).await }
            }),
            tokio::spawn({
                let store = store.clone();
                async move { Ok(vec![store.get(b"a").await?]) }
            }),
        ];
        sleep(SHORT).await;
        store.set(b"a", "1".into()).await.unwrap();
        sleep(SHORT).await;
        assert!(!waiting[0].is_finished(), "there is no c yet");
        store.set(b"c", "3".into()).await.unwrap();
        let set = Instant::now();
        let [all, one] = waiting.map(|task| timeout(Duration::from_secs(5), task));
        assert_eq!(all.await.unwrap().unwrap().unwrap(), ["3", "there", "1", "3"]);
        assert_eq!(one.await.unwrap().unwrap().unwrap(), ["1"]);
        assert!(set.elapsed() < Duration::from_secs(2), "told after {:?}", set.elapsed());
    })
    .await;
}

#[tokio::test]
async fn waiting_ends_in_time_and_names_what_is_missing() {
    on_each_server(async |endpoint| {
        let client = client([endpoint]).await;
        let store = EtcdStore::new(client, "/job/", 0, SHORT);
        store.set(b"a", "1".into()).await.unwrap();
        let begun = Instant::now();
        let error = store.wait(&[b"c", b"a", b"b", b"c"], SHORT).await.unwrap_err();
        assert_eq!(error.to_string(), "after 300.0ms these keys were still missing: b, c");
        assert!(matches!(error, StoreError::Timeout { .. }));
        let error = store.get(b"b").await.unwrap_err().to_string();
        assert_eq!(error, "after 300.0ms these keys were still missing: b");
        assert!((SHORT * 2..SHORT * 10).contains(&begun.elapsed()), "{:?}", begun.elapsed());
        let error = store.wait(&[b"b"], Duration::ZERO).await.unwrap_err().to_string();
        assert_eq!(error, "after 0.0ns these keys were still missing: b");
    })
    .await;
}

#[tokio::test]
async fn waiting_survives_a_lost_connection_and_a_forgotten_history() {
    on_each_server(async |endpoint| {
        let direct = client([endpoint.clone()]).await;
        let proxy = Proxy::start(endpoint).await;
        let behind = store(&client([proxy.endpoint()]).await);
        for (key, forget) in [("a", false), ("b", true)] {
            let waiter = behind.clone();
            let waiting = tokio::spawn(async move { waiter.get(key.as_bytes()).await });
            sleep(SHORT).await;
            proxy.refuse();
            store(&direct).set(key.as_bytes(), "1".into()).await.unwrap();
            if forget {
                let last = direct.put(Put::new("other", "")).await.unwrap().revision;
                direct.compact(last, true).await.unwrap();
            }
            proxy.heal();
            let found = timeout(Duration::from_secs(15), waiting).await.unwrap().unwrap();
            assert_eq!(found.unwrap(), "1");
        }
    })
    .await;
}

#[tokio::test]
async fn a_server_that_is_not_there_is_not_taken_for_a_missing_key() {
    let dead = format!("127.0.0.1:{}", crate::support::tools::free_port());
    let store = EtcdStore::new(client([dead.as_str()]).await, "/job/", 0, SHORT);
    let begun = Instant::now();
    let error = store.get(b"a").await.unwrap_err();
    assert!(matches!(error, StoreError::Client(ClientError::Unavailable { .. })), "{error}");
    assert!(error.to_string().contains(&dead), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(5), "took {:?}", begun.elapsed());
}

#[tokio::test]
async fn every_addition_counts_once() {
    on_each_server(async |endpoint| {
        let client = client([endpoint]).await;
        let store = store(&client);
        assert_eq!(store.add(b"n", 0).await.unwrap(), 0);
        assert_eq!(store.get(b"n").await.unwrap(), "0");
        assert_eq!(store.add(b"n", 5).await.unwrap(), 5);
        assert_eq!(store.add(b"n", -7).await.unwrap(), -2);
        assert_eq!(store.add(b"n", 0).await.unwrap(), -2);
        store.set(b"n", "40".into()).await.unwrap();
        assert_eq!(store.add(b"n", 2).await.unwrap(), 42);

        let adders = (0..16).map(|_| async {
            let mut sums = Vec::new();
            for _ in 0..5 {
                sums.push(store.add(b"many", 1).await.unwrap());
            }
            sums
        });
        let sums: BTreeSet<i64> = join_all(adders).await.into_iter().flatten().collect();
        assert_eq!(sums, (1..=80).collect());

        store.set(b"n", "many".into()).await.unwrap();
        let error = store.add(b"n", 1).await.unwrap_err().to_string();
        let words = "the value of \"n\" is unusable: \"many\" is no whole number, so nothing can be \
                     added to it";
        assert_eq!(error, words);
        store.set(b"n", i64::MAX.to_string().into()).await.unwrap();
        let error = store.add(b"n", 1).await.unwrap_err().to_string();
        assert!(error.ends_with("9223372036854775807 and 1 make more than 64 bits hold"), "{error}");
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

#[tokio::test]
async fn many_and_large_values_are_sent_in_parts() {
    on_each_server(async |endpoint| {
        let client = client([endpoint]).await;
        let store = store(&client);
        let names: Vec<String> = (0..300).map(|number| format!("key-{number}")).collect();
        let waiting = tokio::spawn({
            let (store, names) = (store.clone(), names.clone());
            async move {
                let names: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
                store.wait(&names, Duration::from_secs(20)).await
            }
        });
        sleep(SHORT).await;
        let names: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
        let mut pairs: Vec<(&[u8], Bytes)> =
            names.iter().map(|name| (*name, Bytes::copy_from_slice(name))).collect();
        pairs.push((names[7], "last".into()));
        store.multi_set(&pairs).await.unwrap();
        waiting.await.unwrap().unwrap();
        store.multi_set(&[]).await.unwrap();
        let found = store.multi_get(&names).await.unwrap();
        assert_eq!((found.len(), &found[7][..], &found[299][..]), (300, &b"last"[..], names[299]));
        assert!(store.check(&names).await.unwrap());

        let large = Bytes::from(vec![7; 1 << 20]);
        let pairs = [(&b"x"[..], large.clone()), (b"y", large.clone()), (b"z", large.clone())];
        store.multi_set(&pairs).await.unwrap();
        assert_eq!(store.get(b"z").await.unwrap(), large);

        // The largest that is sent is taken, and one byte more is not sent.
        let largest = (1536 << 10) - 64 - "/job/x".len();
        store.set(b"x", vec![0; largest].into()).await.unwrap();
        let too_large = Bytes::from(vec![0; largest + 1]);
        for error in [
            store.set(b"x", too_large.clone()).await.unwrap_err(),
            store.multi_set(&[(b"x", too_large)]).await.unwrap_err(),
        ] {
            assert!(matches!(error, StoreError::TooLarge { limit: 1_572_864, .. }));
            let words = "the value of \"x\" has 1572795 bytes, and a request may have 1572864 in \
                         all; split it up, or share the name of a file";
            assert_eq!(error.to_string(), words);
        }
    })
    .await;
}
