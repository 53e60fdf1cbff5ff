//! The client's calls on real etcd: what they mean, which endpoint they go to, what a failure says.

use std::time::{Duration, Instant};

use rallypoint::client::{Client, ClientError, ClientOptions};
use rallypoint::core::kv::{Compare, KeyRange, KvError, Op, OpResult, Put, Range, Txn};

use crate::support::tools::free_port;
use crate::support::{Etcd, Proxy, Version};

/// A client of these endpoints that gives up soon enough for a test.
pub(crate) async fn client<E: Into<String>>(endpoints: impl IntoIterator<Item = E>) -> Client {
    let options = ClientOptions::new(endpoints).with(|options| {
        options.timeout = Duration::from_secs(10);
        options.attempt_timeout = Duration::from_secs(1);
    });
    Client::connect(options).await.unwrap()
}

#[tokio::test]
async fn every_call_means_what_it_says() {
    for version in Version::all() {
        let etcd = Etcd::start(version).await;
        let client = client([etcd.endpoint()]).await;

        assert_eq!(client.put(Put::new("a", "1")).await.unwrap().revision, 2);
        let put = Put { prev_kv: true, ..Put::new("a", "2") };
        assert_eq!(client.put(put).await.unwrap().prev_kv.unwrap().value, "1");
        let read = client.range(KeyRange::prefix("a")).await.unwrap();
        assert_eq!((read.revision, read.count, &read.kvs[0].value[..]), (3, 1, &b"2"[..]));

        let txn = Txn::when([Compare::absent("b")])
            .then([Op::Put(Put::new("b", "1"))])
            .otherwise([Op::Range(KeyRange::key("b").into())]);
        let made = client.txn(txn.clone()).await.unwrap();
        assert!(made.succeeded && made.revision == 4);
        let found = client.txn(txn).await.unwrap();
        assert!(!found.succeeded);
        assert!(matches!(&found.results[0], OpResult::Range(range) if range.kvs.len() == 1));
        assert_eq!(client.delete(KeyRange::key("b")).await.unwrap().deleted, 1);

        assert_eq!(client.compact(4, true).await.unwrap(), 5);
        let old = Range { revision: 2, ..KeyRange::key("a").into() };
        let refused = client.range(old).await.unwrap_err();
        assert!(matches!(refused, ClientError::Kv(KvError::Compacted)), "{refused}");
        let refused = client.put(Put::new("", "")).await.unwrap_err();
        assert!(matches!(refused, ClientError::Kv(KvError::KeyNotProvided)), "{refused}");

        let lease = client.lease_grant(60, None).await.unwrap();
        assert!(lease.id > 0 && lease.ttl == 60);
        let other = client.lease_grant(1, Some(7)).await.unwrap();
        assert!(other.id == 7 && other.ttl >= 2, "{other:?}");
        let taken = client.lease_grant(60, Some(7)).await.unwrap_err();
        assert!(matches!(taken, ClientError::Kv(KvError::LeaseExists)), "{taken}");
        client.put(Put::new("c", "").on_lease(lease.id)).await.unwrap();
        let status = client.lease_time_to_live(lease.id, true).await.unwrap().unwrap();
        assert_eq!((status.granted_ttl, &status.keys[..]), (60, &["c".into()][..]));
        assert_eq!(client.leases().await.unwrap().len(), 2);
        client.lease_revoke(lease.id).await.unwrap();
        assert_eq!(client.lease_time_to_live(lease.id, false).await.unwrap(), None);
        assert_eq!(client.range(KeyRange::key("c")).await.unwrap().count, 0);

        let status = client.status().await.unwrap();
        assert!(status.version.starts_with(version.name()), "{status:?}");
        let members = client.members().await.unwrap();
        assert_eq!(members[0].client_urls, [etcd.endpoint()]);
        assert_eq!(members[0].id, status.leader);
    }
}

