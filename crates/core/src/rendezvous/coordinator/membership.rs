//! What the coordinator of a round sees: who joined, who is still to come, who is gone.
//!
//! Kept up to date event by event, so that ten thousand nodes cost ten thousand small steps.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;

use super::window::MembershipCounts;
use crate::kv::{Event, EventKind, KeyValue, LeaseId, Revision, Watch};
use crate::rendezvous::documents::{
    DocumentError, Earlier, Joined, Objection, Ranked, RunHistory, decode,
};
use crate::rendezvous::keys::Keys;
use crate::rendezvous::node::objection::majority;
use crate::rendezvous::ranks::{Candidate, PreviousAssignment};
use crate::rendezvous::txn::Survey;

/// The coordinator's watches, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watched {
    Nodes,
    Waiting,
    Suspects,
    Members,
    Ready,
    /// Who may still have workers of the last group.
    LastReady,
    Objectors,
}

impl Watched {
    const ALL: [Self; 7] = [
        Self::Nodes,
        Self::Waiting,
        Self::Suspects,
        Self::Members,
        Self::Ready,
        Self::LastReady,
        Self::Objectors,
    ];
}

/// Reports of so many dead nodes are deleted at a time.
const BURIED: usize = 32;

/// More nodes are only counted.
const MOST_NAMED: usize = 8;

/// The watches by which a roster is kept up to date.
pub(in crate::rendezvous) fn watches(keys: &Keys, round: u64, previous: u64) -> Vec<Watch> {
    let watch = |watched: &Watched| match watched {
        // A node comes together with what it joins or waits for; only its end is news.
        Watched::Nodes => Watch { no_put: true, ..Watch::new(keys.nodes()) },
        Watched::Waiting => Watch::new(keys.all_waiting()),
        Watched::Suspects => Watch { no_delete: true, ..Watch::new(keys.suspects()) },
        Watched::Members => Watch::new(keys.members(round)),
        Watched::Ready => Watch { no_delete: true, ..Watch::new(keys.all_ready(round)) },
        Watched::LastReady => Watch::new(keys.all_ready(previous)),
        Watched::Objectors => Watch::new(keys.objectors()),
    };
    Watched::ALL.iter().map(watch).collect()
}

/// The ranks that a survey found, of a group that another has formed.
pub(in crate::rendezvous) fn ranks(survey: &Survey<'_>) -> BTreeMap<String, u32> {
    let read = |kv: &KeyValue| {
        let ranked: Ranked = decode(&kv.key, &kv.value).ok()?;
        Some((id_of(&kv.key)?, ranked.rank))
    };
    survey.ranks.iter().filter_map(read).collect()
}

/// What a node said when it confirmed.
#[derive(Debug)]
pub(in crate::rendezvous) struct Said {
    pub(in crate::rendezvous) what: Bytes,
    pub(in crate::rendezvous) lease: LeaseId,
    when: Revision,
}

/// The round that a roster is of.
#[derive(Debug, Clone, Copy)]
pub(in crate::rendezvous) struct Term {
    pub(in crate::rendezvous) history: RunHistory,
    /// When it began.
    pub(in crate::rendezvous) began: Revision,
    /// The last round before it that formed a group; 0 if none did.
    pub(in crate::rendezvous) previous: u64,
    /// The last group of a forgotten history whose workers are known to be gone; 0 if nobody remembers one.
    pub(in crate::rendezvous) outlived: u64,
}

/// A node that joined.
#[derive(Debug)]
struct Entry {
    candidate: Candidate,
    /// When it last said so.
    since: Revision,
    /// Its place in a group of a history that the server has forgotten.
    forgotten: Option<PreviousAssignment>,
}

/// Who is there.
#[derive(Debug)]
pub(in crate::rendezvous) struct RoundMembership {
    term: Term,
    /// Everything up to here is in it.
    revision: Revision,
    /// Who joined.
    joined: BTreeMap<String, Entry>,
    /// How many of those were in the last group.
    returned: usize,
    /// Live nodes that have not joined and are worth waiting for: those of the last group, and others.
    members_to_come: BTreeSet<String>,
    others_to_come: BTreeSet<String>,
    /// Members of the last group that may still have workers: they have neither entered since, nor left, and
    /// their leases live.
    unresolved: BTreeSet<String>,
    /// When nodes went, as far as it was seen.
    departed: BTreeMap<String, Revision>,
    waiting: BTreeSet<String>,
    /// How long the server before this one had been silent when this one started, if it kept nothing.
    predecessor: Option<Duration>,
    /// Who disagrees with the round.
    objections: BTreeMap<String, Objection>,
    /// What each node said when it confirmed.
    ready: BTreeMap<String, Said>,
    /// Nodes that were reported, and those who were too slow the last time.
    suspects: BTreeMap<String, Revision>,
    /// Some of those who were reported and are no more.
    buried: Vec<String>,
    /// Nodes that had joined and are gone.
    gone: BTreeSet<String>,
    /// The first that could not be read of what nodes said when they joined.
    unreadable: Option<DocumentError>,
    /// The highest that anybody who joined remembers of histories before this one.
    earlier: Earlier,
    /// Grows whenever someone may be lost who was not, or is not who was.
    changes: usize,
}

