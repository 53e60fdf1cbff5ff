//! What the nodes that joined a round remember of earlier groups, where hosts succeed each other as servers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::kv::{KeyValue, Revision, Time};
use crate::rendezvous::documents::{Overruled, RunHistory, decode};
use crate::rendezvous::ranks::{Candidate, select};
use crate::rendezvous::succession::claims::{Claims, Cut};
use crate::rendezvous::succession::quorum::{Ancestors, Claimant, HomeGroup, Quorum};

/// What is known of earlier groups, kept up to date by the coordinator's watches.
#[derive(Debug, Default)]
pub(super) struct Lineage {
    /// What each node that joined remembers, and when it was read.
    claims: BTreeMap<String, (Claims, Option<Time>)>,
    /// Nodes whose claims were not read yet.
    unread: Vec<String>,
    /// The last group of this history, without members that have left in good order.
    home: BTreeSet<String>,
    /// The nodes whose joins the watch has reported since the round was opened, and the revision up to which it has.
    reported: (BTreeSet<String>, Revision),
    /// The watch reports every join since the round was opened.
    reports_all: bool,
    /// What an operator has decided about the quorum.
    overruled: Option<Overruled>,
}

impl Lineage {
    /// What is known of the last group of this history: its members that have not left in good order, and what an
    /// operator has decided about it.
    pub(super) fn new(home: BTreeSet<String>, overruled: Option<&KeyValue>) -> Self {
        let mut lineage = Self { home, ..Self::default() };
        if let Some(kv) = overruled {
            lineage.overrule(kv);
        }
        lineage
    }

    /// An operator has decided about the quorum. A decision that cannot be read is none.
    pub(super) fn overrule(&mut self, kv: &KeyValue) {
        self.overruled = decode(&kv.key, &kv.value).ok();
    }

    /// Who has decided that the group needs no quorum.
    pub(super) fn overruled_by(&self) -> Option<&str> {
        self.overruled.as_ref().map(|overruled| overruled.by.as_str())
    }

    /// A member of the last group has left in good order.
    pub(super) fn leave_group(&mut self, id: &str) {
        self.home.remove(id);
    }

    /// The node joined.
    pub(super) fn join(&mut self, id: &str, claims: Claims) {
        self.claims.insert(id.to_owned(), (claims, None));
        self.unread.push(id.to_owned());
    }

    /// The join of the node was deleted.
    pub(super) fn leave(&mut self, id: &str) {
        self.claims.remove(id);
    }

    /// The watch reported a join. It reports every join since the round was opened, in order.
    pub(super) fn report(&mut self, id: &str, at: Revision) {
        self.reported.0.insert(id.to_owned());
        self.reported.1 = at;
    }

    /// The watch has missed no join since the round was opened, and reports all of them.
    pub(super) fn reports_all(&mut self) {
        self.reports_all = true;
    }

    /// Whether the watch is still to report the join of one of these nodes, which the membership has from a read. Ranks
    /// that were assigned before could not be proved to belong to all that joined ([`cut`](Self::cut)).
    pub(super) fn awaits_reports(&self, joined: &[Candidate]) -> bool {
        self.reports_all && joined.iter().any(|node| !self.reported.0.contains(&node.id))
    }

    /// Reads the claims that came since the last time.
    pub(super) fn read(&mut self, now: Time) {
        for id in self.unread.drain(..) {
            if let Some((_, since)) = self.claims.get_mut(&id) {
                since.get_or_insert(now);
            }
        }
    }

    /// The number of nodes that joined and were members of a group at another server. The round waits for their group as
    /// the quorum demands, and then for nobody else.
    pub(super) fn returned(&self) -> usize {
        let was_member = |claims: &Claims| claims.formed.is_some_and(|group| group.round > 0);
        self.claims.values().filter(|(claims, _)| was_member(claims)).count()
    }

    /// The number of nodes in the latest of these groups; 0 if there is none.
    pub(super) fn last_world(&self) -> usize {
        let groups = self.claims.values().filter_map(|(claims, _)| claims.formed);
        let last = groups.filter(|group| group.round > 0).max();
        last.map_or(0, |group| group.world as usize)
    }

    /// Which nodes certainly are among these members.
    pub(super) fn cut(&self, members: &BTreeMap<String, u32>) -> Cut {
        let (ids, revision) = &self.reported;
        let without = ids.iter().filter(|id| !members.contains_key(*id));
        Cut::new(*revision, without.cloned().collect())
    }

    /// Chooses `max` of the candidates, and tells what a group of them has to wait for. `previous` is the last round of
    /// this history that formed a group, and `known` the last round of any history.
    pub(super) fn choose(
        &self,
        candidates: Vec<Candidate>,
        max: usize,
        (history, previous, known): (RunHistory, u64, u64),
        lease_ttl: Duration,
    ) -> (Vec<Candidate>, Quorum) {
        let home = HomeGroup { round: previous, members: &self.home };
        let claimants = |chosen: &BTreeSet<&str>| -> Vec<Claimant<'_>> {
            let read = self
                .claims
                .iter()
                .filter_map(|(id, (claims, since))| Some((id, claims, (*since)?)));
            read.map(|(id, claims, since)| {
                let chosen = chosen.contains(id.as_str());
                Claimant { id, claims, since, chosen }
            })
            .collect()
        };
        let all = claimants(&BTreeSet::new());
        let overruled = self.overruled.as_ref().map(|overruled| overruled.round);
        let ancestors = Ancestors::of(&all, Some(history), (previous > 0).then_some(home), known)
            .overruled(overruled);
        let standing = |candidate: Candidate| {
            let claims = self.claims.get(&candidate.id);
            Candidate {
                standing: claims.and_then(|(claims, _)| ancestors.standing(claims)),
                ..candidate
            }
        };
        let chosen = select(candidates.into_iter().map(standing).collect(), max);
        let ids = chosen.iter().map(|candidate| candidate.id.as_str()).collect();
        let quorum = ancestors.quorum(&claimants(&ids), lease_ttl);
        (chosen, quorum)
    }
}