#[tokio::test]
async fn a_dead_endpoint_costs_nothing_but_an_attempt() {
    let etcd = Etcd::start(Version::V3_5).await;
    // Often enough that some of them begin at the dead one.
    for _ in 0..8 {
        let dead = format!("127.0.0.1:{}", free_port());
        let client = client([dead, etcd.address()]).await;
        let begun = Instant::now();
        client.put(Put::new("a", "")).await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(5), "took {:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn a_read_leaves_an_endpoint_that_hangs() {
    let etcd = Etcd::start(Version::V3_5).await;
    let proxies = [Proxy::start(etcd.endpoint()).await, Proxy::start(etcd.endpoint()).await];
    let client = client(proxies.iter().map(Proxy::endpoint)).await;
    client.put(Put::new("a", "1")).await.unwrap();
    for hanging in &proxies {
        hanging.hang();
        let begun = Instant::now();
        let read = client.range(KeyRange::key("a")).await.unwrap();
        assert_eq!(read.kvs[0].value, "1");
        assert!(begun.elapsed() < Duration::from_secs(8), "took {:?}", begun.elapsed());
        hanging.heal();
    }
}

#[tokio::test]
async fn a_write_that_was_not_answered_is_unknown_and_not_repeated() {
    let etcd = Etcd::start(Version::V3_5).await;
    let proxy = Proxy::start(etcd.endpoint()).await;
    let client = client([proxy.endpoint()]).await.with_timeout(Duration::from_secs(1));
    client.put(Put::new("a", "1")).await.unwrap();
    proxy.hang();
    let unknown = client.put(Put::new("a", "2")).await.unwrap_err();
    assert!(matches!(unknown, ClientError::OutcomeUnknown { .. }), "{unknown}");
    assert!(unknown.to_string().contains(&proxy.endpoint()), "{unknown}");
    proxy.heal();
    // On a new connection: the one that swallowed a write stays silent.
    let after = client.put(Put { prev_kv: true, ..Put::new("a", "3") }).await.unwrap();
    assert_eq!(after.prev_kv.unwrap().value, "1");
    // A read is repeated until the time-out, and then known to have done nothing.
    proxy.hang();
    let nothing = client.range(KeyRange::key("a")).await.unwrap_err();
    assert!(matches!(nothing, ClientError::Unavailable { .. }), "{nothing}");
}

#[tokio::test]
async fn a_write_waits_for_a_server_that_is_not_there_yet() {
    let mut etcd = Etcd::start(Version::V3_5).await;
    let client = client([etcd.endpoint()]).await;
    etcd.kill();
    let put = tokio::spawn({
        let client = client.clone();
        async move { client.put(Put::new("a", "1")).await }
    });
    etcd.restart().await;
    assert_eq!(put.await.unwrap().unwrap().revision, 2);
}

#[tokio::test]
async fn when_no_endpoint_answers_the_error_names_endpoints_and_attempts() {
    let dead = format!("http://127.0.0.1:{}", free_port());
    let client = client([dead.as_str()]).await.with_timeout(Duration::from_millis(500));
    let begun = Instant::now();
    for error in [
        client.put(Put::new("a", "1")).await.unwrap_err(),
        client.range(KeyRange::all()).await.unwrap_err(),
    ] {
        let text = error.to_string();
        assert!(text.contains(&dead) && text.contains("refused"), "{text}");
        assert!(matches!(error, ClientError::Unavailable { attempts: 2.., .. }), "{text}");
    }
    assert!(begun.elapsed() < Duration::from_secs(8));
}

#[tokio::test]
async fn a_client_holds_one_connection() {
    let etcd = Etcd::start(Version::V3_5).await;
    let proxies = [Proxy::start(etcd.endpoint()).await, Proxy::start(etcd.endpoint()).await];
    let client = client(proxies.iter().map(Proxy::endpoint)).await;
    let calls = (0..50).map(|_| client.range(KeyRange::all()));
    for call in futures_util::future::join_all(calls).await {
        call.unwrap();
    }
    assert_eq!(proxies[0].connections() + proxies[1].connections(), 1);
}
