//! The hang of a job that goes on: since when, and where its workers are.

use std::time::Duration;

use serde::Serialize;

use super::{age, capital, count};
use crate::agent::stacks::{HangDocument, OddNodes, StackGroup};
use crate::rendezvous::documents::DisplayTime;

/// Places of workers, other than the one with the most, that are told.
const MOST_TOLD: usize = 3;

/// A hang of the round in progress that goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HangStatus {
    /// The host whose workers made no progress.
    pub host: String,
    /// When they last made progress, by the clock of that host.
    #[serde(rename = "since_unix_ms")]
    pub since: Option<DisplayTime>,
    /// How long they had made none when their node noticed.
    pub silent_ms: u64,
    /// The hang in one sentence; empty before its report.
    pub text: String,
    /// The ids of the nodes that are to blame, if any are.
    pub odd_nodes: Vec<String>,
}

impl HangStatus {
    pub(super) fn new(hang: &HangDocument) -> Self {
        let odd = hang.odd.iter().flat_map(|odd| &odd.nodes);
        Self {
            host: hang.host.clone(),
            since: hang.since_unix_ms,
            silent_ms: hang.silent_ms,
            text: hang.text.clone(),
            odd_nodes: odd.map(|node| node.id.clone()).collect(),
        }
    }
}

/// The hang in one phrase.
pub(super) fn phrase(hang: &HangDocument) -> String {
    let silent = age(Duration::from_millis(hang.silent_ms));
    let phrase = format!("no progress for over {silent}");
    let Some((most, others)) = hang.groups.split_last() else {
        return format!("{phrase} on {}", hang.host);
    };
    let odd: usize = others.iter().map(|group| group.count).sum();
    let host = host_of(others);
    match others {
        [] => format!("{phrase}: {} at one place", count(most.count, "rank")),
        _ if odd >= most.count => {
            format!("{phrase}: ranks are at {} places", hang.groups.len())
        }
        [StackGroup { count: 1, ranks, .. }] if !ranks.is_empty() => {
            format!("{phrase}: rank {}{host} is elsewhere", ranks[0])
        }
        _ => format!("{phrase}: {odd} ranks{host} are elsewhere"),
    }
}

/// The hang in sentences: since when, and where the workers are.
pub(super) fn sentences(hang: &HangDocument, now: DisplayTime) -> Vec<String> {
    let silent = Duration::from_millis(hang.silent_ms);
    let silent = hang.since_unix_ms.map_or(silent, |since| now.elapsed_since(since).max(silent));
    let mut told = vec![format!(
        "The job hangs: the workers on {} have made no progress for {}.",
        hang.host,
        age(silent)
    )];
    match hang.groups.split_last() {
        None => told.push("Where its workers are has not been reported.".to_owned()),
        Some((most, others)) => {
            let mut places: Vec<String> = others.iter().take(MOST_TOLD).map(place).collect();
            if others.len() > MOST_TOLD {
                let ranks = others.iter().skip(MOST_TOLD).map(|group| group.count).sum();
                places.push(format!("{} are elsewhere", count(ranks, "other rank")));
            }
            places.push(place(most));
            told.push(capital(&places.join("; ")) + ".");
        }
    }
    if !hang.missing.is_empty() {
        let nodes = count(hang.missing.len(), "node");
        told.push(format!("The stacks of {nodes} of the group are missing."));
    }
    if let Some(OddNodes { reason, .. }) = hang.odd.as_ref().filter(|odd| odd.nodes.is_empty()) {
        told.push(format!("No node is to blame: {reason}."));
    }
    told
}

/// What would help.
pub(super) fn remedy(hang: &HangDocument, run: &str) -> String {
    match hang.odd.as_ref().and_then(|odd| Some((odd, odd.nodes.first()?))) {
        Some((odd, node)) => format!(
            "`rallypoint evict {run} {}` lets the job go on without {}; --on-hang restart does so by itself.",
            node.id,
            odd.hosts()
        ),
        None => format!(
            "The log of the node with rank 0 has the stacks. `rallypoint evict {run} NODE` lets the job go on without a \
             node; --on-hang restart does so by itself if one is to blame. A job that only works for long needs a \
             longer --hang-after."
        ),
    }
}

/// The workers at a place in a clause.
fn place(group: &StackGroup) -> String {
    let StackGroup { place, count: number, ranks, .. } = group;
    let host = host_of(std::slice::from_ref(group));
    match (number, ranks.first()) {
        (1, Some(rank)) => format!("rank {rank}{host} is in {place}"),
        _ => format!("{number} ranks{host} are in {place}"),
    }
}

