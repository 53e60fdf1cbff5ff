//! Whether enough nodes of the last group have come for a new one, and whether the workers of the last group are gone
//! (rules Y2 and Y4).

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use super::claims::{Claims, ConfirmedRound, GroupClaim};
use super::outlives;
use crate::kv::Time;
use crate::rendezvous::documents::RunHistory;

/// The last group that formed in the history of the server.
#[derive(Debug, Clone, Copy)]
pub struct HomeGroup<'a> {
    /// The round.
    pub round: u64,
    /// The members, without those that have left in good order.
    pub members: &'a BTreeSet<String>,
}

/// A node that joined.
#[derive(Debug, Clone, Copy)]
pub struct Claimant<'a> {
    /// The id of the node.
    pub id: &'a str,
    /// What it remembers.
    pub claims: &'a Claims,
    /// When its claims were read.
    pub since: Time,
    /// Whether it becomes a member of the new group. Other nodes tell what they remember, and do not count.
    pub chosen: bool,
}

/// How many nodes of the last group have come, and how many are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lack {
    /// The round of that group; 0 for the hosts that may serve.
    pub round: u64,
    /// The number of its nodes that have come.
    pub here: usize,
    /// The number that is needed.
    pub needed: usize,
    /// The number of its nodes; 0 if none of them has come.
    pub world: usize,
}

impl Lack {
    fn missing(&self) -> usize {
        self.needed.saturating_sub(self.here)
    }
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { round, here, needed, world } = *self;
        match (round, world) {
            (0, 0) => f.write_str("and none of the hosts that may serve is here"),
            (0, hosts) => write!(
                f,
                "{here} of the {hosts} hosts that may serve are here, and {needed} are needed for the first group"
            ),
            (round, 0) => write!(f, "and no member of the last group, of round {round}, is here"),
            (round, 2) => write!(
                f,
                "and two nodes cannot outvote each other: both nodes of the group of round {round} are needed, and {here} \
                 is here"
            ),
            (round, world) => write!(
                f,
                "{here} of the last group are here, and {needed} are needed, more than half of the {world} that the group of \
                 round {round} had"
            ),
        }
    }
}

/// What a new group has to wait for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quorum {
    /// Too few nodes of the last group have come, or of a round that may have formed a later one.
    pub lack: Option<Lack>,
    /// The same, where an operator has decided that the others are gone.
    pub overruled: Option<Lack>,
    /// Workers of those groups may run until then.
    pub until: Option<Time>,
}

/// The last group that any node remembers, and every later round that may have formed one. Of each, enough nodes must
/// become members of a new group.
#[derive(Debug, Clone)]
pub struct Ancestors<'a> {
    /// The last group, if it belongs to the history of the server.
    home: Option<HomeGroup<'a>>,
    /// The groups of other histories, in order.
    groups: BTreeSet<GroupClaim>,
    /// The latest round that is known to have formed a group, although no node of that group has come.
    unknown: Option<u64>,
    /// The last round of whose group no quorum is needed, as an operator has decided.
    overruled: Option<u64>,
}

