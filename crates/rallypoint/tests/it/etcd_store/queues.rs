//! Queues: each item once, in order, however many push and pop.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use rallypoint::client::ClientError;
use rallypoint::core::kv::Put;
use rallypoint::store::{Store, StoreError};
use tokio::time::{sleep, timeout};

use super::counters::several;
use super::{SHORT, on_each_server, store};
use crate::client::client;
use crate::support::{Etcd, Proxy, Version};

const HANDS: usize = 6;
const EACH: usize = 20;

#[tokio::test]
async fn each_item_is_handed_out_once_and_in_order() {
    on_each_server(async |endpoint| {
        let producers = several(&endpoint, HANDS).await;
        let consumers = several(&endpoint, HANDS).await;
        let producing = producers.iter().enumerate().map(|(hand, (_, store))| async move {
            for number in 0..EACH {
                store.queue_push(b"q", format!("{hand} {number}").into()).await.unwrap();
            }
        });
        let consuming = consumers.iter().map(|(_, store)| async move {
            let mut last: BTreeMap<usize, usize> = BTreeMap::new();
            let mut items = Vec::new();
            for _ in 0..EACH {
                let item = store.queue_pop(b"q", true).await.unwrap();
                let item = String::from_utf8(item.to_vec()).unwrap();
                let (hand, number) = item.split_once(' ').unwrap();
                let (hand, number) = (hand.parse().unwrap(), number.parse().unwrap());
                let earlier = last.insert(hand, number);
                assert!(earlier.is_none_or(|earlier| earlier < number), "{item} after {earlier:?}");
                items.push((hand, number));
            }
            items
        });
        let (_, popped) = tokio::join!(join_all(producing), join_all(consuming));
        let mut items: Vec<(usize, usize)> = popped.into_iter().flatten().collect();
        items.sort_unstable();
        let all = (0..HANDS).flat_map(|hand| (0..EACH).map(move |number| (hand, number)));
        assert_eq!(items, all.collect::<Vec<_>>());
        assert_eq!(producers[0].1.queue_len(b"q").await.unwrap(), 0);
        assert!(!producers[0].1.check(&[b"q"]).await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn many_who_pop_at_once_ask_little() {
    on_each_server(async |endpoint| {
        let stores = several(&endpoint, 4).await;
        for number in 0..64 {
            stores[0].1.queue_push(b"q", number.to_string().into()).await.unwrap();
        }
        assert_eq!(stores[0].1.queue_len(b"q").await.unwrap(), 64);
        let requests = || stores.iter().map(|(client, _)| client.traffic().requests).sum::<u64>();
        let before = requests();
        let pops = (0..64).map(|hand| stores[hand % 4].1.queue_pop(b"q", false));
        let mut items: Vec<i64> = join_all(pops)
            .await
            .into_iter()
            .map(|item| String::from_utf8(item.unwrap().to_vec()).unwrap().parse().unwrap())
            .collect();
        items.sort_unstable();
        assert_eq!(items, (0..64).collect::<Vec<_>>());
        // A pop that fails has seen sixteen others succeed: a read, at most three failures, a success.
        let asked = requests() - before;
        assert!(asked <= 64 * 5, "64 pops took {asked} requests");
    })
    .await;
}

#[tokio::test]
async fn who_waits_for_an_item_gets_one_or_hears_that_there_is_none() {
    on_each_server(async |endpoint| {
        let client = client([endpoint]).await;
        let store = store(&client);
        let error = store.queue_pop(b"q", false).await.unwrap_err();
        assert!(matches!(error, StoreError::QueueEmpty { .. }));
        assert_eq!(error.to_string(), "the queue \"q\" is empty");
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let store = store.clone();
                tokio::spawn(async move { store.queue_pop(b"q", true).await })
            })
            .collect();
        sleep(SHORT).await;
        // A value is no item.
        store.set(b"q", "value".into()).await.unwrap();
        for item in ["a", "b", "c"] {
            store.queue_push(b"q", item.into()).await.unwrap();
        }
        let mut items = Vec::new();
        for popped in waiting {
            let popped = timeout(Duration::from_secs(15), popped).await.unwrap().unwrap();
            items.push(popped.unwrap());
        }
        items.sort_unstable();
        assert_eq!(items, ["a", "b", "c"]);
        store.set_timeout(SHORT);
        let error = store.queue_pop(b"q", true).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "wait timeout after 300.0ms: these keys were still missing: q"
        );
        assert_eq!(store.get(b"q").await.unwrap(), "value");
    })
    .await;
}

#[tokio::test]
async fn who_gave_up_takes_nothing() {
    on_each_server(async |endpoint| {
        let client = client([endpoint]).await;
        let store = store(&client);
        let waiting = tokio::spawn({
            let store = store.clone();
            async move { store.queue_pop(b"q", true).await }
        });
        sleep(SHORT).await;
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
        store.queue_push(b"q", "item".into()).await.unwrap();
        assert_eq!(store.queue_len(b"q").await.unwrap(), 1);
        assert_eq!(store.queue_pop(b"q", true).await.unwrap(), "item");
    })
    .await;
}

#[tokio::test]
async fn waiting_for_an_item_survives_a_lost_connection_and_a_forgotten_history() {
    let etcd = Etcd::start(Version::V3_5).await;
    let direct = client([etcd.endpoint()]).await;
    let proxy = Proxy::start(etcd.endpoint()).await;
    let behind = store(&client([proxy.endpoint()]).await);
    let waiting = tokio::spawn(async move { behind.queue_pop(b"q", true).await });
    sleep(SHORT).await;
    proxy.refuse();
    store(&direct).queue_push(b"q", "item".into()).await.unwrap();
    let last = direct.put(Put::new("other", "")).await.unwrap().revision;
    direct.compact(last, true).await.unwrap();
    proxy.heal();
    let found = timeout(Duration::from_secs(15), waiting).await.unwrap().unwrap();
    assert_eq!(found.unwrap(), "item");
}

#[tokio::test]
async fn an_item_whose_answer_is_lost_is_an_error_and_no_item_comes_twice() {
    on_each_server(async |endpoint| {
        let direct = store(&client([endpoint.clone()]).await);
        for number in 0..100 {
            direct.queue_push(b"q", number.to_string().into()).await.unwrap();
        }
        let proxy = Proxy::start(endpoint).await;
        let behind = several(&proxy.endpoint(), 3).await;
        let popping = join_all(behind.iter().map(|(_, store)| async {
            let (mut items, mut unknown) = (Vec::new(), 0);
            loop {
                match store.queue_pop(b"q", false).await {
                    Ok(item) => items.push(item),
                    Err(StoreError::QueueEmpty { .. }) => return (items, unknown),
                    Err(StoreError::Client(ClientError::OutcomeUnknown { .. })) => unknown += 1,
                    // Nothing was executed.
                    Err(StoreError::Client(ClientError::Unavailable { .. })) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }));
        let severing = async {
            loop {
                sleep(Duration::from_millis(fastrand::u64(1..20))).await;
                proxy.sever();
            }
        };
        let popped = tokio::select! {
            popped = popping => popped,
            () = severing => unreachable!("it never ends"),
        };
        let unknown: usize = popped.iter().map(|(_, unknown)| unknown).sum();
        let items: Vec<Bytes> = popped.into_iter().flat_map(|(items, _)| items).collect();
        let distinct: BTreeSet<&Bytes> = items.iter().collect();
        assert_eq!(distinct.len(), items.len(), "handed out twice: {items:?}");
        let lost = 100 - items.len();
        assert!(lost <= unknown, "{lost} items are lost, and {unknown} calls do not know");
    })
    .await;
}
