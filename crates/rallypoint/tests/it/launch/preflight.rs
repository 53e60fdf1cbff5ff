//! `--preflight`: a command that must succeed before a node joins.

use std::time::Instant;

use rustix::process::Signal;

use super::{Job, Launcher, free_endpoint, host_of, until_true};

/// Tells how often it has run, with what a worker will find too.
const COUNTS: &str = "echo $LAUNCHER $LOCAL_WORLD_SIZE $TORCHELASTIC_RUN_ID >> $JOB/preflights; echo fit; echo so >&2";

fn preflights(job: &Job) -> Vec<String> {
    let text = std::fs::read_to_string(job.path().join("preflights")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_command_that_succeeds_runs_once_on_each_node_and_its_output_is_shown() {
    let job = Job::at(&free_endpoint(), "2");
    let mut nodes: Vec<Launcher> = (0..2)
        .map(|_| {
            job.launcher().with(&["--preflight", COUNTS]).env("RALLYPOINT_SECRET", "x").start()
        })
        .collect();
    job.group(2).tell("exit 0");
    for node in &mut nodes {
        let said = node.ends_with(0).stderr;
        assert!(said.contains("[preflight]:fit\n") && said.contains("[preflight]:so\n"), "{said}");
    }
    let mut seen = preflights(&job);
    seen.sort();
    assert_eq!(seen, ["0 1 job", "1 1 job"]);
}

#[test]
fn a_node_whose_command_fails_stays_out_and_the_job_of_the_others_goes_on() {
    let job = Job::at(&free_endpoint(), "1:2");
    let mut head = job.launch_with(&["--rdzv-conf", "last_call_timeout=0"]);
    let first = job.group(1);
    let command = "echo GPU 3 is gone; test -z \"$RALLYPOINT_SECRET\" && exit 4";
    let said = job.launch_with(&["--preflight", command]).ends_with(69).stderr;
    for words in ["this node does not join", "exit code 4", "it wrote:\n  GPU 3 is gone"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    first.does(":");
    assert_eq!(job.workers().len(), 1, "nobody was disturbed");
    let mut other = job.launch_with(&["--rdzv-conf", "last_call_timeout=0", "--preflight", "true"]);
    job.group_after(&first, 2).tell("exit 0");
    head.ends_with(0);
    other.ends_with(0);
    job.nothing_is_left();
}

#[test]
fn a_command_that_hangs_is_killed_with_all_that_it_started() {
    let job = Job::new(&["--preflight", "sleep 600 & sleep 600", "--preflight-timeout", "0.5"]);
    let begun = Instant::now();
    let said = job.launch().ends_with(69).stderr;
    assert!(
        said.contains("did not end within 500ms (--preflight-timeout), and was killed"),
        "{said}"
    );
    assert!(begun.elapsed() < super::PATIENCE);
    job.nothing_is_left();
    assert!(job.workers().is_empty());
}

#[test]
fn a_signal_ends_the_command_and_the_launcher() {
    let job = Job::new(&["--preflight", "touch $JOB/begun; sleep 600"]);
    let mut node = job.launch();
    until_true("the command runs", || job.path().join("begun").exists());
    node.signal(Signal::TERM);
    node.ends_with(143);
    job.nothing_is_left();
}

/// The launcher is killed, and the guard ends the command.
#[test]
fn a_command_does_not_outlive_its_launcher() {
    let job = Job::new(&["--preflight", "touch $JOB/begun; sleep 600"]);
    let mut node = job.launch();
    until_true("the command runs", || job.path().join("begun").exists());
    node.kill();
    until_true("no process is left", || job.processes().is_empty());
}

/// Workers may have failed because of their host; a change of the group says nothing about it.
#[test]
fn before_a_restart_the_command_runs_where_the_workers_failed() {
    let job = Job::at(&free_endpoint(), "1:2");
    let options = ["--max-restarts", "3", "--rdzv-conf", "last_call_timeout=0,lease_ttl=30"];
    let mut healthy = job.launch_with(&[&options[..], &["--preflight", COUNTS]].concat());
    let alone = job.group(1);
    // It succeeds once.
    let mut failing =
        job.launch_with(&[&options[..], &["--preflight", "mkdir $JOB/first"]].concat());
    let both = job.group_after(&alone, 2);
    both.of(&failing)[0].tell("exit 3");
    let said = failing.ends_with(69).stderr;
    assert!(said.contains("this node does not join") && said.contains("exit code 1"), "{said}");
    let again = job.group_after(&both, 1);
    assert_eq!(again.launchers(), [healthy.number].into());
    assert_eq!(preflights(&job), ["0 1 job"], "its own workers have not failed");
    again.workers[0].tell("exit 5");
    let last = job.group_after(&again, 1);
    assert_eq!(preflights(&job).len(), 2, "they have by now");
    last.tell("exit 0");
    healthy.ends_with(0);
}

/// The host with the server stays out, but its server serves the others to their end.
#[test]
fn the_host_with_the_server_may_stay_out() {
    let endpoint = free_endpoint();
    let job = Job::with_conf(&endpoint, "1:2", "last_call_timeout=0,lease_ttl=30");
    let waits = "while ! [ -e $JOB/go ]; do sleep 0.02; done; exit 1";
    let mut nodes = vec![job.launch_with(&["--preflight", waits])];
    assert_eq!(host_of(&nodes, &endpoint), 0);
    let mut other =
        job.launch_with(&["--rdzv-conf", "last_call_timeout=0,lease_ttl=30,is_host=false"]);
    let group = job.group(1);
    std::fs::write(job.path().join("go"), "").unwrap();
    nodes[0].says("other nodes use the server of this process");
    group.does(":");
    group.tell("exit 0");
    other.ends_with(0);
    nodes[0].ends_with(69);
}
