//! Defects of stock torchrun, D1 to D13, each with a test that shows ours behaves.
//!
//! Elsewhere: D3 in [`surplus`](super::surplus). D6, no clock of the day: the invariant A5 in
//! [`architecture`](crate::architecture), and `defects::stock` for the rendezvous. D11, what a time-out of a
//! store is called: `defects::stock` and the suite `stores`. D12, etcd without its v2 API: every test on a
//! real etcd; its client speaks v3 only. What takes PyTorch's own workers is in `tests/torch`.

use std::time::{Duration, Instant};

use rallypoint::core::kv::KeyRange;
use rallypoint::core::rendezvous::keys::{DEFAULT_PREFIX, Keys};
use rallypoint::store::{Store, TcpStore};
use rustix::process::Signal;

use super::{
    Group, Job, free_endpoint, host, host_of, query, until, until_listed, until_true, wait,
};
use crate::support::{Embedded, Etcd, Version};

async fn store(worker: &super::Worker) -> TcpStore {
    TcpStore::connect(&worker.master(), Duration::from_secs(20)).await.unwrap()
}

#[test]
fn d1_restarted_workers_do_not_meet_what_dead_ones_left() {
    let job = Job::new(&["--nproc-per-node", "2", "--max-restarts", "1"]);
    let mut node = job.launch();
    let first = job.group(2);
    assert_eq!(first.workers[0].get("TORCHELASTIC_USE_AGENT_STORE"), "True");
    wait(async {
        let store = store(&first.workers[1]).await;
        store.set(b"default_pg/0//cpu//0/1", "127.0.0.1:1".into()).await.unwrap();
        assert!(store.check(&[b"default_pg/0//cpu//0/1"]).await.unwrap());
    });
    first.workers[0].tell("exit 1");
    let second = job.group_after(&first, 2);
    wait(async {
        let store = store(&second.workers[1]).await;
        assert!(!store.check(&[b"default_pg/0//cpu//0/1"]).await.unwrap());
        assert_eq!(store.num_keys().await.unwrap(), 0, "nothing at all");
    });
    second.tell("exit 0");
    node.ends_with(0);
}

#[test]
fn d2_survivors_are_told_the_address_of_the_new_rank_0() {
    let server = wait(Embedded::memory());
    let job = Job::with_conf(&server.address(), "2:3", "lease_ttl=2,last_call_timeout=30");
    let node = |last: usize| job.launch_with(&["--local-addr", &format!("127.0.0.{last}")]);
    let mut nodes = [node(2), node(3), node(4)].map(Some);
    let first = job.group(3);
    let address = |launcher: usize| format!("127.0.0.{}", launcher + 2);
    let dead = first.workers[0].launcher();
    assert_eq!(first.workers[0].get("MASTER_ADDR"), address(dead));
    nodes[dead].as_mut().unwrap().kill();
    // Both survivors, which are checked to be told the same.
    let second = job.group_after(&first, 2);
    let leader = &second.workers[0];
    assert_eq!(leader.get("MASTER_ADDR"), address(leader.launcher()));
    assert_ne!(leader.master(), first.workers[0].master());
    wait(store(&second.workers[1]));
    second.tell("exit 0");
    for node in nodes.iter_mut().flatten().filter(|node| node.number != dead) {
        node.ends_with(0);
    }
}

#[test]
fn d4_an_interrupt_in_the_first_rendezvous_leaves_the_job_open() {
    let server = wait(Embedded::memory());
    let job = Job::at(&server.address(), "2");
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let mut impatient = job.launch();
        until_listed(&server.address(), "job", 1);
        impatient.signal(signal);
        impatient.ends_with(code);
    }
    let mut nodes = job.launchers(2);
    job.group(2).tell("exit 0");
    for node in &mut nodes {
        node.ends_with(0);
    }
}

/// A change of the group is no restart, and yet another attempt.
#[test]
fn d5_the_logs_of_every_attempt_are_kept() {
    let endpoint = free_endpoint();
    let job = Job::with_conf(&endpoint, "1:2", "lease_ttl=30,last_call_timeout=2");
    let logs = job.file("logs");
    let options = ["--redirects", "3", "--log-dir", &logs, "--max-restarts", "1"];
    let mut first = job.launch_with(&options);
    let alone = job.group(1);
    alone.does("echo before anybody came");
    let mut second = job.launch_with(&options);
    let pair = job.group_after(&alone, 2);
    pair.does("echo together >&2");
    pair.of(&second)[0].tell("exit 3");
    let again = job.group_after(&pair, 2);
    again.tell("echo after a failure; exit 0");
    first.ends_with(0);
    second.ends_with(0);
    let read = |group: &Group, rank: usize, name: &str| {
        let place = format!("{logs}/job/{}/round_{}/rank_{rank}/{name}", host(), group.round);
        std::fs::read_to_string(place).unwrap()
    };
    assert_eq!(read(&alone, 0, "stdout.log"), "before anybody came\n");
    for rank in 0..2 {
        assert_eq!(read(&pair, rank, "stderr.log"), "together\n");
        assert_eq!(read(&again, rank, "stdout.log"), "after a failure\n");
    }
}

