//! Nodes that do not come, come twice, or go.

use rustix::process::Signal;

use super::{assert_words, explained, said};
use crate::launch::{Launcher, until};
use crate::status::Server;

/// NVIDIA/nvidia-resiliency-ext#142
#[test]
fn the_same_node_rank_twice() {
    let server = Server::ours();
    let job = server.job("3");
    let _nodes = [0, 1].map(|_| job.launch_with(&["--node-rank", "0"]));
    assert_words(
        &explained(&server, "It has 2 of 3 nodes"),
        "Run \"job\" forms a group: round 1 takes nodes, for N s now.
        It has 2 of 3 nodes (HOST-… and HOST-…), and waits for 1 more.
        Node rank 1 has not been seen.
        Round 1 began because: the run begins.
        Node rank 0 was given to HOST-… and HOST-….
        What helps: Start 1 more node with the same --rdzv-id and --rdzv-endpoint, or look at the logs of those that \
        should be there. --rdzv-conf timeout=SECONDS lets the others wait longer.
        What helps: Give each node a --node-rank of its own, or none.",
    );
}

/// marin-community/marin#5480
#[test]
fn siblings_that_never_came_with_time_left() {
    let server = Server::ours();
    let job = server.job("8");
    let launch = |rank: usize| job.launch_with(&["--node-rank", &rank.to_string()]);
    let nodes: Vec<Launcher> = (0..5).map(launch).collect();
    let told = explained(&server, "It has 5 of 8 nodes");
    let waits = said(&nodes[4], "waiting: 5 of 8 nodes");
    assert_words(
        &waits,
        "waiting: 5 of 8 nodes, waiting for 3 more (N s, N s left); here: HOST-…, HOST-…, HOST-…, HOST-…, HOST-…; \
         node ranks missing: 5, 6, 7",
    );
    assert_words(
        &told,
        "Run \"job\" forms a group: round 1 takes nodes, for N s now.
        It has 5 of 8 nodes (HOST-…, HOST-…, HOST-…, HOST-… and HOST-…), and waits for 3 more.
        Node ranks 5, 6 and 7 have not been seen.
        Round 1 began because: the run begins.
        What helps: Start 3 more nodes with the same --rdzv-id and --rdzv-endpoint, or look at the logs of those that \
        should be there. --rdzv-conf timeout=SECONDS lets the others wait longer.",
    );
}

/// AI-Hypercomputer/gpu-recipes#2
#[test]
fn missing_tasks_of_32_by_number_and_last_exit() {
    let server = Server::ours();
    let job = server.job("32");
    let task = |rank: usize| {
        let slurm = [("SLURM_JOB_ID", "7"), ("SLURM_STEP_ID", "0"), ("SLURM_NNODES", "32")];
        let line = slurm.iter().fold(job.launcher(), |line, (name, value)| line.env(name, value));
        line.env("SLURM_NODEID", &rank.to_string()).start()
    };
    // Task 19 does not come at all.
    let ranks = (0..32).filter(|rank| *rank != 19);
    let mut tasks: Vec<(usize, Launcher)> = ranks.map(|rank| (rank, task(rank))).collect();
    explained(&server, "It has 31 of 32 nodes");
    let (_, fourth) = tasks.iter_mut().find(|(rank, _)| *rank == 4).unwrap();
    fourth.signal(Signal::TERM);
    fourth.ends_with(143);
    assert_words(
        &explained(&server, "It has 30 of 32 nodes"),
        "Run \"job\" forms a group: round 1 takes nodes, for N s now.
        It has 30 of 32 nodes (HOST-…, HOST-…, HOST-…, HOST-…, HOST-…, HOST-…, HOST-…, HOST-… and 22 more), and waits \
        for 2 more.
        Node rank 19 has not been seen.
        Node rank 4 was here and is gone: HOST-… ended N s ago with exit code 143: the launcher got signal 15 (SIGTERM).
        Round 1 began because: the run begins.
        What helps: Start 2 more nodes with the same --rdzv-id and --rdzv-endpoint, or look at the logs of those that \
        should be there. --rdzv-conf timeout=SECONDS lets the others wait longer.",
    );
}

/// pytorch#111646
#[test]
fn a_peer_is_lost() {
    let server = Server::ours();
    let job = server.job("2:3");
    let mut nodes = job.launchers(3);
    let group = job.group(3);
    // No node records the loss of a coordinator that is killed.
    let status = server.until("a coordinator", |status| status["coordinator"].is_string());
    let coordinator = status["coordinator"].as_str().unwrap().to_owned();
    let is_other = |lost: &usize| !coordinator.contains(&format!("-{}-", nodes[*lost].id()));
    let lost = [2, 1].map(|rank| group.workers[rank].launcher()).into_iter().find(is_other);
    nodes[lost.unwrap()].kill();
    job.group_after(&group, 2);
    // The node that learns of the loss first logs it; the other one may learn first of the next round.
    let words = "stopping the workers why=members were lost";
    let told = until(words, || nodes.iter().find(|node| node.stderr().contains(words)));
    assert_words(&said(told, words), "stopping the workers why=members were lost: HOST-…");
    assert_words(
        &explained(&server, "Run \"job\" runs"),
        "Run \"job\" runs: round 2 has a group of 2 nodes (2 to 3 wanted), for N s now.
        No restart is left: the next failure of a worker closes the run.
        Round 2 began because: round 1 lost HOST-….
        Round 1 began N s ago because: the run begins; it formed a group of 3 nodes, which lost HOST-… \
        (proved dead: its host refuses its liveness socket).
        What helps: The group has room for 1 more node: start one with the same --rdzv-id and --rdzv-endpoint, and the \
        group re-forms with it.",
    );
}
