//! A node that is told to go tells the workers of all nodes first, if they are to have a notice.

use rustix::process::Signal;

use super::{Job, free_endpoint, host_of, until_true};

/// A worker that says when it was told and what it was told, saves its work when it may, and goes.
const ORDER: &str = r#"
    trap 'cat "$RALLYPOINT_NOTICE_FILE" > $JOB/notice.$RANK; echo told >> $JOB/notes.$RANK
          until [ -e $JOB/go ]; do sleep 0.05; done; echo saved >> $JOB/notes.$RANK; exit 0' USR1
    trap 'echo stopped >> $JOB/notes.$RANK; exit 0' TERM"#;

fn read(job: &Job, name: &str) -> String {
    std::fs::read_to_string(job.path().join(name)).unwrap_or_default()
}

#[test]
fn a_node_that_is_told_to_go_gives_a_notice_to_the_workers_of_all() {
    let endpoint = free_endpoint();
    let job = Job::with_conf(&endpoint, "1:3", "lease_ttl=30,last_call_timeout=1");
    let launch = |_| {
        let line = job.launcher().with(&["--notice", "60"]);
        line.program(&["sh", &job.file("worker.sh"), ORDER]).start()
    };
    let mut nodes: Vec<_> = (0..3).map(launch).collect();
    let first = job.group(3);
    let host = host_of(&nodes, &endpoint);
    let mut goes = nodes.remove((host + 1) % 3);
    goes.signal(Signal::TERM);
    for rank in 0..3 {
        until_true(&format!("rank {rank} is told"), || {
            read(&job, &format!("notes.{rank}")) == "told\n"
        });
        let notice: serde_json::Value =
            serde_json::from_str(&read(&job, &format!("notice.{rank}"))).unwrap();
        let seconds = notice["seconds"].as_f64().unwrap();
        assert!(seconds > 0.0 && seconds <= 60.0, "{notice}");
        assert!(notice["reason"].as_str().unwrap().contains("SIGTERM"), "{notice}");
    }
    assert!(first.lives() && !goes.has_ended());
    std::fs::write(job.path().join("go"), "").unwrap();
    goes.ends_with(128 + 15);
    let second = job.group_after(&first, 2);
    for rank in 0..3 {
        assert_eq!(read(&job, &format!("notes.{rank}")), "told\nsaved\n", "rank {rank}");
    }
    assert_eq!(job.rounds().len(), 2, "the group turned once");
    for worker in &second.workers {
        assert_eq!(worker.get("TORCHELASTIC_RESTART_COUNT"), "0");
    }
    second.tell("exit 0");
    for node in &mut nodes {
        node.ends_with(0);
    }
}

/// A worker that does not end by itself is stopped when the time is over, on every node.
#[test]
fn when_the_time_is_over_all_are_stopped() {
    let endpoint = free_endpoint();
    let job = Job::with_conf(&endpoint, "1:2", "lease_ttl=30,last_call_timeout=1");
    let order = "trap 'echo told >> $JOB/notes.$RANK' USR1
                 trap 'echo stopped >> $JOB/notes.$RANK; exit 0' TERM";
    let launch = |_| {
        let line = job.launcher().with(&["--notice", "2"]);
        line.program(&["sh", &job.file("worker.sh"), order]).start()
    };
    let mut nodes: Vec<_> = (0..2).map(launch).collect();
    let first = job.group(2);
    let host = host_of(&nodes, &endpoint);
    let mut goes = nodes.remove(1 - host);
    goes.signal(Signal::TERM);
    goes.ends_with(128 + 15);
    let second = job.group_after(&first, 1);
    for rank in 0..2 {
        assert_eq!(read(&job, &format!("notes.{rank}")), "told\nstopped\n", "rank {rank}");
    }
    assert_eq!(job.rounds().len(), 2);
    second.tell("exit 0");
    nodes[0].ends_with(0);
}

#[test]
fn a_second_signal_does_not_wait_for_the_notice() {
    let job = Job::new(&["--notice", "600"]);
    let order = "trap 'touch $JOB/told' USR1; trap '' TERM";
    let mut node = job.launcher().program(&["sh", &job.file("worker.sh"), order]).start();
    job.group(1);
    node.signal(Signal::TERM);
    until_true("the worker is told", || job.path().join("told").exists());
    assert!(!node.has_ended());
    node.signal(Signal::TERM);
    node.ends_with(128 + 15);
    job.nothing_is_left();
}
