//! `close`, `reopen` and `evict`, on running launchers.

use std::collections::BTreeSet;

use super::{Said, Server, said, states};
use crate::launch::{Worker, host, until, until_true};

#[test]
fn nothing_is_changed_without_an_answer() {
    let server = Server::ours();
    let job = server.job("1");
    let _node = job.launch();
    let group = job.group(1);
    let id = server.status()["nodes"][0]["id"].as_str().unwrap().to_owned();
    for words in [&["close", "job", "--reason", "no"][..], &["evict", "job", &id]] {
        let said = server.says(words);
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(said.stderr.contains("There is no terminal to ask on: give --yes"), "{said:?}");
    }
    assert_eq!(server.status()["state"], "final");
    assert!(group.lives());
}

/// Also on a terminal, where the answer is no unless it is yes.
#[test]
fn a_terminal_is_asked() {
    let server = Server::ours();
    let job = server.job("1");
    let _node = job.launch();
    let group = job.group(1);
    let line = server.command(&["close", "job", "--reason", "why"], &[]);
    let line: Vec<String> = line.iter().map(|word| format!("'{word}'")).collect();
    let answer = |letter: &str| {
        let typed = format!("printf '{letter}\\n' | script -qec \"{}\" /dev/null", line.join(" "));
        said(&["sh".to_owned(), "-c".to_owned(), typed])
    };
    let no = answer("n");
    assert!(
        no.stdout.contains("Close run \"job\", and stop the workers of 1 node? [y/N]"),
        "{no:?}"
    );
    assert!(no.stdout.contains("nothing was changed"), "{no:?}");
    assert!(group.lives());
    let yes = answer("y");
    assert!(yes.stdout.contains("run \"job\" is closed"), "{yes:?}");
}

/// On our server and on a real etcd alike.
#[test]
fn a_run_is_closed_by_an_operator_and_opened_again() {
    for server in [Server::ours(), Server::etcd()] {
        let job = server.job("2");
        let mut nodes = job.launchers(2);
        let before = job.group(2);
        let words = ["close", "job", "--reason", "the rate is wrong", "--yes"];
        let said = server.says(&words);
        assert_eq!((said.code, &*said.stdout), (Some(0), "run \"job\" is closed\n"), "{said:?}");
        let by = format!("ali@{}", host());
        for node in &mut nodes {
            let ended = node.ends_with(1);
            let told = format!("the run was closed by {by}: failed: the rate is wrong");
            assert!(ended.stderr.contains(&told), "{}", ended.stderr);
        }
        assert!(!before.lives());
        let status = server.status();
        assert_eq!(
            (&status["state"], &status["closed"]["by"]),
            (&"closed".into(), &by.as_str().into())
        );
        assert_eq!(status["reason"], "failed: the rate is wrong");
        let told = server.explained();
        assert!(told.contains(&format!("by {by}.")), "{told}");
        assert!(told.contains("What helps: `rallypoint reopen job`"), "{told}");
        let again = server.says(&words);
        assert_eq!(again.code, Some(1), "{again:?}");
        assert!(again.stderr.contains(&format!("was closed before, by {by}")), "{again:?}");
        let said = server.says(&["reopen", "job", "--yes"]);
        assert_eq!(
            (said.code, &*said.stdout),
            (Some(0), "run \"job\" is open again\n"),
            "{said:?}"
        );
        let told = server.explained();
        assert!(told.contains(&format!("The run was opened again by {by}")), "{told}");
        let mut nodes = job.launchers(2);
        job.group_after(&before, 2).tell("exit 0");
        for node in &mut nodes {
            node.ends_with(0);
        }
    }
}

fn rounds_of(workers: &[Worker]) -> BTreeSet<u64> {
    workers.iter().filter(|worker| worker.lives()).map(|worker| worker.round).collect()
}

/// Invariants L1 and R5: a spare takes the place of an evicted node when the workers of that node are gone, and not
/// before. They take their time here, and are killed in the end. On our server and on a real etcd alike.
#[test]
fn an_evicted_node_stops_its_workers_before_a_spare_takes_its_place() {
    for (server, evicted) in [(Server::ours(), 1), (Server::etcd(), 0)] {
        let job = server.job("2");
        let slow = "trap 'touch $JOB/asked.$LAUNCHER' TERM";
        let launcher = |order: &str, options: &[&str]| {
            let line = job.launcher().with(options);
            line.program(&["sh", &job.file("worker.sh"), order]).start()
        };
        let options = ["--shutdown-timeout", "2"];
        let mut nodes = vec![launcher(slow, &options), launcher(slow, &options)];
        let before = job.group(2);
        nodes.push(launcher(":", &options));
        let status = server.until("a spare", |status| status["counts"]["spare"] == 1);
        assert_eq!(states(&status), ["member", "member", "spare"]);
        let pid = nodes[evicted].id();
        let of = |pid: u32| {
            let nodes = status["nodes"].as_array().unwrap();
            let node = nodes.iter().find(|node| node["pid"] == pid).unwrap();
            node["id"].as_str().unwrap().to_owned()
        };
        let id = of(pid);
        let line = server.command(&["evict", "job", &id, "--reason", "ECC errors", "--yes"], &[]);
        let evicting = std::thread::spawn(move || said(&line));
        until_true("its worker is asked to stop", || {
            job.path().join(format!("asked.{evicted}")).exists()
        });
        // Until the next group is there, all workers that live are of one round.
        let after = until("the next group", || {
            let living = rounds_of(&job.workers());
            assert!(living.len() <= 1, "workers of rounds {living:?} at once");
            living.into_iter().find(|round| *round > before.round)
        });
        assert!(after > before.round);
        let said: Said = evicting.join().unwrap();
        assert_eq!(said.code, Some(0), "{said:?}");
        assert_eq!(said.stdout, format!("node {id} has left run \"job\"\n"));
        let group = job.group_after(&before, 2);
        assert!(!group.launchers().contains(&evicted), "{group:?}");
        let by = format!("evicted by ali@{}: ECC errors", host());
        let ended = nodes[evicted].ends_with(77);
        assert!(ended.stderr.contains(&format!("this node was {by}")), "{}", ended.stderr);
        nodes[1 - evicted].says(&by);
        let told = server.explained();
        assert!(told.contains(&format!("Node {id} was {by}")), "{told}");
        assert_eq!(server.status()["restarts"]["used"], 0);
        group.tell("exit 0");
        for (number, node) in nodes.iter_mut().enumerate() {
            if number != evicted {
                node.ends_with(0);
            }
        }
    }
}

#[test]
fn a_node_that_waits_can_be_evicted_and_an_unknown_one_cannot() {
    let server = Server::ours();
    let job = server.job("2");
    let mut node = job.launch();
    let status = server.until("a node has joined", |status| status["counts"]["present"] == 1);
    let said = server.says(&["evict", "job", "nobody", "--yes"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.contains("has no live node \"nobody\""), "{said:?}");
    // By its host, since it has one node there.
    let name = status["nodes"][0]["host"].as_str().unwrap();
    let said = server.says(&["evict", "job", name, "--yes"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    node.ends_with(77);
    server.until("it is gone", |status| status["nodes"].as_array().unwrap().is_empty());
}
