//! Launchers whose soft limit of descriptors is the usual one.

use std::time::Duration;

use rallypoint::process::raise_descriptor_limit;
use rallypoint::store::{Store, TcpStore};

use super::{Job, PATIENCE, free_endpoint, wait};

const USUAL: &str = "--nofile=1024:8192";

/// The soft limit of a process.
fn soft_limit(process: u32) -> u64 {
    let limits = std::fs::read_to_string(format!("/proc/{process}/limits")).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    line.split_whitespace().nth(3).unwrap().parse().unwrap()
}

#[test]
fn a_launcher_raises_its_limit_of_descriptors_and_workers_get_the_one_that_was_there() {
    let job = Job::at(&free_endpoint(), "1");
    let mut node = job.launcher().by(&["prlimit", USUAL]).start();
    let group = job.group(1);
    assert_eq!(soft_limit(node.id()), 8192);
    assert_eq!(soft_limit(group.workers[0].pid), 1024);
    group.tell("exit 0");
    node.ends_with(0);
}

#[test]
fn a_store_serves_two_thousand_connections_where_a_thousand_descriptors_are_the_limit() {
    const CONNECTIONS: usize = 2048;
    raise_descriptor_limit().unwrap();
    let job = Job::at(&free_endpoint(), "1");
    let mut node = job.launcher().by(&["prlimit", USUAL]).start();
    let group = job.group(1);
    let master = group.workers[0].master();
    wait(async {
        let mut stores = Vec::new();
        for _ in 0..CONNECTIONS {
            stores.push(TcpStore::connect(&master, PATIENCE).await.unwrap());
        }
        for (number, store) in stores.iter().enumerate() {
            let set = store.set(b"last", number.to_string().into());
            tokio::time::timeout(Duration::from_secs(5), set).await.unwrap().unwrap();
        }
        assert_eq!(stores[0].get(b"last").await.unwrap(), (CONNECTIONS - 1).to_string());
    });
    group.tell("exit 0");
    node.ends_with(0);
}

#[test]
fn a_limit_that_is_too_low_for_the_job_is_said_once() {
    let job = Job::at(&free_endpoint(), "1:4000");
    let node = job.launcher().by(&["prlimit", "--nofile=1024:2048"]).start();
    let said = "too few descriptors may be open if this node runs the server";
    node.says(said);
    let stderr = std::fs::read_to_string(job.path().join("launcher-0.stderr")).unwrap();
    assert_eq!(stderr.matches(said).count(), 1, "{stderr}");
    assert!(stderr.contains("limit=2048 needed=12064"), "{stderr}");
}

/// The doctor's checks of the host, by a launcher that waits long for the others.
#[test]
fn a_launcher_that_waits_long_says_what_the_doctor_finds_on_its_host() {
    let job = Job::at(&free_endpoint(), "2:4000");
    let node = job.launcher().by(&["prlimit", "--nofile=1024:2048"]).start();
    let said = "while this node waits: --nnodes 4000 and --nproc-per-node 1 need up to 12064 open \
                descriptors on one node, and the hard limit is 2048. This host runs the server. On this node, raise";
    node.says(said);
    node.says("; rallypoint doctor warns of ");
    let stderr = node.stderr();
    assert_eq!(stderr.matches(said).count(), 1, "{stderr}");
    let line = stderr.lines().find(|line| line.contains("doctor warns of ")).unwrap();
    assert!(line.contains("waiting: 1 of "), "{line}");
    assert!(line.contains("descriptors"), "{line}");
}
