//! The report of a hang as a document of the run, for operators.

use serde::{Deserialize, Serialize};

use super::OddNodes;
use super::report::{HangReport, MOST_PLACES, StackPlace};
use crate::agent::hang::HangRequest;
use crate::rendezvous::documents::DisplayTime;

/// The largest number of ranks, and of hosts, of a group that are named.
const MOST_RANKS: usize = 256;
const MOST_HOSTS: usize = 32;

/// `rdzv/hang`: the last hang of a run. The node with rank 0 writes it when it has the stacks of all nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HangDocument {
    /// The round of the group.
    pub round: u64,
    /// The number of the hang within the round, from 1.
    pub number: u64,
    /// The host whose workers made no progress.
    pub host: String,
    /// How long they had made none, in milliseconds.
    pub silent_ms: u64,
    /// When they last made progress, by the clock of that host.
    #[serde(default)]
    pub since_unix_ms: Option<DisplayTime>,
    /// The workers by place, those with the fewest first; none before the report.
    #[serde(default)]
    pub groups: Vec<StackGroup>,
    /// The ranks of nodes that did not answer.
    #[serde(default)]
    pub missing: Vec<u32>,
    /// The nodes that are to blame, or why none is; nothing before the report.
    #[serde(default)]
    pub odd: Option<OddNodes>,
    /// The hang in one sentence; empty before the report.
    #[serde(default)]
    pub text: String,
}

/// Workers that are at the same place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackGroup {
    /// The place: the innermost call of the user's own code, and the call of a library that it is in.
    pub place: String,
    /// The number of workers.
    pub count: usize,
    /// The first 256 of their ranks.
    pub ranks: Vec<u32>,
    /// The first 32 of their hosts.
    pub hosts: Vec<String>,
    /// The calls of one of them, the innermost first.
    #[serde(default)]
    pub frames: Vec<String>,
    /// The first step of those that said one.
    #[serde(default)]
    pub first_step: Option<u64>,
    /// The last step of those that said one.
    #[serde(default)]
    pub last_step: Option<u64>,
}

impl HangDocument {
    /// The hang, before its report is there.
    pub fn asked(request: &HangRequest) -> Self {
        Self {
            round: request.round,
            number: request.number,
            host: super::plain(&request.host),
            silent_ms: request.millis,
            since_unix_ms: request.since,
            groups: Vec::new(),
            missing: Vec::new(),
            odd: None,
            text: String::new(),
        }
    }

    /// The hang with its report.
    pub fn reported(request: &HangRequest, report: &HangReport, odd: &OddNodes) -> Self {
        let groups = report.places().iter().take(MOST_PLACES).map(StackGroup::of);
        Self {
            groups: groups.collect(),
            missing: report.missing().iter().copied().take(MOST_RANKS).collect(),
            odd: Some(odd.clone()),
            text: report.headline(),
            ..Self::asked(request)
        }
    }

    /// A later hang has a greater order.
    pub(crate) fn order(&self) -> (u64, u64) {
        (self.round, self.number)
    }
}

impl StackGroup {
    fn of(place: &StackPlace) -> Self {
        let (_, example) = &place.example;
        Self {
            place: place.name.clone(),
            count: place.ranks.len(),
            ranks: place.ranks.iter().copied().take(MOST_RANKS).collect(),
            hosts: place.hosts.iter().take(MOST_HOSTS).cloned().collect(),
            frames: example.frames.iter().map(super::Frame::long).collect(),
            first_step: place.steps.map(|(first, _)| first),
            last_step: place.steps.map(|(_, last)| last),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Frame, NodeStacks, WorkerStack};
    use super::*;

    #[test]
    fn a_report_names_each_place_with_its_ranks_and_the_odd_ones_first() {
        let worker = |rank: u32, line| {
            let frames = vec![Frame { function: "f".into(), file: "/a.py".into(), line }];
            WorkerStack { rank, step: Some(u64::from(rank)), frames, note: None }
        };
        let workers = (0..1000).map(|rank| worker(rank, if rank == 42 { 7 } else { 5 }));
        let node = NodeStacks { host: "h".into(), node: "n".into(), workers: workers.collect() };
        let request =
            HangRequest { round: 3, number: 1, host: "h".into(), millis: 9_000, since: None };
        let odd = OddNodes::of(std::slice::from_ref(&node), 1);
        let report = HangReport::new(&request, &[node], &[9]);
        let document = HangDocument::reported(&request, &report, &odd);
        assert_eq!(document.order(), (3, 1));
        assert_eq!((document.missing.as_slice(), &document.odd), (&[9][..], &Some(odd)));
        assert!(document.text.starts_with("no progress on h for 9 s"), "{document:?}");
        let [odd, most] = document.groups.as_slice() else { panic!("{document:?}") };
        assert_eq!((odd.count, odd.ranks.as_slice(), odd.first_step), (1, &[42][..], Some(42)));
        assert_eq!(odd.frames, ["f (/a.py:7)"]);
        assert_eq!((most.count, most.ranks.len(), most.last_step), (999, MOST_RANKS, Some(999)));
    }
}
