//! The membership of a round, as its coordinator sees it: nodes that joined, nodes that are expected, nodes that are lost.
//!
//! Watches keep it up to date event by event, so that ten thousand nodes cost ten thousand small steps.

mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;

use super::lineage::Lineage;
use super::watches::Watched;
use super::window::MembershipCounts;
use crate::kv::{Event, EventKind, KeyValue, LeaseId, Revision};
use crate::rendezvous::documents::{
    DocumentError, Earlier, Joined, LEFT_OR_EXPIRED, Objection, Proofs, Ranked, RunHistory,
    Unreached, decode,
};
use crate::rendezvous::keys::Keys;
use crate::rendezvous::node::objection::majority;
use crate::rendezvous::ranks::{Candidate, PreviousAssignment};
use crate::rendezvous::txn::MembershipSnapshot;

/// Suspect reports that one sweep deletes.
const MOST_SWEPT_REPORTS: usize = 32;

/// The ranks in a snapshot, for the coordinator of a group that another coordinator formed.
pub(super) fn ranks(snapshot: &MembershipSnapshot<'_>) -> BTreeMap<String, u32> {
    let read = |kv: &KeyValue| {
        let ranked: Ranked = decode(&kv.key, &kv.value).ok()?;
        Some((id_of(&kv.key)?, ranked.rank))
    };
    snapshot.ranks.iter().filter_map(read).collect()
}

/// The confirmation of a node.
#[derive(Debug)]
pub(super) struct Confirmation {
    /// The value of its `ready` key: the bootstrap store, from rank 0.
    pub(super) value: Bytes,
    pub(super) lease: LeaseId,
    revision: Revision,
}

/// The round that a membership belongs to.
#[derive(Debug, Clone, Copy)]
pub(super) struct RoundContext {
    pub(super) history: RunHistory,
    /// When the round was opened.
    pub(super) began: Revision,
    /// The last round before this one that formed a group; 0 if none did.
    pub(super) previous: u64,
    /// The last group of a lost history whose workers have certainly stopped; 0 if no node remembers one.
    pub(super) outlived: u64,
}

/// A node that joined.
#[derive(Debug)]
struct JoinedNode {
    candidate: Candidate,
    /// When it last joined.
    since: Revision,
    /// Its assignment in a group of a history that the server has lost.
    forgotten: Option<PreviousAssignment>,
}

/// The membership of a round.
#[derive(Debug)]
pub(super) struct RoundMembership {
    context: RoundContext,
    /// The revision of the snapshot that it began with.
    revision: Revision,
    /// Nodes that joined.
    joined: BTreeMap<String, JoinedNode>,
    /// The number of those that were members of the last group.
    returned: usize,
    /// The number of nodes in the last group, once one of its members has joined.
    last_world: usize,
    /// Live members of the last group that are expected to join.
    members_to_come: BTreeSet<String>,
    /// Other live nodes that are expected to join.
    others_to_come: BTreeSet<String>,
    /// Members of the last group that may still have workers: they have neither joined since, nor left, and their
    /// leases live.
    unresolved: BTreeSet<String>,
    /// When the documents of nodes were deleted.
    departed: BTreeMap<String, Revision>,
    waiting: BTreeSet<String>,
    spares: BTreeSet<String>,
    /// How long the preceding server had been silent when this server started, if this server kept none of its state.
    predecessor: Option<Duration>,
    /// The terms of nodes that disagree with the round.
    objections: BTreeMap<String, Objection>,
    /// The confirmations.
    ready: BTreeMap<String, Confirmation>,
    /// The members that have no connection to rank 0's store, and why.
    unreached: BTreeMap<String, String>,
    /// Nodes that were reported as suspect, and nodes that did not confirm in the round before; each with the revision
    /// of the report.
    suspects: BTreeMap<String, Revision>,
    /// Some of the suspects whose leases have expired.
    expired_suspects: Vec<String>,
    /// Nodes that had joined, and when their join was deleted.
    gone: BTreeMap<String, Revision>,
    /// Members of the last group that nodes which confirmed have proved dead.
    proved_dead: BTreeSet<String>,
    /// The first join document that could not be read.
    unreadable: Option<DocumentError>,
    /// The highest rounds of earlier histories that the nodes which joined remember.
    earlier: Earlier,
    /// What is known of earlier groups, where hosts succeed each other as servers.
    lineage: Option<Lineage>,
    /// Version counter: grows whenever the set of lost members may have changed.
    version: usize,
}

