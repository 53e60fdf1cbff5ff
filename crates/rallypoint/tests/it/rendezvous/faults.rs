//! Nodes that are cut off, stopped, or wrongly thought dead.

use std::time::{Duration, Instant};

use rallypoint::core::kv::{KeyRange, Watch};
use tokio::time::timeout;

use super::node::{Job, Node, PATIENCE};
use super::{Observer, group, on_each_server};
use crate::support::Proxy;

on_each_server!(
    a_member_that_stood_still_is_fenced_before_all_else,
    a_coordinator_that_stood_still_is_fenced_before_all_else,
    a_node_that_is_cut_off_is_fenced_in_time_and_comes_back,
    a_node_that_was_wrongly_suspected_is_in_the_next_group,
);

async fn stands_still(endpoint: &str, coordinator: bool) {
    let job = Job::new(endpoint, "2:3").with("--last-call", "1");
    let mut nodes = job.nodes(3);
    let before = group(&mut nodes, 0).await;
    let coordinating = Observer::new(endpoint).await.coordinator(&mut nodes).await;
    let stopped = if coordinator { coordinating } else { (coordinating + 1) % 3 };
    let mut stopped = nodes.remove(stopped);
    stopped.forget();
    stopped.pause();
    let without = group(&mut nodes, before[0].round).await;
    stopped.resume();
    let first = stopped.hear("anything", |event| Some(event.clone())).await;
    assert_eq!(first["event"], "fenced", "{:#?}", stopped.told());
    nodes.push(stopped);
    group(&mut nodes, without[0].round).await;
}

async fn a_member_that_stood_still_is_fenced_before_all_else(endpoint: String) {
    stands_still(&endpoint, false).await;
}

async fn a_coordinator_that_stood_still_is_fenced_before_all_else(endpoint: String) {
    stands_still(&endpoint, true).await;
}

async fn a_node_that_is_cut_off_is_fenced_in_time_and_comes_back(endpoint: String) {
    let job = Job::new(&endpoint, "2:3").with("--last-call", "1").with("--lease-ttl", "4");
    let proxy = Proxy::start(&endpoint).await;
    let mut nodes = job.nodes(2);
    nodes.push(job.with("--endpoint", proxy.endpoint()).node());
    let before = group(&mut nodes, 0).await;
    let mut behind = nodes.pop().unwrap();

    let observer = Observer::new(&endpoint).await;
    let key = KeyRange::key(observer.keys.node(&behind.id()));
    let mut watcher = observer.client.watch([Watch::new(key)]).await.unwrap();
    let gone = tokio::spawn(async move {
        timeout(PATIENCE, watcher.next()).await.unwrap().unwrap();
        Instant::now()
    });
    behind.forget();
    proxy.hang();
    let first = behind.hear("anything", |event| Some(event.clone())).await;
    let fenced = Instant::now();
    assert_eq!(first["event"], "fenced", "{first}");
    let gone = gone.await.unwrap();
    let early = gone.checked_duration_since(fenced);
    assert!(early.is_some(), "its place was free {:?} before it stopped", fenced - gone);

    let without = group(&mut nodes, before[0].round).await;
    proxy.heal();
    nodes.push(behind);
    group(&mut nodes, without[0].round).await;
}

async fn a_node_that_was_wrongly_suspected_is_in_the_next_group(endpoint: String) {
    // If anyone waited for the last call, the test would take as long.
    let job = Job::new(&endpoint, "2:3").with("--last-call", "30");
    let mut nodes = job.nodes(3);
    let before = group(&mut nodes, 0).await;
    for round in 0..3 {
        let last = nodes[0].places().last().unwrap().round;
        assert!(round > 0 || last == before[0].round);
        let (reporter, suspect) = (round, (round + 1) % 3);
        let suspect = nodes[suspect].id();
        let begun = Instant::now();
        nodes[reporter].command(&format!("suspect {suspect}"));
        group(&mut nodes, last).await;
        assert!(begun.elapsed() < Duration::from_secs(10), "after {:?}", begun.elapsed());
        // A second round may follow the first, if the suspect came late.
        settle(&mut nodes).await;
    }
}

/// Waits until no node has reported a change for a while.
async fn settle(nodes: &mut [Node]) {
    loop {
        nodes.iter_mut().for_each(Node::forget);
        tokio::time::sleep(Duration::from_millis(300)).await;
        if nodes.iter_mut().all(Node::is_quiet) {
            return;
        }
    }
}
