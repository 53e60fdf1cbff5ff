//! What a newcomer types first.

use std::collections::BTreeMap;

use super::processes::listening;
use super::{Job, until};

/// The command of the README.
#[test]
fn four_workers_say_hello_once_each() {
    let job = Job::new(&["--standalone", "--nproc-per-node", "4"]);
    let hello = r#"echo "hello from rank $RANK of $WORLD_SIZE""#;
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
    let line = format!("-- run --standalone --nproc-per-node 4 -- sh -c '{hello}'\n");
    assert!(std::fs::read_to_string(readme).unwrap().contains(&line), "{line}");
    let ended = job.launcher().program(&["sh", "-c", hello]).start().ends_with(0);
    let mut lines: Vec<&str> = ended.stdout.lines().collect();
    lines.sort_unstable();
    let expected: Vec<String> = (0..4).map(|rank| format!("hello from rank {rank} of 4")).collect();
    assert_eq!(lines, expected);
    job.nothing_is_left();
}

#[test]
fn one_node_alone_listens_on_loopback_only_and_leaves_nothing() {
    // With and without saying so: one node is alone.
    for options in [&["--standalone"][..], &[]] {
        let job = Job::new(&[&["--nproc-per-node", "2"], options].concat());
        let mut launcher = job.launch();
        let group = job.group(2);
        let addresses = listening(launcher.id());
        assert!(!addresses.is_empty(), "it has a server, and the workers' store");
        assert!(addresses.iter().all(|at| at.ip().is_loopback()), "{addresses:?}");
        assert!(
            group.workers[0].get("MASTER_ADDR").parse::<std::net::IpAddr>().unwrap().is_loopback()
        );
        assert!(
            listening(launcher.id()).iter().any(|at| at.to_string() == group.workers[0].master())
        );
        group.tell("exit 0");
        launcher.ends_with(0);
        job.nothing_is_left();
    }
}

#[test]
fn two_jobs_alone_do_not_meet() {
    let job = Job::new(&["--nproc-per-node", "1"]);
    let mut launchers = job.launchers(2);
    let workers = until("two workers", || Some(job.workers()).filter(|all| all.len() == 2));
    let ids: BTreeMap<&str, usize> = workers
        .iter()
        .map(|worker| (worker.get("TORCHELASTIC_RUN_ID"), worker.launcher()))
        .collect();
    assert_eq!(ids.len(), 2, "each has a name of its own");
    for (id, launcher) in ids {
        assert_ne!(id, "none");
        launchers[launcher].says(id);
    }
    for worker in workers {
        assert_eq!(worker.get("WORLD_SIZE"), "1");
        worker.tell("exit 0");
    }
    for launcher in &mut launchers {
        launcher.ends_with(0);
    }
}
