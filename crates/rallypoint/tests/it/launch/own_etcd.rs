//! `--engine etcd`: the etcd cluster that a job runs on three of its own hosts.

use std::time::{Duration, Instant};

use super::hosts::Network;
use super::{Group, Job, Launcher, until};
use crate::secure::Authority;
use crate::support::Version;

const CONF: &str = "lease_ttl=6,last_call_timeout=30,timeout=60";

/// A job of up to `hosts` nodes on hosts that know each other's names, the first three of which run an etcd each.
struct Ground {
    network: Network,
    job: Job,
}

impl Ground {
    fn new(nnodes: &str, hosts: usize) -> Self {
        let network = Network::new(hosts);
        network.know(&["node0", "node1", "node2", "node3"][..hosts]);
        let job = Job::with_conf("node0,node1,node2", nnodes, CONF);
        Self { network, job }
    }

    fn launch_with(&self, number: usize, options: &[&str]) -> Launcher {
        let enter = self.network.hosts[number].enter();
        let enter: Vec<&str> = enter.iter().map(String::as_str).collect();
        let etcd = Version::V3_5.etcd();
        let line = self.job.launcher().with(&["--engine", "etcd"]).with(options).by(&enter);
        line.env("TORCHELASTIC_ETCD_BINARY_PATH", etcd.to_str().unwrap()).start()
    }

    fn launch(&self, number: usize) -> Launcher {
        self.launch_with(number, &[])
    }

    /// The processes of etcd of this job: of all hosts.
    fn etcds(&self) -> Vec<u32> {
        let is_etcd = |pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains("--initial-cluster-token")
        };
        self.job.processes().into_iter().filter(is_etcd).collect()
    }

    fn ends(&self, nodes: &mut [Launcher], group: &Group) {
        let begun = Instant::now();
        group.tell("exit 0");
        for node in nodes {
            node.ends_with(0);
        }
        assert!(begun.elapsed() < Duration::from_secs(9), "it took {:?}", begun.elapsed());
        self.job.nothing_is_left();
    }
}

#[test]
fn three_of_four_hosts_run_one_cluster_and_nothing_is_left() {
    let ground = Ground::new("4", 4);
    let mut nodes: Vec<Launcher> = (0..4).map(|number| ground.launch(number)).collect();
    let group = ground.job.group(4);
    assert_eq!(ground.etcds().len(), 3);
    for (number, node) in nodes.iter().enumerate() {
        let says = node.stderr().contains("one of the 3 members of the job's etcd cluster");
        assert_eq!(says, number < 3, "{}", node.stderr());
    }
    ground.ends(&mut nodes, &group);
}

/// Any of the three, by SIGKILL and by the loss of the whole host; the cluster has a new leader if it was that one.
#[test]
fn a_job_survives_the_loss_of_any_of_its_hosts() {
    for lost in 0..3 {
        let ground = Ground::new("2:3", 3);
        let mut nodes: Vec<Launcher> = (0..3).map(|number| ground.launch(number)).collect();
        let first = ground.job.group(3);
        if lost == 1 {
            ground.network.plug(lost, "down");
        } else {
            nodes[lost].kill();
        }
        let second = ground.job.group_after(&first, 2);
        assert!(!second.launchers().contains(&lost));
        let mut cut = nodes.remove(lost);
        if lost == 1 {
            // It is alone, has lost its session, and stays so until somebody ends it.
            assert!(!cut.has_ended());
            cut.kill();
        }
        ground.ends(&mut nodes, &second);
    }
}

#[test]
fn a_launcher_that_ends_leaves_its_member_to_the_others_until_the_job_is_over() {
    let ground = Ground::new("1:3", 3);
    let mut nodes: Vec<Launcher> = (0..3).map(|number| ground.launch(number)).collect();
    let first = ground.job.group(3);
    for node in &mut nodes[..2] {
        node.signal(rustix::process::Signal::TERM);
        node.says("other nodes use the server of this process");
    }
    let second = ground.job.group_after(&first, 1);
    assert_eq!(ground.etcds().len(), 3);
    second.tell("exit 0");
    nodes.pop().unwrap().ends_with(0);
    for node in &mut nodes {
        assert_eq!(node.ended().code, Some(128 + 15));
    }
    ground.job.nothing_is_left();
}

