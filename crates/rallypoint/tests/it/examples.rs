//! The examples do what they show: on a server of their own, and on the one that they are given.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use crate::support::Embedded;
use crate::support::hostile::eventually;
use crate::support::process::{Directory, Process, Recipe};
use crate::support::tools::example;

/// Longer than an example takes on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// Runs an example to its end, which is a success, and returns the lines that it printed, sorted.
async fn run(name: &str, args: &[String]) -> Vec<String> {
    let directory = Directory::new();
    let log = directory.path().join("log");
    let args = args.iter().map(Into::into).collect();
    let recipe = Recipe { program: example(name), args, env: Vec::new(), log: log.clone() };
    let mut process = Process::start(&recipe);
    eventually("the example ends", SOON, async || process.has_ended()).await;
    assert!(process.exit_status().unwrap().success(), "{}", process.log_tail());
    let mut lines: Vec<_> =
        std::fs::read_to_string(&log).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[tokio::test]
async fn a_session_announces_a_member_and_sees_it() {
    let server = Embedded::memory().await;
    for args in [vec![], vec![server.endpoint()]] {
        assert_eq!(run("session", &args).await, [r#"Put b"members/me""#]);
    }
}

#[tokio::test]
async fn three_nodes_meet() {
    let server = Embedded::memory().await;
    for args in [vec![], vec![server.endpoint()]] {
        let ranks = ["rank 0 of 3", "rank 1 of 3", "rank 2 of 3"];
        assert_eq!(run("rendezvous", &args).await, ranks);
    }
}

/// `agent_store` is run by the tests of the store, `node` by those of the rendezvous, the others above.
#[test]
fn every_example_is_run() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let names: BTreeSet<_> =
        directory.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let run = ["agent_store.rs", "node.rs", "rendezvous.rs", "session.rs"];
    assert_eq!(names, run.into_iter().map(Into::into).collect());
}
