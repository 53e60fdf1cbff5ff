//! Nodes that come after the head was lost.

use std::time::Instant;

use super::Ground;

/// The address that the others remember for the name leads nowhere.
#[test]
fn the_head_comes_back_under_its_name_and_another_address() {
    let mut ground = Ground::new("2:3", 3);
    let (mut nodes, first) = ground.starts();
    let second = ground.regroups(ground.vanish(0), &first, &[1, 2]);
    let again = ground.network.add("node0");
    ground.network.know(&["former", "node1", "node2", "node0"]);
    nodes.push(ground.start(again));
    let third = ground.regroups_late(Instant::now(), &second, &[1, 2, 3]);
    ground.is_served_by(1, &nodes[2..]);
    ground.ends(&mut nodes[1..], &third);
}

/// It remembers nothing of the group, and comes before the others have gone elsewhere.
#[test]
fn the_launcher_of_the_head_is_started_again_at_once() {
    let ground = Ground::new("2:3", 3);
    let (mut nodes, first) = ground.starts();
    nodes[0].kill();
    nodes.push(ground.start(0));
    // There may be a group of the other two before.
    let last = ground.regroups_late(Instant::now(), &first, &[1, 2, 3]);
    ground.ends(&mut nodes[1..], &last);
}

/// Its host is none of those that may serve, and the head refuses its connections.
#[test]
fn a_replacement_joins_at_the_successor() {
    let mut ground = Ground::with_long_leases("2:3", 3);
    let (mut nodes, first) = ground.starts();
    let second = ground.regroups(ground.kill(0), &first, &[1, 2]);
    let host = ground.network.add("node3");
    ground.network.know(&["node0", "node1", "node2", "node3"]);
    nodes.push(ground.start(host));
    let third = ground.regroups_late(Instant::now(), &second, &[1, 2, 3]);
    ground.is_served_by(1, &nodes[2..]);
    ground.ends(&mut nodes[1..], &third);
}

/// The head, which it asks first, does not answer at all.
#[test]
fn a_late_node_finds_the_successor() {
    let ground = Ground::new("2:3", 4);
    let mut nodes: Vec<_> = (0..3).map(|host| ground.start(host)).collect();
    let first = ground.job.group(3);
    let second = ground.regroups(ground.vanish(0), &first, &[1, 2]);
    nodes.push(ground.start(3));
    let third = ground.regroups_late(Instant::now(), &second, &[1, 2, 3]);
    ground.is_served_by(1, &nodes[2..]);
    ground.ends(&mut nodes[1..], &third);
}
