//! Several hosts on one machine: network namespaces, so that a host can be cut off from the others.
//!
//! Needs root, and `ip` of iproute2 (`scripts/test-tools`). A namespace lives as long as a process that is
//! in it, so there is nothing to clean up that the watchdog of the tests does not see to.

use std::process::{Command, Stdio};
use std::time::Duration;

use super::{Job, Launcher, PATIENCE, host_of, until_true};
use crate::support::process::{Directory, Process};
use crate::support::tools::ip;

/// A switch and the hosts that are plugged into it, numbered from 0.
struct Network {
    switch: Host,
    hosts: Vec<Host>,
    _directory: Directory,
}

/// A host is a namespace, and the process that keeps it.
struct Host(Process);

impl Host {
    fn new(directory: &Directory) -> Self {
        let log = directory.path().join("keeper");
        let output = std::fs::File::options().create(true).append(true).open(&log).unwrap();
        let mut keeper = Command::new("unshare");
        keeper.args(["--net", "sleep", "infinity"]).stdin(Stdio::null());
        keeper.stdout(output.try_clone().unwrap()).stderr(output);
        let mut host = Self(Process::of(&mut keeper, vec![log]));
        let network = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let (ours, its) = (network("self"), host.0.id().to_string());
        until_true("there is another network namespace", || {
            let refused = host.0.has_ended();
            assert!(
                !refused,
                "this machine allows no network namespaces, which this test needs: run it as root"
            );
            network(&its).is_some_and(|theirs| Some(&theirs) != ours.as_ref())
        });
        host.ip(&["link", "set", "lo", "up"]);
        host
    }

    /// What a program has before it to run there.
    fn enter(&self) -> Vec<String> {
        ["nsenter", "--net", "--target"]
            .map(str::to_owned)
            .into_iter()
            .chain([self.0.id().to_string()])
            .collect()
    }

    /// Changes its network.
    fn ip(&self, words: &[&str]) {
        let enter = self.enter();
        let output =
            Command::new(&enter[0]).args(&enter[1..]).arg(ip()).args(words).output().unwrap();
        assert!(
            output.status.success(),
            "this machine allows no changes to network namespaces, which this test needs: ip {}: {}",
            words.join(" "),
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

impl Network {
    fn new(hosts: usize) -> Self {
        let directory = Directory::new();
        let switch = Host::new(&directory);
        switch.ip(&["link", "add", "bridge", "type", "bridge"]);
        switch.ip(&["link", "set", "bridge", "up"]);
        let plug = |number: usize| {
            let host = Host::new(&directory);
            let (port, pid) = (port(number), host.0.id().to_string());
            switch
                .ip(&["link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &pid]);
            switch.ip(&["link", "set", &port, "master", "bridge"]);
            switch.ip(&["link", "set", &port, "up"]);
            host.ip(&["address", "add", &format!("{}/24", address(number)), "dev", "eth0"]);
            host.ip(&["link", "set", "eth0", "up"]);
            host
        };
        let hosts = (0..hosts).map(plug).collect();
        Self { switch, hosts, _directory: directory }
    }

    /// Pulls a host's plug, or puts it back. Nobody is told.
    fn plug(&self, number: usize, how: &str) {
        self.switch.ip(&["link", "set", &port(number), how]);
    }

    /// Starts a launcher on a host.
    fn launch(&self, job: &Job, number: usize, first_order: &str) -> Launcher {
        let enter = self.hosts[number].enter();
        let enter: Vec<&str> = enter.iter().map(String::as_str).collect();
        let line = job.launcher().with(&["--shutdown-timeout", "600"]).by(&enter);
        line.program(&["sh", &job.file("worker.sh"), first_order]).start()
    }
}

fn port(number: usize) -> String {
    format!("port{number}")
}

fn address(number: usize) -> String {
    format!("10.77.0.{}", number + 11)
}

/// Each worker looks at its start for those of `$JOB/cut`, which must not live beside it.
const LOOK: &str = "for pid in $(cat $JOB/cut 2>/dev/null); do
        ! grep -q '^State:.[^ZX]' /proc/$pid/status 2>/dev/null || echo $pid beside $$ >> $JOB/overlap
    done";

/// The lease leaves its last eighth to stop what must stop: long enough for a busy machine.
const LEASE: u64 = 8;

#[test]
fn a_host_that_is_cut_off_stops_its_workers_before_the_others_regroup() {
    let network = Network::new(3);
    let endpoint = format!("{}:29400", address(0));
    let conf = format!("lease_ttl={LEASE},last_call_timeout=30");
    let job = Job::with_conf(&endpoint, "2:3", &conf);
    // The one that will be cut off does not go when it is asked to: it must be killed in time.
    let orders = [LOOK.to_owned(), LOOK.to_owned(), format!("{LOOK}; trap '' TERM")];
    let launch = |(number, order): (usize, &String)| network.launch(&job, number, order);
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

/// Its own session is as good as ever, and the others cannot tell what it does: they must stop.
#[test]
fn when_the_host_with_the_server_is_cut_off_the_others_stop_and_come_back() {
    let network = Network::new(3);
    let endpoint = format!("{}:29400", address(0));
    let job = Job::with_conf(&endpoint, "2:3", "lease_ttl=4,last_call_timeout=30");
    // Those who must stop do not go when they are asked to.
    let order = "[ $LAUNCHER = 0 ] || [ $RALLYPOINT_ATTEMPT != 0 ] || trap '' TERM";
    let mut nodes: Vec<Launcher> =
        (0..3).map(|number| network.launch(&job, number, order)).collect();
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
    let mut nodes: Vec<Launcher> = (0..2).map(|number| network.launch(&job, number, ":")).collect();
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
