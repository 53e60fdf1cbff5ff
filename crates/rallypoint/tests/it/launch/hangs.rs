//! Workers that make no progress, and workers that do not stop: where they are is reported.

use std::process::Command;
use std::time::{Duration, Instant};

use rallypoint::core::kv::KeyRange;
use rallypoint::core::rendezvous::keys::{DEFAULT_PREFIX, Keys};
use rustix::process::Signal;

use super::{Group, Job, Launcher, free_endpoint, query, until, until_true, wait};
use crate::support::Embedded;

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

/// Three nodes with two ranks each, of which one rank is elsewhere: that of the second node.
fn hangs_at_rank_3(job: &Job, options: &[&str], order: &str) -> (Vec<Launcher>, Group, usize) {
    let usual = ["--nproc-per-node", "2", "--hang-after", "3:60", "--progress", "beat"];
    let options = [&usual[..], &["--on-hang", "restart"], options].concat();
    let launch = |number: usize| {
        job.launcher().with(&options).with(&["--events", &events(job, number), "--records"]).start()
    };
    let nodes: Vec<_> = (0..3).map(launch).collect();
    let group = job.group(6);
    let odd = group.workers[3].launcher();
    group.workers[3].tell(&format!("{BEAT}; {order}"));
    group.workers.iter().filter(|worker| worker.rank != 3).for_each(|worker| worker.does(BEAT));
    (nodes, group, odd)
}

fn events(job: &Job, number: usize) -> String {
    job.file(&format!("events-{number}.jsonl"))
}

/// What a command prints, which succeeds.
fn rallypoint(words: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_rallypoint")).args(words).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_job_that_hangs_restarts_without_the_odd_node() {
    // The server is none of the nodes'.
    let server = wait(Embedded::memory());
    let conf = "is_host=false,lease_ttl=30,last_call_timeout=30";
    let job = Job::with_conf(&server.address(), "2:3", conf);
    let (mut nodes, group, odd) =
        hangs_at_rank_3(&job, &["--max-restarts", "1"], "exec sleep 1000");
    let again = job.group_after(&group, 4);
    assert!(!again.launchers().contains(&odd));
    assert_eq!(again.workers[0].get("TORCHELASTIC_RESTART_COUNT"), "1");
    let ended = nodes[odd].ends_with(77).stderr;
    assert!(ended.contains("this node was evicted by "), "{ended}");
    assert!(ended.contains("; the odd node is "), "{ended}");
    let reporter = reporter(&nodes).stderr();
    assert!(reporter.contains("restarting the job without it: no progress on "), "{reporter}");
    let told = rallypoint(&["explain", "job", "--rdzv-endpoint", &server.address()]);
    assert!(told.contains("The job hung in round 1: no progress on "), "{told}");
    assert!(told.contains("it used a restart (1 of 1 used)"), "{told}");
    assert!(told.contains(" was evicted by "), "{told}");
    // There is no restart left for the next hang.
    again.workers[1].tell(&format!("{BEAT}; exec sleep 1000"));
    again.workers.iter().filter(|worker| worker.rank != 1).for_each(|worker| worker.does(BEAT));
    for (number, node) in nodes.iter_mut().enumerate().filter(|(number, _)| *number != odd) {
        let ended = node.ends_with(1).stderr;
        assert!(ended.contains("the 1 restart was used"), "{number}: {ended}");
    }
    // The same decisions follow from what was recorded.
    let recorded = [0, 1, 2].map(|number| {
        rallypoint(&["replay", &events(&job, number)]);
        std::fs::read_to_string(events(&job, number)).unwrap()
    });
    for (kind, nodes) in [("hang_reported", 1), ("evicted", 1), ("restart_refused", 1)] {
        let kind = format!("\"kind\":\"{kind}\"");
        let told = recorded.iter().filter(|text| text.contains(&kind)).count();
        assert_eq!(told, nodes, "{kind}: {recorded:?}");
    }
    job.nothing_is_left();
}

#[test]
fn a_job_that_needs_the_odd_node_restarts_with_it() {
    let job = Job::at(&free_endpoint(), "3");
    let (mut nodes, group, odd) =
        hangs_at_rank_3(&job, &["--max-restarts", "1"], "exec sleep 1000");
    let again = job.group_after(&group, 6);
    assert!(again.launchers().contains(&odd));
    let words = ", and the job needs it: of 3 nodes, 2 would be left";
    assert!(reporter(&nodes).stderr().contains(words), "{}", reporter(&nodes).stderr());
    again.tell("exit 0");
    nodes.iter_mut().for_each(|node| drop(node.ends_with(0)));
}

/// It does not stop its workers, and does not leave: the other nodes wait for its lease, and its guard does not wait.
#[test]
fn an_odd_node_that_is_stuck_itself_is_waited_for_and_fenced() {
    let server = wait(Embedded::memory());
    let conf = "is_host=false,lease_ttl=8,last_call_timeout=30";
    let job = Job::with_conf(&server.address(), "2:3", conf);
    let options = ["--max-restarts", "1", "--shutdown-timeout", "600"];
    let order = "trap '' TERM; while :; do sleep 1000; done";
    let (mut nodes, group, odd) = hangs_at_rank_3(&job, &options, order);
    nodes[odd].says("stopping the workers");
    nodes[odd].signal(Signal::STOP);
    assert!(group.workers[3].lives());
    let again = job.group_after(&group, 4);
    assert!(!group.workers[3].lives(), "no group forms beside its workers");
    again.tell("exit 0");
    nodes[odd].signal(Signal::CONT);
    nodes[odd].ends_with(77);
    for (_, node) in nodes.iter_mut().enumerate().filter(|(number, _)| *number != odd) {
        node.ends_with(0);
    }
    job.nothing_is_left();
}
