//! `--events` and `rallypoint replay`: what a job tells of itself, and that it can be decided again.

use std::path::Path;

use rallypoint::core::agent::{Exit, GroupChange};
use rallypoint::core::events::{EventBody, RUN_EVENTS, RunEvent};
use rallypoint::core::rendezvous::documents::RunOutcome;
use rallypoint::core::rendezvous::keys::{DEFAULT_PREFIX, Keys};

use super::recorded::{read, replay, replays};
use super::{Job, Launcher, query, wait};
use crate::support::Embedded;

fn launch(job: &Job) -> Launcher {
    job.recorded().with(&["--max-restarts", "1"]).start()
}

/// Whether there is an event of this kind.
fn has(events: &[RunEvent], is_it: impl Fn(&EventBody) -> bool) -> bool {
    events.iter().any(|event| is_it(&event.body))
}

/// The sizes of the groups that formed, in order.
fn sizes(events: &[RunEvent]) -> Vec<u32> {
    let size = |event: &RunEvent| match event.body {
        EventBody::RoundFinal { size, .. } => Some(size),
        _ => None,
    };
    events.iter().filter_map(size).collect()
}

/// A worker fails, a node is killed, and another one joins.
#[test]
fn the_events_of_a_job_tell_its_story_and_lead_to_the_same_decisions_again() {
    let server = wait(Embedded::memory());
    let job = Job::with_conf(&server.address(), "2:3", "lease_ttl=600,last_call_timeout=600");
    let mut nodes: Vec<Launcher> = (0..3).map(|_| launch(&job)).collect();
    let first = job.group(3);
    let failing = first.workers[1].launcher();
    first.workers[1].tell("exit 7");
    let second = job.group_after(&first, 3);
    let killed = second.workers[2].launcher();
    nodes[killed].kill();
    let third = job.group_after(&second, 2);
    nodes.push(launch(&job));
    let fourth = job.group_after(&third, 3);
    fourth.tell("exit 0");
    for node in nodes.iter_mut().filter(|node| node.number != killed) {
        node.ends_with(0);
    }
    for node in 0..4 {
        let events = read(&job.events_of(node));
        assert!(events.iter().zip(1..).all(|(event, seq)| event.seq == seq), "node {node}");
        let finished =
            has(&events, |body| matches!(body, EventBody::Finished { exit_code: 0, .. }));
        assert_eq!(finished, node != killed, "node {node}");
        let failed = |body: &EventBody| {
            matches!(body, EventBody::WorkerExited { exit: Exit::Code(7), rank: Some(1), .. })
        };
        assert_eq!(has(&events, failed), node == failing, "node {node}");
        let granted = has(&events, |body| matches!(body, EventBody::RestartGranted { .. }));
        assert_eq!(granted, node == failing, "node {node}");
        let stages =
            |body: &EventBody| matches!(body, EventBody::WorkersStarted { start_ms: Some(_), .. });
        assert!(has(&events, stages), "node {node}");
    }
    job.replays(4, |node| node != killed);
    let survivor = (0..3).find(|node| *node != killed && *node != failing).unwrap();
    let events = read(&job.events_of(survivor));
    assert_eq!(sizes(&events), [3, 3, 2, 3]);
    let peer_failed = |body: &EventBody| {
        matches!(body, EventBody::GroupChanged { change: GroupChange::PeerFailed(_) })
    };
    assert!(has(&events, peer_failed));
    let victim = read(&job.events_of(killed))[0].node_id.clone();
    let lost = |body: &EventBody| match body {
        EventBody::GroupChanged { change: GroupChange::PeerLost(nodes) } => nodes.contains(&victim),
        _ => false,
    };
    assert!(has(&events, lost), "{victim} is lost");
    let late = |body: &EventBody| matches!(body, EventBody::NodesWaiting { count: 1 });
    assert!(has(&events, late));

    // The same story lies in the keys of the run.
    let keys = Keys::new(DEFAULT_PREFIX, "job");
    let kept = query(&server.address(), keys.events());
    assert!(kept.kvs.len() as u64 <= RUN_EVENTS);
    assert!(kept.kvs.iter().all(|kv| kv.lease == keys.run_lease() && kv.value.len() < 4096));
    let parse = |value: &[u8]| RunEvent::parse(std::str::from_utf8(value).unwrap()).unwrap();
    let mut kept: Vec<RunEvent> = kept.kvs.iter().map(|kv| parse(&kv.value)).collect();
    kept.sort_by_key(|event| event.seq);
    assert!(kept.iter().zip(1..).all(|(event, seq)| event.seq == seq), "{kept:?}");
    assert_eq!(sizes(&kept), [3, 3, 2, 3]);
    let succeeded = EventBody::RunClosed {
        by: kept.last().unwrap().node_id.clone(),
        outcome: RunOutcome::Succeeded,
    };
    assert_eq!(kept.last().unwrap().body, succeeded);
    assert!(kept[0].time.starts_with("20") && kept[0].time.ends_with('Z'), "{}", kept[0].time);

    // A line that was changed is refused by its number.
    let path = job.events_of(failing);
    let text = std::fs::read_to_string(&path).unwrap();
    let changed =
        |line: &&str| line.contains("\"kind\":\"worker_exited\"") && line.contains("\"code\":7");
    let number = text.lines().position(|line| changed(&line)).unwrap() + 1;
    let line = text.lines().find(changed).unwrap();
    std::fs::write(&path, text.replace(line, &line.replace("\"code\":7", "\"code\":8"))).unwrap();
    let refused = replay(&path);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    for words in [&format!("line {number} differs"), "\"code\":8", "\"code\":7"] {
        assert!(said.contains(words), "no {words} in {said}");
    }
    job.nothing_is_left();
}

#[test]
fn a_later_start_appends_and_the_environment_may_name_the_file() {
    let job = Job::new(&["--standalone"]);
    for _ in 0..2 {
        let line = job.launcher().env("PET_EVENTS", &job.events_of(0)).env("PET_RECORDS", "1");
        line.program(&["true"]).start().ends_with(0);
    }
    let events = read(&job.events_of(0));
    assert_eq!(events.iter().filter(|event| event.seq == 1).count(), 2);
    let said = replays(&job.events_of(0));
    assert!(said.contains("2 starts"), "{said}");
}

#[test]
fn a_file_that_cannot_be_written_is_said_once_and_stops_nothing() {
    let job = Job::new(&["--standalone", "--events", "/dev/full"]);
    let ended = job.launcher().program(&["true"]).start().ends_with(0);
    assert_eq!(ended.stderr.matches("events cannot be written").count(), 1, "{}", ended.stderr);
    let job = Job::new(&["--standalone", "--events", "/nowhere/events"]);
    let ended = job.launcher().program(&["true"]).start().ends_with(1);
    assert!(
        ended.stderr.contains("--events \"/nowhere/events\" cannot be opened"),
        "{}",
        ended.stderr
    );
    assert!(!Path::new("/nowhere").exists());
    let refused = replay("/nowhere/events");
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("cannot be read"));
}
