//! The same client on our own server: nothing but the endpoint changes.

use std::time::{Duration, Instant};

use rallypoint::client::WatchError;
use rallypoint::core::kv::{Compare, KeyRange, Op, Put, Txn, Watch};
use rallypoint::session::{Loss, Session};
use tokio::time::timeout;

use crate::client::client;
use crate::support::{Embedded, Proxy};

#[tokio::test]
async fn calls_watches_and_sessions_work_on_our_own_server() {
    let server = Embedded::memory().await;
    let direct = client([server.endpoint()]).await;
    let proxy = Proxy::start(server.endpoint()).await;
    let behind = client([proxy.endpoint()]).await;

    let mut watcher = behind.watch([Watch::new(KeyRange::all())]).await.unwrap();
    assert_eq!(watcher.revision(), 1);
    let txn = Txn::when([Compare::absent("a")]).then([Op::Put(Put::new("a", "1"))]);
    assert!(direct.txn(txn.clone()).await.unwrap().succeeded);
    assert!(!direct.txn(txn).await.unwrap().succeeded);
    for count in 0..100 {
        direct.put(Put::new("b", count.to_string())).await.unwrap();
        if count % 20 == 0 {
            proxy.sever();
        }
    }
    let mut told = Vec::new();
    while told.len() < 101 {
        let batch = timeout(Duration::from_secs(10), watcher.next()).await.unwrap().unwrap();
        told.extend(batch.events.iter().map(|event| event.kv.mod_revision));
    }
    assert_eq!(told, (2..=102).collect::<Vec<_>>());
    watcher.progress();
    let progress = timeout(Duration::from_secs(5), watcher.next()).await.unwrap().unwrap();
    assert_eq!((progress.revision, progress.events.len()), (102, 0));

    direct.compact(50, true).await.unwrap();
    let early = Watch::new(KeyRange::all()).from_revision(10);
    let mut early = direct.watch([early]).await.unwrap();
    let error = timeout(Duration::from_secs(5), early.next()).await.unwrap().unwrap_err();
    assert!(matches!(error, WatchError::Compacted { compact_revision: 50, .. }), "{error}");

    let session = Session::open(&behind, Duration::from_secs(2)).await.unwrap();
    direct.put(Put::new("me", "").on_lease(session.lease())).await.unwrap();
    assert!(timeout(Duration::from_secs(4), session.lost()).await.is_err());
    proxy.hang();
    let cut = Instant::now();
    let loss = timeout(Duration::from_secs(5), session.lost()).await.unwrap();
    assert!(matches!(loss, Loss::Expired { .. }), "{loss}");
    assert!(cut.elapsed() < session.ttl() + Duration::from_millis(200), "{:?}", cut.elapsed());
    assert_eq!(direct.range(KeyRange::key("me")).await.unwrap().count, 1);
}

#[tokio::test]
async fn a_watch_goes_on_after_a_restart_that_kept_the_data() {
    let mut server = Embedded::disk().await;
    let client = client([server.endpoint()]).await;
    let session = Session::open(&client, Duration::from_secs(5)).await.unwrap();
    let mut watcher = client.watch([Watch::new(KeyRange::all())]).await.unwrap();
    client.put(Put::new("a", "1")).await.unwrap();
    server.restart().await;
    while client.put(Put::new("a", "2")).await.is_err() {}
    let mut values = Vec::new();
    while values.last().is_none_or(|value| value != "2") {
        let batch = timeout(Duration::from_secs(10), watcher.next()).await.unwrap().unwrap();
        values.extend(batch.events.into_iter().map(|event| event.kv.value));
    }
    assert_eq!(values[..2], ["1", "2"]);
    assert!(!session.is_lost());
    session.close().await.unwrap();
}

#[tokio::test]
async fn a_watch_says_so_when_a_restart_lost_the_data() {
    let mut server = Embedded::memory().await;
    let client = client([server.endpoint()]).await;
    let mut watcher = client.watch([Watch::new(KeyRange::all())]).await.unwrap();
    server.restart().await;
    let error = timeout(Duration::from_secs(10), watcher.next()).await.unwrap().unwrap_err();
    assert!(matches!(error, WatchError::ClusterChanged { .. }), "{error}");
}
