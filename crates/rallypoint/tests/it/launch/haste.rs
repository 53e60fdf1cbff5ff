//! Workers that live only shortly are not started again at once for ever.

use rustix::process::Signal;

use super::{Job, free_endpoint, host_of};

/// When each start was, in seconds.
fn starts(job: &Job) -> Vec<f64> {
    let text = std::fs::read_to_string(job.path().join("starts")).unwrap_or_default();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

const FAIL: &str = "date +%s.%N >> $JOB/starts; exit 3";

#[test]
fn after_the_first_failure_each_pause_is_longer_and_is_told() {
    let job = Job::new(&["--max-restarts", "4"]);
    let ended = job.launcher().program(&["sh", "-c", FAIL]).start().ends_with(1);
    let starts = starts(&job);
    let gaps: Vec<f64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(gaps.len(), 4);
    // None after the first failure, which only a busy machine makes longer; then 1 s, 2 s, 4 s.
    for (gap, least) in gaps[1..].iter().zip([1.0, 2.0, 4.0]) {
        assert!(*gap >= least - 0.01, "{gaps:?}");
    }
    let said = ended.stderr;
    assert!(said.contains("waiting: ") && said.contains("--restart-delay"), "{said}");
}

#[test]
fn it_can_be_done_without() {
    let job = Job::new(&["--max-restarts", "20", "--restart-delay", "0"]);
    let ended = job.launcher().program(&["sh", "-c", FAIL]).start().ends_with(1);
    assert_eq!(starts(&job).len(), 21);
    assert!(!ended.stderr.contains("--restart-delay"), "{}", ended.stderr);
}

/// The pause is longer than anybody waits here.
#[test]
fn a_signal_ends_the_pause() {
    let job = Job::new(&["--max-restarts", "5", "--restart-delay", "600"]);
    let mut node = job.launcher().program(&["sh", "-c", FAIL]).start();
    node.says("--restart-delay");
    assert_eq!(starts(&job).len(), 2, "the first failure is not delayed");
    node.signal(Signal::TERM);
    node.ends_with(128 + 15);
    job.nothing_is_left();
}

/// A node that pauses has not come back yet, so the other nodes wait for it, and say so. When it goes, they go on.
#[test]
fn other_nodes_wait_for_a_node_that_pauses_but_not_for_one_that_leaves() {
    let endpoint = free_endpoint();
    let job = Job::with_conf(&endpoint, "1:2", "lease_ttl=30,last_call_timeout=1");
    let options = ["--max-restarts", "5", "--restart-delay", "600"];
    let mut nodes: Vec<_> = (0..2).map(|_| job.launch_with(&options)).collect();
    let first = job.group(2);
    let host = host_of(&nodes, &endpoint);
    let mut hasty = nodes.remove(1 - host);
    first.of(&hasty)[0].tell("exit 1");
    let second = job.group_after(&first, 2);
    second.of(&hasty)[0].tell("exit 1");
    hasty.says("--restart-delay");
    nodes[0].says("waiting: ");
    for worker in &second.workers {
        worker.is_gone();
    }
    assert_eq!(job.rounds().len(), 2, "no group forms without it");
    hasty.signal(Signal::TERM);
    hasty.ends_with(128 + 15);
    let third = job.group_after(&second, 1);
    third.tell("exit 0");
    nodes[0].ends_with(0);
}
