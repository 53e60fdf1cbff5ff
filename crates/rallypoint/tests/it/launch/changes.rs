//! Nodes that die, leave and come.

use std::collections::BTreeSet;

use rustix::process::Signal;

use super::{Group, Job, Launcher, free_endpoint, host_of, until_true, wait};
use crate::support::Embedded;

/// No restart was used for it.
fn is_free(group: &Group) {
    for worker in &group.workers {
        assert_eq!(worker.get("TORCHELASTIC_RESTART_COUNT"), "0");
    }
}

fn finish<'a>(group: &Group, nodes: impl IntoIterator<Item = &'a mut Launcher>) {
    group.tell("exit 0");
    for node in nodes {
        node.ends_with(0);
    }
}

/// Takes one that does not run the server out of the launchers.
fn guest(nodes: &mut Vec<Launcher>, endpoint: &str) -> Launcher {
    let host = host_of(nodes, endpoint);
    nodes.remove((host + 1) % nodes.len())
}

/// Kills a launcher of a group of four. Its workers go with it, and the other three are a group then.
fn survivors(job: &Job, first: &Group, dead: &mut Launcher) -> Group {
    dead.kill();
    for worker in first.of(dead) {
        worker.is_gone();
    }
    let second = job.group_after(first, 3);
    assert!(!second.launchers().contains(&dead.number));
    second
}

/// The lease is longer than anybody waits here, so it is the connection that tells.
#[test]
fn a_killed_launcher_takes_its_workers_along_and_other_nodes_regroup_by_its_connection() {
    for victim in ["rank 0", "another"] {
        let server = wait(Embedded::memory());
        let job = Job::with_conf(&server.address(), "3:4", "lease_ttl=600,last_call_timeout=600");
        let mut nodes = job.launchers(4);
        let first = job.group(4);
        let dead = first.workers[if victim == "rank 0" { 0 } else { 2 }].launcher();
        let mut dead = nodes.remove(dead);
        let second = survivors(&job, &first, &mut dead);
        is_free(&second);
        finish(&second, &mut nodes);
        job.nothing_is_left();
    }
}

/// Without such a connection it is the lease.
#[test]
fn a_killed_launcher_takes_its_workers_along_and_other_nodes_regroup_by_its_lease() {
    let endpoint = free_endpoint();
    let conf = "lease_ttl=2,last_call_timeout=30,use_agent_store=false";
    let job = Job::with_conf(&endpoint, "3:4", conf);
    let mut nodes = job.launchers(4);
    let first = job.group(4);
    assert_eq!(first.workers[0].get("TORCHELASTIC_USE_AGENT_STORE"), "False");
    let mut dead = guest(&mut nodes, &endpoint);
    let second = survivors(&job, &first, &mut dead);
    is_free(&second);
    finish(&second, &mut nodes);
    job.nothing_is_left();
}

/// Another launcher of the same host takes the server over.
#[test]
fn other_nodes_go_on_when_the_launcher_with_the_server_is_killed() {
    let endpoint = free_endpoint();
    let job = Job::with_conf(&endpoint, "3:4", "lease_ttl=2,last_call_timeout=1");
    let mut nodes = job.launchers(4);
    let first = job.group(4);
    let mut dead = nodes.remove(host_of(&nodes, &endpoint));
    let second = survivors(&job, &first, &mut dead);
    host_of(&nodes, &endpoint);
    is_free(&second);
    finish(&second, &mut nodes);
    job.nothing_is_left();
}

