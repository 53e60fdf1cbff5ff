//! Several hosts: names, addresses and firewalls between them.

use super::Doctor;
use crate::launch::hosts::{Host, Network, address};
use crate::launch::{Job, Launcher, until};
use crate::support::process::Directory;

fn doctor(host: &Host, endpoint: &str, options: &[&str]) -> Doctor {
    let usual = ["--nnodes", "2", "--rdzv-endpoint", endpoint, "--rdzv-id", "job"];
    Doctor::new(&[&usual[..], options].concat()).by(&host.enter())
}

fn launch(host: &Host, job: &Job, options: &[&str]) -> Launcher {
    let enter = host.enter();
    let enter: Vec<&str> = enter.iter().map(String::as_str).collect();
    job.launcher().with(options).by(&enter).start()
}

/// pytorch#69197, #107021, #79388: "the client socket has timed out", and nothing about the addresses.
#[test]
fn an_endpoint_that_refuses_is_described_by_its_addresses_and_this_hosts() {
    let network = Network::new(2);
    let other = &network.hosts[1];
    other.knows(&[(&address(0), "head"), (&address(1), "node1")]);
    let sentence = "head:29400 is 10.77.0.11. Refused: nothing listens there. This host is not it: its addresses are 10.77.0.12.";
    let found = doctor(other, "head", &[]).finds().is("ok");
    found.says("server", "warn", sentence);
    found.says("endpoint", "ok", "head is 10.77.0.11. This host is not it");
    found.says("host_name", "ok", "node1, the name of this host, means 10.77.0.12");
    found.says("address", "ok", "Other nodes would be told that this one is at 10.77.0.12");
    doctor(other, "head", &["--rdzv-backend", "etcd"]).finds().is("fail").says(
        "server",
        "fail",
        "head:2379 is 10.77.0.11",
    );
    // A launcher that waits says the same, once.
    let job = Job::at("head:29400", "2");
    let node = launch(other, &job, &[]);
    node.says_soon("nothing listens there");
    node.says_soon("head is 10.77.0.11. This host is not it: its addresses are 10.77.0.12");
    let head = &network.hosts[0];
    head.knows(&[(&address(0), "head")]);
    doctor(head, "head", &[]).finds().is("ok").says(
        "server",
        "ok",
        "This host is it, and can listen there",
    );
}

/// jax#35905: a firewall of the cloud drops the port.
#[test]
fn a_port_that_is_dropped_is_told_from_one_that_is_refused() {
    let network = Network::new(2);
    let other = &network.hosts[1];
    // Packets to that host go nowhere, without an answer.
    other.ip(&[
        "neigh",
        "add",
        &address(0),
        "lladdr",
        "02:00:00:00:00:99",
        "dev",
        "eth0",
        "nud",
        "permanent",
    ]);
    let endpoint = format!("{}:29400", address(0));
    let found = doctor(other, &endpoint, &[]).finds().is("fail");
    found.says("server", "fail", "No answer, so a firewall rather than a dead process");
    let job = Job::at(&endpoint, "2");
    let node = launch(other, &job, &[]);
    node.says("No answer, so a firewall rather than a dead process");
}

/// pith-train#91: every node met itself.
#[test]
fn localhost_is_no_place_for_two_hosts() {
    let network = Network::new(1);
    let host = &network.hosts[0];
    let found = doctor(host, "localhost", &[]).finds().is("fail");
    let words = "The endpoint is localhost and --nnodes is 2: every host would meet only itself.";
    found.says("endpoint", "fail", words);
    doctor(host, "localhost", &["--node-rank", "0"]).finds().is("ok").says(
        "endpoint",
        "warn",
        "only this host",
    );
}

#[test]
fn names_that_do_not_resolve_or_mean_loopback_are_named() {
    let network = Network::new(1);
    let host = &network.hosts[0];
    let found = doctor(host, "haed", &[]).finds().is("fail");
    found.says("endpoint", "fail", "haed does not resolve on this host");
    found.says("server", "skip", "not checked");
    found.says("host_name", "warn", "node0, the name of this host, does not resolve on it");
    // As Debian has it.
    host.knows(&[("127.0.1.1", "node0")]);
    let found = doctor(host, "node0", &[]).finds().is("ok");
    found.says("host_name", "warn", "means 127.0.1.1 alone");
    found.says("endpoint", "ok", "node0 is this host, and means 127.0.1.1 to it");
    found.says("address", "ok", "is at 10.77.0.11");
    host.ip(&["address", "add", "10.78.0.5/24", "dev", "eth0"]);
    let found = doctor(host, "node0", &[]).finds().is("fail");
    found.says(
        "address",
        "fail",
        "it cannot be told which of 10.77.0.11, 10.78.0.5 other nodes reach",
    );
}

/// pytorch#64926: several interfaces, and the wrong one is published.
#[test]
fn an_address_that_other_hosts_do_not_reach_is_found_by_them() {
    let network = Network::new(2);
    let [head, other] = &network.hosts[..] else { unreachable!() };
    let endpoint = format!("{}:29400", address(0));
    // Nobody else has a route to it.
    other.ip(&["address", "add", "10.99.0.5/32", "dev", "lo"]);
    let job = Job::at(&endpoint, "3");
    let _nodes = [launch(head, &job, &[]), launch(other, &job, &["--local-addr", "10.99.0.5"])];
    let listed = |nodes: &str| {
        let found = doctor(head, &endpoint, &["--nnodes", "3"]).finds();
        found.of("peers").iter().any(|(_, words)| words.contains(nodes)).then_some(found)
    };
    let found = until("both nodes are there", || listed("node1 says"));
    let found = found.is("fail");
    found.says(
        "peers",
        "fail",
        "node1 says that it is at 10.99.0.5, and this host does not reach 10.99.0.5:",
    );
    found.says("peers", "fail", "Give --local-addr on node1");
    let found = doctor(other, &endpoint, &["--local-addr", "10.28.1.16"]).finds();
    found.says("address", "warn", "is at 10.28.1.16, which is no address of this host: it has ");
}

