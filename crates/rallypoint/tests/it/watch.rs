//! Watches on real etcd: exactly once, in order, whatever happens to the connection.

use std::time::{Duration, Instant};

use rallypoint::client::{Client, WatchBatch, WatchError, Watcher};
use rallypoint::core::kv::{EventKind, KeyRange, Put, Revision, Watch};
use tokio::time::timeout;

use crate::client::client;
use crate::support::{Etcd, Proxy, Version};

/// The next batch, which must come soon.
async fn next(watcher: &mut Watcher) -> Result<WatchBatch, WatchError> {
    timeout(Duration::from_secs(20), watcher.next()).await.expect("a batch within 20 s")
}

async fn put(client: &Client, key: &str, value: &str) -> Revision {
    client.put(Put::new(key.to_owned(), value.to_owned())).await.unwrap().revision
}

#[tokio::test]
async fn a_watch_tells_everything_that_is_written_after_it_was_made() {
    for version in Version::all() {
        let etcd = Etcd::start(version).await;
        let client = client([etcd.endpoint()]).await;
        put(&client, "a/0", "old").await;
        let watches = [
            Watch::new(KeyRange::prefix("a/")),
            Watch { prev_kv: true, no_put: true, ..Watch::new(KeyRange::all()) },
            Watch::new(KeyRange::prefix("a/")).from_revision(2),
        ];
        let mut watcher = client.watch(watches).await.unwrap();
        assert_eq!(watcher.revision(), 2);
        put(&client, "a/1", "new").await;
        client.delete(KeyRange::key("a/1")).await.unwrap();

        let mut told = [Vec::new(), Vec::new(), Vec::new()];
        while told.iter().map(Vec::len).sum::<usize>() < 6 {
            let batch = next(&mut watcher).await.unwrap();
            for event in batch.events {
                assert!(event.kv.mod_revision <= batch.revision);
                told[batch.watch].push((event.kind, event.kv.mod_revision, event.prev_kv));
            }
        }
        assert_eq!(told[0], [(EventKind::Put, 3, None), (EventKind::Delete, 4, None)]);
        assert_eq!(told[1][0].2.as_ref().unwrap().value, "new");
        assert_eq!(told[2].iter().map(|event| event.1).collect::<Vec<_>>(), [2, 3, 4]);

        watcher.progress();
        for watch in 0..3 {
            let batch = next(&mut watcher).await.unwrap();
            assert_eq!(batch, WatchBatch { watch, revision: 4, events: Vec::new() });
        }
    }
}

#[tokio::test]
async fn nothing_is_lost_or_told_twice_over_lost_connections() {
    const WRITES: usize = 400;
    for version in Version::all() {
        let etcd = Etcd::start(version).await;
        let writer = client([etcd.endpoint()]).await;
        let proxy = Proxy::start(etcd.endpoint()).await;
        let reader = client([proxy.endpoint()]).await;
        // One that sees every revision, so that none can be skipped unseen, and one that sees half.
        let watches = [Watch::new(KeyRange::all()), Watch::new(KeyRange::prefix("b/"))];
        let mut watcher = reader.watch(watches).await.unwrap();
        let writing = tokio::spawn(async move {
            for count in 0..WRITES {
                let key = if count % 2 == 0 { "a/" } else { "b/" };
                put(&writer, &format!("{key}{}", count % 7), "").await;
                if count % 40 == 0 {
                    proxy.sever();
                }
            }
            proxy
        });
        let mut told = [Vec::new(), Vec::new()];
        let begun = Instant::now();
        while told[0].len() + told[1].len() < WRITES + WRITES / 2 {
            assert!(begun.elapsed() < Duration::from_secs(30), "only {told:?}");
            // Asked in short intervals, which must cost nothing either.
            let Ok(batch) = timeout(Duration::from_millis(3), watcher.next()).await else {
                continue;
            };
            let batch = batch.unwrap();
            told[batch.watch].extend(batch.events.iter().map(|event| event.kv.mod_revision));
        }
        let _proxy = writing.await.unwrap();
        let expect = |first, step| (first..WRITES as i64 + 2).step_by(step).collect::<Vec<_>>();
        assert_eq!(told, [expect(2, 1), expect(3, 2)]);
    }
}

#[tokio::test]
async fn a_watch_leaves_an_endpoint_that_hangs() {
    let etcd = Etcd::start(Version::V3_5).await;
    let proxies = [Proxy::start(etcd.endpoint()).await, Proxy::start(etcd.endpoint()).await];
    let options = rallypoint::client::ClientOptions::new(proxies.iter().map(Proxy::endpoint)).with(
        |options| {
            options.keep_alive_interval = Duration::from_secs(5);
            options.keep_alive_timeout = Duration::from_secs(1);
        },
    );
    let reader = Client::connect(options).await.unwrap();
    let mut watcher = reader.watch([Watch::new(KeyRange::all())]).await.unwrap();
    let used = proxies.iter().find(|proxy| proxy.connections() > 0).unwrap();
    used.hang();
    let writer = client([etcd.endpoint()]).await;
    let revision = put(&writer, "a", "").await;
    // Noticed by the ping that is not answered; nothing else would ever come.
    let batch = next(&mut watcher).await.unwrap();
    assert_eq!((batch.revision, batch.events.len()), (revision, 1));
}

#[tokio::test]
async fn compaction_is_reported_at_the_start_and_on_resuming() {
    for version in Version::all() {
        let etcd = Etcd::start(version).await;
        let writer = client([etcd.endpoint()]).await;
        for _ in 0..5 {
            put(&writer, "a", "").await;
        }
        writer.compact(5, true).await.unwrap();
        let early = Watch::new(KeyRange::key("a")).from_revision(3);
        let mut watcher = writer.watch([early]).await.unwrap();
        let error = next(&mut watcher).await.unwrap_err();
        assert!(
            matches!(error, WatchError::Compacted { watch: 0, wanted: 3, compact_revision: 5 }),
            "{error}"
        );
        assert!(matches!(next(&mut watcher).await, Err(WatchError::Ended)));

        let proxy = Proxy::start(etcd.endpoint()).await;
        let reader = client([proxy.endpoint()]).await;
        let mut watcher = reader.watch([Watch::new(KeyRange::key("a"))]).await.unwrap();
        proxy.refuse();
        for _ in 0..3 {
            put(&writer, "a", "").await;
        }
        writer.compact(9, true).await.unwrap();
        proxy.heal();
        let error = next(&mut watcher).await.unwrap_err();
        assert!(
            matches!(error, WatchError::Compacted { wanted: 7, compact_revision: 9, .. }),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_watch_that_the_server_does_not_want_is_refused_with_its_reason() {
    let etcd = Etcd::start(Version::V3_5).await;
    let client = client([etcd.endpoint()]).await;
    let empty = Watch::new(KeyRange::Span("b".into(), "a".into()));
    let watches = [Watch::new(KeyRange::all()), empty];
    let error = client.watch(watches).await.unwrap_err();
    assert!(matches!(error, WatchError::Refused { watch: 1, .. }), "{error}");
    assert!(error.to_string().contains("range is empty"), "{error}");
    let none = client.watch([]).await.unwrap_err();
    assert!(none.to_string().contains("at least one"), "{none}");
}
