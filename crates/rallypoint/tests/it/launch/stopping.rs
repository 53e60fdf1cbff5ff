//! How workers are stopped: asked, given their time, and killed.

use std::time::{Duration, Instant};

use rallypoint::core::kv::{KeyRange, KeyValue};
use rustix::process::Signal;

use super::{Job, free_endpoint, host_of, query, until_true};

/// Runs the worker that is told what to do, after a first order.
fn with_order(job: &Job, order: &str, options: &[&str]) -> super::Launcher {
    job.launcher().with(options).program(&["sh", &job.file("worker.sh"), order]).start()
}

/// A new node can wait, so the workers may save their work first.
#[test]
fn a_notice_gives_workers_the_time_to_save_their_work() {
    let endpoint = free_endpoint();
    let job = Job::with_conf(&endpoint, "1:2", "lease_ttl=30,last_call_timeout=1");
    // It says that it was told, works for as long as it likes, and goes of its own will.
    let order = "trap 'echo told >> $JOB/notes; read -r word < $JOB/go; echo saved >> $JOB/notes; exit 0' USR1
                 trap 'echo stopped >> $JOB/notes; exit 0' TERM";
    let status = std::process::Command::new("mkfifo").arg(job.path().join("go")).status().unwrap();
    assert!(status.success());
    let options = ["--notice", "60"];
    let first = with_order(&job, order, &options);
    let alone = job.group(1);
    let second = job.launch_with(&options);
    let notes = || std::fs::read_to_string(job.path().join("notes")).unwrap_or_default();
    until_true("the worker is told", || notes() == "told\n");
    assert!(alone.lives());
    std::fs::write(job.path().join("go"), "go\n").unwrap();
    let pair = job.group_after(&alone, 2);
    assert_eq!(notes(), "told\nsaved\n", "and it was not stopped besides");
    assert_eq!(pair.workers[0].get("TORCHELASTIC_RESTART_COUNT"), "0");
    pair.tell("exit 0");
    for mut node in [first, second] {
        node.ends_with(0);
    }
}

#[test]
fn a_worker_that_takes_too_long_after_a_notice_is_stopped() {
    let endpoint = free_endpoint();
    let job = Job::with_conf(&endpoint, "1:2", "lease_ttl=30,last_call_timeout=1");
    let order =
        "trap 'echo told >> $JOB/notes' USR2; trap 'echo stopped >> $JOB/notes; exit 0' TERM";
    let options = ["--notice", "0.3:SIGUSR2"];
    let mut nodes = vec![with_order(&job, order, &options)];
    let alone = job.group(1);
    nodes.push(job.launch_with(&options));
    let pair = job.group_after(&alone, 2);
    assert_eq!(std::fs::read_to_string(job.path().join("notes")).unwrap(), "told\nstopped\n");
    pair.tell("exit 0");
    for node in &mut nodes {
        node.ends_with(0);
    }
}

/// A death cannot wait, so there is no notice of it.
#[test]
fn there_is_no_notice_of_a_failure() {
    let job = Job::new(&["--nproc-per-node", "2", "--max-restarts", "1", "--notice", "60"]);
    let order =
        "trap 'echo told >> $JOB/notes' USR1; trap 'echo stopped >> $JOB/notes; exit 0' TERM";
    let mut node = with_order(&job, order, &[]);
    let first = job.group(2);
    first.workers[0].tell("exit 1");
    let second = job.group_after(&first, 2);
    assert_eq!(std::fs::read_to_string(job.path().join("notes")).unwrap(), "stopped\n");
    second.tell("exit 0");
    node.ends_with(0);
}