/// Tried by the server, before a node waits in vain for the workers' store.
#[test]
fn an_unreachable_address_published_is_named_by_the_servers_host() {
    let network = Network::new(4);
    let [head, other, third, fourth] = &network.hosts[..] else { unreachable!() };
    let endpoint = format!("{}:29400", address(0));
    // Nobody else has a route to it.
    other.ip(&["address", "add", "10.99.0.5/32", "dev", "lo"]);
    // A firewall drops what the head sends to it, and lets its answers pass.
    third.ip(&["address", "add", "10.77.0.77/32", "dev", "lo"]);
    let nobody = ["lladdr", "02:00:00:00:00:99", "dev", "eth0", "nud", "permanent"];
    head.ip(&[&["neigh", "add", "10.77.0.77"], &nobody[..]].concat());
    fourth.knows(&[(&address(3), "node3")]);
    let early = doctor(other, &endpoint, &[]).finds();
    early.says("dial_back", "skip", "Not tried: no server answers yet");

    let job = Job::at(&endpoint, "2");
    let nodes = [launch(head, &job, &[])];
    nodes[0].says("waiting: 1 of 2 nodes");
    let found = doctor(other, &endpoint, &[]).finds().is("ok");
    let reached = format!("The server's host reaches this host at {}:", address(1));
    found.says("dial_back", "ok", &reached);
    let found = doctor(other, &endpoint, &["--rdzv-conf", "store_ports=29500-29501"]).finds();
    found.says("dial_back", "ok", &format!("{}:29500, the address", address(1)));

    let cannot = "The server's host cannot reach this host at";
    let unreachable = doctor(other, &endpoint, &["--local-addr", "10.99.0.5"]).finds().is("fail");
    unreachable.says("dial_back", "fail", &format!("{cannot} 10.99.0.5:"));
    unreachable.says("dial_back", "fail", "no route leads there");
    unreachable.says("dial_back", "fail", "Give --local-addr with an address");
    unreachable.says("address", "ok", "10.99.0.5");
    let dropped = doctor(third, &endpoint, &["--local-addr", "10.77.0.77"]).finds().is("fail");
    dropped.says("dial_back", "fail", &format!("{cannot} 10.77.0.77:"));
    dropped.says("dial_back", "fail", "connection timed out, so a firewall");
    let unknown = doctor(fourth, &endpoint, &["--local-addr", "node3"]).finds().is("fail");
    unknown.says("dial_back", "fail", &format!("{cannot} node3:"));
    unknown.says("dial_back", "fail", "the name does not resolve there");
    // The address of the head itself.
    let refused = doctor(fourth, &endpoint, &["--local-addr", &address(0)]).finds().is("fail");
    refused.says("dial_back", "fail", "the connection was refused");
    // On the host of the server.
    let here = doctor(head, &endpoint, &[]).finds().is("ok");
    here.says("dial_back", "ok", "It is on this host too");
}

/// The same by launchers that wait for a third node.
#[test]
fn a_launcher_that_waits_says_that_the_server_does_not_reach_it() {
    let network = Network::new(2);
    let [head, other] = &network.hosts[..] else { unreachable!() };
    let endpoint = format!("{}:29400", address(0));
    other.ip(&["address", "add", "10.99.0.5/32", "dev", "lo"]);
    let job = Job::at(&endpoint, "3");
    let nodes = [launch(head, &job, &[]), launch(other, &job, &["--local-addr", "10.99.0.5"])];
    nodes[1].says("while this node waits: The server's host cannot reach this host at 10.99.0.5:");
    assert!(!nodes[0].stderr().contains("cannot reach this host"), "{}", nodes[0].stderr());
}

/// The resolver of the system would wait for ten seconds and more.
#[test]
fn a_name_server_that_does_not_answer_costs_less_than_five_seconds() {
    let network = Network::new(1);
    let host = &network.hosts[0];
    let silent = "10.77.0.99";
    host.ip(&[
        "neigh",
        "add",
        silent,
        "lladdr",
        "02:00:00:00:00:99",
        "dev",
        "eth0",
        "nud",
        "permanent",
    ]);
    let directory = Directory::new();
    let file = directory.path().join("resolv.conf");
    std::fs::write(&file, format!("nameserver {silent}\n")).unwrap();
    let mount =
        ["sh", "-c", "mount --bind \"$0\" /etc/resolv.conf && exec \"$@\"", file.to_str().unwrap()];
    let mut by = host.enter();
    by.extend(mount.map(str::to_owned));
    let options = ["--nnodes", "2", "--rdzv-endpoint", "head", "--rdzv-id", "job"];
    let found = Doctor::new(&options).by(&by).finds().is("fail");
    found.says("endpoint", "fail", "head does not resolve on this host");
    found.says("host_name", "warn", "does not resolve on it");
    found.says("descriptors", "ok", "");
}