impl RoundMembership {
    /// The membership in a snapshot. `slow` are the nodes that did not confirm in the round before.
    pub(super) fn new(
        snapshot: &MembershipSnapshot<'_>,
        context: RoundContext,
        slow: &BTreeSet<String>,
    ) -> Self {
        let ids = |kvs: &[KeyValue]| -> BTreeSet<String> {
            kvs.iter().filter_map(|kv| id_of(&kv.key)).collect()
        };
        // A node that registered before this round was opened has joined it since, or is slow, or dead.
        let late = |kvs: &[KeyValue]| -> BTreeSet<String> {
            let late = kvs.iter().filter(|kv| kv.mod_revision > context.began);
            late.filter_map(|kv| id_of(&kv.key)).collect()
        };
        let reported = |kv: &KeyValue| id_of(&kv.key).map(|id| (id, kv.mod_revision));
        let nodes = ids(snapshot.nodes);
        let last_group = ids(snapshot.last_members);
        let suspects: BTreeMap<String, Revision> = slow
            .iter()
            .map(|id| (id.clone(), 0))
            .chain(snapshot.suspects.iter().filter_map(reported))
            .collect();
        let expired_suspects = ids(snapshot.suspects).into_iter().filter(|id| !nodes.contains(id));
        let to_come = nodes.iter().filter(|id| !suspects.contains_key(*id)).cloned();
        let (members_to_come, others_to_come) = to_come.partition(|id| last_group.contains(id));
        let mut membership = Self {
            context,
            revision: snapshot.revision,
            joined: BTreeMap::new(),
            returned: 0,
            last_world: 0,
            members_to_come,
            others_to_come,
            unresolved: ids(snapshot.last_ready),
            waiting: late(snapshot.waiting),
            spares: late(snapshot.spares),
            departed: BTreeMap::new(),
            predecessor: snapshot.predecessor,
            objections: BTreeMap::new(),
            ready: BTreeMap::new(),
            unreached: BTreeMap::new(),
            expired_suspects: expired_suspects.take(MOST_SWEPT_REPORTS).collect(),
            suspects,
            gone: BTreeMap::new(),
            proved_dead: BTreeSet::new(),
            unreadable: None,
            earlier: Earlier::default(),
            lineage: snapshot
                .last_group
                .map(|last| Lineage::new(&ids(last.ranks) - &ids(last.left), last.overruled)),
            version: 0,
        };
        for kv in snapshot.members {
            membership.join(kv);
        }
        for kv in snapshot.ready {
            membership.confirm(kv);
        }
        for kv in snapshot.objectors {
            membership.object(kv);
        }
        membership
    }

    /// Takes in an event of one of the watches.
    pub(super) fn apply(&mut self, watch: usize, event: &Event) {
        let (Some(watched), Some(id)) = (Watched::ALL.get(watch), id_of(&event.kv.key)) else {
            return;
        };
        if let (Watched::Members, EventKind::Put, Some(lineage)) =
            (watched, event.kind, &mut self.lineage)
        {
            lineage.report(&id, event.kv.mod_revision);
        }
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
            (Watched::Spares, EventKind::Put) => drop(self.spares.insert(id)),
            (Watched::Spares, EventKind::Delete) => drop(self.spares.remove(&id)),
            (Watched::Suspects, EventKind::Put) => self.suspect(id, event.kv.mod_revision),
            (Watched::Members, EventKind::Put) => self.join(&event.kv),
            (Watched::Members, EventKind::Delete) => self.leave(id, event.kv.mod_revision),
            (Watched::Ready, EventKind::Put) => self.confirm(&event.kv),
            // A suspended node that restored its membership.
            (Watched::LastReady, EventKind::Put) => drop(self.unresolved.insert(id)),
            (Watched::LastReady, EventKind::Delete) => self.resolve(id, event.kv.mod_revision),
            (Watched::Objectors, EventKind::Put) => self.object(&event.kv),
            (Watched::Objectors, EventKind::Delete) => drop(self.objections.remove(&id)),
            (Watched::Left, EventKind::Put) => {
                if let Some(lineage) = &mut self.lineage {
                    lineage.leave_group(&id);
                }
            }
            (Watched::Overruled, EventKind::Put) => {
                if let Some(lineage) = &mut self.lineage {
                    lineage.overrule(&event.kv);
                }
            }
            (Watched::Nodes, EventKind::Put)
            | (
                Watched::Suspects | Watched::Ready | Watched::Left | Watched::Overruled,
                EventKind::Delete,
            ) => {}
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
        // A node that joins is alive, whatever was reported before, and present, even if it had left.
        if self.suspects.get(&id).is_some_and(|when| *when < kv.mod_revision) {
            self.suspects.remove(&id);
        }
        self.gone.remove(&id);
        self.version += 1;
        let arrived = joined.arrived.unwrap_or(kv.create_revision);
        let Joined { rank_hints, previous_assignment, earlier, claims, .. } = joined;
        if let Some(lineage) = &mut self.lineage {
            lineage.join(&id, claims);
        }
        let is_current = |last: &PreviousAssignment| last.history == self.context.history;
        let forgotten = previous_assignment.filter(|last| !is_current(last));
        // An assignment in a lost history counts until a group has formed in this one: no other node has a claim yet.
        let previous =
            previous_assignment.filter(|last| is_current(last) || self.context.previous == 0);
        let candidate = Candidate { id: id.clone(), arrived, rank_hints, previous, standing: None };
        self.earlier = self.earlier.max(earlier);
        if self.is_returned(&candidate) {
            self.returned += 1;
            self.last_world = candidate.previous.map_or(0, |last| last.world as usize);
        }
        let entry = JoinedNode { candidate, since: kv.mod_revision, forgotten };
        if let Some(before) = self.joined.insert(id, entry) {
            self.returned -= usize::from(self.is_returned(&before.candidate));
        }
    }

