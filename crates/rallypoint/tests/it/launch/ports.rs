//! The ports of a round (`--ports`), and placeholders in the arguments of the program (`--placeholders`).

use std::net::TcpListener;

use super::{Group, Job, Launcher, free_endpoint, until_true};
use crate::support::tools::free_port;

/// The ports that the workers of a group were told: all of them the same.
fn ports(group: &Group) -> [u16; 2] {
    let told = ["RALLYPOINT_PORT_0", "RALLYPOINT_PORT_1"];
    let ports = told.map(|name| group.workers[0].get(name).parse().unwrap());
    for worker in &group.workers {
        assert_eq!(told.map(|name| worker.get(name).parse::<u16>().unwrap()), ports);
    }
    assert_ne!(ports[0], ports[1]);
    ports
}

/// Whether a program that shares its port with no other program gets this one.
fn is_free(port: u16) -> bool {
    let socket = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::STREAM,
        None,
    );
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    rustix::net::bind(socket.unwrap(), &address).is_ok()
}

#[test]
fn all_nodes_are_told_the_same_ports_which_are_held_for_a_worker() {
    let job = Job::at(&free_endpoint(), "2");
    let options = ["--ports", "2", "--nproc-per-node", "2", "--max-restarts", "1"];
    let mut nodes: Vec<Launcher> = (0..2).map(|_| job.launch_with(&options)).collect();
    let first = job.group(4);
    let old = ports(&first);
    assert!(!old.into_iter().any(is_free), "they are held");
    // As a worker takes it: with SO_REUSEADDR.
    let taken = TcpListener::bind(("127.0.0.1", old[0])).unwrap();
    first.workers[3].tell("exit 1");
    let second = job.group_after(&first, 4);
    let new = ports(&second);
    assert!(!new.contains(&old[0]), "it is taken");
    until_true("the port of the first round is released", || {
        new.contains(&old[1]) || is_free(old[1])
    });
    drop(taken);
    second.tell("exit 0");
    for node in &mut nodes {
        node.ends_with(0);
    }
    job.nothing_is_left();
}

#[test]
fn nodes_that_are_known_to_be_alike_are_told_the_ports_too() {
    let job = Job::at(&free_endpoint(), "2");
    let node = |_| {
        let line = job.launcher().with(&["--ports", "2"]);
        line.env("TORCH_ELASTIC_WORKER_IDENTICAL", "1").env("RALLYPOINT_PORT_7", "outer").start()
    };
    let mut nodes: Vec<Launcher> = (0..2).map(node).collect();
    let group = job.group(2);
    ports(&group);
    for worker in &group.workers {
        let is_there = worker.environment.contains_key("RALLYPOINT_PORT_7");
        assert!(!is_there, "a port of an outer launcher");
    }
    group.tell("exit 0");
    for node in &mut nodes {
        node.ends_with(0);
    }
}

#[test]
fn nodes_with_different_numbers_of_ports_are_named() {
    let job = Job::at(&free_endpoint(), "2");
    let first = job.launch_with(&["--ports", "1", "--node-rank", "0"]);
    let _second = job.launch_with(&["--ports", "2", "--node-rank", "1"]);
    first.says(
        "the node of rank 1 has --ports 2, and that of rank 0 1: give all nodes the same number",
    );
    assert!(job.workers().is_empty(), "no worker is started");
}

/// Where a firewall lets only some ports pass.
#[test]
fn ports_come_from_those_that_were_given() {
    let first = free_port();
    let last = first.saturating_add(50);
    let conf = format!("lease_ttl=30,store_ports={first}-{last}");
    let job = Job::with_conf(&free_endpoint(), "1", &conf);
    let mut node = job.launch_with(&["--ports", "2"]);
    let group = job.group(1);
    for port in ports(&group) {
        assert!((first..=last).contains(&port), "{port} of {conf}");
        assert_ne!(port, group.workers[0].get("MASTER_PORT").parse::<u16>().unwrap());
    }
    group.tell("exit 0");
    node.ends_with(0);
}

#[test]
fn placeholders_stand_for_the_values_of_each_worker() {
    let job = Job::new(&["--nproc-per-node", "2"]);
    let print = r#"printf '%s\n' "$MASTER_ADDR:$RALLYPOINT_PORT_0" "$@" > "$JOB/words.$RANK""#;
    let words = ["{rank}", "{{rank}}", r#"{"rank": {local_rank}}"#, "{master_addr}:{port0}"];
    let program = [&["sh", "-c", print, "sh"], &words[..]].concat();
    let line = job.launcher().with(&["--ports", "1", "--placeholders"]).program(&program);
    line.start().ends_with(0);
    let said = |rank| std::fs::read_to_string(job.path().join(format!("words.{rank}"))).unwrap();
    for rank in 0..2 {
        let said = said(rank);
        let lines: Vec<&str> = said.lines().collect();
        let json = format!(r#"{{"rank": {rank}}}"#);
        assert_eq!(lines[1..], [&rank.to_string(), "{rank}", json.as_str(), lines[0]], "{said}");
    }
    // Off unless asked for.
    job.launcher().with(&["--ports", "1"]).program(&program).start().ends_with(0);
    assert_eq!(said(0).lines().skip(1).collect::<Vec<_>>(), words);
}
