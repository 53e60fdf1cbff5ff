//! Deaths that are noticed by a connection that drops. The leases here last longer than any test, and so does
//! the last call: whoever waited for either would not be in time.

use std::time::{Duration, Instant};

use rallypoint::core::kv::{EventKind, Put, Watch};
use rallypoint::core::rendezvous::document::Status;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::node::{Job, Node, PATIENCE, Place};
use super::{Observer, group, on_each_server};
use crate::support::hostile::eventually;

on_each_server!(
    a_killed_member_is_missed_at_once,
    killed_rank_0_is_missed_at_once,
    a_killed_coordinator_is_missed_at_once,
    killed_rank_0_that_coordinates_is_missed_at_once,
    who_goes_in_good_order_is_not_suspected,
    connections_that_break_cost_the_living_a_meeting,
);

const LONG: &str = "120";

fn job(endpoint: &str) -> Job {
    let job = Job::new(endpoint, "2:4").with("--last-call", LONG).with("--lease-ttl", LONG);
    job.with("--rank-policy", "hint")
}

/// Waits until these nodes are in a group of a round after `after`, and connected to its rank 0.
async fn connected(nodes: &mut [Node], after: u64) -> Vec<Place> {
    let places = group(nodes, after).await;
    for (node, place) in nodes.iter().zip(&places).filter(|(_, place)| place.rank != 0) {
        let line = format!("connected to rank 0 round={} ", place.round);
        eventually(&line, PATIENCE, async || node.logged(&line) > 0).await;
    }
    places
}

/// Four nodes with these ranks, the first of which coordinates the round.
async fn four(endpoint: &str, ranks: [u64; 4]) -> Vec<Node> {
    let observer = Observer::new(endpoint).await;
    let node = |rank: &u64| job(endpoint).with("--node-rank", rank.to_string()).node();
    let mut nodes = vec![node(&ranks[0])];
    observer.joined(1, 1).await;
    nodes.extend(ranks[1..].iter().map(node));
    let places = connected(&mut nodes, 0).await;
    assert_eq!(super::ranks(&places), ranks);
    assert_eq!(observer.coordinator(&mut nodes).await, 0);
    nodes
}

/// The others are in the next group, although the lease of the dead one lives.
async fn is_missed(mut nodes: Vec<Node>, dead: usize, endpoint: &str) {
    let mut dead = nodes.remove(dead);
    let id = dead.id();
    let begun = Instant::now();
    dead.kill();
    let places = group(&mut nodes, 1).await;
    let took = begun.elapsed();
    assert_eq!(places[0].round, 2, "nothing else was in the way");
    let observer = Observer::new(endpoint).await;
    let nodes_alive = observer.client.range(observer.keys.nodes()).await.unwrap();
    let ids: Vec<_> = nodes_alive.kvs.iter().map(|kv| String::from_utf8_lossy(&kv.key)).collect();
    assert!(ids.iter().any(|key| key.ends_with(&id)), "its lease was over after {took:?}");
    for node in &mut nodes {
        let lost = |event: &serde_json::Value| event["event"] == "changed";
        assert_eq!(node.told().iter().filter(|event| lost(event)).count(), 1);
    }
}

async fn a_killed_member_is_missed_at_once(endpoint: String) {
    is_missed(four(&endpoint, [0, 1, 2, 3]).await, 2, &endpoint).await;
}

async fn killed_rank_0_is_missed_at_once(endpoint: String) {
    is_missed(four(&endpoint, [3, 0, 1, 2]).await, 1, &endpoint).await;
}

async fn a_killed_coordinator_is_missed_at_once(endpoint: String) {
    is_missed(four(&endpoint, [3, 0, 1, 2]).await, 0, &endpoint).await;
}

async fn killed_rank_0_that_coordinates_is_missed_at_once(endpoint: String) {
    is_missed(four(&endpoint, [0, 1, 2, 3]).await, 0, &endpoint).await;
}

async fn who_goes_in_good_order_is_not_suspected(endpoint: String) {
    let observer = Observer::new(&endpoint).await;
    let watch = Watch::new(observer.keys.suspects());
    let mut reports = observer.client.watch([watch]).await.unwrap();
    let mut nodes = four(&endpoint, [3, 0, 1, 2]).await;
    // A member enters again, then rank 0 and the coordinator.
    let mut round = 1;
    for index in [2, 1, 0] {
        nodes[index].command("again");
        round = connected(&mut nodes, round).await[0].round;
    }
    // They leave, in the same order. What is left of the group meets again.
    for index in [2, 1] {
        let mut leaves = nodes.remove(index);
        leaves.command("quit");
        assert!(leaves.ended().await.success());
        round = connected(&mut nodes, round).await[0].round;
    }
    nodes[0].command("close done");
    for node in &mut nodes {
        assert!(node.ended().await.success());
    }
    // If there was a report, it comes before this one.
    let last = observer.keys.suspect("nobody");
    observer.client.put(Put::new(last.clone(), "")).await.unwrap();
    let seen = timeout(PATIENCE, reports.next()).await.unwrap().unwrap();
    let puts: Vec<_> = seen
        .events
        .iter()
        .filter(|event| event.kind == EventKind::Put)
        .map(|event| String::from_utf8_lossy(&event.kv.key).into_owned())
        .collect();
    assert_eq!(puts, [last]);
}

/// Says hello to the store of the group in the name of a member that lives, and drops the connection.
async fn drop_a_connection_of(member: &str, store: &str) {
    let mut stream = TcpStream::connect(store).await.unwrap();
    let length = (member.len() as u64).to_le_bytes();
    let hello = [b"\x00\xce\xf7\x85\x3c\xe0".as_slice(), &length, member.as_bytes()].concat();
    stream.write_all(&hello).await.unwrap();
    stream.read_exact(&mut [0; 8]).await.unwrap();
}

/// Rank 0 takes a member for dead, and that member rank 0, while both live.
async fn connections_that_break_cost_the_living_a_meeting(endpoint: String) {
    let mut nodes = four(&endpoint, [3, 0, 1, 2]).await;
    let store = nodes[2].place().unwrap().master;
    let (rank_0, member) = (nodes[1].id(), nodes[2].id());
    drop_a_connection_of(&member, &store).await;
    nodes[2].command(&format!("suspect {rank_0}"));
    group(&mut nodes, 1).await;
    // It is over then: nobody goes on to suspect anybody. On a busy machine one of the two may have been so late
    // that the others met without it first.
    let rounds = |nodes: &mut [Node]| nodes[0].place().map(|place| place.round);
    loop {
        let before = rounds(&mut nodes);
        tokio::time::sleep(Duration::from_millis(500)).await;
        if before.is_some() && rounds(&mut nodes) == before {
            break;
        }
    }
    let places = group(&mut nodes, 1).await;
    assert!(places[0].round <= 4, "{places:#?}");
    let active = Observer::new(&endpoint).await.active().await.unwrap();
    assert_eq!((active.status, active.lost, active.waiting), (Status::Final, 0, 0));
}
