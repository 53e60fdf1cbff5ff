//! The network parts the hosts of a job: one side goes on, and it is the only one.

use std::thread::sleep;
use std::time::{Duration, Instant};

use rallypoint_core::rendezvous::succession::outlives;

use super::{Ground, LEASE};
use crate::launch::{Group, Launcher};

/// A job of five on hosts of which these are cut off from the others, together with their stubborn workers.
fn parted(nnodes: &str, cut: &[usize]) -> (Ground, Vec<Launcher>, Group, Instant) {
    let ground = Ground::new(nnodes, 5);
    let (nodes, first) = ground.starts_with(&[], cut);
    let lost = Instant::now();
    ground.network.part(cut);
    (ground, nodes, first, lost)
}

/// The network is whole again: all of them meet in one group.
fn meet(ground: &Ground, nodes: &mut [Launcher], cut: &[usize], before: &Group) {
    assert!(nodes.iter_mut().all(|node| !node.has_ended()));
    ground.network.join(cut);
    let all: Vec<usize> = (0..nodes.len()).collect();
    let last = ground.regroups_late(Instant::now(), before, &all);
    ground.ends(nodes, &last);
}

#[test]
fn the_head_is_alone() {
    let (ground, mut nodes, first, lost) = parted("1:5", &[0]);
    let second = ground.regroups(lost, &first, &[1, 2, 3, 4]);
    ground.is_served_by(1, &nodes[2..]);
    meet(&ground, &mut nodes, &[0], &second);
}

/// A spare asks ever less often which hosts serve, while its own server has a group. It finds the others all the same.
#[test]
fn the_head_is_with_a_spare() {
    let ground = Ground::new("2:3", 4);
    let mut nodes: Vec<Launcher> = (0..3).map(|host| ground.start(host)).collect();
    let first = ground.job.group(3);
    nodes.push(ground.start(3));
    ground.is_served_by(0, &nodes[3..]);
    sleep(LEASE * 2);
    let lost = Instant::now();
    ground.network.part(&[0, 3]);
    let second = ground.regroups(lost, &first, &[1, 2]);
    ground.network.join(&[0, 3]);
    ground.is_served_by(1, [&nodes[0], &nodes[3]]);
    // One of the two is a member now, and the other one is a spare.
    let third = ground.job.group_after(&second, 3);
    ground.ends(&mut nodes, &third);
}

/// Two would be enough for a group, and the next host of the order is with the head. Most of the group is elsewhere.
#[test]
fn the_head_is_with_the_smaller_part() {
    let (ground, mut nodes, first, lost) = parted("2:5", &[0, 1]);
    let second = ground.regroups(lost, &first, &[2, 3, 4]);
    ground.is_served_by(2, &nodes[3..]);
    meet(&ground, &mut nodes, &[0, 1], &second);
}

/// Both other hosts that may serve are cut off, and would be enough for a group.
#[test]
fn the_head_is_with_the_larger_part() {
    let (ground, mut nodes, first, lost) = parted("2:5", &[1, 2]);
    let second = ground.regroups(lost, &first, &[0, 3, 4]);
    ground.is_served_by(0, &nodes[3..]);
    meet(&ground, &mut nodes, &[1, 2], &second);
}

/// Neither part is the larger one. The one with the head goes on.
#[test]
fn the_head_is_with_one_half() {
    let ground = Ground::new("2:4", 4);
    let (mut nodes, first) = ground.starts_with(&[], &[1, 2]);
    let lost = Instant::now();
    ground.network.part(&[1, 2]);
    let second = ground.regroups(lost, &first, &[0, 3]);
    meet(&ground, &mut nodes, &[1, 2], &second);
}

/// All launchers of the smaller part have died, and are started again long after any worker of theirs. They are most of
/// the hosts that may serve, but the host that does not answer is in a group.
#[test]
fn launchers_that_are_started_again_in_the_smaller_part_form_no_group_of_their_own() {
    let (ground, mut nodes, first, lost) = parted("2:5", &[0, 1]);
    let second = ground.regroups_late(lost, &first, &[2, 3, 4]);
    nodes[0].kill();
    nodes[1].kill();
    sleep(2 * outlives(LEASE) + Duration::from_secs(1));
    nodes.extend([ground.start(0), ground.start(1)]);
    for node in &nodes[5..] {
        node.says(
            "node2:29400 of the endpoint does not answer, so a group of the run may be there",
        );
    }
    sleep(LEASE);
    ground.network.join(&[0, 1]);
    let last = ground.regroups_late(Instant::now(), &second, &[2, 3, 4, 5, 6]);
    ground.ends(&mut nodes[2..], &last);
}
