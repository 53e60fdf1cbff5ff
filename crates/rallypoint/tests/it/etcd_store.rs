//! The store on etcd: the same on our own server and on real ones. What every store does is in `stores`;
//! here is what only this one does.

mod counters;
mod history;
mod model;
mod queues;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use rallypoint::client::{Client, ClientError, WatchError};
use rallypoint::core::kv::{KeyRange, Put};
use rallypoint::store::{EtcdStore, Store, StoreError};
use tokio::time::{sleep, timeout};

use crate::client::client;
use crate::support::hostile::eventually;
use crate::support::{Embedded, Etcd, Proxy, Version};

/// Runs `body` on our own server and on each real one.
pub(crate) async fn on_each_server(body: impl AsyncFn(String)) {
    let embedded = Embedded::memory().await;
    body(embedded.endpoint()).await;
    for version in Version::all() {
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
        let raw = client.range(KeyRange::key("/job/1:a=")).await.unwrap();
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
async fn everything_lives_on_the_lease() {
    on_each_server(async |endpoint| {
        let client = client([endpoint]).await;
        let lease = client.lease_grant(60, None).await.unwrap().id;
        let store = EtcdStore::new(client.clone(), "/job/", lease, SHORT);
        store.set(b"set", "1".into()).await.unwrap();
        store.multi_set(&[(b"multi", "2".into())]).await.unwrap();
        store.add(b"add", 3).await.unwrap();
        store.compare_set(b"swap", b"", "4".into()).await.unwrap();
        store.append(b"append", "5".into()).await.unwrap();
        store.queue_push(b"queue", "6".into()).await.unwrap();
        let status = client.lease_time_to_live(lease, true).await.unwrap().unwrap();
        let all = client.range(KeyRange::prefix("/job/")).await.unwrap();
        // Real servers name them in any order.
        let keys: BTreeSet<Bytes> = status.keys.into_iter().collect();
        assert_eq!(keys, all.kvs.into_iter().map(|kv| kv.key).collect());
        assert_eq!(keys.len(), 8, "one for each, and the digits of 3: {keys:?}");

        client.lease_revoke(lease).await.unwrap();
        assert_eq!(store.num_keys().await.unwrap(), 0);
        assert!(!store.check(&[b"queue"]).await.unwrap());
        for error in [
            store.set(b"set", "1".into()).await.unwrap_err(),
            store.add(b"add", 1).await.unwrap_err(),
            store.append(b"append", "1".into()).await.unwrap_err(),
            store.queue_push(b"queue", "1".into()).await.unwrap_err(),
        ] {
            assert!(error.to_string().contains("requested lease not found"), "{error}");
        }
    })
    .await;
}

#[tokio::test]
async fn waiting_ends_when_the_last_key_comes() {
    on_each_server(async |endpoint| {
        let client = client([endpoint]).await;
        let store = store(&client);
        store.set(b"b", "there".into()).await.unwrap();
        // Next to it lies a key that was not requested.
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
        let [all, one] = waiting.map(|task| timeout(Duration::from_secs(15), task));
        assert_eq!(all.await.unwrap().unwrap().unwrap(), ["3", "there", "1", "3"]);
        assert_eq!(one.await.unwrap().unwrap().unwrap(), ["1"]);
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
        assert_eq!(
            error.to_string(),
            "wait timeout after 300.0ms: these keys were still missing: b, c"
        );
        assert!(matches!(error, StoreError::Timeout { .. }));
        let error = store.get(b"b").await.unwrap_err().to_string();
        assert_eq!(error, "wait timeout after 300.0ms: these keys were still missing: b");
        let error = store.queue_pop(b"q", true).await.unwrap_err().to_string();
        assert_eq!(error, "wait timeout after 300.0ms: these keys were still missing: q");
        assert!(begun.elapsed() >= SHORT * 3, "{:?}", begun.elapsed());
        let error = store.wait(&[b"b"], Duration::ZERO).await.unwrap_err().to_string();
        assert_eq!(error, "wait timeout after 0.0ns: these keys were still missing: b");
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
    for error in
        [store.get(b"a").await.unwrap_err(), store.queue_pop(b"a", true).await.unwrap_err()]
    {
        assert!(matches!(error, StoreError::Client(ClientError::Unavailable { .. })), "{error}");
        assert!(error.to_string().contains(&dead), "{error}");
    }
    // Both would take ten seconds if they did not look at their own time-out.
    assert!(begun.elapsed() < Duration::from_secs(15), "took {:?}", begun.elapsed());
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
        let largest = (1536 << 10) - 512 - 8 * "/job/1:x".len();
        store.set(b"x", vec![0; largest].into()).await.unwrap();
        store.append(b"y", vec![0; largest - large.len()].into()).await.unwrap();
        store.compare_set(b"w", b"", vec![0; largest].into()).await.unwrap();
        store.queue_push(b"x", vec![0; largest].into()).await.unwrap();
        let before = client.traffic();
        let too_large = Bytes::from(vec![0; largest + 1]);
        let refused = [
            store.set(b"x", too_large.clone()).await.unwrap_err(),
            store.multi_set(&[(b"x", too_large.clone())]).await.unwrap_err(),
            store.queue_push(b"x", too_large.clone()).await.unwrap_err(),
        ];
        assert_eq!(client.traffic(), before);
        let appended = store.append(b"x", "1".into()).await.unwrap_err();
        let swapped = store.compare_set(b"none", b"", too_large).await.unwrap_err();
        assert!(matches!(swapped, StoreError::TooLarge { .. }));
        for error in refused.into_iter().chain([appended]) {
            assert!(matches!(error, StoreError::TooLarge { limit: 1_572_864, .. }));
            let words = "the value of \"x\" has 1572289 bytes, and the store takes 1572864 at \
                         a time; split it up, or share the name of a file";
            assert_eq!(error.to_string(), words);
        }
        assert_eq!(store.get(b"x").await.unwrap().len(), largest);
    })
    .await;
}

#[tokio::test]
async fn a_server_that_takes_less_says_so() {
    let limit = ["--max-request-bytes", "1000"];
    let embedded = Embedded::start_with(false, &limit).await;
    let etcds =
        join_all(Version::all().into_iter().map(|version| Etcd::start_with(version, &limit)));
    let etcds = etcds.await;
    let endpoints = etcds.iter().map(Etcd::endpoint).chain([embedded.endpoint()]);
    for endpoint in endpoints {
        let store = store(&client([endpoint]).await);
        // Beyond the second, not even the connection takes it.
        for size in [2_000, 1_000_000] {
            let value = Bytes::from(vec![0; size]);
            for error in [
                store.set(b"a", value.clone()).await.unwrap_err().to_string(),
                store.append(b"a", value.clone()).await.unwrap_err().to_string(),
                store.queue_push(b"a", value).await.unwrap_err().to_string(),
            ] {
                let said = error.contains("too large") || error.contains("larger than max");
                assert!(error.contains("refused the txn request") && said, "{error}");
            }
        }
        store.set(b"a", "small".into()).await.unwrap();
    }
}

#[tokio::test]
async fn a_cancelled_wait_leaves_no_watch_behind() {
    for call in ["get", "wait", "pop"] {
        let server = Embedded::start_with(false, &["--max-watches", "2"]).await;
        let probe = store(&client([server.endpoint()]).await);
        let client = client([server.endpoint()]).await;
        let store = store(&client);
        let waiting = tokio::spawn(async move {
            match call {
                "get" => drop(store.get(b"a").await),
                "wait" => drop(store.wait(&[b"a"], Duration::MAX).await),
                _ => drop(store.queue_pop(b"a", true).await),
            }
        });
        // A read, the watch, another read.
        eventually("it waits", Duration::from_secs(15), async || client.traffic().messages == 3)
            .await;
        // There is room for one more watch, not for two.
        let refused = probe.wait(&[b"b", b"c"], SHORT).await.unwrap_err();
        assert!(matches!(refused, StoreError::Watch(WatchError::Refused { .. })), "{refused}");
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
        eventually("the watch is gone", Duration::from_secs(15), async || {
            matches!(
                probe.wait(&[b"b", b"c"], SHORT).await.unwrap_err(),
                StoreError::Timeout { .. }
            )
        })
        .await;
    }
}

#[tokio::test]
async fn any_bytes_are_a_name_and_a_long_list_comes_in_parts() {
    on_each_server(async |endpoint| {
        let client = client([endpoint]).await;
        let store = store(&client);
        let names: BTreeSet<Bytes> = (0..2_500_u32)
            .map(|number| Bytes::copy_from_slice(&number.to_le_bytes()))
            .chain(["", "=", "1:a=", "a", "a=", "a>", "a+00"].map(Bytes::from))
            .collect();
        let pairs: Vec<(&[u8], Bytes)> =
            names.iter().map(|name| (name.as_ref(), name.clone())).collect();
        store.multi_set(&pairs).await.unwrap();
        store.queue_push(b"queue", "1".into()).await.unwrap();
        store.add(b"a", 0).await.unwrap_err();
        let listed = store.list_keys().await.unwrap();
        assert_eq!(listed.len(), names.len());
        assert_eq!(BTreeSet::from_iter(listed), names);
        assert_eq!(store.num_keys().await.unwrap(), names.len() as u64);
        // A store on everything is a store too, and takes nothing else for its own.
        let everything = EtcdStore::new(client.clone(), "", 0, SHORT);
        assert_eq!(everything.list_keys().await.unwrap(), Vec::<Bytes>::new());
        everything.set(b"\xff", "".into()).await.unwrap();
        assert_eq!(everything.list_keys().await.unwrap(), [&b"\xff"[..]]);
    })
    .await;
}

#[tokio::test]
async fn what_goes_again_is_waited_for_again() {
    on_each_server(async |endpoint| {
        let client = client([endpoint]).await;
        let store = store(&client);
        let waiting = tokio::spawn({
            let store = store.clone();
            async move { store.multi_get(&[b"a", b"b"]).await }
        });
        sleep(SHORT).await;
        store.set(b"a", "gone".into()).await.unwrap();
        assert!(store.delete_key(b"a").await.unwrap());
        // Something in a queue is not a value.
        store.queue_push(b"a", "item".into()).await.unwrap();
        store.set(b"b", "1".into()).await.unwrap();
        sleep(SHORT).await;
        assert!(!waiting.is_finished(), "there is no a");
        assert_eq!(store.add(b"a", 5).await.unwrap(), 5);
        let found = timeout(Duration::from_secs(15), waiting).await.unwrap().unwrap();
        assert_eq!(found.unwrap(), ["5", "1"]);
    })
    .await;
}

#[tokio::test]
async fn a_clone_has_a_time_out_of_its_own() {
    let server = Embedded::memory().await;
    let store = store(&client([server.endpoint()]).await);
    let clone = store.try_clone().await.unwrap();
    clone.set_timeout(SHORT);
    assert_eq!((store.timeout(), clone.timeout()), (Duration::from_secs(20), SHORT));
    // A call that waits delays no other.
    let waiting = tokio::spawn({
        let clone = clone.clone();
        async move { clone.wait(&[b"a"], Duration::from_secs(20)).await }
    });
    clone.get(b"b").await.unwrap_err();
    store.set(b"a", "1".into()).await.unwrap();
    waiting.await.unwrap().unwrap();
    assert_eq!(clone.get(b"a").await.unwrap(), "1");
}