impl RoundMembership {
    /// The roster as a survey found it.
    pub(in crate::rendezvous) fn new(
        survey: &Survey<'_>,
        term: Term,
        slow: &BTreeSet<String>,
    ) -> Self {
        let ids = |kvs: &[KeyValue]| -> BTreeSet<String> {
            kvs.iter().filter_map(|kv| id_of(&kv.key)).collect()
        };
        // Who waited for this round to begin has joined it, or is too slow or too dead to.
        let waits = |kv: &&KeyValue| kv.mod_revision > term.began;
        let reported = |kv: &KeyValue| id_of(&kv.key).map(|id| (id, kv.mod_revision));
        let nodes = ids(survey.nodes);
        let last_group = ids(survey.last_members);
        let suspects: BTreeMap<String, Revision> = slow
            .iter()
            .map(|id| (id.clone(), 0))
            .chain(survey.suspects.iter().filter_map(reported))
            .collect();
        let buried = ids(survey.suspects).into_iter().filter(|id| !nodes.contains(id));
        let to_come = nodes.iter().filter(|id| !suspects.contains_key(*id)).cloned();
        let (members_to_come, others_to_come) = to_come.partition(|id| last_group.contains(id));
        let mut roster = Self {
            term,
            revision: survey.revision,
            joined: BTreeMap::new(),
            returned: 0,
            members_to_come,
            others_to_come,
            unresolved: ids(survey.last_ready),
            waiting: survey.waiting.iter().filter(waits).filter_map(|kv| id_of(&kv.key)).collect(),
            departed: BTreeMap::new(),
            predecessor: survey.predecessor,
            objections: BTreeMap::new(),
            ready: BTreeMap::new(),
            buried: buried.take(BURIED).collect(),
            suspects,
            gone: BTreeSet::new(),
            unreadable: None,
            earlier: Earlier::default(),
            changes: 0,
        };
        for kv in survey.members {
            roster.join(kv);
        }
        for kv in survey.ready {
            roster.confirm(kv);
        }
        for kv in survey.objectors {
            roster.object(kv);
        }
        roster
    }

    /// Takes in what one of the watches saw.
    pub(in crate::rendezvous) fn apply(&mut self, watch: usize, event: &Event) {
        let (Some(watched), Some(id)) = (Watched::ALL.get(watch), id_of(&event.kv.key)) else {
            return;
        };
        if event.kv.mod_revision <= self.revision {
            return;
        }
        match (watched, event.kind) {
            (Watched::Nodes, EventKind::Delete) => {
                self.not_to_come(&id);
                self.departed.insert(id, event.kv.mod_revision);
            }
            (Watched::Waiting, EventKind::Put) => drop(self.waiting.insert(id)),
            (Watched::Waiting, EventKind::Delete) => drop(self.waiting.remove(&id)),
            (Watched::Suspects, EventKind::Put) => self.suspect(id, event.kv.mod_revision),
            (Watched::Members, EventKind::Put) => self.join(&event.kv),
            (Watched::Members, EventKind::Delete) => self.part(id, event.kv.mod_revision),
            (Watched::Ready, EventKind::Put) => self.confirm(&event.kv),
            // One that slept, and found that nobody had taken its place.
            (Watched::LastReady, EventKind::Put) => drop(self.unresolved.insert(id)),
            (Watched::LastReady, EventKind::Delete) => self.resolve(id, event.kv.mod_revision),
            (Watched::Objectors, EventKind::Put) => self.object(&event.kv),
            (Watched::Objectors, EventKind::Delete) => drop(self.objections.remove(&id)),
            (Watched::Nodes, EventKind::Put)
            | (Watched::Suspects | Watched::Ready, EventKind::Delete) => {}
        }
    }