/// What the server knew is gone with it, but not what the nodes know.
#[test]
fn the_restarts_of_a_job_are_not_forgotten_with_its_server() {
    let endpoint = free_endpoint();
    let job = Job::with_conf(&endpoint, "2:3", "lease_ttl=2,last_call_timeout=1");
    let mut nodes: Vec<Launcher> =
        (0..3).map(|_| job.launch_with(&["--max-restarts", "1"])).collect();
    let first = job.group(3);
    first.workers[0].tell("exit 1");
    let second = job.group_after(&first, 3);
    nodes.remove(host_of(&nodes, &endpoint)).kill();
    let third = job.group_after(&second, 2);
    for worker in second.workers.iter().chain(&third.workers) {
        assert_eq!(worker.get("TORCHELASTIC_RESTART_COUNT"), "1");
    }
    third.workers[1].tell("exit 5");
    for node in &mut nodes {
        let said = node.ends_with(1).stderr;
        assert!(said.contains("exit code 5"), "{said}");
    }
    job.nothing_is_left();
}

#[test]
fn a_fifth_launcher_joins_a_job_that_runs() {
    let endpoint = free_endpoint();
    let job = Job::with_conf(&endpoint, "3:5", "lease_ttl=30,last_call_timeout=2");
    let mut nodes = job.launchers(4);
    let first = job.group(4);
    nodes.push(job.launch());
    let second = job.group_after(&first, 5);
    for worker in &first.workers {
        assert!(
            second.workers[worker.rank].launcher() == worker.launcher(),
            "who is in keeps its rank"
        );
    }
    assert_eq!(second.workers[4].launcher(), 4);
    is_free(&second);
    finish(&second, &mut nodes);
    job.nothing_is_left();
}

/// Leases are long, so it is the goodbye that tells the other nodes.
#[test]
fn a_launcher_that_is_told_to_stop_leaves_and_other_nodes_regroup() {
    let endpoint = free_endpoint();
    let job = Job::at(&endpoint, "3:4");
    let mut nodes = job.launchers(4);
    let first = job.group(4);
    let mut leaves = guest(&mut nodes, &endpoint);
    first.of(&leaves)[0].does("trap 'touch $JOB/asked; exit 0' TERM");
    leaves.signal(Signal::TERM);
    leaves.ends_with(143);
    assert!(job.path().join("asked").exists(), "the worker got the same signal");
    assert!(!first.of(&leaves)[0].lives());
    let second = job.group_after(&first, 3);
    assert!(!second.launchers().contains(&leaves.number));
    is_free(&second);
    finish(&second, &mut nodes);
}

/// A node that has left may come back, and so may one that died.
#[test]
fn who_comes_back_is_let_in() {
    let endpoint = free_endpoint();
    let job = Job::with_conf(&endpoint, "1:2", "lease_ttl=2,last_call_timeout=2");
    let mut nodes = job.launchers(2);
    let mut group = job.group(2);
    for signal in [Signal::TERM, Signal::KILL] {
        let mut goes = guest(&mut nodes, &endpoint);
        goes.signal(signal);
        group = job.group_after(&group, 1);
        nodes.push(job.launch());
        group = job.group_after(&group, 2);
        is_free(&group);
    }
    finish(&group, &mut nodes);
    assert!(job.rounds().len() >= 5);
    job.nothing_is_left();
}

/// Below the minimum the survivors wait, and say so.
#[test]
fn too_few_survivors_wait_for_another() {
    let endpoint = free_endpoint();
    let job = Job::with_conf(&endpoint, "3:3", "lease_ttl=2,last_call_timeout=30");
    let mut nodes = job.launchers(3);
    let first = job.group(3);
    guest(&mut nodes, &endpoint).kill();
    // The coordinator of the round knows its members; every other node knows the coordinator.
    until_true("one says how many are missing", || {
        nodes.iter().any(|node| node.stderr().contains("2 of 3 nodes, waiting for 1 more"))
    });
    for node in &nodes {
        node.says("waiting: ");
    }
    for worker in &first.workers {
        worker.is_gone();
    }
    nodes.push(job.launch());
    let second = job.group_after(&first, 3);
    assert_eq!(second.launchers(), BTreeSet::from_iter(nodes.iter().map(|node| node.number)));
    finish(&second, &mut nodes);
}
