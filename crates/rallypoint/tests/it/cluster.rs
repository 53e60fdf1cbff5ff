//! A cluster that keeps losing its leader.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rallypoint::client::{Client, ClientError, Watcher};
use rallypoint::core::kv::{KeyRange, Put, Revision, Watch};
use rallypoint::session::{Loss, Session};
use tokio::time::timeout;

use crate::client::client;
use crate::support::{EtcdCluster, Proxy, Version};

const LAST: &str = "history/last";

/// What became of each write, by the number it wrote.
#[derive(Default)]
struct Written {
    done: BTreeMap<u64, Revision>,
    unknown: Vec<u64>,
    not_done: Vec<u64>,
}

async fn write(client: Client, stop: Arc<AtomicBool>) -> Written {
    let mut written = Written::default();
    for number in 0.. {
        // Enough to tell something by, however slow the machine is.
        if stop.load(Ordering::SeqCst) && written.done.len() > 100 {
            break;
        }
        let key = format!("history/{}", number % 10);
        match client.put(Put::new(key, number.to_string())).await {
            Ok(result) => drop(written.done.insert(number, result.revision)),
            Err(ClientError::OutcomeUnknown { .. }) => written.unknown.push(number),
            Err(ClientError::Unavailable { .. }) => written.not_done.push(number),
            Err(error) => panic!("{error}"),
        }
    }
    while client.put(Put::new(LAST, "last")).await.is_err() {}
    written
}

/// Everything up to the first write to [`LAST`]: revision and value of each event.
async fn history(mut watcher: Watcher) -> Vec<(Revision, String)> {
    let mut told = Vec::new();
    loop {
        for event in watcher.next().await.unwrap().events {
            if event.kv.key == LAST {
                return told;
            }
            let value = String::from_utf8(event.kv.value.to_vec()).unwrap();
            told.push((event.kv.mod_revision, value));
        }
    }
}

async fn a_leader_that_keeps_dying(version: Version) {
    let mut cluster = EtcdCluster::start(version, 3).await;
    let endpoints = cluster.endpoints();
    let observer = client(endpoints.clone()).await;
    let watch = || Watch::new(KeyRange::prefix("history/"));

    let survivor = Session::open(&client(endpoints.clone()).await, Duration::from_secs(10)).await;
    let survivor = survivor.unwrap();
    let mut watching = Vec::new();
    let mut first = Revision::MAX;
    for _ in 0..3 {
        let watcher = client(endpoints.clone()).await.watch([watch()]).await.unwrap();
        first = first.min(watcher.revision() + 1);
        watching.push(tokio::spawn(history(watcher)));
    }
    let stop = Arc::new(AtomicBool::new(false));
    let writing = tokio::spawn(write(client(endpoints.clone()).await, stop.clone()));

    for round in 0..5 {
        let leader = cluster.leader_index().await;
        cluster.kill(leader);
        cluster.leader_index().await;
        cluster.restart(leader).await;
        assert!(!survivor.is_lost(), "round {round}");
        if round == 2 {
            cut_off(&cluster, &observer).await;
        }
    }
    stop.store(true, Ordering::SeqCst);
    let written = timeout(Duration::from_secs(60), writing).await.unwrap().unwrap();

    let replay = observer.watch([watch().from_revision(first)]).await.unwrap();
    let truth = timeout(Duration::from_secs(30), history(replay)).await.unwrap();
    for watcher in watching {
        let told = timeout(Duration::from_secs(30), watcher).await.unwrap().unwrap();
        assert!(told == truth, "{} events told of {}", told.len(), truth.len());
    }
    let mut times = BTreeMap::<u64, Vec<Revision>>::new();
    for (revision, value) in &truth {
        times.entry(value.parse().unwrap()).or_default().push(*revision);
    }
    for (number, revision) in &written.done {
        assert_eq!(times[number], [*revision], "{number} was acknowledged");
    }
    for number in &written.unknown {
        assert!(times.get(number).is_none_or(|times| times.len() == 1), "{number} was repeated");
    }
    for number in &written.not_done {
        assert!(!times.contains_key(number), "{number} was not to be executed");
    }
    assert!(!survivor.is_lost());
    survivor.close().await.unwrap();
}

/// A session behind a network that swallows everything ends by itself, and before the cluster ends it.
async fn cut_off(cluster: &EtcdCluster, observer: &Client) {
    const TTL: Duration = Duration::from_secs(4);
    let proxy = Proxy::start(&cluster.endpoints()[cluster.leader_index().await]).await;
    let session = Session::open(&client([proxy.endpoint()]).await, TTL).await.unwrap();
    assert!(timeout(TTL, session.lost()).await.is_err());
    proxy.hang();
    let cut = Instant::now();
    let loss = timeout(TTL * 2, session.lost()).await.unwrap();
    assert!(cut.elapsed() < TTL + Duration::from_millis(200), "after {:?}", cut.elapsed());
    assert!(matches!(loss, Loss::Expired { .. }), "{loss}");
    let left = observer.lease_time_to_live(session.lease(), false).await.unwrap();
    assert!(left.is_some(), "the cluster was quicker");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_and_sessions_survive_a_leader_that_keeps_dying_3_4() {
    timeout(Duration::from_secs(180), a_leader_that_keeps_dying(Version::V3_4)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_and_sessions_survive_a_leader_that_keeps_dying_3_5() {
    timeout(Duration::from_secs(180), a_leader_that_keeps_dying(Version::V3_5)).await.unwrap();
}
