//! Workers that are alive, and stuck.

use rustix::process::Signal;
use serde_json::Value;

use super::{assert_words, explained, said};
use crate::launch::{Job, Launcher, until, until_true};
use crate::status::Server;

/// jax-ml/jax#38503
#[test]
fn alive_but_stuck_and_the_odd_rank_is_named() {
    let server = Server::ours();
    let job = server.job("2:4");
    let options = ["--nproc-per-node", "2", "--hang-after", "3:60", "--progress", "beat"];
    let nodes: Vec<Launcher> = (0..4).map(|_| job.launch_with(&options)).collect();
    let group = job.group(8);
    let beat = ": > \"$RALLYPOINT_PROGRESS_FILE\"";
    group.workers[5].tell(&format!("{beat}; exec sleep 1000"));
    group.workers.iter().filter(|worker| worker.rank != 5).for_each(|worker| worker.does(beat));
    let rank_0 = &nodes[group.workers[0].launcher()];
    assert_words(
        &said(rank_0, "no progress on "),
        "no progress on HOST for N s: rank 5 on HOST is in CALL (sleep); 7 ranks on HOST are in CALL (sh)",
    );
    assert_words(
        &said(rank_0, "the odd node is "),
        "the odd node is HOST: 7 of 8 ranks are in CALL (sh), and the others are on HOST; `rallypoint evict job HOST-…` \
         lets the job go on without it, and --on-hang restart does so by itself",
    );
    // The log is not where an operator looks first.
    let runs = until("the report is in the run", || {
        Some(server.says(&["status"]).stdout).filter(|runs| runs.contains("rank 5"))
    });
    let found = runs.lines().find_map(|line| line.find("no progress").map(|at| &line[at..]));
    assert_words(found.unwrap(), "no progress for over N s: rank 5 on HOST is elsewhere");
    assert_words(
        &explained(&server, "Rank 5"),
        "Run \"job\" runs: round 1 has a group of 4 nodes (2 to 4 wanted), for N s now.
        The job hangs: the workers on HOST have made no progress for N s.
        Rank 5 on HOST is in CALL (sleep); 7 ranks on HOST are in CALL (sh).
        No restart is left: the next failure of a worker closes the run.
        Round 1 began because: the run begins.
        What helps: `rallypoint evict job HOST-…` lets the job go on without HOST; --on-hang restart does so by itself.",
    );
    let odd = server.status()["hang"]["odd_nodes"][0].as_str().unwrap().to_owned();
    let launcher = nodes[group.workers[5].launcher()].id();
    assert!(odd.contains(&format!("-{launcher}-")), "{odd} is not the node of process {launcher}");
    // The others go on, also the one whose node reported the hang.
    let beats = format!("while :; do {beat}; sleep 0.2; done");
    group.workers.iter().filter(|worker| worker.rank != 5).for_each(|worker| worker.tell(&beats));
    let is_running = |status: &Value| status["reason"] == "running" && status["hang"].is_null();
    server.until("the job goes on", is_running);
}

/// pytorch#122694
#[test]
fn the_stack_before_the_kill() {
    let job = Job::new(&["--shutdown-timeout", "2"]);
    let order = ": > $JOB/begun; trap '' TERM; exec sleep 1000";
    let mut node = job.launcher().program(&["sh", "-c", order]).start();
    until_true("it has begun", || job.path().join("begun").exists());
    node.signal(Signal::TERM);
    let stack = said(&node, "workers that do not stop");
    let killed = said(&node, "the workers did not stop");
    let words =
        "workers that do not stop, and are about to be killed: rank 0 on HOST: CALL (sleep)";
    assert_words(&stack, words);
    let words =
        "the workers did not stop in time, and are killed; --shutdown-timeout gives them longer";
    assert_words(&killed, words);
    let text = node.ends_with(143).stderr;
    assert!(text.find(&stack) < text.find(&killed), "{text}");
}
