//! What a launcher exits with: every line of the table in its help.

use rustix::process::Signal;

use super::{Job, Launcher, free_endpoint, host, host_of, until_listed, until_true};
use crate::support::Embedded;

/// Two launchers, and their workers.
fn pair(options: &[&str]) -> (Job, Vec<Launcher>) {
    let job = Job::at(&free_endpoint(), "2");
    let nodes = (0..2).map(|_| job.launch_with(options)).collect();
    (job, nodes)
}

#[test]
fn done_is_0() {
    let (job, mut nodes) = pair(&[]);
    job.group(2).tell("exit 0");
    for node in &mut nodes {
        node.ends_with(0);
    }
}

/// The head is killed, and no other node may serve. The node says at once what it waits for and for how long, and waits
/// for `server_timeout`, which is no part of `timeout`.
#[test]
fn a_server_that_does_not_come_back_is_75() {
    let conf = "lease_ttl=2,last_call_timeout=1,timeout=600,server_timeout=4";
    let job = Job::with_conf(&free_endpoint(), "1:2", conf);
    let node =
        |serves: bool| job.launch_with(&["--rdzv-conf", &format!("is_host={serves},{conf}")]);
    let (mut head, mut member) = (node(true), node(false));
    job.group(2);
    head.kill();
    let said = member.ends_with(75).stderr;
    for words in ["waiting", "the server to answer again, for up to 4s (server_timeout)"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let end =
        "has answered for 4s (server_timeout); start the launcher of the host that serves again";
    assert!(said.contains(end), "{said}");
}

/// A node that never had a group waits for `timeout`, as before.
#[test]
fn a_server_that_was_never_there_is_1() {
    let conf = "is_host=false,timeout=2,server_timeout=600";
    let job = Job::with_conf(&free_endpoint(), "1", conf);
    let mut node = job.launch();
    node.ends_with(1);
}

/// The worker's own code is in the report, on every node.
#[test]
fn a_worker_that_failed_is_1_on_every_node() {
    for (order, words) in [("exit 7", "exit code 7"), ("kill -ABRT $$", "SIGABRT")] {
        let (job, mut nodes) = pair(&[]);
        job.group(2).workers[1].tell(order);
        for node in &mut nodes {
            let said = node.ends_with(1).stderr;
            for word in [words, "rank 1", &host()] {
                assert!(said.contains(word), "launcher {} does not say {word}", node.number);
            }
        }
        job.nothing_is_left();
    }
}

#[test]
fn a_worker_that_wants_no_restart_is_its_code_on_every_node_and_uses_none() {
    for (options, code) in [(&[][..], 78), (&["--no-restart-exit-code", "42"], 42)] {
        let options = [&["--max-restarts", "5"], options].concat();
        let (job, mut nodes) = pair(&options);
        job.group(2).workers[1].tell(&format!("exit {code}"));
        for node in &mut nodes {
            let said = node.ends_with(code).stderr;
            assert!(said.contains(&format!("exit code {code}")) && said.contains("rank 1"));
        }
        assert_eq!(job.rounds().len(), 1, "it was not restarted");
    }
}

#[test]
fn without_such_a_code_78_is_a_failure_like_others() {
    let job = Job::new(&["--max-restarts", "1", "--no-restart-exit-code", "none"]);
    let mut node = job.launch();
    let first = job.group(1);
    first.tell("exit 78");
    job.group_after(&first, 1).tell("exit 78");
    node.ends_with(1);
}

/// torchrun's four, and one that is asked for.
const SIGNALS: [(Signal, i32); 4] =
    [(Signal::TERM, 15), (Signal::INT, 2), (Signal::HUP, 1), (Signal::QUIT, 3)];

#[test]
fn a_signal_is_128_and_its_number_while_workers_run() {
    for (signal, number) in SIGNALS {
        let job = Job::new(&["--nproc-per-node", "2"]);
        // A shell has no default for SIGINT and SIGQUIT in the background.
        let order = format!("trap 'touch $JOB/told.$RANK; exit 0' {number}");
        let program = ["sh", &job.file("worker.sh"), &order];
        let mut node = job.launcher().program(&program).start();
        let group = job.group(2);
        node.signal(signal);
        node.ends_with(128 + number);
        assert!(!group.workers.iter().any(super::Worker::lives));
        for rank in 0..2 {
            assert!(job.path().join(format!("told.{rank}")).exists(), "it is passed on");
        }
        job.nothing_is_left();
    }
}

#[test]
fn a_signal_is_128_and_its_number_in_the_first_rendezvous_too() {
    let server = super::wait(Embedded::memory());
    for (signal, number) in SIGNALS {
        let job = Job::at(&server.address(), "2");
        let mut node = job.launch();
        until_listed(&server.address(), "job", 1);
        node.signal(signal);
        node.ends_with(128 + number);
        // It has left, and need not be waited for.
        until_listed(&server.address(), "job", 0);
        job.nothing_is_left();
    }
}

#[test]
fn a_signal_ends_a_launcher_that_waits_for_its_server_or_has_only_itself_to_serve() {
    let nowhere = free_endpoint();
    for (is_host, words) in [("false", "waiting: a server at"), ("true", "1 of 2 nodes")] {
        let job = Job::with_conf(&nowhere, "2", &format!("is_host={is_host}"));
        let mut node = job.launch();
        node.says(words);
        node.signal(Signal::TERM);
        node.ends_with(143);
        job.nothing_is_left();
    }
}

/// Workers are being stopped for a failure, and take their time.
#[test]
fn a_signal_is_what_counts_when_it_comes_after_a_failure() {
    let options = ["--nproc-per-node", "2", "--max-restarts", "3", "--shutdown-timeout", "600"];
    let job = Job::new(&options);
    let order = "trap 'touch $JOB/asked' TERM";
    let mut node = job.launcher().program(&["sh", &job.file("worker.sh"), order]).start();
    let group = job.group(2);
    group.workers[0].tell("exit 1");
    until_true("the other is asked to go", || job.path().join("asked").exists());
    node.signal(Signal::TERM);
    node.says("SIGTERM");
    assert!(!node.has_ended() && group.workers[1].lives(), "it has its time");
    node.signal(Signal::INT);
    let code = node.ended().code;
    assert!(matches!(code, Some(143 | 130)), "{code:?}");
    assert_eq!(job.workers().len(), 2, "no worker was restarted");
    job.nothing_is_left();
}

#[test]
fn signals_to_handle_can_be_others() {
    let job = Job::new(&["--signals-to-handle", "SIGUSR2,SIGTERM"]);
    let order = "trap 'touch $JOB/told; exit 0' USR2";
    let mut node = job.launcher().program(&["sh", &job.file("worker.sh"), order]).start();
    let group = job.group(1);
    assert_eq!(group.workers[0].get("TORCHELASTIC_SIGNALS_TO_HANDLE"), "SIGUSR2,SIGTERM");
    node.signal(Signal::USR2);
    node.ends_with(128 + 12);
    assert!(job.path().join("told").exists());
    // One that is not among them does as it always does; the workers go all the same. Not SIGHUP, which
    // whoever started the tests may have ignored, nor SIGUSR1, which is for the workers.
    let job = Job::new(&["--signals-to-handle", "SIGUSR2"]);
    let mut node = job.launch();
    let group = job.group(1);
    node.signal(Signal::TERM);
    assert_eq!(node.ended().signal, Some(15));
    group.workers[0].is_gone();
}

#[test]
fn a_wrong_command_line_is_2() {
    for (options, words) in [
        (&["--nnodes", "4:2"][..], "--nnodes"),
        (&["--no-such-option"], "--no-such-option"),
        (&["--nnodes", "2"], "--rdzv-endpoint"),
        (&["--rdzv-conf", "lease_tll=5"], "lease_tll"),
        (&["--standalone", "--nnodes", "2"], "--standalone"),
        (&["--run-path"], "--run-path"),
    ] {
        let job = Job::new(options);
        let said = job.launch().ends_with(2).stderr;
        assert!(said.contains(words), "{options:?}: {said}");
        assert!(job.workers().is_empty());
    }
    let job = Job::new(&["--standalone"]);
    let said = job.launcher().program(&[]).start().ends_with(2).stderr;
    assert!(said.contains("PROGRAM"), "{said}");
    let line = job.launcher().with(&["--nproc-per-node", "gpu"]);
    let said = line.env("CUDA_VISIBLE_DEVICES", "").start().ends_with(2).stderr;
    assert!(said.contains("CUDA_VISIBLE_DEVICES"), "{said}");
    let said = job.launcher().env("PET_NNODES", "some").start().ends_with(2).stderr;
    assert!(said.contains("PET_NNODES") && said.contains("some"), "{said}");
}

#[test]
fn a_program_that_cannot_be_found_is_1() {
    let plain = |job: &Job| {
        std::fs::write(job.path().join("plain"), "no program").unwrap();
        job.file("plain")
    };
    for which in 0..3 {
        let job = Job::new(&["--standalone", "--nproc-per-node", "2"]);
        let program = match which {
            0 => "no-such-program-anywhere".to_owned(),
            1 => job.file("no/such/program"),
            _ => plain(&job),
        };
        let said = job.launcher().program(&[&program]).start().ends_with(1).stderr;
        assert!(said.contains(&program), "{said}");
        job.nothing_is_left();
    }
}

/// A node that cannot start its workers leaves, and the remaining nodes wait for another one.
#[test]
fn a_program_that_one_node_lacks_does_not_end_the_job() {
    let endpoint = free_endpoint();
    let job = Job::at(&endpoint, "2");
    let mut node = job.launch();
    host_of(std::slice::from_ref(&node), &endpoint);
    let mut lacks = job.launcher().program(&["no-such-program-anywhere"]).start();
    lacks.ends_with(1);
    assert!(!node.has_ended());
    let mut other = job.launch();
    job.group(2).tell("exit 0");
    node.ends_with(0);
    other.ends_with(0);
}
