//! The head is lost, and nobody may take its place.

use std::time::{Duration, Instant};

use super::{Ground, SERVER_TIMEOUT};
use crate::launch::Launcher;

/// Each of these says so at once, and waits as long as it is told to. Then it ends with 75, and its workers long before.
fn give_up(nodes: &mut [Launcher], lost: Instant, words: &str) {
    for node in nodes.iter() {
        node.says_soon(words);
        let limit = format!("{}s (server_timeout)", SERVER_TIMEOUT.as_secs());
        node.says_soon(&limit);
    }
    for node in nodes {
        node.ends_with(75);
    }
    let waited = lost.elapsed();
    assert!(waited >= SERVER_TIMEOUT - Duration::from_secs(1), "they waited for {waited:?}");
}

#[test]
fn one_of_two_nodes_cannot_outvote_the_head() {
    let ground = Ground::with_order("1:2", 2, "node0,node1");
    let (mut nodes, first) = ground.starts();
    let lost = ground.vanish(0);
    give_up(&mut nodes[1..], lost, "two nodes cannot outvote each other");
    assert_eq!(ground.job.rounds().len(), 1, "{first:?}");
    ground.is_over(&[1]);
}

#[test]
fn half_of_a_group_does_not_go_on_without_the_other_half() {
    let ground = Ground::new("1:4", 4);
    let (mut nodes, _) = ground.starts();
    let lost = ground.kill(0);
    ground.kill(3);
    give_up(&mut nodes[1..3], lost, "more than half");
    assert_eq!(ground.job.rounds().len(), 1);
    ground.is_over(&[1, 2]);
}

/// Without succession, the other hosts do not serve.
#[test]
fn succession_can_be_turned_off() {
    let ground = Ground::with_order("1:3", 3, "node0");
    let options =
        ["--rdzv-conf", "succession=off,lease_ttl=4,last_call_timeout=30,server_timeout=10"];
    let (mut nodes, _) = ground.starts_with(&options, &[]);
    let lost = ground.kill(0);
    give_up(&mut nodes[1..], lost, "the server to answer again");
    assert_eq!(ground.job.rounds().len(), 1);
    ground.is_over(&[1, 2]);
}