/// Counted on the server: every write is a revision.
#[test]
fn d7_while_the_job_runs_nothing_is_written() {
    let server = wait(Embedded::memory());
    let job = Job::with_conf(&server.address(), "3", "lease_ttl=2");
    let mut nodes = job.launchers(3);
    let group = job.group(3);
    let revision = || query(&server.address(), KeyRange::key("none")).revision;
    // The last of the first round's writes may come after the first worker's start.
    let steady = until("a second without a write", || {
        let before = revision();
        std::thread::sleep(Duration::from_secs(1));
        (revision() == before).then_some(before)
    });
    // Three leases of two seconds each are kept alive meanwhile.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(4) {
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(revision(), steady);
    }
    assert!(group.lives());
    group.tell("exit 0");
    for node in &mut nodes {
        node.ends_with(0);
    }
}

/// Stock gives them 30 s there, whatever it was told.
#[test]
fn d8_the_shutdown_time_out_counts_for_restarts_too() {
    let options = ["--nproc-per-node", "2", "--max-restarts", "1", "--shutdown-timeout", "0.5"];
    let job = Job::new(&options);
    let stubborn = "trap 'touch $JOB/asked' TERM";
    let mut node = job.launcher().program(&["sh", &job.file("worker.sh"), stubborn]).start();
    let first = job.group(2);
    let failed = Instant::now();
    first.workers[0].tell("exit 1");
    let second = job.group_after(&first, 2);
    let took = failed.elapsed();
    assert!(job.path().join("asked").exists(), "it was asked first");
    assert!(took < Duration::from_secs(25), "took {took:?}");
    second.tell("exit 0");
    node.ends_with(0);
}

#[test]
fn d9_workers_die_with_their_launcher_whatever_kills_it() {
    for signal in [Signal::KILL, Signal::ALARM, Signal::ABORT] {
        let job = Job::new(&["--nproc-per-node", "2", "--tee", "3"]);
        // What they have started goes with them.
        let order = "sleep 1000 & trap '' TERM HUP INT";
        let mut node = job.launcher().program(&["sh", &job.file("worker.sh"), order]).start();
        let group = job.group(2);
        node.signal(signal);
        assert_eq!(node.ended().signal, Some(signal.as_raw()));
        for worker in &group.workers {
            worker.is_gone();
        }
        until_true("nothing is left", || job.processes().is_empty());
    }
}

/// Everything lives on leases: the nodes' own, which go with them, and the run's.
#[test]
fn d10_nothing_stays_on_a_real_etcd_and_a_run_id_can_be_used_again() {
    for version in Version::all() {
        let etcd = wait(Etcd::start(version));
        let address = etcd.address();
        let mut rounds = Vec::new();
        for _ in 0..2 {
            let job = Job::at(&address, "2");
            let mut nodes: Vec<_> =
                (0..2).map(|_| job.launch_with(&["--max-restarts", "1"])).collect();
            let first = job.group(2);
            first.workers[0].tell("exit 1");
            let second = job.group_after(&first, 2);
            rounds.push((first.round, second.round));
            let keys = query(&address, KeyRange::all()).kvs;
            assert!(keys.len() > 4, "{keys:?}");
            second.tell("exit 0");
            for node in &mut nodes {
                node.ends_with(0);
            }
            for kv in keys.into_iter().chain(query(&address, KeyRange::all()).kvs) {
                assert_ne!(kv.lease, 0, "{} would stay for ever", String::from_utf8_lossy(&kv.key));
            }
            until_listed(&address, "job", 0);
            // The run's lease lapses two hours after the last node is gone.
            super::revoke(&address, Keys::new(DEFAULT_PREFIX, "job").run_lease());
            assert_eq!(query(&address, KeyRange::all()).kvs, []);
        }
        assert_eq!(rounds[0], rounds[1], "the second begins like the first");
    }
}

#[test]
fn d13_arguments_reach_the_program_to_the_letter() {
    let words =
        ["$$", "$local_rank", "${local_rank}", "$", "${", "a  b", "", "*", "'\"", "--tee=3", "ü\n"];
    let job = Job::new(&["--nproc-per-node", "2"]);
    let print = r#"printf '<%s>' "$@" > "$JOB/words.$RANK""#;
    let program = [&["sh", "-c", print, "name"], &words[..]].concat();
    job.launcher().program(&program).start().ends_with(0);
    let expected: String = words.iter().map(|word| format!("<{word}>")).collect();
    for rank in 0..2 {
        assert_eq!(
            std::fs::read_to_string(job.path().join(format!("words.{rank}"))).unwrap(),
            expected
        );
    }
    // Stock makes `kill -9 $` of it.
    let said = job.launcher().program(&["sh", "-c", "kill -9 $$"]).start().ends_with(1).stderr;
    assert!(said.contains("SIGKILL"), "{said}");
}

/// The server itself lies on the same host: what it must not need is a file of its own.
#[test]
fn d10_the_embedded_server_leaves_no_files() {
    let endpoint = free_endpoint();
    let job = Job::at(&endpoint, "2");
    let mut nodes = job.launchers(2);
    let group = job.group(2);
    host_of(&nodes, &endpoint);
    group.tell("exit 0");
    for node in &mut nodes {
        node.ends_with(0);
    }
    job.nothing_is_left();
    // Starts again, also at once.
    let again = job.launchers(2);
    let second = job.group(2);
    assert_eq!(second.round, group.round);
    drop(again);
}
