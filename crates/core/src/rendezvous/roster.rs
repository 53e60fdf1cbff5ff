//! What the coordinator of a round sees: who joined, who is still to come, who is gone.
//!
//! Kept up to date event by event, so that ten thousand nodes cost ten thousand small steps.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::document::{Corrupt, Joined, Ranked, decode};
use super::gate::Roll;
use super::keys::Keys;
use super::ranks::Candidate;
use crate::kv::{Event, EventKind, KeyValue, LeaseId, OpResult, Revision, TxnResult, Watch};

/// The coordinator's watches, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watched {
    Nodes,
    Waiting,
    Suspects,
    Members,
    Ready,
}

impl Watched {
    const ALL: [Self; 5] = [Self::Nodes, Self::Waiting, Self::Suspects, Self::Members, Self::Ready];
}

/// Reports of so many dead nodes are deleted at a time.
const BURIED: usize = 32;

/// More nodes are only counted.
const MOST_NAMED: usize = 8;

/// The watches by which a roster is kept up to date.
pub(super) fn watches(keys: &Keys, round: u64) -> Vec<Watch> {
    let watch = |watched: &Watched| match watched {
        // A node comes together with what it joins or waits for; only its end is news.
        Watched::Nodes => Watch { no_put: true, ..Watch::new(keys.nodes()) },
        Watched::Waiting => Watch::new(keys.all_waiting()),
        Watched::Suspects => Watch { no_delete: true, ..Watch::new(keys.suspects()) },
        Watched::Members => Watch::new(keys.members(round)),
        Watched::Ready => Watch { no_delete: true, ..Watch::new(keys.all_ready(round)) },
    };
    Watched::ALL.iter().map(watch).collect()
}

/// The ranks that a survey found, of a group that another has formed.
pub(super) fn ranks(survey: &TxnResult) -> BTreeMap<String, u32> {
    let Some(OpResult::Range(found)) = survey.results.get(6) else { return BTreeMap::new() };
    let read = |kv: &KeyValue| {
        let ranked: Ranked = decode(&kv.key, &kv.value).ok()?;
        Some((id_of(&kv.key)?, ranked.rank))
    };
    found.kvs.iter().filter_map(read).collect()
}

/// What a node said when it confirmed.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) what: Bytes,
    pub(super) lease: LeaseId,
    when: Revision,
}

/// Who is there.
#[derive(Debug, Default)]
pub(super) struct Roster {
    /// Everything up to here is in it.
    revision: Revision,
    /// The last round that formed a group.
    previous: u64,
    /// Who joined, and when it last said so.
    joined: BTreeMap<String, (Candidate, Revision)>,
    /// How many of those were in the last group.
    returned: usize,
    /// Live nodes that have not joined and are worth waiting for: those of the last group, and others.
    members_to_come: BTreeSet<String>,
    others_to_come: BTreeSet<String>,
    /// Those of the last group that would be, had they not been reported.
    suspects_to_come: BTreeSet<String>,
    waiting: BTreeSet<String>,
    /// What each node said when it confirmed.
    ready: BTreeMap<String, Said>,
    /// Nodes that were reported, and those who were too slow the last time.
    suspects: BTreeMap<String, Revision>,
    /// Some of those who were reported and are no more.
    buried: Vec<String>,
    /// Nodes that had joined and are gone.
    gone: BTreeSet<String>,
    /// The first that could not be read of what nodes said when they joined.
    corrupt: Option<Corrupt>,
    /// Grows whenever someone may be lost who was not, or is not who was.
    changes: usize,
}

impl Roster {
    /// The roster as a survey found it, in a round that began at `began`.
    pub(super) fn new(
        survey: &TxnResult,
        began: Revision,
        previous: u64,
        slow: &BTreeSet<String>,
    ) -> Self {
        let found = |index: usize| match survey.results.get(index) {
            Some(OpResult::Range(range)) => range.kvs.as_slice(),
            _ => &[],
        };
        let ids = |index: usize| found(index).iter().filter_map(|kv| id_of(&kv.key));
        let mut roster = Self {
            revision: survey.revision,
            previous,
            // Who waited for this round to begin has joined it, or is too slow or too dead to.
            waiting: found(1)
                .iter()
                .filter(|kv| kv.mod_revision > began)
                .filter_map(|kv| id_of(&kv.key))
                .collect(),
            suspects: slow.iter().cloned().map(|id| (id, 0)).collect(),
            ..Self::default()
        };
        let reported = |kv: &KeyValue| id_of(&kv.key).map(|id| (id, kv.mod_revision));
        roster.suspects.extend(found(2).iter().filter_map(reported));
        let last_group: BTreeSet<String> = ids(5).collect();
        let nodes: BTreeSet<String> = ids(0).collect();
        roster.buried = ids(2).filter(|id| !nodes.contains(id)).take(BURIED).collect();
        for id in nodes {
            let to_come = match (last_group.contains(&id), roster.suspects.get(&id)) {
                (true, None) => &mut roster.members_to_come,
                (false, None) => &mut roster.others_to_come,
                (true, Some(reported)) if *reported > 0 => &mut roster.suspects_to_come,
                _ => continue,
            };
            to_come.insert(id);
        }
        for kv in found(3) {
            roster.join(kv);
        }
        for kv in found(4) {
            roster.confirm(kv);
        }
        roster
    }

