//! Workers that make no progress, and workers that do not stop: where they are is reported.

use std::time::{Duration, Instant};

use rallypoint::core::kv::KeyRange;
use rallypoint::core::rendezvous::keys::{DEFAULT_PREFIX, Keys};
use rustix::process::Signal;

use super::{Job, Launcher, free_endpoint, query, until, until_true};

const BEAT: &str = ": > \"$RALLYPOINT_PROGRESS_FILE\"";

/// The one launcher that has reported, which is that of rank 0.
fn reporter(nodes: &[Launcher]) -> &Launcher {
    until("a report", || nodes.iter().find(|node| node.stderr().contains("no progress on ")))
}

/// The whole report, once its last line is there.
fn report(node: &Launcher, last: &str) -> String {
    let text = until(last, || Some(node.stderr()).filter(|text| text.contains(last)));
    let begins = text.find("no progress on ").unwrap();
    text[begins..].to_owned()
}

/// Sixteen ranks: one sleeps, the others wait for an order.
#[test]
fn the_rank_that_is_elsewhere_is_named() {
    let endpoint = free_endpoint();
    let job = Job::at(&endpoint, "4");
    let options = ["--nproc-per-node", "4", "--hang-after", "3:60", "--progress", "beat"];
    let mut nodes: Vec<_> = (0..4).map(|_| job.launch_with(&options)).collect();
    let group = job.group(16);
    group.workers[7].tell(&format!("{BEAT}; exec sleep 1000"));
    group.workers.iter().filter(|worker| worker.rank != 7).for_each(|worker| worker.does(BEAT));
    let silent = Instant::now();
    let first = reporter(&nodes);
    let text = report(first, "stack of rank 7");
    let took = silent.elapsed();
    let headline = text.lines().next().unwrap();
    assert!(headline.contains("rank 7 on ") && headline.contains(" (sleep); 15 ranks "), "{text}");
    assert!(text.contains("\n  rank 7 on "), "{text}");
    assert!(text.contains("\n  ranks 0-6, 8-15 on "), "{text}");
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert_eq!(group.of(first)[0].get("GROUP_RANK"), "0");
    let said = |node: &Launcher| node.stderr().matches("no progress on ").count();
    assert_eq!(said(first), 1, "{}", first.stderr());
    // Nothing else happens to the job.
    assert!(group.lives());
    group.workers[0].does(BEAT);
    for node in &mut nodes {
        node.signal(Signal::KILL);
        node.ended();
    }
    until_true("no process of the job is left", || job.processes().is_empty());
    let mut left = std::fs::read_dir(job.path().join("tmp")).unwrap();
    let is_of_beats = |name: &str| name.starts_with("rallypoint-beats");
    assert!(!left.any(|entry| is_of_beats(entry.unwrap().file_name().to_str().unwrap())));
}

/// A hang that is over and comes again is reported again.
#[test]
fn the_next_hang_has_its_own_report() {
    let job = Job::new(&["--hang-after", "0.5:60"]);
    let mut node = job.launch();
    let group = job.group(1);
    group.does(BEAT);
    let reports = || node.stderr().matches("no progress on ").count();
    until_true("the first report", || reports() == 1);
    group.does(&format!("sleep 0.6; {BEAT}"));
    until_true("the second report", || reports() == 2);
    group.tell("exit 0");
    node.ends_with(0);
}

/// Output is a sign too, on the console and in files.
#[test]
fn a_worker_that_prints_makes_progress() {
    for options in [&["--redirects", "3"][..], &[]] {
        let job = Job::new(&["--hang-after", "3:60"]);
        let mut node = job.launch_with(options);
        let group = job.group(1);
        for _ in 0..50 {
            group.does("echo step; sleep 0.1");
        }
        assert!(!node.stderr().contains("no progress on "), "{options:?}: {}", node.stderr());
        until_true("a report", || node.stderr().contains("no progress on "));
        group.tell("exit 0");
        let ended = node.ends_with(0);
        if options.is_empty() {
            assert_eq!(ended.stdout.lines().filter(|line| *line == "step").count(), 50);
        }
    }
}

/// Whether a job makes progress is for each node to see: the store is not asked, and nothing is written.
#[test]
fn nothing_is_written_while_all_is_well() {
    let endpoint = free_endpoint();
    let job = Job::at(&endpoint, "2");
    let options = ["--hang-after", "3:60", "--progress", "beat"];
    let mut nodes: Vec<_> = (0..2).map(|_| job.launch_with(&options)).collect();
    let group = job.group(2);
    group.does(BEAT);
    // What is written on the way to a group is written.
    let revision = || query(&endpoint, KeyRange::all()).revision;
    let before = revision();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(5) {
        group.does(&format!("sleep 0.05; {BEAT}"));
    }
    assert_eq!(revision(), before);
    let asked = Keys::new(DEFAULT_PREFIX, "job").restarts();
    let budget = query(&endpoint, KeyRange::key(asked)).kvs;
    assert!(budget.iter().all(|kv| !String::from_utf8_lossy(&kv.value).contains("hang")));
    group.tell("exit 0");
    for node in &mut nodes {
        assert!(!node.ends_with(0).stderr.contains("progress"));
    }
}

#[test]
fn workers_that_do_not_stop_are_described_before_they_are_killed() {
    let job = Job::new(&["--nproc-per-node", "2", "--shutdown-timeout", "2"]);
    let order = "trap '' TERM; exec sleep 1000";
    let line = job.launcher().program(&["sh", "-c", &format!(": > $JOB/begun.$RANK; {order}")]);
    let mut node = line.start();
    until_true("both have begun", || {
        (0..2).all(|rank| job.path().join(format!("begun.{rank}")).exists())
    });
    let begun = Instant::now();
    node.signal(Signal::TERM);
    let ended = node.ends_with(143);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    let text = ended.stderr;
    let (described, killed) = ("about to be killed: ranks 0-1 on ", "and are killed");
    let places = [described, "(sleep)", killed].map(|words| text.find(words));
    let [Some(described), Some(place), Some(killed)] = places else { panic!("{text}") };
    assert!(described < place && place < killed, "{text}");
    job.nothing_is_left();
}
