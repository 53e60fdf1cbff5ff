//! Signals that are meant for the workers, such as that of `#SBATCH --signal=USR1@120`.

use rustix::process::Signal;

use super::{Job, free_endpoint, until_true};

/// What the workers have written to a file of the job.
fn notes(job: &Job, name: &str) -> String {
    std::fs::read_to_string(job.path().join(name)).unwrap_or_default()
}

/// Each worker gets them, and what it has started does not: of a signal that the worker handles, others may die.
#[test]
fn they_are_passed_on_to_every_worker_and_end_nothing() {
    let job = Job::new(&["--nproc-per-node", "2"]);
    let order = "sleep 1000 & child=$!
                 trap 'echo USR1 >> $JOB/got.$RANK' USR1; trap 'echo USR2 >> $JOB/got.$RANK' USR2";
    let mut node = job.launcher().program(&["sh", &job.file("worker.sh"), order]).start();
    let group = job.group(2);
    let mut expected = String::new();
    for (signal, name) in
        [(Signal::USR1, "USR1\n"), (Signal::USR2, "USR2\n"), (Signal::USR1, "USR1\n")]
    {
        node.signal(signal);
        expected.push_str(name);
        for rank in 0..2 {
            until_true(&format!("rank {rank} has {expected:?}"), || {
                notes(&job, &format!("got.{rank}")) == expected
            });
        }
    }
    assert!(group.lives() && !node.has_ended());
    group.does("kill -0 $child");
    group.tell("kill $child; exit 0");
    let ended = node.ends_with(0);
    assert!(ended.stderr.contains("SIGUSR1"), "{}", ended.stderr);
    assert_eq!(job.rounds().len(), 1);
}

/// A worker that has no handler, or none yet, would die of it.
#[test]
fn a_worker_that_does_not_handle_it_is_spared() {
    let job = Job::new(&["--nproc-per-node", "2"]);
    let order = "[ $RANK = 0 ] || trap 'echo USR1 >> $JOB/got' USR1";
    let mut node = job.launcher().program(&["sh", &job.file("worker.sh"), order]).start();
    let group = job.group(2);
    node.signal(Signal::USR1);
    until_true("rank 1 has it", || notes(&job, "got") == "USR1\n");
    node.says("local ranks [0]");
    assert!(group.lives() && !node.has_ended());
    group.tell("exit 0");
    node.ends_with(0);
}

/// There is no worker to pass it on to, which is logged.
#[test]
fn while_nodes_meet_they_end_nothing() {
    let endpoint = free_endpoint();
    let job = Job::at(&endpoint, "2");
    let mut first = job.launch();
    first.says("1 of 2 nodes");
    first.signal(Signal::USR1);
    first.says("no worker runs that SIGUSR1 could be passed on to");
    first.signal(Signal::USR2);
    first.says("no worker runs that SIGUSR2 could be passed on to");
    let mut second = job.launch();
    job.group(2).tell("exit 0");
    first.ends_with(0);
    second.ends_with(0);
}

/// A server that is late is waited for as well.
#[test]
fn while_there_is_no_server_they_end_nothing() {
    let job = Job::new(&[
        "--nnodes",
        "2",
        "--rdzv-id",
        "job",
        "--rdzv-backend",
        "etcd",
        "--rdzv-endpoint",
        "127.0.0.1:1",
    ]);
    let mut node = job.launch();
    node.says("waiting: a server");
    node.signal(Signal::USR1);
    node.says("no worker runs that SIGUSR1 could be passed on to");
    node.signal(Signal::TERM);
    node.ends_with(128 + 15);
}

#[test]
fn named_as_signals_to_handle_they_end_the_launcher() {
    let job = Job::new(&["--signals-to-handle", "SIGUSR1"]);
    let order = "trap 'touch $JOB/asked; exit 0' USR1";
    let mut node = job.launcher().program(&["sh", &job.file("worker.sh"), order]).start();
    job.group(1);
    node.signal(Signal::USR1);
    node.ends_with(128 + 10);
    assert!(job.path().join("asked").exists(), "the worker got the same");
}
