//! Workers that are alive, and stuck.

use rustix::process::Signal;

use super::{assert_words, said};
use crate::launch::{Job, Launcher, free_endpoint, until_true};

/// jax-ml/jax#38503
#[test]
fn alive_but_stuck_and_the_odd_rank_is_named() {
    let job = Job::at(&free_endpoint(), "2:4");
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
