//! The coordinator of a round is killed in each of its phases. The next group forms without it.

use rallypoint::core::rendezvous::documents::Status;

use super::node::{Job, Node};
use super::{Observer, group, on_each_server, on_old_etcd};

on_each_server!(
    killed_before_there_are_enough_nodes,
    killed_in_the_last_call,
    killed_while_the_nodes_confirm,
    killed_when_the_group_runs,
);

on_old_etcd!(killed_while_the_nodes_confirm, killed_when_the_group_runs);

/// A first node, which coordinates, and a second one that has joined its round.
async fn two(job: &Job, observer: &Observer) -> Vec<Node> {
    let first = job.node();
    observer.joined(1, 1).await;
    let second = job.node();
    observer.joined(1, 2).await;
    vec![first, second]
}

async fn killed_before_there_are_enough_nodes(endpoint: String) {
    let job = Job::new(&endpoint, "3:4").with("--last-call", "1");
    let mut nodes = two(&job, &Observer::new(&endpoint).await).await;
    nodes[0].waits_for("2 of 3 nodes").await;
    nodes.remove(0).kill();
    nodes.extend(job.nodes(2));
    let places = group(&mut nodes, 1).await;
    assert_eq!(nodes[0].places().len(), 1, "no group with a dead node: {places:#?}");
}

async fn killed_in_the_last_call(endpoint: String) {
    let job = Job::new(&endpoint, "2:4").with("--last-call", "4");
    let mut nodes = two(&job, &Observer::new(&endpoint).await).await;
    nodes[0].waits_for("of last call left").await;
    nodes.remove(0).kill();
    nodes.push(job.node());
    group(&mut nodes, 1).await;
}

async fn killed_while_the_nodes_confirm(endpoint: String) {
    // The leases outlive the start of a process, so that no other node is lost.
    let job = Job::new(&endpoint, "2:3").with("--last-call", "5").with("--lease-ttl", "4");
    let observer = Observer::new(&endpoint).await;
    let mut nodes = two(&job, &observer).await;
    // It has joined, but cannot confirm; so the round stays frozen.
    nodes[1].pause();
    nodes.push(job.node());
    let frozen = observer.until("frozen", |active| active.status == Status::Frozen).await;
    assert_eq!((frozen.round, frozen.world), (1, 3));
    assert_eq!(observer.coordinator(&mut nodes[..1]).await, 0);
    nodes.remove(0).kill();
    nodes[0].resume();
    let places = group(&mut nodes, 1).await;
    assert!(places[0].round > 1, "round 1 never had all of its nodes");
}

async fn killed_when_the_group_runs(endpoint: String) {
    let job = Job::new(&endpoint, "2:3").with("--last-call", "1");
    let mut nodes = job.nodes(3);
    let before = group(&mut nodes, 0).await;
    let coordinator = Observer::new(&endpoint).await.coordinator(&mut nodes).await;
    nodes.iter_mut().for_each(Node::forget);
    nodes.remove(coordinator).kill();
    for node in &mut nodes {
        assert!(node.event("changed").await["nodes_waiting"].as_u64() > Some(0));
    }
    let after = group(&mut nodes, before[0].round).await;
    nodes.push(job.node());
    group(&mut nodes, after[0].round).await;
}
