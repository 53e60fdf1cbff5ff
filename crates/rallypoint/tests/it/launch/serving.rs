//! The launcher with the server, when it must go while others run.

use rustix::process::Signal;

use super::{Group, Job, Launcher, free_endpoint, host_of, until_true};

/// A job of three whose host was told to stop, and the group of the other two.
fn stopped_host(job: &Job, endpoint: &str) -> (Launcher, Vec<Launcher>, Group) {
    let mut nodes = job.launchers(3);
    let first = job.group(3);
    let mut host = nodes.remove(host_of(&nodes, endpoint));
    host.signal(Signal::TERM);
    let second = job.group_after(&first, 2);
    assert!(!second.launchers().contains(&host.number));
    for worker in &second.workers {
        assert_eq!(worker.get("TORCHELASTIC_RESTART_COUNT"), "0");
    }
    (host, nodes, second)
}

#[test]
fn a_host_that_is_told_to_stop_serves_until_other_nodes_end() {
    let endpoint = free_endpoint();
    let job = Job::at(&endpoint, "2:3");
    let (mut host, mut nodes, group) = stopped_host(&job, &endpoint);
    host.says("serv");
    // The other nodes can still do what needs a server.
    nodes.push(job.launch());
    let third = job.group_after(&group, 3);
    assert!(!host.has_ended());
    third.tell("exit 0");
    for node in &mut nodes {
        node.ends_with(0);
    }
    host.ends_with(143);
    job.nothing_is_left();
}

/// Then another launcher of the same host takes the server over.
#[test]
fn a_second_signal_ends_the_host_at_once() {
    let endpoint = free_endpoint();
    let job = Job::with_conf(&endpoint, "2:3", "lease_ttl=2,last_call_timeout=1");
    let (mut host, mut nodes, group) = stopped_host(&job, &endpoint);
    host.says("serv");
    host.signal(Signal::TERM);
    host.ends_with(143);
    host_of(&nodes, &endpoint);
    // No node may act on a lease of the old server, so the group forms again.
    let third = job.group_after(&group, 2);
    third.tell("exit 0");
    for node in &mut nodes {
        node.ends_with(0);
    }
}

/// Its workers are done first; the other nodes still need its server.
#[test]
fn a_host_that_is_done_waits_for_other_nodes() {
    let endpoint = free_endpoint();
    let job = Job::at(&endpoint, "3");
    let mut nodes = job.launchers(3);
    let group = job.group(3);
    let mut host = nodes.remove(host_of(&nodes, &endpoint));
    let own = group.of(&host)[0].clone();
    own.tell("exit 0");
    own.is_gone();
    let [last, next] = [0, 1].map(|node| group.of(&nodes[node])[0]);
    next.tell("exit 0");
    next.is_gone();
    assert!(!host.has_ended() && last.lives());
    last.tell("exit 0");
    host.ends_with(0);
    for node in &mut nodes {
        node.ends_with(0);
    }
    until_true("nothing is left", || job.processes().is_empty());
}

#[test]
fn a_host_that_is_done_does_not_wait_for_nodes_of_another_run() {
    let endpoint = free_endpoint();
    let job = Job::at(&endpoint, "2");
    let mut nodes = job.launchers(2);
    let group = job.group(2);
    let host = host_of(&nodes, &endpoint);
    let other = Job::with_conf(&endpoint, "2", "is_host=false").named("other");
    let stranger = other.launch();
    stranger.says("1 of 2 nodes");
    group.tell("exit 0");
    for node in &mut nodes {
        node.ends_with(0);
    }
    let said = nodes[host].stderr();
    assert!(said.contains("nodes of other runs use the server of this run"), "{said}");
    stranger.says("a watch cannot be resumed yet");
}
