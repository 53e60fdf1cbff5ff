//! The nodes of a round in sentences: which are here, and which are missing.

use std::collections::{BTreeMap, BTreeSet};

use super::RoundMembership;

/// Nodes that are named; more are only counted.
const MOST_NAMED: usize = 8;

impl RoundMembership {
    /// The first members that have no connection to rank 0's store, and why.
    pub(in crate::rendezvous::coordinator) fn unreached(&self) -> Vec<String> {
        let says = |(id, why): (&String, &String)| format!("{id} has {why}");
        self.unreached.iter().take(MOST_NAMED).map(says).collect()
    }

    /// The unresolved members of the last group, after a semicolon: the ids of the first, and the number of further ones.
    pub(in crate::rendezvous::coordinator) fn names_of_unresolved(&self) -> String {
        some("waiting for", &mut self.unresolved.iter())
    }

    /// The nodes that joined, after a semicolon, if they are few enough to be named; the live nodes that have yet to
    /// join; a rank that two nodes want; and, if all of them want a rank, the ranks below `nodes` that none wants.
    pub(in crate::rendezvous::coordinator) fn names(&self, nodes: usize) -> String {
        let here: Vec<&str> = self.joined.keys().map(String::as_str).collect();
        let here = match here.len() {
            1..=MOST_NAMED => format!("; here: {}", here.join(", ")),
            _ => String::new(),
        };
        let to_come = &mut self.members_to_come.iter().chain(&self.others_to_come);
        let here =
            here + &some("yet to come", to_come) + &self.rank_of_several().unwrap_or_default();
        let hints: Option<BTreeSet<u32>> =
            self.joined.values().map(|entry| entry.candidate.rank_hints.hint).collect();
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

    /// The first rank that more than one node wants, with two of those nodes.
    fn rank_of_several(&self) -> Option<String> {
        let mut first: BTreeMap<u32, &str> = BTreeMap::new();
        self.joined.iter().find_map(|(id, entry)| {
            let rank = entry.candidate.rank_hints.hint?;
            let other = first.insert(rank, id)?;
            Some(format!("; node rank {rank} was given to both {other} and {id}"))
        })
    }
}

/// The first names after a semicolon, and the number of further names; empty without names.
fn some(what: &str, names: &mut dyn Iterator<Item = &String>) -> String {
    let named: Vec<&str> = names.take(MOST_NAMED).map(String::as_str).collect();
    match (named.is_empty(), names.count()) {
        (true, _) => String::new(),
        (false, 0) => format!("; {what}: {}", named.join(", ")),
        (false, more) => format!("; {what}: {} and {more} more", named.join(", ")),
    }
}