/// The scheduler starts the launcher of a lost host again, on the same host or another of the same name.
#[test]
fn a_new_launcher_on_a_host_takes_the_place_of_the_former_member() {
    let ground = Ground::new("2:3", 3);
    let mut nodes: Vec<Launcher> = (0..3).map(|number| ground.launch(number)).collect();
    let mut group = ground.job.group(3);
    // Twice: the member that is replaced the second time was not one of the first.
    for _ in 0..2 {
        nodes[0].kill();
        group = ground.job.group_after(&group, 2);
        nodes[0] = ground.launch(0);
        nodes[0].says("this one takes its place");
        nodes[0].says("the etcd cluster of the job serves");
        group = ground.job.group_after(&group, 3);
    }
    // The new member counts: without it the next loss would end the cluster.
    nodes.remove(1).kill();
    let last = ground.job.group_after(&group, 2);
    ground.ends(&mut nodes, &last);
}

#[test]
fn an_etcd_that_dies_is_started_again_and_the_group_goes_on() {
    let ground = Ground::new("3", 3);
    let mut nodes: Vec<Launcher> = (0..3).map(|number| ground.launch(number)).collect();
    let group = ground.job.group(3);
    for etcd in ground.etcds() {
        let pid = rustix::process::Pid::from_raw(etcd.try_into().unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        until("there are three again", || {
            let etcds = ground.etcds();
            (etcds.len() == 3 && !etcds.contains(&etcd)).then_some(())
        });
        until("a launcher has said so", || {
            let again = |node: &Launcher| node.stderr().matches("the job serves").count() > 1;
            (nodes.iter().filter(|node| again(node)).count() > 0).then_some(())
        });
        group.does(":");
    }
    assert_eq!(ground.job.rounds().len(), 1);
    ground.ends(&mut nodes, &group);
}

#[test]
fn members_and_clients_show_certificates() {
    let ground = Ground::new("3", 3);
    let authority = Authority::new();
    let ca = ground.job.path().join("ca.crt");
    std::fs::write(&ca, authority.pem()).unwrap();
    let mut nodes = Vec::new();
    for number in 0..3 {
        let directory = ground.job.path().join(format!("tls{number}"));
        std::fs::create_dir(&directory).unwrap();
        let (cert, key) = authority.sign(&directory, &format!("node{number}"));
        let [ca, cert, key] = [&ca, &cert, &key].map(|path| path.to_str().unwrap());
        let options = ["--cacert", ca, "--cert", cert, "--key", key];
        nodes.push(ground.launch_with(number, &options));
    }
    let group = ground.job.group(3);
    // A client without a certificate is refused.
    let said = ground.launch_with(0, &["--cacert", ca.to_str().unwrap()]).ends_with(2).stderr;
    assert!(said.contains("--cert is missing"), "{said}");
    ground.ends(&mut nodes, &group);
}

#[test]
fn what_keeps_a_host_from_running_its_member_is_named() {
    let ground = Ground::new("2:3", 3);
    let enter = ground.network.hosts[0].enter();
    let enter: Vec<&str> = enter.iter().map(String::as_str).collect();
    let line = || ground.job.launcher().with(&["--engine", "etcd"]).by(&enter);
    let missing = line().env("TORCHELASTIC_ETCD_BINARY_PATH", "/nowhere/etcd");
    let said = missing.start().ends_with(1).stderr;
    assert!(said.contains("cannot run its member of the job's etcd cluster"), "{said}");
    assert!(said.contains("TORCHELASTIC_ETCD_BINARY_PATH is \"/nowhere/etcd\""), "{said}");
    // An etcd that ends at once.
    let broken = ground.job.file("etcd");
    std::fs::write(&broken, "#!/bin/sh\necho no such luck\nexit 3\n").unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&broken, executable).unwrap();
    let said = line().env("TORCHELASTIC_ETCD_BINARY_PATH", &broken).start().ends_with(1).stderr;
    assert!(said.contains("no such luck"), "{said}");
    ground.job.nothing_is_left();
}