    /// Takes in what one of the watches saw.
    pub(super) fn apply(&mut self, watch: usize, event: &Event) {
        let (Some(watched), Some(id)) = (Watched::ALL.get(watch), id_of(&event.kv.key)) else {
            return;
        };
        if event.kv.mod_revision <= self.revision {
            return;
        }
        match (watched, event.kind) {
            (Watched::Nodes, EventKind::Delete) => self.not_to_come(&id),
            (Watched::Waiting, EventKind::Put) => drop(self.waiting.insert(id)),
            (Watched::Waiting, EventKind::Delete) => drop(self.waiting.remove(&id)),
            (Watched::Suspects, EventKind::Put) => self.suspect(id, event.kv.mod_revision),
            (Watched::Members, EventKind::Put) => self.join(&event.kv),
            (Watched::Members, EventKind::Delete) => self.part(id, event.kv.mod_revision),
            (Watched::Ready, EventKind::Put) => self.confirm(&event.kv),
            (Watched::Nodes, EventKind::Put)
            | (Watched::Suspects | Watched::Ready, EventKind::Delete) => {}
        }
    }

    fn join(&mut self, kv: &KeyValue) {
        let Some(id) = id_of(&kv.key) else { return };
        let joined: Joined = match decode(&kv.key, &kv.value) {
            Ok(joined) => joined,
            Err(corrupt) => {
                self.corrupt.get_or_insert(corrupt);
                return;
            }
        };
        self.not_to_come(&id);
        // Whoever joins is alive, whatever was said before, and here, even if it had left.
        if self.suspects.get(&id).is_some_and(|when| *when < kv.mod_revision) {
            self.suspects.remove(&id);
        }
        self.gone.remove(&id);
        self.changes += 1;
        let arrived = joined.arrived.unwrap_or(kv.create_revision);
        let Joined { hint, topology, seat, .. } = joined;
        let candidate = Candidate { id: id.clone(), arrived, hint, topology, seat };
        let returned = self.is_returned(&candidate);
        if let Some((before, _)) = self.joined.insert(id, (candidate, kv.mod_revision)) {
            self.returned -= usize::from(self.is_returned(&before));
        }
        self.returned += usize::from(returned);
    }

    fn part(&mut self, id: String, when: Revision) {
        // The watches do not wait for each other. Who has confirmed since has joined again, and its end
        // is old news.
        if self.ready.get(&id).is_some_and(|said| said.when > when) {
            return;
        }
        if let Some((candidate, _)) = self.joined.remove(&id) {
            self.returned -= usize::from(self.is_returned(&candidate));
            self.gone.insert(id);
            self.changes += 1;
        }
    }

    fn suspect(&mut self, id: String, when: Revision) {
        // Who has joined since is alive.
        if self.joined.get(&id).is_none_or(|(_, joined)| *joined < when) {
            if self.members_to_come.contains(&id) {
                self.suspects_to_come.insert(id.clone());
            }
            self.members_to_come.remove(&id);
            self.others_to_come.remove(&id);
            // A thousand may report one that died; that is news once.
            if self.suspects.insert(id, when).is_none() {
                self.changes += 1;
            }
        }
    }

    fn confirm(&mut self, kv: &KeyValue) {
        if let Some(id) = id_of(&kv.key) {
            let said = Said { what: kv.value.clone(), lease: kv.lease, when: kv.mod_revision };
            self.ready.insert(id, said);
        }
    }

    fn not_to_come(&mut self, id: &str) {
        self.members_to_come.remove(id);
        self.others_to_come.remove(id);
        self.suspects_to_come.remove(id);
    }

    fn is_returned(&self, candidate: &Candidate) -> bool {
        self.previous > 0 && candidate.seat.is_some_and(|seat| seat.round == self.previous)
    }

    /// The figures that decide when the round stops taking nodes.
    pub(super) fn roll(&self) -> Roll {
        Roll {
            joined: self.joined.len(),
            members_to_come: self.members_to_come.len(),
            others_to_come: self.others_to_come.len(),
            suspects_to_come: self.suspects_to_come.len(),
            returned: self.returned,
        }
    }

    /// Who is here, behind a semicolon, if they are few enough to be named; and if they have ranks in mind,
    /// which of those below the highest nobody has.
    pub(super) fn names(&self) -> String {
        if !(1..=MOST_NAMED).contains(&self.joined.len()) {
            return String::new();
        }
        let here: Vec<&str> = self.joined.keys().map(String::as_str).collect();
        let hints: Option<BTreeSet<u32>> =
            self.joined.values().map(|(candidate, _)| candidate.hint).collect();
        let hints = hints.unwrap_or_default();
        let highest = hints.last().copied().unwrap_or(0);
        let missing = (0..highest).filter(|rank| !hints.contains(rank)).take(MOST_NAMED);
        let missing: Vec<String> = missing.map(|rank| rank.to_string()).collect();
        match missing.is_empty() {
            true => format!("; here: {}", here.join(", ")),
            false => {
                format!("; here: {}; node ranks missing: {}", here.join(", "), missing.join(", "))
            }
        }
    }

    pub(super) fn corrupt(&self) -> Option<&Corrupt> {
        self.corrupt.as_ref()
    }

    pub(super) fn candidates(&self) -> Vec<Candidate> {
        self.joined.values().map(|(candidate, _)| candidate.clone()).collect()
    }

    /// Some of those who were reported and whose leases are over, so that the reports can go as well.
    pub(super) fn buried(&self) -> &[String] {
        &self.buried
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether a node had joined and is gone, or is likely to be.
    pub(super) fn is_lost(&self, id: &str) -> bool {
        self.gone.contains(id) || self.suspects.contains_key(id) || !self.joined.contains_key(id)
    }

    /// Nobody needs to look for who is lost while this is the same.
    pub(super) fn changes(&self) -> usize {
        self.changes
    }

    pub(super) fn confirmed(&self) -> usize {
        self.ready.len()
    }

    pub(super) fn said(&self, id: &str) -> Option<&Said> {
        self.ready.get(id)
    }
}

fn id_of(key: &[u8]) -> Option<String> {
    Keys::id_of(key).map(str::to_owned)
}

#[cfg(test)]
mod tests;
