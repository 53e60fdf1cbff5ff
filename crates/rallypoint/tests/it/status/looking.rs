//! `status` and `explain`.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Server, states};
use crate::launch::{free_endpoint, until, wait};
use crate::support::Embedded;
use crate::support::process::Directory;

/// On our server and on a real etcd alike.
#[test]
fn a_job_that_waits_names_the_nodes_that_are_missing() {
    for server in [Server::ours(), Server::etcd()] {
        let job = server.job("3");
        let _nodes = ["0", "2"].map(|rank| job.launch_with(&["--node-rank", rank]));
        let status =
            server.until("two nodes have joined", |status| status["counts"]["present"] == 2);
        assert_eq!(status["state"], "joinable");
        assert_eq!(status["reason"], "waits for 1 more node");
        assert_eq!(status["missing"][0]["rank"], 1);
        assert_eq!(states(&status), ["joined", "joined"]);
        let lease = &status["nodes"][0]["lease"];
        assert_eq!(lease["ttl_s"], 30, "{status}");
        assert!(lease["left_s"].as_i64().unwrap() > 15, "{status}");
        let text = server.says(&["status", "job"]).stdout;
        let missing = text.lines().find(|line| line.contains("missing")).unwrap();
        assert!(missing.starts_with('1'), "{text}");
        let told = server.explained();
        assert!(told.contains("It has 2 of 3 nodes"), "{told}");
        assert!(told.contains("Node rank 1 has not been seen."), "{told}");
        assert!(told.contains("What helps: Start 1 more node"), "{told}");
    }
}

/// It has not joined, and is still known.
#[test]
fn a_node_that_was_unfit_is_missing_with_its_exit() {
    let server = Server::ours();
    let job = server.job("2");
    let _first = job.launch_with(&["--node-rank", "0"]);
    server.until("a node has joined", |status| status["counts"]["present"] == 1);
    let unfit = ["--node-rank", "1", "--preflight", "echo no GPU; exit 3"];
    job.launch_with(&unfit).ends_with(69);
    let told = server.explained();
    let words = "with exit code 69: the preflight command failed, so this node does not join: ";
    assert!(told.contains("Node rank 1 was here and is gone: ") && told.contains(words), "{told}");
    assert_eq!(server.status()["missing"][0]["last_exit"]["code"], 69);
}

#[test]
fn a_running_job_shows_its_members_its_spare_and_its_restarts() {
    let server = Server::etcd();
    let job = server.job("3");
    let mut nodes: Vec<_> = (0..4)
        .map(|_| job.launch_with(&["--max-restarts", "2", "--nproc-per-node", "2"]))
        .collect();
    let group = job.group(6);
    let status = server.until("a spare", |status| status["counts"]["spare"] == 1);
    assert_eq!((&status["state"], &status["reason"]), (&"final".into(), &"running".into()));
    assert_eq!(states(&status), ["member", "member", "member", "spare"]);
    assert_eq!(status["restarts"]["left"], 2);
    assert_eq!(status["nodes"][0]["workers"], 2);
    for node in status["nodes"].as_array().unwrap() {
        let time = |field: &str| node[field].as_u64();
        let started = time("started_unix_ms").unwrap();
        match node["state"] == "member" {
            true => assert!(time("joined_unix_ms").unwrap() >= started, "{node}"),
            false => assert_eq!(time("joined_unix_ms"), None, "a spare has not joined: {node}"),
        }
    }
    let listed = server.says(&["status"]).stdout;
    let line = listed.lines().nth(1).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(&words[..7], ["job", "final", "3/3", "+1", "spare", "1", "2/2"], "{listed}");
    assert!(line.ends_with("running"), "{listed}");
    group.tell("exit 0");
    for node in &mut nodes {
        node.ends_with(0);
    }
    let status = server.status();
    assert_eq!(
        (&status["state"], &status["closed"]["outcome"]),
        (&"closed".into(), &"succeeded".into())
    );
}