    fn leave(&mut self, id: String, when: Revision) {
        // Events of different watches come in any order. A node that has confirmed since has joined again, so the
        // deletion is obsolete.
        if self.ready.get(&id).is_some_and(|confirmation| confirmation.revision > when) {
            return;
        }
        if let Some(entry) = self.joined.remove(&id) {
            if let Some(lineage) = &mut self.lineage {
                lineage.leave(&id);
            }
            self.returned -= usize::from(self.is_returned(&entry.candidate));
            self.gone.insert(id, when);
            self.version += 1;
        }
    }

    fn suspect(&mut self, id: String, when: Revision) {
        // A node that has joined since is alive.
        if self.joined.get(&id).is_none_or(|entry| entry.since < when) {
            self.members_to_come.remove(&id);
            self.others_to_come.remove(&id);
            // Many peers may report the same node; only the first report changes anything.
            if self.suspects.insert(id, when).is_none() {
                self.version += 1;
            }
        }
    }

    /// A member of the last group has no workers any more. Unless its document is deleted, it is about to join, also if it
    /// is suspect: events of different watches come in any order.
    fn resolve(&mut self, id: String, when: Revision) {
        self.unresolved.remove(&id);
        let is_gone = self.departed.get(&id).is_some_and(|departed| *departed >= when);
        if !is_gone && !self.joined.contains_key(&id) {
            self.members_to_come.insert(id);
        }
    }

    fn confirm(&mut self, kv: &KeyValue) {
        if let Some(id) = id_of(&kv.key) {
            // Most confirmations are empty.
            let read = |kv: &KeyValue| decode::<Unreached>(&kv.key, &kv.value).ok();
            match Some(kv).filter(|kv| !kv.value.is_empty()).and_then(read) {
                Some(Unreached { unreached }) => drop(self.unreached.insert(id.clone(), unreached)),
                None => drop(self.unreached.remove(&id)),
            }
            let proofs = Some(kv).filter(|kv| !kv.value.is_empty());
            let proofs = proofs.and_then(|kv| decode::<Proofs>(&kv.key, &kv.value).ok());
            self.proved_dead.extend(proofs.into_iter().flat_map(|proofs| proofs.proved_dead));
            let (value, lease, revision) = (kv.value.clone(), kv.lease, kv.mod_revision);
            self.ready.insert(id, Confirmation { value, lease, revision });
        }
    }

