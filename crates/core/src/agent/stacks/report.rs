//! The report of a hang: which ranks are where, the odd ones first.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use super::{NodeStacks, WorkerStack};
use crate::agent::hang::HangRequest;

/// The largest number of places in a report.
pub(super) const MOST_PLACES: usize = 16;

/// The largest number of places whose stack is in a report.
const MOST_STACKS: usize = 4;

/// The largest number of ranges of ranks, and of hosts, in a line.
const MOST_NAMES: usize = 8;

/// Where the workers of a group are, by place.
///
/// ```
/// use rallypoint_core::agent::HangRequest;
/// use rallypoint_core::agent::stacks::{Frame, HangReport, NodeStacks, WorkerStack};
///
/// let worker = |rank, function: &str, file: &str, line| {
///     let frames = vec![Frame { function: function.into(), file: file.into(), line }];
///     WorkerStack { rank, step: None, frames, note: None }
/// };
/// let train = |rank| worker(rank, "train_step", "train.py", 585);
/// let h1 = NodeStacks { host: "h1".into(), node: "n1".into(), workers: (0..4).map(train).collect() };
/// let h2 = NodeStacks { host: "h2".into(), node: "n2".into(), workers: vec![train(4), worker(5, "put", "data.py", 88)] };
/// let request = HangRequest { round: 1, number: 1, host: "h1".into(), millis: 600_000, since: None };
/// let report = HangReport::new(&request, &[h1, h2], &[]);
/// assert_eq!(
///     report.headline(),
///     "no progress on h1 for 600 s: rank 5 on h2 is in put (data.py:88); 5 ranks are in train_step (train.py:585)"
/// );
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HangReport {
    host: String,
    silent: Duration,
    places: Places,
    /// The ranks of nodes that did not answer.
    missing: Vec<u32>,
}

/// The places of workers, those with the fewest ranks first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Places(Vec<StackPlace>);

/// Workers at the same place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StackPlace {
    pub(super) name: String,
    pub(super) ranks: BTreeSet<u32>,
    pub(super) hosts: BTreeSet<String>,
    /// The first and the last step of those that said one.
    pub(super) steps: Option<(u64, u64)>,
    /// One of them, with its host.
    pub(super) example: (String, WorkerStack),
}

impl Places {
    pub(super) fn of(nodes: &[NodeStacks]) -> Self {
        let mut places: BTreeMap<String, StackPlace> = BTreeMap::new();
        for (host, worker) in nodes
            .iter()
            .flat_map(|node| node.workers.iter().map(move |worker| (&node.host, worker)))
        {
            let name = worker.place();
            let place = places.entry(name.clone()).or_insert_with(|| StackPlace {
                name,
                ranks: BTreeSet::new(),
                hosts: BTreeSet::new(),
                steps: None,
                example: (host.clone(), worker.clone()),
            });
            place.ranks.insert(worker.rank);
            place.hosts.insert(host.clone());
            if let Some(step) = worker.step {
                let (first, last) = place.steps.unwrap_or((step, step));
                place.steps = Some((first.min(step), last.max(step)));
            }
        }
        let mut places: Vec<StackPlace> = places.into_values().collect();
        places.sort_by_key(|place| (place.ranks.len(), place.ranks.first().copied()));
        Self(places)
    }

    /// A stack of each of the first places.
    pub(super) fn stacks(&self) -> String {
        let mut text = String::new();
        for place in self.0.iter().take(MOST_STACKS) {
            let (host, worker) = &place.example;
            // The line of the place says it already.
            if worker.frames.is_empty() || worker.frames.len() == 1 && worker.note.is_none() {
                continue;
            }
            text.push_str(&format!("\n  stack of rank {} on {host}:", worker.rank));
            for frame in &worker.frames {
                text.push_str(&format!("\n    {}", frame.long()));
            }
            if let Some(note) = &worker.note {
                text.push_str(&format!("\n    ({note})"));
            }
        }
        text
    }
}

impl fmt::Display for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for place in self.0.iter().take(MOST_PLACES) {
            write!(f, "\n  {place}")?;
        }
        let rest = self.0.get(MOST_PLACES..).unwrap_or_default();
        if !rest.is_empty() {
            let ranks: usize = rest.iter().map(|place| place.ranks.len()).sum();
            write!(f, "\n  {ranks} ranks in {} other places", rest.len())?;
        }
        Ok(())
    }
}

impl HangReport {
    /// The report on these nodes. `missing` has the ranks of the nodes that did not answer.
    pub fn new(request: &HangRequest, nodes: &[NodeStacks], missing: &[u32]) -> Self {
        let host = super::plain(&request.host);
        let (places, missing) = (Places::of(nodes), missing.to_vec());
        Self { host, silent: request.silent(), places, missing }
    }

    pub(super) fn places(&self) -> &[StackPlace] {
        &self.places.0
    }

    pub(super) fn missing(&self) -> &[u32] {
        &self.missing
    }

    /// The hang in one sentence: the places with the fewest ranks, and the one with the most.
    pub fn headline(&self) -> String {
        let mut parts: Vec<String> = Vec::new();
        if let Some((most, odd)) = self.places.0.split_last() {
            parts.extend(odd.iter().take(2).map(StackPlace::sentence));
            if odd.len() > 2 {
                parts.push(format!("{} other places", odd.len() - 2));
            }
            parts.push(most.sentence());
        }
        if !self.missing.is_empty() {
            parts.push(format!("{} of the group's nodes did not answer", self.missing.len()));
        }
        let seconds = (self.silent.as_secs_f64() * 10.0).round() / 10.0;
        format!("no progress on {} for {seconds} s: {}", self.host, parts.join("; "))
    }
}

impl fmt::Display for HangReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.headline(), self.places)?;
        if !self.missing.is_empty() {
            let ranks = ranges(self.missing.iter().copied());
            write!(f, "\n  no answer from the nodes with the ranks {ranks}")?;
        }
        f.write_str(&self.places.stacks())
    }
}

impl StackPlace {
    fn sentence(&self) -> String {
        let Self { name, hosts, .. } = self;
        match (self.ranks.len(), self.ranks.first(), hosts.first()) {
            (1, Some(rank), Some(host)) => format!("rank {rank} on {host} is in {name}"),
            (count, _, Some(host)) if hosts.len() == 1 && count > 1 => {
                format!("{count} ranks on {host} are in {name}")
            }
            (count, ..) => format!("{count} ranks are in {name}"),
        }
    }
}

impl fmt::Display for StackPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.ranks.len() == 1 { "" } else { "s" };
        write!(f, "rank{plural} {}", ranges(self.ranks.iter().copied()))?;
        let hosts: Vec<&str> = self.hosts.iter().take(MOST_NAMES).map(String::as_str).collect();
        let more = self.hosts.len() - hosts.len();
        write!(f, " on {}", hosts.join(", "))?;
        if more > 0 {
            write!(f, " and {more} more hosts")?;
        }
        write!(f, ": {}", self.name)?;
        match self.steps {
            None => Ok(()),
            Some((first, last)) if first == last => write!(f, "; step {first}"),
            Some((first, last)) => write!(f, "; steps {first} to {last}"),
        }
    }
}

/// Ascending numbers as ranges: `0-6, 8-15`.
fn ranges(numbers: impl Iterator<Item = u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let shown = ranges.iter().take(MOST_NAMES).map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    let shown = shown.collect::<Vec<_>>().join(", ");
    if ranges.len() > MOST_NAMES { format!("{shown}, …") } else { shown }
}
