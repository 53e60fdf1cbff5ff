//! Deaths that are noticed by a connection that drops. The leases here last longer than any test, and so does
//! the last call: a node that waited for either would not be in time.

use std::time::{Duration, Instant};

use rallypoint::core::kv::{EventKind, KeyRange, Put, Watch};
use rallypoint::core::rendezvous::documents::Status;
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
    a_hello_without_the_token_causes_no_rendezvous,
    the_lease_of_a_killed_member_is_revoked,
    the_lease_of_killed_rank_0_is_revoked,
);

const LONG: &str = "120";

fn job(endpoint: &str) -> Job {
    let job = Job::new(endpoint, "2:4").with("--last-call", LONG).with("--lease-ttl", LONG);
    job.with("--rank-policy", "hint").with("--liveness", "127.0.0.1")
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
    // Only a socket that has greeted before can prove a death.
    for (node, rank) in nodes.iter().zip(ranks) {
        let others = if rank == 0 { 3 } else { 1 };
        let line = format!("the liveness sockets of other nodes have greeted count={others}");
        eventually(&line, PATIENCE, async || node.logged(&line) > 0).await;
    }
    assert_eq!(observer.coordinator(&mut nodes).await, 0);
    nodes
}

/// The other nodes are in the next group long before the lease of the dead one could expire: it was proved dead, and its
/// lease revoked.
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
    assert!(!ids.iter().any(|key| key.ends_with(&id)), "its lease lives after {took:?}");
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
async fn drop_a_connection_of(member: &str, store: &str, token: &str) {
    let mut stream = TcpStream::connect(store).await.unwrap();
    let own = stream.local_addr().unwrap().to_string();
    let words = [member, token, &own, "", ""];
    let string = |word: &str| [&(word.len() as u64).to_le_bytes(), word.as_bytes()].concat();
    let words: Vec<u8> = words.into_iter().flat_map(string).collect();
    let hello = [b"\x00\xce\xf7\x85\x3c\xe0".as_slice(), &words, &[0, 0]].concat();
    stream.write_all(&hello).await.unwrap();
    // An answer, or the end.
    let _ = timeout(PATIENCE, stream.read(&mut [0; 256])).await.expect("in time");
}

/// Seen: hello as rank 0, and the end of the connection, made the whole job form another group, as often as one liked.
async fn a_hello_without_the_token_causes_no_rendezvous(endpoint: String) {
    let observer = Observer::new(&endpoint).await;
    let watch = Watch::new(observer.keys.suspects());
    let mut reports = observer.client.watch([watch]).await.unwrap();
    let mut nodes = four(&endpoint, [3, 0, 1, 2]).await;
    let store = nodes[2].place().unwrap().master;
    for token in ["", "guessed"] {
        for node in &mut nodes {
            drop_a_connection_of(&node.id(), &store, token).await;
        }
        drop_a_connection_of("made-up", &store, token).await;
    }
    // With the token a member is reported, and no other node: after all that came before.
    let token = observer.active().await.unwrap().store.unwrap().token;
    assert!(token.len() >= 32, "{token:?}");
    drop_a_connection_of("made-up", &store, &token).await;
    let member = nodes[2].id();
    drop_a_connection_of(&member, &store, &token).await;
    let seen = timeout(PATIENCE, reports.next()).await.unwrap().unwrap();
    let last = observer.keys.suspect(&member);
    assert_eq!(String::from_utf8_lossy(&seen.events[0].kv.key), last);
}

/// Who dies with all of its processes is proved to be dead: its lease ends, although it is longer than any test.
async fn lease_is_revoked(endpoint: &str, ranks: [u64; 4], index: usize) {
    let observer = Observer::new(endpoint).await;
    let job = job(endpoint).with("--liveness", "127.0.0.1");
    let node = |rank: &u64| job.with("--node-rank", rank.to_string()).node();
    let mut nodes = vec![node(&ranks[0])];
    observer.joined(1, 1).await;
    nodes.extend(ranks[1..].iter().map(node));
    let places = connected(&mut nodes, 0).await;
    // Each has contacted the nodes that may have to prove its death.
    for (node, place) in nodes.iter().zip(&places) {
        let count = if place.rank == 0 { 3 } else { 1 };
        let line = format!("the liveness sockets of other nodes have greeted count={count}");
        eventually(&line, PATIENCE, async || node.logged(&line) > 0).await;
    }
    let mut dead = nodes.remove(index);
    let key = KeyRange::key(observer.keys.node(&dead.id()));
    dead.kill();
    eventually("its lease is revoked", PATIENCE, async || {
        observer.client.range(key.clone()).await.unwrap().kvs.is_empty()
    })
    .await;
    group(&mut nodes, 1).await;
    let line = "its host refuses its liveness socket; its lease was revoked";
    assert!(nodes.iter().any(|node| node.logged(line) > 0), "no node logged it");
}

async fn the_lease_of_a_killed_member_is_revoked(endpoint: String) {
    lease_is_revoked(&endpoint, [0, 1, 2, 3], 2).await;
}

async fn the_lease_of_killed_rank_0_is_revoked(endpoint: String) {
    lease_is_revoked(&endpoint, [3, 0, 1, 2], 1).await;
}

/// Rank 0 takes a member for dead, and that member rank 0, while both live.
async fn connections_that_break_cost_the_living_a_meeting(endpoint: String) {
    let mut nodes = four(&endpoint, [3, 0, 1, 2]).await;
    let store = nodes[2].place().unwrap().master;
    let (rank_0, member) = (nodes[1].id(), nodes[2].id());
    let token = Observer::new(&endpoint).await.active().await.unwrap().store.unwrap().token;
    drop_a_connection_of(&member, &store, &token).await;
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