    /// A node disagrees with the round, and will not join it. An objection that cannot be read is not counted.
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
        let RoundContext { history, previous, .. } = self.context;
        let is_last = |last: PreviousAssignment| (last.history, last.round) == (history, previous);
        previous > 0 && candidate.previous.is_some_and(is_last)
    }

    /// The counts that decide when the round stops taking nodes.
    pub(super) fn counts(&self) -> MembershipCounts {
        MembershipCounts {
            joined: self.joined.len(),
            unresolved: self.unresolved.len(),
            members_to_come: self.members_to_come.len(),
            others_to_come: self.others_to_come.len(),
            returned: self.returned.max(self.lineage.as_ref().map_or(0, Lineage::returned)),
            last_world: self.last_world.max(self.lineage.as_ref().map_or(0, Lineage::last_world)),
        }
    }

    /// How long after the beginning of this history the members of a group of a lost history may still have workers.
    /// None if there can be no such workers.
    ///
    /// There can be if a node remembers such a group, and no round has outlived it since; or if no node does, but this
    /// server follows another one. All of their leases have expired one lease TTL after the last renewal, which was at
    /// latest when this server started, or as long before as the predecessor had been silent.
    pub(super) fn forgotten_for(&self, lease_ttl: Duration) -> Option<Duration> {
        let RoundContext { previous, outlived, .. } = self.context;
        // Where hosts succeed each other as servers, the nodes tell how long their servers have been silent.
        if self.lineage.is_some() {
            return None;
        }
        let may_be = match self.earlier.formed > outlived {
            true => self.misses_forgotten(),
            false => self.predecessor.is_some() && previous == 0 && outlived == 0,
        };
        let left = lease_ttl.saturating_sub(self.predecessor.unwrap_or_default());
        (may_be && !left.is_zero()).then_some(left)
    }

    /// Whether a member of the remembered group of a lost history may be missing. If a node that held its lease to the
    /// end of the history tells which group was the last, and all members of that group have joined, none is missing.
    fn misses_forgotten(&self) -> bool {
        let is_last = |last: &PreviousAssignment| last.round == self.earlier.formed;
        let members = || self.joined.values().filter_map(|entry| entry.forgotten).filter(is_last);
        let Some(held) = members().find(|last| last.held) else { return true };
        members().filter(|last| last.history == held.history).count() < held.world as usize
    }

    /// The highest rounds of earlier histories that the nodes which joined remember.
    pub(super) fn remembered(&self) -> Earlier {
        self.earlier
    }

    /// One of the objectors with the same terms, if they outnumber the nodes that joined.
    pub(super) fn outvoted(&self) -> Option<&Objection> {
        majority(&self.objections, self.joined.len())
    }

    /// The first join document that could not be read.
    pub(super) fn unreadable(&self) -> Option<&DocumentError> {
        self.unreadable.as_ref()
    }

    /// What is known of earlier groups, where hosts succeed each other as servers.
    pub(super) fn lineage(&self) -> Option<&Lineage> {
        self.lineage.as_ref()
    }

    pub(super) fn lineage_mut(&mut self) -> Option<&mut Lineage> {
        self.lineage.as_mut()
    }

    /// The nodes that joined.
    pub(super) fn candidates(&self) -> Vec<Candidate> {
        self.joined.values().map(|entry| entry.candidate.clone()).collect()
    }

    /// Some of the suspects whose leases have expired, so that their reports can be deleted.
    pub(super) fn expired_suspects(&self) -> &[String] {
        &self.expired_suspects
    }

    /// The number of nodes that came after the group had formed, or for which it had no room.
    pub(super) fn late(&self) -> usize {
        self.waiting.len() + self.spares.len()
    }

    /// Whether the join of a node was deleted, or the node is suspect.
    pub(super) fn is_lost(&self, id: &str) -> bool {
        self.gone.contains_key(id)
            || self.suspects.contains_key(id)
            || !self.joined.contains_key(id)
    }

    /// How the loss of a node is known. All keys of a lease end at once; a node that leaves deletes its document last.
    pub(super) fn lost_because(&self, id: &str) -> &'static str {
        if self.suspects.contains_key(id) {
            return "a peer reported that its connection has ended";
        }
        match (self.gone.get(id), self.departed.get(id)) {
            (Some(gone), Some(departed)) if gone == departed => "its lease expired",
            (Some(gone), Some(departed)) if gone < departed => "it left",
            // The watch of documents may be behind.
            _ => LEFT_OR_EXPIRED,
        }
    }

    /// The members of the last group that are proved dead, by nodes that have confirmed.
    pub(super) fn proved_dead(&self) -> &BTreeSet<String> {
        &self.proved_dead
    }

    /// Grows whenever the set of lost members may have changed.
    pub(super) fn version(&self) -> usize {
        self.version
    }

    /// The number of nodes that confirmed.
    pub(super) fn confirmed(&self) -> usize {
        self.ready.len()
    }

    pub(super) fn confirmation(&self, id: &str) -> Option<&Confirmation> {
        self.ready.get(id)
    }
}

fn id_of(key: &[u8]) -> Option<String> {
    Keys::id_of(key).map(str::to_owned)
}

#[cfg(test)]
mod tests;