impl<'a> Ancestors<'a> {
    /// Finds them by what the nodes remember that joined a round of `history`, whose documents tell which of its own
    /// rounds have formed a group. `known` is the latest group that any node has seen, be it no member of it.
    pub fn of(
        claimants: &[Claimant<'_>],
        history: Option<RunHistory>,
        home: Option<HomeGroup<'a>>,
        known: u64,
    ) -> Self {
        let formed = claimants.iter().filter_map(|one| one.claims.formed).max();
        let home = home.filter(|home| formed.is_none_or(|last| home.round >= last.round));
        let last = home.map(|home| home.round).or_else(|| formed.map(|last| last.round));
        let mut groups = possible(claimants, last.unwrap_or(0));
        groups.retain(|group| Some(group.history) != history);
        groups.extend(formed.filter(|_| home.is_none()));
        let unknown = last.is_none_or(|last| last < known).then_some(known);
        Self { home, groups, unknown, overruled: None }
    }

    /// With the last round of whose group no quorum is needed, as an operator has decided.
    #[must_use]
    pub fn overruled(self, overruled: Option<u64>) -> Self {
        Self { overruled, ..self }
    }

    /// The latest of these groups of other histories that the node was a member of, or may have been. A node with a
    /// later one goes first.
    pub fn standing(&self, claims: &Claims) -> Option<u64> {
        self.groups.iter().rev().find(|group| claims.include(**group)).map(|group| group.round)
    }

    /// What a new group of the chosen nodes has to wait for.
    pub fn quorum(&self, claimants: &[Claimant<'_>], lease_ttl: Duration) -> Quorum {
        let unknown = self.unknown.map(|round| Lack { round, here: 0, needed: 1, world: 0 });
        let home = self.home.map(|home| half(claimants, home));
        let others = self.groups.iter().map(|group| majority(claimants, *group));
        let lacks: Vec<Lack> = unknown.into_iter().chain(home).chain(others).collect();
        let largest = |overruled: bool| {
            let of_it = |lack: &&Lack| (Some(lack.round) <= self.overruled) == overruled;
            let lacks = lacks.iter().filter(of_it).filter(|lack| lack.missing() > 0);
            lacks.min_by_key(|lack| Reverse(lack.missing())).copied()
        };
        let workers = self.groups.iter().filter_map(|group| gone(claimants, *group, lease_ttl));
        Quorum { lack: largest(false), overruled: largest(true), until: workers.max() }
    }
}

/// What is required at the server of the last group. It waits for the leases of that group by itself.
fn half(claimants: &[Claimant<'_>], home: HomeGroup<'_>) -> Lack {
    let here = claimants.iter().filter(|one| one.chosen && home.members.contains(one.id)).count();
    let world = home.members.len();
    Lack { round: home.round, here, needed: world.div_ceil(2), world }
}

/// What is required at another server than that of the group.
fn majority(claimants: &[Claimant<'_>], group: GroupClaim) -> Lack {
    let here = claimants.iter().filter(|one| one.chosen && one.claims.include(group)).count();
    let world = group.world as usize;
    Lack { round: group.round, here, needed: world / 2 + 1, world }
}

/// When the workers of the group of another server are gone; none if they are.
fn gone(claimants: &[Claimant<'_>], group: GroupClaim, lease_ttl: Duration) -> Option<Time> {
    let here = claimants.iter().filter(|one| one.claims.include(group)).count();
    // The hosts of round 0 have no workers.
    if group.round == 0 || here + dead(claimants, group) >= group.world as usize {
        return None;
    }
    let heard = claimants.iter().filter_map(|one| {
        let silent = Duration::from_millis(one.claims.silent_ms?);
        Some(one.since.saturating_sub(silent))
    });
    heard.max().map(|heard| heard.saturating_add(outlives(lease_ttl)))
}

/// The rounds after the last group that may have formed a group.
///
/// A group has at most one successor, so a round that follows an earlier group than the last one has formed none.
fn possible(claimants: &[Claimant<'_>], last: u64) -> BTreeSet<GroupClaim> {
    let is_open = |confirmed: &&ConfirmedRound| {
        let refutes = |one: &Claimant<'_>| {
            one.claims.witnessed.iter().any(|seen| seen.refutes(one.id, confirmed))
        };
        confirmed.group.round > last && confirmed.base >= last && !claimants.iter().any(refutes)
    };
    let confirmed = claimants.iter().flat_map(|one| &one.claims.confirmed);
    confirmed.filter(is_open).map(|confirmed| confirmed.group).collect()
}

/// The number of members of the group that others have proved dead, and that have not joined.
fn dead(claimants: &[Claimant<'_>], group: GroupClaim) -> usize {
    let of_it = claimants.iter().filter(|one| one.claims.formed == Some(group));
    let dead: BTreeSet<&String> = of_it.flat_map(|one| &one.claims.dead).collect();
    dead.iter().filter(|id| claimants.iter().all(|one| one.id != ***id)).count()
}

#[cfg(test)]
mod tests;
