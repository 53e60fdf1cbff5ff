//! What every backend must do, and what only the one on etcd can get wrong.

use std::collections::BTreeSet;
use std::time::Duration;

use rallypoint::core::kv::{KeyRange, Put};
use rallypoint::rendezvous::dynamic::{EtcdRendezvousBackend, FencingToken, RendezvousBackend};
use rallypoint::store::Store;
use tokio::time::{Instant, sleep, timeout};

use super::ground::grounds;
use crate::client::client;
use crate::support::{Embedded, Etcd, Proxy, Version};

#[tokio::test]
async fn dynamic_every_backend_keeps_the_contract() {
    for ground in grounds().await {
        let backend = ground.backend("contract");
        let name = if ground.client.is_some() { "dynamic" } else { "memory" };
        assert_eq!(backend.name(), name);
        assert_eq!(backend.get_state().await.unwrap(), None);
        let early = FencingToken::new("1");
        assert_eq!(backend.set_state("x".into(), Some(&early)).await.unwrap(), None);

        let (state, first, set) = backend.set_state("one".into(), None).await.unwrap().unwrap();
        assert!(set && state == "one");
        assert_eq!(backend.get_state().await.unwrap(), Some(("one".into(), first.clone())));
        let again = backend.set_state("two".into(), None).await.unwrap();
        assert_eq!(again, Some(("one".into(), first.clone(), false)), "a token is needed");

        let other = ground.backend("contract");
        let (state, second, set) =
            other.set_state("two".into(), Some(&first)).await.unwrap().unwrap();
        assert!(set && state == "two" && second != first);
        let unusable = ["", "0", "-1", "x", "99999999999999999999"].map(FencingToken::new);
        for wrong in unusable.iter().chain([&first]) {
            let refused = backend.set_state("three".into(), Some(wrong)).await.unwrap();
            assert_eq!(refused, Some(("two".into(), second.clone(), false)), "token {wrong:?}");
        }
        assert_eq!(ground.backend("another").get_state().await.unwrap(), None);

        // An old token is told at once, the present one when there is something to tell.
        let soon = Duration::from_secs(10);
        timeout(soon, backend.changed(Some(&first))).await.unwrap();
        timeout(soon, backend.changed(None)).await.unwrap();
        let silent = timeout(Duration::from_millis(300), backend.changed(Some(&second))).await;
        assert!(silent.is_err(), "nothing has changed on {}", ground.name);
        let mut waiting = Box::pin(backend.changed(Some(&second)));
        assert!(timeout(Duration::from_millis(10), &mut waiting).await.is_err());
        other.set_state("three".into(), Some(&second)).await.unwrap();
        timeout(soon, waiting).await.unwrap();
    }
}

#[tokio::test]
async fn dynamic_a_state_on_etcd_has_one_lease_and_expires_without_writes() {
    let embedded = Embedded::memory().await;
    let etcd = Etcd::start(Version::V3_5).await;
    for endpoint in [embedded.endpoint(), etcd.endpoint()] {
        let client = client([endpoint]).await;
        let ttl = Some(Duration::from_secs(2));
        let node = || EtcdRendezvousBackend::new(client.clone(), "r", Some("/p/"), ttl).unwrap();
        let (first, second) = (node(), node());
        let written = |result: Option<(bytes::Bytes, FencingToken, bool)>| {
            let (_, token, set) = result.unwrap();
            assert!(set);
            token
        };
        let mut token = written(first.set_state("0".into(), None).await.unwrap());
        // Longer than the time to live, by writes of several nodes.
        let begun = Instant::now();
        for count in 0.. {
            let backend = if count % 2 == 0 { &second } else { &first };
            let state = format!("{count}").into();
            token = written(backend.set_state(state, Some(&token)).await.unwrap());
            if begun.elapsed() > Duration::from_secs(5) {
                break;
            }
            sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(client.leases().await.unwrap().len(), 1, "all writers share one");
        let found = client.range(KeyRange::key("/p/r")).await.unwrap();
        assert_eq!(found.kvs[0].lease, first.lease());
        client.put(Put::new("of the store", "").on_lease(second.lease())).await.unwrap();

        // Someone ends the lease, and the state with it: it can be made again at once.
        client.lease_revoke(found.kvs[0].lease).await.unwrap();
        assert_eq!(first.set_state("x".into(), Some(&token)).await.unwrap(), None);
        let rest = client.range(KeyRange::key("of the store")).await.unwrap();
        assert_eq!(rest.count, 0, "D10: nothing of a run outlives its state");
        written(first.set_state("new".into(), None).await.unwrap());
        let begun = Instant::now();
        while first.get_state().await.unwrap().is_some() {
            assert!(begun.elapsed() < Duration::from_secs(20), "it should have lapsed");
            sleep(Duration::from_millis(50)).await;
        }
        written(second.set_state("newer".into(), None).await.unwrap());
    }
}

#[tokio::test]
async fn dynamic_a_store_that_ends_with_the_state_may_be_used_before_it() {
    let embedded = Embedded::memory().await;
    let client = client([embedded.endpoint()]).await;
    let backend = EtcdRendezvousBackend::create(client.clone(), "early").unwrap();
    let store = backend.store("/store/", Duration::from_secs(60)).await.unwrap();
    store.set(b"key", "value".into()).await.unwrap();
    backend.set_state("state".into(), None).await.unwrap();
    assert_eq!(client.leases().await.unwrap(), [backend.lease()]);
    client.lease_revoke(backend.lease()).await.unwrap();
    assert_eq!(backend.get_state().await.unwrap(), None);
    assert!(!store.check(&[b"key"]).await.unwrap());
}

#[tokio::test]
async fn dynamic_a_write_whose_answer_was_lost_is_known_by_reading_back() {
    const WRITES: usize = 400;
    let etcd = Etcd::start(Version::V3_5).await;
    let proxy = Proxy::start(etcd.endpoint()).await;
    let backend = EtcdRendezvousBackend::create(client([proxy.endpoint()]).await, "lost").unwrap();
    let cutting = async {
        loop {
            sleep(Duration::from_millis(7)).await;
            proxy.sever();
        }
    };
    let writing = async {
        let (mut token, mut written, mut own) = (None, 0, BTreeSet::new());
        for count in 0..WRITES {
            let state = format!("{count}");
            let result = backend.set_state(state.clone().into(), token.as_ref()).await.unwrap();
            own.insert(state.clone());
            let Some((found, now, set)) = result else { continue };
            let found = String::from_utf8(found.to_vec()).unwrap();
            // No other node writes: what is there is ours, and a write that was on its way when we read
            // back may have come about later.
            assert!(own.contains(&found), "{found}");
            assert_eq!(set, found == state, "what is there is what is reported");
            written += i64::from(set || token.as_ref() != Some(&now));
            token = Some(now);
        }
        (token.unwrap(), written)
    };
    let (token, written) = tokio::select! {
        never = cutting => never,
        written = writing => written,
    };
    let direct = client([etcd.endpoint()]).await;
    let found = direct.range(KeyRange::key("/torch/elastic/rendezvous/lost")).await.unwrap();
    assert_eq!(found.kvs[0].mod_revision.to_string(), token.as_str());
    assert_eq!(found.kvs[0].version, written, "each write that was reported, once");
}
