//! Past rounds in sentences, by the events of the run: when each began, why, and what became of it.

use std::collections::BTreeMap;

use super::{age, count, some_of};
use crate::events::{EventBody, RunEvent, unix_millis};
use crate::rendezvous::documents::{DisplayTime, PROVED_DEAD};

/// The largest number of past rounds that are told.
const MOST_ROUNDS: usize = 3;

/// What is known of a round.
#[derive(Default)]
struct PastRound<'a> {
    opened: Option<&'a RunEvent>,
    size: Option<u32>,
    /// The lost members, and how each loss is known.
    lost: BTreeMap<&'a str, &'a str>,
}

/// The lost members of the group of this round, and how each loss is known: the last that was told of it.
pub(super) fn losses(events: &[RunEvent], round: u64) -> BTreeMap<&str, &str> {
    let mut known = PastRound::default();
    events.iter().filter(|event| event.round == round).for_each(|event| known.take(event));
    known.lost
}

/// The last rounds before the one in progress, the latest first.
pub(super) fn past(events: &[RunEvent], in_progress: Option<u64>, now: DisplayTime) -> Vec<String> {
    let mut rounds: BTreeMap<u64, PastRound<'_>> = BTreeMap::new();
    for event in events.iter().filter(|event| Some(event.round) != in_progress) {
        rounds.entry(event.round).or_default().take(event);
    }
    let told = rounds.iter().rev().filter_map(|(round, known)| known.sentence(*round, now));
    told.take(MOST_ROUNDS).collect()
}

impl<'a> PastRound<'a> {
    fn take(&mut self, event: &'a RunEvent) {
        match &event.body {
            EventBody::RoundOpened { .. } => self.opened = Some(event),
            EventBody::RoundFinal { size, .. } => self.size = Some(*size),
            EventBody::MembersLost { nodes, .. } => {
                // The reason has each of them, with how its loss is known.
                let mut known: BTreeMap<&str, &str> =
                    event.why.split("; ").filter_map(|one| one.split_once(": ")).collect();
                for node in nodes {
                    let because = known.remove(node.as_str()).unwrap_or_default();
                    self.lost.insert(node, because);
                }
            }
            EventBody::LossesProved { nodes } => {
                self.lost.extend(nodes.iter().map(|node| (node.as_str(), PROVED_DEAD)));
            }
            _ => {}
        }
    }

    /// The lost members, those of which the same is known together.
    fn lost(&self) -> String {
        let mut alike: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (node, because) in &self.lost {
            alike.entry(because).or_default().push(node);
        }
        let told = |(because, nodes): (&str, Vec<&str>)| match because {
            "" => some_of(nodes),
            because => format!("{} ({because})", some_of(nodes)),
        };
        alike.into_iter().map(told).collect::<Vec<_>>().join(" and ")
    }

    /// The round in a sentence; nothing if its beginning is forgotten.
    fn sentence(&self, round: u64, now: DisplayTime) -> Option<String> {
        let opened = self.opened?;
        let mut text = format!("Round {round} began");
        if let Some(time) = unix_millis(&opened.time).map(DisplayTime::from_unix_millis) {
            text += &format!(" {} ago", age(now.elapsed_since(time)));
        }
        let why = opened.why.trim_end_matches('.');
        if !why.is_empty() {
            text += &format!(" because: {why}");
        }
        text += match why {
            "" => " and ",
            _ => "; it ",
        };
        text += &match self.size {
            Some(size) => format!("formed a group of {}", count(size as usize, "node")),
            None => "formed no group".to_owned(),
        };
        if !self.lost.is_empty() {
            text += &format!(", which lost {}", self.lost());
        }
        Some(text + ".")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 60 seconds after each other, from 1970 on.
    fn event(seq: u64, round: u64, body: EventBody, why: &str) -> RunEvent {
        RunEvent {
            format: 1,
            seq,
            time: crate::events::rfc3339(seq * 60_000),
            ms: 0,
            run_id: String::new(),
            node_id: "a".into(),
            round,
            body,
            why: why.into(),
        }
    }

    fn opened(seq: u64, round: u64, why: &str) -> RunEvent {
        let body = EventBody::RoundOpened { coordinator: "a".into(), previous: round - 1 };
        event(seq, round, body, why)
    }

    fn formed(seq: u64, round: u64, size: u32) -> RunEvent {
        let (rank0, coordinator) = ("a".into(), "a".into());
        event(seq, round, EventBody::RoundFinal { size, rank0, coordinator, confirm_ms: None }, "")
    }

    #[test]
    fn the_last_three_past_rounds_are_told_with_their_reasons() {
        let lost = EventBody::MembersLost { count: 1, nodes: vec!["b".into()] };
        let events = [
            opened(1, 1, ""),
            formed(2, 1, 2),
            event(3, 1, lost, "b: its lease expired"),
            opened(4, 2, "b was lost."),
            opened(5, 3, "a worker of c failed"),
            formed(6, 3, 1),
            opened(7, 4, "a node joined"),
        ];
        let now = DisplayTime::from_unix_millis(600_000);
        assert_eq!(
            past(&events, Some(4), now),
            [
                "Round 3 began 5 min ago because: a worker of c failed; it formed a group of 1 node.",
                "Round 2 began 6 min ago because: b was lost; it formed no group.",
                "Round 1 began 9 min ago and formed a group of 2 nodes, which lost b (its lease expired).",
            ]
        );
        let closed = past(&events, None, now);
        assert_eq!(closed.len(), MOST_ROUNDS, "{closed:?}");
        assert!(
            closed[0].starts_with("Round 4 began 3 min ago because: a node joined"),
            "{closed:?}"
        );
        let proved = EventBody::LossesProved { nodes: vec!["b".into(), "d".into()] };
        let lost = EventBody::MembersLost { count: 2, nodes: vec!["b".into(), "c".into()] };
        let peer = "a peer reported that its connection has ended";
        let why = format!("b: {peer}; c: it left");
        let proved = [
            opened(1, 1, ""),
            formed(2, 1, 4),
            event(3, 1, lost, &why),
            opened(4, 2, ""),
            event(5, 1, proved, PROVED_DEAD),
        ];
        let words = "Round 1 began 9 min ago and formed a group of 4 nodes, which lost c (it left) and b and d (proved \
                     dead: its host refuses its liveness socket).";
        assert_eq!(past(&proved, Some(2), now), [words]);
        assert_eq!(losses(&proved[..3], 1)["b"], peer);
        assert_eq!(losses(&proved, 1)["b"], PROVED_DEAD);
        // The ring of events has forgotten how the first round began.
        assert_eq!(past(&events[1..], Some(4), now).len(), 2);
        assert!(past(&[], None, now).is_empty());
    }
}
