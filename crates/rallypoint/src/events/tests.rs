use rallypoint_core::agent::Agent;
use rallypoint_core::events::{EventBody, Replay, ReplayError, RunEvent};

use super::*;

fn read(path: &Path) -> Vec<RunEvent> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| RunEvent::parse(line).unwrap()).collect()
}

fn begin(file: &EventFile, node_id: &str) {
    let recorder = file.recorder();
    recorder.agent_began("job", node_id, &AgentSettings::default());
    let mut agent = Agent::new(AgentSettings::default());
    let now = recorder.origin().elapsed();
    agent.handle(now, AgentInput::Begin);
    let outputs: Vec<AgentOutput> = std::iter::from_fn(|| agent.poll_output()).collect();
    recorder.agent_step(now, &AgentInput::Begin, &outputs);
}

#[tokio::test]
async fn a_later_start_appends_also_after_a_line_that_was_cut_off() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("events.jsonl");
    let file = EventFile::append(&path, true).unwrap();
    begin(&file, "a");
    file.close().await;
    let events = read(&path);
    assert_eq!(events.iter().map(|event| event.seq).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(events[2].body, EventBody::RendezvousBegan);
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let mut cut = OpenOptions::new().append(true).open(&path).unwrap();
    cut.write_all(b"{\"format\":1,\"se").unwrap();
    let file = EventFile::append(&path, true).unwrap();
    begin(&file, "b");
    file.close().await;
    let mut replay = Replay::default();
    for line in std::fs::read_to_string(&path).unwrap().lines() {
        replay.line(line).unwrap();
    }
    let replayed = replay.end();
    assert_eq!((replayed.starts, replayed.cut_off.len(), replayed.events), (2, 1, 2));
}

#[tokio::test]
async fn a_file_without_records_has_the_events_and_cannot_be_replayed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("events.jsonl");
    let file = EventFile::append(&path, false).unwrap();
    begin(&file, "a");
    file.close().await;
    let events = read(&path);
    assert_eq!(events.len(), 1);
    assert_eq!((events[0].seq, &events[0].body), (1, &EventBody::RendezvousBegan));
    let error = Replay::default().line(&events[0].to_line()).unwrap_err();
    assert!(matches!(error, ReplayError::NoRecords { line: 1, .. }), "{error}");
    assert!(error.to_string().contains("--records"), "{error}");
}

/// Someone who wants no file gets events, and no records.
#[cfg(feature = "cli")]
#[test]
fn records_are_made_for_a_file_alone() {
    let recorder = EventRecorder::without_file();
    let (seen, events) = std::sync::mpsc::channel();
    recorder.observe(Box::new(move |_, event| seen.send(event.clone()).unwrap()));
    recorder.agent_began("job", "a", &AgentSettings::default());
    let mut agent = Agent::new(AgentSettings::default());
    agent.handle(Time::ZERO, AgentInput::Begin);
    let outputs: Vec<_> = std::iter::from_fn(|| agent.poll_output()).collect();
    recorder.agent_step(Time::ZERO, &AgentInput::Begin, &outputs);
    let events: Vec<EventBody> = events.try_iter().map(|event| event.body).collect();
    assert_eq!(events, [EventBody::RendezvousBegan]);
}

#[tokio::test]
async fn a_full_disk_stops_nothing() {
    let file = EventFile::append(Path::new("/dev/full"), true).unwrap();
    begin(&file, "a");
    begin(&file, "a");
    file.close().await;
}

#[tokio::test]
async fn nothing_is_recorded_after_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("events.jsonl");
    let file = EventFile::append(&path, true).unwrap();
    let recorder = file.recorder();
    file.close().await;
    recorder.agent_began("job", "a", &AgentSettings::default());
    assert!(read(&path).is_empty());
    assert!(EventFile::append(&directory.path().join("none/events"), true).is_err());
}
