//! A job under random faults: launchers that are killed, told to stop, held up and started, workers that die.
//!
//! Whatever happens, no worker starts beside one of an earlier round that could still act, and when it is
//! over, those who are left meet and finish.

use std::time::Duration;

use rustix::process::Signal;

use super::{Job, Launcher, wait};
use crate::support::Embedded;

/// Each worker looks at its start for those of earlier rounds. A launcher that was killed, or does not run,
/// cannot stop its own: those are excused.
const LOOK: &str = r#"
    for start in $JOB/workers/*.start; do
        [ -e "$start" ] || continue
        name=${start##*/}; round=${name%%.*}; name=${name%.start}; pid=${name##*.}
        [ "$round" -lt "$RALLYPOINT_ROUND" ] || continue
        grep -q '^State:.[^ZX]' /proc/$pid/status 2>/dev/null || continue
        tr '\0' '\n' < $start | grep '^LAUNCHER=' | sed "s/.*/& $round $pid beside $RALLYPOINT_ROUND $$/" >> $JOB/overlap
    done"#;

/// A number from the environment, for those who want another seed or a longer story.
fn given(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
#[expect(clippy::print_stdout, reason = "a test that fails tells its story")]
fn a_job_survives_whatever_happens_to_its_nodes() {
    let seed = given("RALLYPOINT_SEED").unwrap_or_else(|| fastrand::u64(..));
    let mut random = fastrand::Rng::with_seed(seed);
    let server = wait(Embedded::memory());
    let job = Job::with_conf(&server.address(), "2:4", "lease_ttl=2,last_call_timeout=1");
    let launch = || {
        let line = job.launcher().with(&["--max-restarts", "1000", "--shutdown-timeout", "5"]);
        line.program(&["sh", &job.file("worker.sh"), LOOK]).start()
    };
    let mut nodes: Vec<Launcher> = (0..3).map(|_| launch()).collect();
    let mut excused = Vec::new();
    let mut story = Vec::new();
    for _ in 0..given("RALLYPOINT_STEPS").unwrap_or(8) {
        let node = random.usize(..nodes.len());
        let number = nodes[node].number;
        let what = match random.u8(..6) {
            0 if nodes.len() > 2 => {
                excused.push(number);
                nodes.remove(node).kill();
                "kill"
            }
            1 if nodes.len() > 2 => {
                let mut leaves = nodes.remove(node);
                leaves.signal(Signal::TERM);
                let ended = leaves.ended();
                // It may not even have begun.
                assert!(
                    matches!((ended.code, ended.signal), (Some(143), _) | (_, Some(15))),
                    "{ended:?}"
                );
                "leave"
            }
            2 => {
                let workers = job.workers();
                let living: Vec<_> = workers.iter().filter(|worker| worker.lives()).collect();
                if let Some(worker) = random.choice(living) {
                    worker.tell("kill -KILL $$");
                }
                "fail"
            }
            3 => {
                excused.push(number);
                nodes[node].signal(Signal::STOP);
                std::thread::sleep(Duration::from_millis(random.u64(..3000)));
                nodes[node].signal(Signal::CONT);
                "pause"
            }
            _ if nodes.len() < 6 => {
                nodes.push(launch());
                "join"
            }
            _ => "rest",
        };
        story.push(format!("{what} {number}"));
        std::thread::sleep(Duration::from_millis(random.u64(..800)));
    }
    let told = format!("RALLYPOINT_SEED={seed}: {}", story.join(", "));
    println!("{told}");
    // Now they may settle.
    let group = job.group(nodes.len().min(4));
    group.tell("exit 0");
    for node in &mut nodes {
        node.ends_with(0);
    }
    let overlap = std::fs::read_to_string(job.path().join("overlap")).unwrap_or_default();
    let is_excused =
        |line: &&str| excused.iter().any(|number| line.starts_with(&format!("LAUNCHER={number} ")));
    let wrong: Vec<&str> = overlap.lines().filter(|line| !is_excused(line)).collect();
    assert!(wrong.is_empty(), "{wrong:?}; {told}");
    job.nothing_is_left();
}
