//! Hosts that are cut off from other hosts.

use std::time::Duration;

use super::hosts::{Network, address};
use super::{Job, Launcher, PATIENCE, host_of};

/// Starts a launcher on a host.
fn launch(network: &Network, job: &Job, number: usize, first_order: &str) -> Launcher {
    let enter = network.hosts[number].enter();
    let enter: Vec<&str> = enter.iter().map(String::as_str).collect();
    let line = job.launcher().with(&["--shutdown-timeout", "600"]).by(&enter);
    line.program(&["sh", &job.file("worker.sh"), first_order]).start()
}

/// Each worker looks at its start for those of `$JOB/cut`, which must not live beside it.
const LOOK: &str = "for pid in $(cat $JOB/cut 2>/dev/null); do
        ! grep -q '^State:.[^ZX]' /proc/$pid/status 2>/dev/null || echo $pid beside $$ >> $JOB/overlap
    done";

/// The lease leaves its last eighth to stop what must stop: long enough for a busy machine.
const LEASE: u64 = 8;

#[test]
fn a_host_that_is_cut_off_stops_its_workers_before_other_nodes_regroup() {
    let network = Network::new(3);
    let endpoint = format!("{}:29400", address(0));
    let conf = format!("lease_ttl={LEASE},last_call_timeout=30");
    let job = Job::with_conf(&endpoint, "2:3", &conf);
    // The one that will be cut off does not go when it is asked to: it must be killed in time.
    let orders = [LOOK.to_owned(), LOOK.to_owned(), format!("{LOOK}; trap '' TERM")];
    let launch = |(number, order): (usize, &String)| launch(&network, &job, number, order);
    let mut nodes: Vec<Launcher> = orders.iter().enumerate().map(launch).collect();
    let first = job.group(3);
    assert_eq!(host_of(&nodes, &endpoint), 0, "the host that the endpoint names");
    for worker in &first.workers {
        let master = worker.get("MASTER_ADDR");
        assert!((0..3).any(|number| master == address(number)), "{master} is reached by all");
    }

    let cut = first.of(&nodes[2])[0].clone();
    std::fs::write(job.path().join("cut"), cut.pid.to_string()).unwrap();
    network.plug(2, "down");
    let second = job.group_after(&first, 2);
    let overlap = std::fs::read_to_string(job.path().join("overlap")).unwrap_or_default();
    assert_eq!(overlap, "", "workers of both groups at once");
    assert!(!cut.lives() && !nodes[2].has_ended(), "the launcher itself goes on");
    assert_eq!(second.launchers().into_iter().collect::<Vec<_>>(), [0, 1]);

    network.plug(2, "up");
    let third = job.group_after(&second, 3);
    assert_eq!(third.launchers().len(), 3);
    for worker in &third.workers {
        assert_eq!(worker.get("TORCHELASTIC_RESTART_COUNT"), "0");
    }
    third.tell("exit 0");
    for node in &mut nodes {
        node.ends_with(0);
    }
    job.nothing_is_left();
}

/// Its own session is alive, and the other nodes cannot tell what it does: they must stop.
#[test]
fn when_the_host_with_the_server_is_cut_off_other_nodes_stop_and_come_back() {
    let network = Network::new(3);
    let endpoint = format!("{}:29400", address(0));
    let job = Job::with_conf(&endpoint, "2:3", "lease_ttl=4,last_call_timeout=30");
    // Those who must stop do not go when they are asked to.
    let order = "[ $LAUNCHER = 0 ] || [ $RALLYPOINT_ATTEMPT != 0 ] || trap '' TERM";
    let mut nodes: Vec<Launcher> =
        (0..3).map(|number| launch(&network, &job, number, order)).collect();
    let first = job.group(3);
    network.plug(0, "down");
    for worker in first.workers.iter().filter(|worker| worker.launcher() != 0) {
        worker.is_gone();
    }
    assert!(nodes.iter_mut().all(|node| !node.has_ended()));
    network.plug(0, "up");
    let second = job.group_after(&first, 3);
    second.tell("exit 0");
    for node in &mut nodes {
        node.ends_with(0);
    }
}

/// Shorter than a lease is not noticed by anybody.
#[test]
fn a_host_that_is_cut_off_for_a_moment_goes_on() {
    let network = Network::new(2);
    let endpoint = format!("{}:29400", address(0));
    let job = Job::with_conf(&endpoint, "2", "lease_ttl=30");
    let mut nodes: Vec<Launcher> =
        (0..2).map(|number| launch(&network, &job, number, ":")).collect();
    let group = job.group(2);
    for host in [0, 1] {
        network.plug(host, "down");
        std::thread::sleep(Duration::from_secs(1));
        network.plug(host, "up");
        group.does(":");
    }
    assert!(PATIENCE > Duration::from_secs(30));
    group.tell("exit 0");
    for node in &mut nodes {
        node.ends_with(0);
    }
    assert_eq!(job.rounds().len(), 1);
}