#[test]
fn a_worker_that_does_not_go_is_killed() {
    for code in [0, 1] {
        let job = Job::new(&["--nproc-per-node", "2"]);
        let order = "trap 'touch $JOB/asked.$RANK' TERM";
        let line = job.launcher().program(&["sh", &job.file("worker.sh"), order]);
        let mut node = match code {
            0 => line.with(&["--shutdown-timeout", "0.5"]).start(),
            _ => line.env("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "0.5").start(),
        };
        let group = job.group(2);
        let begun = Instant::now();
        if code == 0 {
            node.signal(Signal::TERM);
            node.ends_with(143);
        } else {
            group.workers[0].tell("exit 1");
            node.ends_with(1);
        }
        assert!(begun.elapsed() < Duration::from_secs(25), "took {:?}", begun.elapsed());
        assert!(job.path().join("asked.1").exists(), "it was asked first");
        job.nothing_is_left();
    }
}

/// The time-out is long, so only the second signal can explain the end.
#[test]
fn a_second_signal_kills_at_once() {
    let job = Job::new(&["--nproc-per-node", "2", "--shutdown-timeout", "600"]);
    let mut node = with_order(&job, "trap 'touch $JOB/asked.$RANK' TERM", &[]);
    let group = job.group(2);
    node.signal(Signal::TERM);
    until_true("both were asked", || {
        (0..2).all(|rank| job.path().join(format!("asked.{rank}")).exists())
    });
    assert!(group.lives() && !node.has_ended());
    node.signal(Signal::TERM);
    node.ends_with(143);
    job.nothing_is_left();
}

/// A shell that starts a program dies of a signal at once, and what it started is still saving its work.
#[test]
fn what_a_worker_started_has_its_time_too() {
    let job = Job::new(&["--nproc-per-node", "1", "--shutdown-timeout", "60"]);
    let child = r#"trap 'touch $JOB/asked; read -r word < $JOB/go; touch $JOB/saved; exit 0' TERM
                   : > $JOB/ready; while :; do sleep 0.05; done"#;
    std::fs::write(job.path().join("child.sh"), child).unwrap();
    let status = std::process::Command::new("mkfifo").arg(job.path().join("go")).status().unwrap();
    assert!(status.success());
    let mut node = with_order(&job, "sh $JOB/child.sh &", &[]);
    let group = job.group(1);
    until_true("the child is ready", || job.path().join("ready").exists());
    node.signal(Signal::TERM);
    group.workers[0].is_gone();
    until_true("the child was asked", || job.path().join("asked").exists());
    assert!(!node.has_ended());
    std::fs::write(job.path().join("go"), "go\n").unwrap();
    node.ends_with(143);
    assert!(job.path().join("saved").exists());
    job.nothing_is_left();
}

#[test]
fn what_a_worker_started_is_killed_when_its_time_is_over() {
    let job = Job::new(&["--nproc-per-node", "1", "--shutdown-timeout", "0.5"]);
    let mut node = with_order(&job, "(trap '' TERM; exec sleep 1000) &", &[]);
    job.group(1);
    node.signal(Signal::TERM);
    node.ends_with(143);
    job.nothing_is_left();
}

/// Nor is anything left of workers that are done.
#[test]
fn what_a_worker_left_when_it_was_done_is_stopped() {
    let job = Job::new(&["--nproc-per-node", "2", "--shutdown-timeout", "5"]);
    let mut node = with_order(&job, "sleep 1000 &", &[]);
    job.group(2).tell("exit 0");
    node.ends_with(0);
    job.nothing_is_left();
}

#[test]
fn a_node_that_is_done_waits_for_other_nodes_at_the_barrier() {
    let endpoint = free_endpoint();
    let job = Job::at(&endpoint, "2");
    let mut nodes = job.launchers(2);
    let group = job.group(2);
    let host = host_of(&nodes, &endpoint);
    let (done, busy) = (group.of(&nodes[1 - host])[0], group.of(&nodes[host])[0]);
    done.tell("exit 0");
    done.is_gone();
    // Whether it waits for ever cannot be shown; that it waits until the other has done something can.
    busy.does("sleep 1");
    assert!(!nodes[1 - host].has_ended());
    busy.tell("exit 0");
    for node in &mut nodes {
        node.ends_with(0);
    }
}

#[test]
fn a_node_that_is_done_need_not_wait_for_other_nodes() {
    let endpoint = free_endpoint();
    for option in [true, false] {
        let job = Job::at(&endpoint, "2");
        let line = |_| match option {
            true => job.launcher().with(&["--exit-barrier-timeout", "0.2"]).start(),
            false => job.launcher().env("TORCH_ELASTIC_EXIT_BARRIER_TIMEOUT", "0.2").start(),
        };
        let mut nodes: Vec<_> = (0..2).map(line).collect();
        let group = job.group(2);
        let host = host_of(&nodes, &endpoint);
        group.of(&nodes[1 - host])[0].tell("exit 0");
        nodes[1 - host].ends_with(0);
        // The other goes on, and does not mind.
        let busy = group.of(&nodes[host])[0];
        busy.does(":");
        busy.tell("exit 0");
        nodes[host].ends_with(0);
        assert_eq!(job.rounds().len(), 1);
    }
}

/// A node whose workers are done does not come back when other nodes fail and form another group.
#[test]
fn other_nodes_restart_without_a_node_that_is_done() {
    let endpoint = free_endpoint();
    let job = Job::with_conf(&endpoint, "1:3", "lease_ttl=30,last_call_timeout=3");
    let mut nodes = (0..3).map(|_| job.launch_with(&["--max-restarts", "1"])).collect::<Vec<_>>();
    let first = job.group(3);
    let host = host_of(&nodes, &endpoint);
    // Rank 0 only waits at the exit barrier, and says nothing that could be seen.
    let speaks = |node: &usize| *node != host && first.of(&nodes[*node])[0].rank > 0;
    let done = (0..3).find(speaks).unwrap();
    first.of(&nodes[done])[0].tell("exit 0");
    // Its launcher has noticed, and waits for the other nodes.
    until_true("a node that is done", || {
        let is_word = |kv: &KeyValue| String::from_utf8_lossy(&kv.key).contains("/done/");
        query(&endpoint, KeyRange::all()).kvs.iter().any(is_word)
    });
    first.of(&nodes[host])[0].tell("exit 1");
    let second = job.group_after(&first, 2);
    assert!(!second.launchers().contains(&done));
    nodes[done].ends_with(0);
    second.tell("exit 0");
    for node in &mut nodes {
        node.ends_with(0);
    }
}