    fn join(&mut self, kv: &KeyValue) {
        let Some(id) = id_of(&kv.key) else { return };
        let joined: Joined = match decode(&kv.key, &kv.value) {
            Ok(joined) => joined,
            Err(error) => {
                self.unreadable.get_or_insert(error);
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
        let Joined { hint, topology, seat, earlier, .. } = joined;
        let is_current = |seat: &PreviousAssignment| seat.history == self.term.history;
        let forgotten = seat.filter(|seat| !is_current(seat));
        // A place in a forgotten group counts as long as no group has formed since: it takes nobody's place.
        let seat = seat.filter(|seat| is_current(seat) || self.term.previous == 0);
        let candidate = Candidate { id: id.clone(), arrived, hint, topology, seat };
        self.earlier = self.earlier.max(earlier);
        self.returned += usize::from(self.is_returned(&candidate));
        let entry = Entry { candidate, since: kv.mod_revision, forgotten };
        if let Some(before) = self.joined.insert(id, entry) {
            self.returned -= usize::from(self.is_returned(&before.candidate));
        }
    }

    fn part(&mut self, id: String, when: Revision) {
        // The watches do not wait for each other. Who has confirmed since has joined again, and its end
        // is old news.
        if self.ready.get(&id).is_some_and(|said| said.when > when) {
            return;
        }
        if let Some(entry) = self.joined.remove(&id) {
            self.returned -= usize::from(self.is_returned(&entry.candidate));
            self.gone.insert(id);
            self.changes += 1;
        }
    }

    fn suspect(&mut self, id: String, when: Revision) {
        // Who has joined since is alive.
        if self.joined.get(&id).is_none_or(|entry| entry.since < when) {
            self.members_to_come.remove(&id);
            self.others_to_come.remove(&id);
            // A thousand may report one that died; that is news once.
            if self.suspects.insert(id, when).is_none() {
                self.changes += 1;
            }
        }
    }

    /// A member of the last group has no workers any more. If it is not gone, it has entered and is about to join, also
    /// if it was suspected: the watches do not wait for each other.
    fn resolve(&mut self, id: String, when: Revision) {
        self.unresolved.remove(&id);
        let is_gone = self.departed.get(&id).is_some_and(|departed| *departed >= when);
        if !is_gone && !self.joined.contains_key(&id) {
            self.members_to_come.insert(id);
        }
    }

    fn confirm(&mut self, kv: &KeyValue) {
        if let Some(id) = id_of(&kv.key) {
            let said = Said { what: kv.value.clone(), lease: kv.lease, when: kv.mod_revision };
            self.ready.insert(id, said);
        }
    }

    /// A node disagrees with the round, and will not join it. An objection of another format is not counted.
    fn object(&mut self, kv: &KeyValue) {
        if let (Some(id), Ok(objection)) = (id_of(&kv.key), decode(&kv.key, &kv.value)) {
            self.not_to_come(&id);
            self.objections.insert(id, objection);
        }
    }

    fn not_to_come(&mut self, id: &str) {
        self.members_to_come.remove(id);
        self.others_to_come.remove(id);
    }

    fn is_returned(&self, candidate: &Candidate) -> bool {
        let Term { history, previous, .. } = self.term;
        let last = |seat: PreviousAssignment| (seat.history, seat.round) == (history, previous);
        previous > 0 && candidate.seat.is_some_and(last)
    }

    /// The figures that decide when the round stops taking nodes.
    pub(in crate::rendezvous) fn roll(&self) -> MembershipCounts {
        MembershipCounts {
            joined: self.joined.len(),
            unresolved: self.unresolved.len(),
            members_to_come: self.members_to_come.len(),
            others_to_come: self.others_to_come.len(),
            returned: self.returned,
        }
    }

    /// How long after this history began members of a group that the server has forgotten may still have workers, if
    /// they may.
    ///
    /// They may if somebody remembers such a group, and no round has outlived it since; or if nobody does, but the
    /// server follows another. All of their leases are over a lease's time after the last was renewed: before the server
    /// started, as it says, or a moment before.
    pub(in crate::rendezvous) fn forgotten_for(&self, lease_ttl: Duration) -> Option<Duration> {
        let Term { previous, outlived, .. } = self.term;
        let may_be = match self.earlier.formed > outlived {
            true => self.misses_forgotten(),
            false => self.predecessor.is_some() && previous == 0 && outlived == 0,
        };
        let left = lease_ttl.saturating_sub(self.predecessor.unwrap_or_default());
        (may_be && !left.is_zero()).then_some(left)
    }

    /// Whether somebody may be missing of the forgotten group that is remembered here. If one who held its lease to the
    /// end says which was the last, and all of that one are here, there is nobody else.
    fn misses_forgotten(&self) -> bool {
        let last = |seat: &PreviousAssignment| seat.round == self.earlier.formed;
        let seats = || self.joined.values().filter_map(|entry| entry.forgotten).filter(last);
        let Some(held) = seats().find(|seat| seat.held) else { return true };
        seats().filter(|seat| seat.history == held.history).count() < held.world as usize
    }

    /// The highest round that anybody who joined remembers of histories before this one.
    pub(in crate::rendezvous) fn remembered(&self) -> Earlier {
        self.earlier
    }

    /// Who is waited for of the last group, behind a semicolon, if they are few enough to be named.
    pub(in crate::rendezvous) fn names_of_unresolved(&self) -> String {
        match self.unresolved.len() {
            1..=MOST_NAMED => {
                let names: Vec<&str> = self.unresolved.iter().map(String::as_str).collect();
                format!("; waiting for: {}", names.join(", "))
            }
            _ => String::new(),
        }
    }

    /// Who is here, behind a semicolon, if they are few enough to be named; which rank several of them have in mind; and
    /// if all of them have one, which of so many nobody has.
    pub(in crate::rendezvous) fn names(&self, nodes: usize) -> String {
        let here: Vec<&str> = self.joined.keys().map(String::as_str).collect();
        let here = match here.len() {
            1..=MOST_NAMED => format!("; here: {}", here.join(", ")),
            _ => String::new(),
        };
        let here = here + &self.rank_of_several().unwrap_or_default();
        let hints: Option<BTreeSet<u32>> =
            self.joined.values().map(|entry| entry.candidate.hint).collect();
        let hints = hints.unwrap_or_default();
        let Some(highest) = hints.last() else { return here };
        let nodes = u32::try_from(nodes).unwrap_or(u32::MAX).max(*highest);
        let missing = (0..nodes).filter(|rank| !hints.contains(rank)).take(MOST_NAMED);
        let named: Vec<String> = missing.map(|rank| rank.to_string()).collect();
        match (named.is_empty(), nodes as usize - hints.range(..nodes).count() - named.len()) {
            (true, _) => here,
            (false, 0) => format!("{here}; node ranks missing: {}", named.join(", ")),
            (false, more) => {
                format!("{here}; node ranks missing: {} and {more} more", named.join(", "))
            }
        }
    }

    /// The first rank that more than one node has in mind, and two of those.
    fn rank_of_several(&self) -> Option<String> {
        let mut first: BTreeMap<u32, &str> = BTreeMap::new();
        self.joined.iter().find_map(|(id, entry)| {
            let rank = entry.candidate.hint?;
            let other = first.insert(rank, id)?;
            Some(format!("; node rank {rank} was given to both {other} and {id}"))
        })
    }

    /// One of the nodes that disagree with the round, if more of them agree with each other than have joined it.
    pub(in crate::rendezvous) fn outvoted(&self) -> Option<&Objection> {
        majority(&self.objections, self.joined.len())
    }

    pub(in crate::rendezvous) fn unreadable(&self) -> Option<&DocumentError> {
        self.unreadable.as_ref()
    }

    pub(in crate::rendezvous) fn candidates(&self) -> Vec<Candidate> {
        self.joined.values().map(|entry| entry.candidate.clone()).collect()
    }

    /// Some of those who were reported and whose leases are over, so that the reports can go as well.
    pub(in crate::rendezvous) fn buried(&self) -> &[String] {
        &self.buried
    }

    pub(in crate::rendezvous) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether a node had joined and is gone, or is likely to be.
    pub(in crate::rendezvous) fn is_lost(&self, id: &str) -> bool {
        self.gone.contains(id) || self.suspects.contains_key(id) || !self.joined.contains_key(id)
    }

    /// Nobody needs to look for who is lost while this is the same.
    pub(in crate::rendezvous) fn changes(&self) -> usize {
        self.changes
    }

    pub(in crate::rendezvous) fn confirmed(&self) -> usize {
        self.ready.len()
    }

    pub(in crate::rendezvous) fn said(&self, id: &str) -> Option<&Said> {
        self.ready.get(id)
    }
}

fn id_of(key: &[u8]) -> Option<String> {
    Keys::id_of(key).map(str::to_owned)
}

#[cfg(test)]
mod tests;
