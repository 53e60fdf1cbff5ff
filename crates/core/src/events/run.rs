//! The events of a run: how one state of its document follows from another.

use super::body::EventBody;
use super::observer::Observation;
use super::time::rfc3339;
use super::{FORMAT, RunEvent, millis};
use crate::kv::Time;
use crate::rendezvous::documents::{Active, DisplayTime, PROVED_DEAD, Status};
use crate::text::{LONGEST_REASON, bounded};

/// The number of events that are kept in the keys of a run.
pub const RUN_EVENTS: u64 = 256;

/// The events between two states of the document of a run: `before`, or none, and `after`. A watch may miss states
/// between them, whose events are made up for: each round that is final was opened and frozen before.
pub fn run_events(before: Option<&Active>, after: &Active) -> Vec<Observation> {
    let round = after.round;
    let event = |body, why: &str| Observation { round, body, why: why.to_owned() };
    if after.status == Status::Closed {
        let known = before.is_some_and(|before| before.status == Status::Closed);
        let (by, outcome) = (after.coordinator.id.clone(), after.outcome.unwrap_or_default());
        let closed = event(EventBody::RunClosed { by, outcome }, &after.reason);
        return if known { Vec::new() } else { vec![closed] };
    }
    let is_same = |before: &&Active| {
        (before.history, before.round) == (after.history, round) && before.status != Status::Closed
    };
    let before = before.filter(is_same);
    let done = before.map_or(0, |before| stage(before.status));
    let mut events = Vec::new();
    for stage in done..stage(after.status) {
        let (size, rank0) = (after.world, after.rank0.clone());
        let coordinator = after.coordinator.id.clone();
        events.push(match stage {
            0 => {
                let previous = after.previous;
                event(EventBody::RoundOpened { coordinator, previous }, &after.reason)
            }
            1 => {
                let (gather_ms, last_call_ms) = (None, None);
                let body = EventBody::RoundFrozen { size, rank0, gather_ms, last_call_ms };
                event(body, &after.frozen_because)
            }
            _ => {
                let body = EventBody::RoundFinal { size, rank0, coordinator, confirm_ms: None };
                event(body, "")
            }
        });
    }
    let is_new = |id: &&String| before.is_none_or(|before| !before.proved_dead.contains(*id));
    let nodes: Vec<String> = after.proved_dead.iter().filter(is_new).cloned().collect();
    if !nodes.is_empty() {
        let (body, why) = (EventBody::LossesProved { nodes }, PROVED_DEAD.to_owned());
        events.push(Observation { round: after.previous, body, why });
    }
    let Active { lost, waiting, .. } = *after;
    if lost > before.map_or(0, |before| before.lost) {
        let nodes = after.lost_names.clone();
        let body = EventBody::MembersLost { count: lost, nodes };
        events.push(event(body, &how_lost(after)));
    }
    if waiting > 0 && before.is_none_or(|before| before.waiting != waiting) {
        events.push(event(EventBody::NodesWaiting { count: waiting }, ""));
    }
    events
}

/// The number of stages of a round that are over, or have begun.
fn stage(status: Status) -> u8 {
    match status {
        Status::Joinable => 1,
        Status::Frozen => 2,
        Status::Final | Status::Closed => 3,
    }
}

/// How the losses of a group are known, in a sentence.
fn how_lost(group: &Active) -> String {
    let says = |(id, because): (&String, &String)| format!("{id}: {because}");
    let said = group.lost_names.iter().zip(&group.lost_because).map(says);
    said.collect::<Vec<_>>().join("; ")
}

/// The writer of a document, and the time, for the events of the run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stamp<'a> {
    pub(crate) node_id: &'a str,
    pub(crate) now: Time,
    /// The time of day at time zero.
    pub(crate) started: Option<DisplayTime>,
}

/// The events that are kept in the keys of the run when `after` takes the place of `before`, with their numbers. The
/// numbers end at [`Active::events`].
pub(crate) fn stored_events(
    before: Option<&Active>,
    after: &Active,
    stamp: Stamp<'_>,
) -> Vec<(u64, String)> {
    let events = run_events(before, after);
    let first = after.events.saturating_sub(events.len() as u64);
    let ms = millis(stamp.now);
    let started = stamp.started.map_or(0, DisplayTime::unix_millis);
    let stored = |(seq, Observation { round, body, why }): (u64, Observation)| {
        let why = bounded(why, LONGEST_REASON);
        let event = RunEvent {
            format: FORMAT,
            seq,
            time: rfc3339(started.saturating_add(ms)),
            ms,
            run_id: String::new(),
            node_id: stamp.node_id.to_owned(),
            round,
            body,
            why,
        };
        (seq, event.to_line())
    };
    let numbers = (1..).map(|number| first.saturating_add(number));
    numbers.zip(events).map(stored).collect()
}
