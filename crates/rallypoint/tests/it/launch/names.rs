//! Hosts whose names mean one thing to themselves and another to the others, or nothing yet.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use super::hosts::{Host, Network, address};
use super::workers::Worker;
use super::{Job, Launcher, free_endpoint};

fn launch(host: &Host, job: &Job, options: &[&str]) -> Launcher {
    let enter = host.enter();
    let enter: Vec<&str> = enter.iter().map(String::as_str).collect();
    job.launcher().with(options).by(&enter).start()
}

/// Debian, Ubuntu and DGX OS have `127.0.1.1` for a host's own name.
#[test]
fn a_host_that_knows_its_own_name_by_loopback_is_reached_by_other_hosts() {
    let network = Network::new(2);
    let [head, other] = &network.hosts[..] else { unreachable!() };
    head.knows(&[("127.0.1.1", "node0"), (&address(1), "node1")]);
    other.knows(&[("127.0.1.1", "node1"), (&address(0), "node0")]);
    let job = Job::at("node0:29400", "2");
    let mut nodes =
        [launch(head, &job, &["--node-rank", "0"]), launch(other, &job, &["--node-rank", "1"])];
    let group = job.group(2);
    assert_eq!(group.workers[0].get("MASTER_ADDR"), address(0));
    group.tell("exit 0");
    for node in &mut nodes {
        node.ends_with(0);
    }
}

/// In Kubernetes the name of a pod resolves some seconds after the pod has started.
#[test]
fn a_host_whose_name_resolves_late_serves_then() {
    let network = Network::new(2);
    let job = Job::at("head:29400", "2");
    let nodes = network.hosts.iter().map(|host| launch(host, &job, &[]));
    let mut nodes: Vec<Launcher> = nodes.collect();
    for node in &nodes {
        node.says_soon("name does not resolve");
    }
    for host in &network.hosts {
        host.knows(&[(&address(1), "head")]);
    }
    let group = job.group(2);
    group.tell("exit 0");
    for node in &mut nodes {
        node.ends_with(0);
    }
}

/// The name of a pod that was replaced resolves for some seconds to the address of the one before.
#[test]
fn a_host_whose_name_resolves_to_one_that_is_gone_serves_when_it_means_itself() {
    let network = Network::new(2);
    for host in &network.hosts {
        host.knows(&[("10.77.0.99", "head")]);
    }
    let job = Job::at("head:29400", "2");
    let nodes = network.hosts.iter().map(|host| launch(host, &job, &[]));
    let mut nodes: Vec<Launcher> = nodes.collect();
    for node in &nodes {
        node.says_soon("no server answers at head:29400");
    }
    for host in &network.hosts {
        host.knows(&[(&address(0), "head")]);
    }
    let group = job.group(2);
    group.tell("exit 0");
    for node in &mut nodes {
        node.ends_with(0);
    }
}

/// torchx tells rank 0 `localhost`, and the others the name of its host.
#[test]
fn rank_0_that_is_told_localhost_serves_the_others() {
    let network = Network::new(2);
    let [head, other] = &network.hosts[..] else { unreachable!() };
    other.knows(&[(&address(0), "node0")]);
    let first = Job::at("localhost:29500", "2");
    let mut nodes = [
        launch(head, &first, &["--node-rank", "0"]),
        launch(other, &first, &["--node-rank", "1", "--rdzv-endpoint", "node0:29500"]),
    ];
    let group = first.group(2);
    assert_eq!(group.workers[0].get("MASTER_ADDR"), address(0));
    group.tell("exit 0");
    for node in &mut nodes {
        node.ends_with(0);
    }
}

#[test]
fn a_host_with_several_addresses_that_cannot_tell_which_other_hosts_use_asks() {
    let network = Network::new(1);
    let head = &network.hosts[0];
    head.knows(&[("127.0.1.1", "node0")]);
    head.ip(&["address", "add", "10.78.0.5/24", "dev", "eth0"]);
    let job = Job::at("node0:29400", "2");
    let said = launch(head, &job, &[]).ends_with(1).stderr;
    for words in ["local_addr is missing", "node0", "10.77.0.11, 10.78.0.5"] {
        assert!(said.contains(words), "{said}");
    }
    let said = launch(head, &job, &["--local-addr", "10.78.0.5", "--dry-run"]).ends_with(0).stdout;
    assert!(said.contains("10.78.0.5"), "{said}");
}

/// Such as an HTTP server that has the port of the endpoint.
#[test]
fn a_program_that_is_no_server_is_named_as_that() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = listener.local_addr().unwrap().to_string();
    // It ends with the test.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(|| {
                let mut stream = stream.unwrap();
                let _ = stream.read(&mut [0; 64]);
                let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
            });
        }
    });
    let job = Job::at(&endpoint, "2");
    let (begun, mut node) = (Instant::now(), job.launch());
    node.says_soon(&format!(
        "no server answers at {endpoint}: the program that answers is no etcd"
    ));
    let elapsed = begun.elapsed();
    assert!(elapsed < Duration::from_secs(6), "five seconds, not {elapsed:?}");
    node.kill();
}

/// Seen: one line at debug level on that node alone, while its workers timed out.
#[test]
fn a_node_that_does_not_reach_rank_0_is_named_by_every_node() {
    let network = Network::new(3);
    let job = Job::at(&format!("{}:29400", address(0)), "3");
    network.hosts[1].ip(&["route", "add", "blackhole", &address(2)]);
    let ranks = ["1", "2", "0"];
    let nodes = network.hosts.iter().zip(ranks);
    let mut nodes: Vec<Launcher> =
        nodes.map(|(host, rank)| launch(host, &job, &["--node-rank", rank])).collect();
    let group = job.group(3);
    assert_eq!(group.workers[0].get("MASTER_ADDR"), address(2));
    for node in &nodes {
        node.says_soon(&format!("no connection to rank 0 at {}:", address(2)));
        node.says("store_ports");
    }
    for node in [&nodes[0], &nodes[2]] {
        assert!(node.stderr().contains("node1-"), "it says whose: {}", node.stderr());
    }
    group.tell("exit 0");
    for node in &mut nodes {
        node.ends_with(0);
    }
}

#[test]
fn a_port_without_a_listener_is_named_as_that() {
    let job = Job::with_conf(&free_endpoint(), "2", "is_host=false");
    let mut node = job.launch();
    node.says_soon("nothing listens there");
    node.kill();
}

/// As with torchrun's `c10d`, and not by who came first, which differs from run to run.
#[test]
fn ranks_follow_the_names_of_the_hosts() {
    let network = Network::new(3);
    let job = Job::at(&format!("{}:29400", address(0)), "3");
    let mut nodes = Vec::new();
    for (there, host) in network.hosts.iter().rev().enumerate() {
        nodes.push(launch(host, &job, &["--rdzv-conf", "timeout=60,lease_ttl=30"]));
        // The host with the server comes last, and the others before it in turn.
        if there < 2 {
            nodes[there].says_soon("no server answers");
        }
    }
    let group = job.group(3);
    let launchers: Vec<usize> = group.workers.iter().map(Worker::launcher).collect();
    assert_eq!(launchers, [2, 1, 0], "node0 was launched last");
    group.tell("exit 0");
    for node in &mut nodes {
        node.ends_with(0);
    }
}
