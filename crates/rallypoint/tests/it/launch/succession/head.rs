//! The head is lost, and all others are there.

use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{Ground, LEASE, ORDER};
use crate::launch::{Launcher, PATIENCE};

/// The first of three hosts is killed as `kill` says. The second host serves the other two, which wait for no lease.
fn kill_the_head(kill: impl FnOnce(&Ground, &mut Launcher) -> Instant) {
    let ground = Ground::with_long_leases("2:3", 3);
    let (mut nodes, first) = ground.starts();
    let lost = kill(&ground, &mut nodes[0]);
    let second = ground.regroups_at_once(lost, &first, &[1, 2]);
    ground.is_served_by(1, &nodes[2..]);
    ground.ends(&mut nodes[1..], &second);
}

#[test]
fn its_host_is_killed() {
    kill_the_head(|ground, _| ground.kill(0));
}

/// Nothing proves its death, so its peers wait until its leases are over.
#[test]
fn its_host_vanishes() {
    let ground = Ground::new("2:3", 3);
    let (mut nodes, first) = ground.starts();
    let second = ground.regroups(ground.vanish(0), &first, &[1, 2]);
    ground.is_served_by(1, &nodes[2..]);
    ground.ends(&mut nodes[1..], &second);
}

#[test]
fn its_launcher_is_killed() {
    kill_the_head(|_, head| {
        let lost = Instant::now();
        head.kill();
        lost
    });
}

/// It leaves in good order, and no node has to wait for anything.
#[test]
fn its_launcher_is_told_to_stop() {
    let ground = Ground::with_long_leases("2:3", 3);
    let (mut nodes, first) = ground.starts();
    let lost = Instant::now();
    nodes[0].signal(Signal::TERM);
    let second = ground.regroups_at_once(lost, &first, &[1, 2]);
    second.tell("exit 0");
    for node in &mut nodes[1..] {
        node.ends_with(0);
    }
    nodes[0].ends_with(128 + 15);
    ground.is_over(&[0, 1, 2]);
}

/// Two others leave with it, and the rest has no quorum of the five at another host. So it stays until the rest has formed
/// a group, which has a quorum anywhere.
#[test]
fn its_launcher_is_told_to_stop_with_half_of_the_group() {
    let ground = Ground::new("2:5", 5);
    let (mut nodes, first) = ground.starts();
    let lost = Instant::now();
    for leaver in [0, 2, 3] {
        nodes[leaver].signal(Signal::TERM);
    }
    for leaver in [0, 2, 3] {
        nodes[leaver].ends_with(128 + 15);
    }
    ground.is_served_by(1, &nodes[4..]);
    let mut last = ground.regroups_late(lost, &first, &[1, 4]);
    sleep(LEASE);
    // Those may have been the workers of the group that formed at the old head, at their end.
    if !last.lives() {
        last = ground.regroups_late(lost, &last, &[1, 4]);
    }
    last.tell("exit 0");
    for survivor in [1, 4] {
        nodes[survivor].ends_with(0);
    }
    ground.is_over(&[0, 1, 2, 3, 4]);
}

/// Its workers are killed by their guard before the others go on. Then it finds that there is another server.
#[test]
fn its_launcher_stands_still_and_comes_back_as_a_node() {
    let ground = Ground::new("2:3", 3);
    let (mut nodes, first) = ground.starts();
    let old = first.of(&nodes[0])[0].clone();
    let lost = Instant::now();
    nodes[0].signal(Signal::STOP);
    let second = ground.regroups(lost, &first, &[1, 2]);
    assert!(!old.lives());
    // Longer than any lease that it granted.
    sleep((LEASE * 2).saturating_sub(lost.elapsed()));
    nodes[0].signal(Signal::CONT);
    let third = ground.regroups_late(Instant::now(), &second, &[0, 1, 2]);
    ground.is_served_by(1, [&nodes[0], &nodes[2]]);
    ground.ends(&mut nodes, &third);
}

/// Its host lives on and has workers that do not end when they are asked to.
#[test]
fn its_host_is_cut_off_and_comes_back_as_a_node() {
    let ground = Ground::new("2:3", 3);
    let (mut nodes, first) = ground.starts_with(&[], &[0]);
    let old = first.of(&nodes[0])[0].clone();
    let lost = ground.cut(0);
    let second = ground.regroups(lost, &first, &[1, 2]);
    assert!(!old.lives() && !nodes[0].has_ended());
    ground.network.plug(0, "up");
    let third = ground.regroups_late(Instant::now(), &second, &[0, 1, 2]);
    ground.ends(&mut nodes, &third);
}

/// Shorter than the server may be silent, which is half of a lease: no node goes elsewhere. A busy machine may keep it
/// silent for as long once more.
#[test]
fn its_launcher_stands_still_for_a_moment() {
    let lease = Duration::from_secs(16);
    let ground = Ground::with("2:3", 3, ORDER, lease, PATIENCE);
    let (mut nodes, group) = ground.starts();
    nodes[0].signal(Signal::STOP);
    sleep(lease / 4);
    nodes[0].signal(Signal::CONT);
    sleep(lease);
    assert!(group.lives());
    assert_eq!(ground.job.rounds().len(), 1);
    ground.is_served_by(0, &nodes[1..]);
    ground.ends(&mut nodes, &group);
}