/// Its lease is long: what is shown comes from watches, and not from time.
#[test]
fn a_watch_sees_a_node_die() {
    let server = Server::ours();
    let job = server.job("2:3");
    let mut nodes = job.launchers(3);
    let group = job.group(3);
    let line = server.command(&["status", "job", "--watch", "--json"], &[]);
    let mut watch = Command::new(&line[0]).args(&line[1..]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut next = || -> Value {
        let line = lines.next().unwrap().unwrap();
        serde_json::from_str::<Value>(&line).unwrap()["runs"][0].take()
    };
    let first = next();
    assert_eq!(first["counts"]["present"], 3, "{first}");
    let id = first["nodes"].as_array().unwrap().iter().find(|node| node["pid"] == nodes[1].id());
    let id = id.unwrap()["id"].as_str().unwrap().to_owned();
    nodes[1].kill();
    let begun = Instant::now();
    let is_member = |status: &Value| {
        let nodes = status["nodes"].as_array().unwrap();
        nodes.iter().any(|node| node["id"] == id.as_str() && node["state"] == "member")
    };
    while is_member(&next()) {}
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let again = job.group_after(&group, 2);
    while next()["counts"]["present"] != 2 {}
    watch.kill().unwrap();
    watch.wait().unwrap();
    let told = server.explained();
    assert!(told.contains(&format!("lost {id}")), "{told}");
    again.tell("exit 0");
    nodes[0].ends_with(0);
    nodes[2].ends_with(0);
}

#[test]
fn a_run_that_the_server_does_not_have_is_an_error() {
    let server = Server::ours();
    assert_eq!(server.says(&["status"]).stdout, "this server has no runs\n");
    for command in ["status", "explain"] {
        let said = server.says(&[command, "nothing"]);
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(said.stderr.contains("the server has no run \"nothing\""), "{said:?}");
    }
    // It has looked, and left nothing.
    assert_eq!(server.says(&["status"]).stdout, "this server has no runs\n");
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let endpoint = free_endpoint();
    let server = Server { address: endpoint.clone(), _ours: None, _etcd: None };
    let begun = Instant::now();
    let said = until("an answer", || Some(server.says(&["status"])));
    assert_eq!(said.code, Some(1), "{said:?}");
    let expected = format!("no server answers at {endpoint}: nothing listens there");
    assert!(said.stderr.contains(&expected), "{said:?}");
    assert!(said.stderr.contains("has not started, or the port is another"), "{said:?}");
    assert!(begun.elapsed() < Duration::from_secs(6), "it says so soon: {said:?}");
}

/// A server that ends, and one that is stopped in its tracks: the watch says so, and goes on when it is back.
#[test]
fn a_watch_says_that_the_server_is_away() {
    let mut ours = wait(Embedded::memory());
    let server = Server { address: ours.address(), _ours: None, _etcd: None };
    let directory = Directory::new();
    let stderr = directory.path().join("stderr");
    let line = server.command(&["status", "--watch"], &[]);
    let mut watch = Command::new(&line[0])
        .args(&line[1..])
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(&stderr).unwrap())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut shows = || while lines.next().unwrap().unwrap() != "this server has no runs" {};
    shows();
    let said = || std::fs::read_to_string(&stderr).unwrap();
    let times = || said().matches("no server answers at").count();
    for gone in ["killed", "paused"] {
        let (begun, before) = (Instant::now(), times());
        if gone == "paused" {
            ours.pause()
        } else {
            ours.kill()
        }
        until("it says so", || (times() > before).then_some(()));
        assert!(begun.elapsed() < Duration::from_secs(6), "{gone}: {:?}", begun.elapsed());
        if gone == "paused" {
            ours.resume()
        } else {
            wait(ours.restart())
        }
        shows();
    }
    assert!(said().contains("nothing listens there"), "{}", said());
    watch.kill().unwrap();
    watch.wait().unwrap();
}
