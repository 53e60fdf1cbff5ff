//! The selection of members when too many nodes have joined, and the assignment of ranks.
//!
//! Both are pure functions of the candidates, so every node computes the same result.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::documents::{RankHints, RunHistory};

/// How ranks are assigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RankPolicy {
    /// A returning member keeps its rank where possible; a new node takes the rank of a lost one, and new nodes are in the
    /// order of [`RankPolicy::Hint`].
    #[default]
    Stable,
    /// In the order of the nodes' own hints (`node_rank`), and without hints in the natural order of their ids, which
    /// begin with the names of their hosts.
    Hint,
    /// In the order of the nodes' places (`topology`), so that neighbours have neighbouring ranks.
    Topology,
    /// In the order in which the nodes announced themselves.
    Arrival,
}

/// The names of the policies, as users write them.
pub const POLICIES: [(&str, RankPolicy); 4] = [
    ("stable", RankPolicy::Stable),
    ("hint", RankPolicy::Hint),
    ("topology", RankPolicy::Topology),
    ("arrival", RankPolicy::Arrival),
];

impl fmt::Display for RankPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = POLICIES.iter().find(|(_, policy)| policy == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

/// The error that no rank policy has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rank_policy {0:?}: give stable, hint, topology or arrival")]
pub struct UnknownRankPolicy(pub String);

impl FromStr for RankPolicy {
    type Err = UnknownRankPolicy;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = POLICIES.iter().find(|(name, _)| text.trim().eq_ignore_ascii_case(name));
        found.map(|(_, policy)| *policy).ok_or_else(|| UnknownRankPolicy(text.to_owned()))
    }
}

/// A node's assignment in the last group that it was a member of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreviousAssignment {
    /// The history that the group belongs to.
    pub history: RunHistory,
    /// The round.
    pub round: u64,
    /// The rank of the node in that group.
    pub rank: u32,
    /// The number of nodes in that group.
    pub world: u32,
    /// The node held its lease until it observed that the server had lost the history, so no later group had formed.
    #[serde(default)]
    pub held: bool,
}

/// A node that joined and may become a member.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Candidate {
    /// The id of the node, which begins with the name of its host.
    pub id: String,
    /// When the node announced itself: smaller is earlier.
    pub arrived: i64,
    /// What the rank policies consider.
    pub rank_hints: RankHints,
    /// The node's assignment in the last group that it was a member of.
    pub previous: Option<PreviousAssignment>,
    /// The latest group of another server of which a new group needs a quorum, if the node was a member of it.
    pub standing: Option<u64>,
}

impl Candidate {
    /// The order of selection: members of a later group before members of an earlier one and new nodes, then by arrival.
    fn claim(&self) -> (std::cmp::Reverse<(Option<u64>, u64)>, i64, &str) {
        let round = self.previous.map_or(0, |last| last.round);
        (std::cmp::Reverse((self.standing, round)), self.arrived, &self.id)
    }

    /// Nodes with hints first, and then by id, so that the same nodes have the same ranks in whatever order they arrive.
    fn by_hint(&self, other: &Self) -> Ordering {
        let hint = |node: &Self| (node.rank_hints.hint.is_none(), node.rank_hints.hint);
        let by_name = || natural(&self.id, &other.id).then_with(|| self.id.cmp(&other.id));
        hint(self).cmp(&hint(other)).then_with(by_name)
    }
}

/// The `max` candidates that become members: returning members first, then by arrival.
pub fn select(mut candidates: Vec<Candidate>, max: usize) -> Vec<Candidate> {
    candidates.sort_by(|a, b| a.claim().cmp(&b.claim()));
    candidates.truncate(max);
    candidates
}

/// Assigns the ranks from 0 to the number of members, each once.
///
/// ```
/// use rallypoint_core::rendezvous::ranks::{Candidate, RankPolicy, assign};
/// let node = |id: &str, arrived| Candidate { id: id.into(), arrived, ..Candidate::default() };
/// let ranks = assign(RankPolicy::Arrival, &[node("b", 7), node("a", 9)]);
/// assert_eq!((ranks["b"], ranks["a"]), (0, 1));
/// ```
pub fn assign(policy: RankPolicy, members: &[Candidate]) -> BTreeMap<String, u32> {
    let mut order: Vec<&Candidate> = members.iter().collect();
    match policy {
        RankPolicy::Stable => return stable(members),
        RankPolicy::Hint => order.sort_by(|a, b| a.by_hint(b)),
        RankPolicy::Topology => order.sort_by(|a, b| {
            let topology = |node: &Candidate| node.rank_hints.topology.clone();
            let (a_place, b_place) = (topology(a), topology(b));
            let placed = a_place.is_none().cmp(&b_place.is_none());
            let by_place = || natural(&a_place.unwrap_or_default(), &b_place.unwrap_or_default());
            placed.then_with(by_place).then_with(|| a.by_hint(b))
        }),
        RankPolicy::Arrival => order.sort_by_key(|node| (node.arrived, &node.id)),
    }
    order.into_iter().map(|node| node.id.clone()).zip(0..).collect()
}

/// Assigns previous ranks first, then the free ranks that new nodes want, then the remaining ones.
fn stable(members: &[Candidate]) -> BTreeMap<String, u32> {
    let mut free: Vec<bool> = vec![true; members.len()];
    let mut ranks = BTreeMap::new();
    let mut take = |node: &Candidate, rank: u32| {
        let Some(slot) = free.get_mut(rank as usize).filter(|slot| **slot) else { return false };
        *slot = false;
        ranks.insert(node.id.clone(), rank);
        true
    };
    let mut order: Vec<&Candidate> = members.iter().collect();
    order.sort_by(|a, b| a.claim().cmp(&b.claim()));
    order.retain(|node| !node.previous.is_some_and(|last| take(node, last.rank)));
    order.sort_by(|a, b| a.by_hint(b));
    order.retain(|node| !node.rank_hints.hint.is_some_and(|hint| take(node, hint)));
    let mut rank = 0;
    for node in order {
        // There are as many ranks as nodes, so a free rank exists.
        while !take(node, rank) {
            rank += 1;
        }
    }
    ranks
}

/// Natural order: `rack2` before `rack10`.
fn natural(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a, b);
    loop {
        let (digits_a, digits_b) = (leading_digits(a), leading_digits(b));
        if digits_a > 0 && digits_b > 0 {
            let number = |text: &str| text.trim_start_matches('0').to_owned();
            let (x, y) = (number(&a[..digits_a]), number(&b[..digits_b]));
            let order = x.len().cmp(&y.len()).then_with(|| x.cmp(&y));
            if order != Ordering::Equal {
                return order;
            }
            (a, b) = (&a[digits_a..], &b[digits_b..]);
            continue;
        }
        let (mut chars_a, mut chars_b) = (a.chars(), b.chars());
        match (chars_a.next(), chars_b.next()) {
            (None, None) => return Ordering::Equal,
            (x, y) if x == y => (a, b) = (chars_a.as_str(), chars_b.as_str()),
            (x, y) => return x.cmp(&y),
        }
    }
}

fn leading_digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

#[cfg(test)]
mod tests;
