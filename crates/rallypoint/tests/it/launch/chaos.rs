//! A job under random faults: launchers that are killed, told to stop, held up, cut off and started, workers that die.
//!
//! Whatever happens, no worker starts beside one of an earlier round that could still act, and when it is
//! over, those who are left meet and finish. From their events alone, every launcher decides the same again.

use std::time::Duration;

use rustix::process::Signal;
use tokio::runtime::{Builder, Runtime};

use super::recorded::{decisions, replay, replays, without_last_decision};
use super::{Job, Launcher, wait};
use crate::support::{Embedded, Proxy};

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

/// The seed and the number of faults, which it prints. They are the same in each run, so that one that fails can be repeated; others
/// come from the environment.
#[expect(clippy::print_stdout, reason = "a test that fails tells its story")]
pub fn seed_and_steps(seed: u64, steps: u64) -> (u64, u64) {
    let (seed, steps) =
        (given("RALLYPOINT_SEED").unwrap_or(seed), given("RALLYPOINT_STEPS").unwrap_or(steps));
    println!("These faults again: RALLYPOINT_SEED={seed} RALLYPOINT_STEPS={steps}");
    (seed, steps)
}

/// A launcher, and its way to the server.
struct Cuttable {
    launcher: Launcher,
    way: Proxy,
}

impl Cuttable {
    fn launch(job: &Job, server: &Embedded, ways: &Runtime) -> Self {
        let way = ways.block_on(Proxy::start(server.address()));
        let options = ["--rdzv-endpoint", &way.address(), "--max-restarts", "1000"];
        let line = job.recorded().with(&options).with(&["--shutdown-timeout", "5"]);
        Self { launcher: line.program(&["sh", &job.file("worker.sh"), LOOK]).start(), way }
    }

    fn number(&self) -> usize {
        self.launcher.number
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "a test that fails tells its story")]
fn a_job_survives_whatever_happens_to_its_nodes() {
    let (seed, steps) = seed_and_steps(1, 8);
    let mut random = fastrand::Rng::with_seed(seed);
    let server = wait(Embedded::memory());
    let ways = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let conf = "is_host=false,lease_ttl=2,last_call_timeout=1";
    let job = Job::with_conf(&server.address(), "2:4", conf);
    let launch = || Cuttable::launch(&job, &server, &ways);
    let mut nodes: Vec<Cuttable> = (0..3).map(|_| launch()).collect();
    let mut launched = nodes.len();
    let mut excused = Vec::new();
    let mut story = Vec::new();
    for _ in 0..steps {
        let node = random.usize(..nodes.len());
        let number = nodes[node].number();
        let what = match random.u8(..7) {
            0 if nodes.len() > 2 => {
                excused.push(number);
                nodes.remove(node).launcher.kill();
                "kill"
            }
            1 if nodes.len() > 2 => {
                let mut leaves = nodes.remove(node);
                leaves.launcher.signal(Signal::TERM);
                let ended = leaves.launcher.ended();
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
                nodes[node].launcher.signal(Signal::STOP);
                std::thread::sleep(Duration::from_millis(random.u64(..3000)));
                nodes[node].launcher.signal(Signal::CONT);
                "pause"
            }
            4 => {
                let way = &nodes[node].way;
                if random.bool() {
                    way.refuse()
                } else {
                    way.hang()
                }
                std::thread::sleep(Duration::from_millis(random.u64(..3000)));
                way.heal();
                "cut off"
            }
            _ if nodes.len() < 6 => {
                nodes.push(launch());
                launched += 1;
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
        node.launcher.ends_with(0);
    }
    let overlap = std::fs::read_to_string(job.path().join("overlap")).unwrap_or_default();
    let is_excused =
        |line: &&str| excused.iter().any(|number| line.starts_with(&format!("LAUNCHER={number} ")));
    let wrong: Vec<&str> = overlap.lines().filter(|line| !is_excused(line)).collect();
    assert!(wrong.is_empty(), "{wrong:?}; {told}");
    job.nothing_is_left();

    let finished = |launcher| nodes.iter().any(|node| node.number() == launcher);
    job.replays(launched, finished);
    for node in &nodes {
        a_changed_record_is_refused(&job.events_of(node.number()), &mut random);
    }
}

/// A decision that is changed afterwards is named by its line, and so is one that was cut off, which is no difference.
fn a_changed_record_is_refused(path: &str, random: &mut fastrand::Rng) {
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let number = random.choice(decisions(&lines)).expect("a launcher decides something");
    let line = &lines[number - 1];

    let before: usize = lines[..number - 1].iter().map(|line| line.len() + 1).sum();
    std::fs::write(path, &text[..before + line.len() / 2]).unwrap();
    let said = replays(path);
    assert!(
        said.contains(&format!("line {number} is cut off, at the end of a launcher")),
        "{said}"
    );

    lines[number - 1] = without_last_decision(line);
    std::fs::write(path, lines.join("\n")).unwrap();
    let refused = replay(path);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("line {number} differs")), "{said}");
}
