//! One head after another is lost.

use super::{Ground, LONG_LEASE, NOT_WAITED, ORDER};

/// Each of the hosts that may serve, in turn. The two nodes that are left have nobody to go to.
#[test]
fn the_head_and_its_successors_are_killed_in_turn() {
    // Longer than a group may take to form at a successor.
    let server_timeout = NOT_WAITED;
    let ground = Ground::with("2:5", 5, ORDER, LONG_LEASE, server_timeout);
    let (mut nodes, first) = ground.starts();
    let second = ground.regroups_at_once(ground.kill(0), &first, &[1, 2, 3, 4]);
    ground.is_served_by(1, &nodes[2..]);
    let third = ground.regroups_at_once(ground.kill(1), &second, &[2, 3, 4]);
    ground.is_served_by(2, &nodes[3..]);
    ground.kill(2);
    for node in &mut nodes[3..] {
        let said = node.ends_with(75).stderr;
        let limit = format!("{}s (server_timeout)", server_timeout.as_secs());
        assert!(said.contains(&limit), "{said}");
    }
    assert!(!third.workers.iter().any(|worker| worker.lives()));
    ground.is_over(&[3, 4]);
}

/// The second loss comes while the nodes go to the first successor. Most of the group is still there.
#[test]
fn the_head_and_its_successor_vanish_together() {
    let ground = Ground::new("2:5", 5);
    let (mut nodes, first) = ground.starts();
    let lost = ground.vanish(0);
    ground.vanish(1);
    let second = ground.regroups(lost, &first, &[2, 3, 4]);
    ground.is_served_by(2, &nodes[3..]);
    ground.ends(&mut nodes[2..], &second);
}

/// What a job has used of its restarts before the loss counts after it.
#[test]
fn restarts_are_counted_across_heads() {
    let ground = Ground::with_long_leases("2:3", 3);
    let (mut nodes, first) =
        ground.starts_with(&["--max-restarts", "2", "--restart-delay", "0"], &[]);
    first.of(&nodes[2])[0].tell("exit 3");
    let second = ground.job.group_after(&first, 3);
    assert_eq!(second.workers[0].get("TORCHELASTIC_RESTART_COUNT"), "1");
    let third = ground.regroups_at_once(ground.kill(0), &second, &[1, 2]);
    third.of(&nodes[2])[0].tell("exit 3");
    let fourth = ground.job.group_after(&third, 2);
    assert_eq!(fourth.workers[0].get("TORCHELASTIC_RESTART_COUNT"), "2");
    fourth.of(&nodes[2])[0].tell("exit 3");
    for node in &mut nodes[1..] {
        node.ends_with(1);
    }
    ground.is_over(&[1, 2]);
}

/// The workers of the others fail because those of the head are gone. That is no failure of theirs.
#[test]
fn workers_that_fail_with_the_head_consume_no_restart() {
    let ground = Ground::with_long_leases("2:3", 3);
    let (mut nodes, first) = ground.starts_with(&["--max-restarts", "0"], &[]);
    let lost = ground.kill(0);
    first.tell("exit 1");
    let second = ground.regroups_at_once(lost, &first, &[1, 2]);
    ground.ends(&mut nodes[1..], &second);
}