/// The host of the workers of these groups, if all of them are on the same.
fn host_of(groups: &[StackGroup]) -> String {
    let mut hosts = groups.iter().flat_map(|group| &group.hosts);
    match hosts.next() {
        Some(host) if hosts.all(|other| other == host) => format!(" on {host}"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::stacks::OddNode;

    const NOW: DisplayTime = DisplayTime::from_unix_millis(1_000_000_000);

    fn group(place: &str, ranks: &[u32], hosts: &[&str]) -> StackGroup {
        StackGroup {
            place: place.into(),
            count: ranks.len(),
            ranks: ranks.to_vec(),
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            frames: Vec::new(),
            first_step: None,
            last_step: None,
        }
    }

    fn hang(groups: Vec<StackGroup>, odd: &[&str]) -> HangDocument {
        let node = |id: &&str| OddNode { id: format!("{id}_1"), host: (*id).to_owned() };
        let nodes = odd.iter().map(node).collect();
        HangDocument {
            round: 4,
            number: 1,
            host: "h1".into(),
            silent_ms: 300_000,
            since_unix_ms: Some(NOW.minus(Duration::from_secs(725))),
            groups,
            missing: Vec::new(),
            odd: Some(OddNodes { nodes, reason: "so it is".into() }),
            text: "the report".into(),
        }
    }

    #[test]
    fn the_odd_rank_is_named_in_a_phrase() {
        let train = || group("train (a.py:7)", &[0, 1, 2, 4, 5], &["h1", "h2", "h3"]);
        let load = |ranks: &[u32], hosts: &[&str]| group("load (b.py:8)", ranks, hosts);
        let table = [
            (vec![], "no progress for over 5 min on h1"),
            (vec![train()], "no progress for over 5 min: 5 ranks at one place"),
            (
                vec![load(&[3], &["h2"]), train()],
                "no progress for over 5 min: rank 3 on h2 is elsewhere",
            ),
            (
                vec![load(&[3, 6], &["h2"]), train()],
                "no progress for over 5 min: 2 ranks on h2 are elsewhere",
            ),
            (
                vec![load(&[3], &["h2"]), load(&[6], &["h4"]), train()],
                "no progress for over 5 min: 2 ranks are elsewhere",
            ),
            (
                vec![load(&[3], &["h2"]), load(&[6], &["h4"])],
                "no progress for over 5 min: ranks are at 2 places",
            ),
        ];
        for (groups, words) in table {
            assert_eq!(phrase(&hang(groups, &[])), words);
        }
    }

    #[test]
    fn the_places_are_told_with_what_helps() {
        let train = group("train (a.py:7), in all_reduce (c10d.py:9)", &[0, 1, 2], &["h1", "h3"]);
        let one = hang(vec![group("load (b.py:8)", &[3], &["h2"]), train.clone()], &["h2"]);
        assert_eq!(
            sentences(&one, NOW),
            [
                "The job hangs: the workers on h1 have made no progress for 12 min 5 s.",
                "Rank 3 on h2 is in load (b.py:8); 3 ranks are in train (a.py:7), in all_reduce (c10d.py:9).",
            ]
        );
        let help = "`rallypoint evict job h2_1` lets the job go on without h2; --on-hang restart does so by itself.";
        assert_eq!(remedy(&one, "job"), help);
        let mut groups: Vec<_> = (0..5).map(|rank| group("f (b.py)", &[rank], &["h2"])).collect();
        groups.push(train);
        let several = HangDocument { since_unix_ms: None, missing: vec![7], ..hang(groups, &[]) };
        assert_eq!(
            sentences(&several, NOW),
            [
                "The job hangs: the workers on h1 have made no progress for 5 min.",
                "Rank 0 on h2 is in f (b.py); rank 1 on h2 is in f (b.py); rank 2 on h2 is in f (b.py); 2 other ranks \
                 are elsewhere; 3 ranks are in train (a.py:7), in all_reduce (c10d.py:9).",
                "The stacks of 1 node of the group are missing.",
                "No node is to blame: so it is.",
            ]
        );
        assert!(remedy(&several, "job").contains("`rallypoint evict job NODE`"));
        let asked = HangDocument { odd: None, ..hang(Vec::new(), &[]) };
        assert_eq!(sentences(&asked, NOW)[1..], ["Where its workers are has not been reported."]);
    }
}
