//! Every kind is read back, and stands in the reference.

use super::*;
use crate::agent::CloseReason;
use crate::rendezvous::FenceCause;
use crate::rendezvous::documents::RunOutcome;

/// One event of every kind. A new kind belongs here: the compiler asks for it below.
fn every_kind() -> Vec<EventBody> {
    let text = || "a".to_owned();
    let some = Some(1);
    let store = Address { host: text(), port: 1 };
    let settings = AgentSettings::default();
    let document = NodeDocument { id: text(), ..NodeDocument::default() };
    vec![
        EventBody::RoundOpened { coordinator: text(), previous: 1 },
        EventBody::RoundFrozen { size: 1, rank0: text(), gather_ms: some, last_call_ms: some },
        EventBody::RoundFinal { size: 1, rank0: text(), coordinator: text(), confirm_ms: some },
        EventBody::MembersLost { count: 1, nodes: vec![text()] },
        EventBody::LossesProved { nodes: vec![text()] },
        EventBody::NodesWaiting { count: 1 },
        EventBody::CoordinatorLost { coordinator: text() },
        EventBody::RunClosed { by: text(), outcome: RunOutcome::Failed },
        EventBody::RunReopened,
        EventBody::SessionOpened,
        EventBody::SessionLost { slept: true },
        EventBody::ServerStateLost,
        EventBody::Joined { join_ms: some },
        EventBody::Registered { registered: Registered::Spare },
        EventBody::LeftOut,
        EventBody::Confirmed { rank: 1, size: 1 },
        EventBody::PlaceLost { cause: FenceCause::SessionLost },
        EventBody::RendezvousFailed,
        EventBody::Left,
        EventBody::MemberSuspected { node: text() },
        EventBody::MemberProvedDead { node: text() },
        EventBody::Unreached { connected: true },
        EventBody::RendezvousBegan,
        EventBody::GroupFormed { rank: 1, size: 1, restarts: 1, store, rendezvous_ms: some },
        EventBody::NoGroup,
        EventBody::RanksAssigned { first_rank: 1, world_size: 1, ranks_ms: some },
        EventBody::RanksFailed,
        EventBody::WorkersStarting { attempt: 1, first_rank: 1 },
        EventBody::WorkersStarted { attempt: 1, start_ms: some },
        EventBody::StartFailed { attempt: 1 },
        EventBody::WorkerExited {
            attempt: 1,
            local_rank: 1,
            rank: Some(1),
            exit: Exit::Code(1),
            stopping: false,
        },
        EventBody::WorkersNotified { attempt: 1, left_ms: 1 },
        EventBody::WorkersStopping { attempt: 1, signal: 1, left_ms: 1 },
        EventBody::WorkersStopped { attempt: 1, stop_ms: some },
        EventBody::StopFailed { attempt: 1 },
        EventBody::DepartureAnnounced { left_ms: 1 },
        EventBody::GroupChanged { change: GroupChange::NodesWaiting(1) },
        EventBody::Fenced { left_ms: 1 },
        EventBody::RestartRequested { lived_ms: 1 },
        EventBody::RestartGranted { short_lives: 1 },
        EventBody::RestartRefused { used: 1 },
        EventBody::RestartRefunded,
        EventBody::BarrierReached,
        EventBody::BarrierPassed { barrier_ms: some },
        EventBody::Closing { outcome: CloseReason::Succeeded.outcome() },
        EventBody::Signalled { signal: 1 },
        EventBody::Evicted { by: text() },
        EventBody::HangDetected { number: 1, silent_ms: 1 },
        EventBody::StacksTaken { number: 1, host: text() },
        EventBody::HangReported { number: 1, odd: Vec::new() },
        EventBody::Finished { exit_code: 1, failures: 1 },
        EventBody::AgentBegan { version: text(), settings },
        EventBody::AgentStep { at_ns: 1, input: AgentInput::Begin, outputs: Vec::new() },
        EventBody::NodeBegan {
            version: text(),
            config: Box::new(config()),
            document: Box::new(document),
            entropy: 1,
        },
        EventBody::NodeStep { at_ns: 1, input: Box::new(NodeInput::Enter), outputs: Vec::new() },
    ]
}

/// The page lists the kinds of this version, in this order, each with its fields, and no others.
#[test]
fn the_reference_lists_every_kind_and_every_field() {
    let page = include_str!("../../../../../docs/reference/events.md");
    let mut listed: Vec<(String, Vec<String>)> = Vec::new();
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
        let codes = |cell: &str| -> Vec<String> {
            cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
        };
        // The tables of kinds have three columns, those of fields two.
        if let [kind, fields, _] = cells[..] {
            let mut fields = codes(fields);
            fields.sort();
            listed.push((codes(kind).concat(), fields));
        }
    }
    let mut written: Vec<(String, Vec<String>)> = every_kind()
        .iter()
        .map(|body| {
            let value = serde_json::to_value(body).unwrap();
            let object = value.as_object().unwrap();
            let fields = object.keys().filter(|name| *name != "kind").cloned().collect();
            (object["kind"].as_str().unwrap().to_owned(), fields)
        })
        .collect();
    listed.sort();
    written.sort();
    assert_eq!(listed, written);
    let event = RunEvent::parse(&recorded()[2]).unwrap();
    let event =
        serde_json::to_value(RunEvent { why: "because".into(), body: EventBody::Unknown, ..event });
    for field in event.unwrap().as_object().unwrap().keys() {
        assert!(page.contains(&format!("\n| `{field}` | ")), "the table of fields has no {field}");
    }
}

/// Every kind is in [`every_kind`]: as many as the compiler counts in the match of the enum.
#[test]
fn every_kind_is_read_back() {
    for body in every_kind() {
        let event = RunEvent {
            format: FORMAT,
            seq: 1,
            time: rfc3339(0),
            ms: 1,
            run_id: "job".into(),
            node_id: "a".into(),
            round: 1,
            body,
            why: "because".into(),
        };
        assert_eq!(RunEvent::parse(&event.to_line()).unwrap(), event);
    }
    let of_the_source = include_str!("../body.rs");
    let variants = of_the_source.split("pub enum EventBody {").nth(1).unwrap();
    let variants = variants.split("\n}\n").next().unwrap();
    let is_variant = |line: &&str| {
        line.starts_with("    ") && line[4..].starts_with(|c: char| c.is_ascii_uppercase())
    };
    // All but `Unknown`.
    assert_eq!(variants.lines().filter(is_variant).count() - 1, every_kind().len());
}
