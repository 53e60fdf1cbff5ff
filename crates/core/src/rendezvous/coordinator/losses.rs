//! How the losses of a group are known: lost leases, reports of peers, and proofs.

use std::collections::BTreeSet;

use super::Coordinator;
use super::membership::RoundMembership;
use crate::rendezvous::documents::{Active, PROVED_DEAD, Status};

/// Lost nodes that are named; more are only counted.
pub(in crate::rendezvous) const MOST_NAMED: usize = 16;

/// Nodes that the coordinator's own node has proved dead, members of the group of this round.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct OwnProofs {
    round: u64,
    dead: BTreeSet<String>,
}

impl Coordinator {
    /// The coordinator's own node has proved that these members of the group of this round are dead.
    pub(in crate::rendezvous) fn proves_dead(&mut self, round: u64, dead: &BTreeSet<String>) {
        if self.proofs.round != round || self.proofs.dead.len() != dead.len() {
            self.proofs = OwnProofs { round, dead: dead.clone() };
        }
    }

    /// The members of the last group that are proved dead, by this node or by those that have confirmed, for the next
    /// document of a round without a group.
    pub(super) fn proved_dead(&self, active: &Active) -> Vec<String> {
        let mut proved: BTreeSet<&String> = active.proved_dead.iter().collect();
        if active.status != Status::Final && active.previous > 0 {
            proved.extend(self.membership().into_iter().flat_map(RoundMembership::proved_dead));
            proved.extend(self.proofs_of(active.previous));
        }
        proved.into_iter().take(MOST_NAMED).cloned().collect()
    }

    fn proofs_of(&self, round: u64) -> impl Iterator<Item = &String> {
        self.proofs.dead.iter().filter(move |_| self.proofs.round == round)
    }

    /// How the loss of a member of the group is known.
    pub(super) fn lost_because(&self, membership: &RoundMembership, id: &str) -> String {
        let is_proved = self.proofs_of(self.round).any(|dead| dead == id);
        let because = if is_proved { PROVED_DEAD } else { membership.lost_because(id) };
        because.to_owned()
    }

    /// The members of the group that are lost.
    pub(super) fn lost(&self, membership: &RoundMembership) -> Vec<String> {
        self.ranks.keys().filter(|id| membership.is_lost(id)).cloned().collect()
    }
}

/// The first names, and how many more there are.
pub(in crate::rendezvous) fn some_of(names: &[String]) -> String {
    let some = names.iter().take(MOST_NAMED).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MOST_NAMED) {
        0 => some,
        more => format!("{some} and {more} more"),
    }
}
