//! Who gets in when there are too many, and who gets which rank.
//!
//! Pure functions of the candidates, so every node that computes them gets the same answer.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::documents::RunHistory;

/// How ranks are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RankPolicy {
    /// Who had a rank keeps it where it can; a newcomer takes the rank of a node that is gone, and newcomers are in
    /// the order of [`RankPolicy::Hint`].
    #[default]
    Stable,
    /// In the order of the nodes' own hints (`node_rank`), and without them in the natural order of their names, which
    /// begin with those of their hosts.
    Hint,
    /// In the order of the nodes' places (`topology`), so that neighbours have neighbouring ranks.
    Topology,
    /// In the order in which the nodes came.
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

/// There is no rank policy of this name.
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

/// The place that a node had in the last group it was in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PreviousAssignment {
    /// The history that the group belongs to.
    pub history: RunHistory,
    /// The round.
    pub round: u64,
    /// Its rank there.
    pub rank: u32,
    /// How many nodes the group had.
    pub world: u32,
    /// The node held its lease until it found that the server had lost this history. So no later group had formed.
    #[serde(default)]
    pub held: bool,
}

/// A node that would like to be in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Candidate {
    /// Its id, which begins with the name of its host.
    pub id: String,
    /// Smaller for those who came earlier.
    pub arrived: i64,
    /// The rank that it would like to have.
    pub hint: Option<u32>,
    /// Where it stands: a path such as `rack2/node11`.
    pub topology: Option<String>,
    /// Its place in the last group that it was in.
    pub seat: Option<PreviousAssignment>,
}

impl Candidate {
    /// Who came back from the last group goes before everyone else, and a later group before an
    /// earlier one; among equals, who came first.
    fn claim(&self) -> (std::cmp::Reverse<u64>, i64, &str) {
        let round = self.seat.map_or(0, |seat| seat.round);
        (std::cmp::Reverse(round), self.arrived, &self.id)
    }

    /// Hints before none, and then by name, so that the same nodes have the same ranks whoever comes first.
    fn by_hint(&self, other: &Self) -> Ordering {
        let hint = |node: &Self| (node.hint.is_none(), node.hint);
        let by_name = || natural(&self.id, &other.id).then_with(|| self.id.cmp(&other.id));
        hint(self).cmp(&hint(other)).then_with(by_name)
    }
}

/// The `max` candidates that get in; returning members before all others, then who came first.
pub fn select(mut candidates: Vec<Candidate>, max: usize) -> Vec<Candidate> {
    candidates.sort_by(|a, b| a.claim().cmp(&b.claim()));
    candidates.truncate(max);
    candidates
}

/// Gives each member its rank: 0 to the number of members, each once.
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
            let place = |node: &&Candidate| node.topology.clone().unwrap_or_default();
            let placed = a.topology.is_none().cmp(&b.topology.is_none());
            let by_place = || natural(&place(a), &place(b));
            placed.then_with(by_place).then_with(|| a.by_hint(b))
        }),
        RankPolicy::Arrival => order.sort_by_key(|node| (node.arrived, &node.id)),
    }
    order.into_iter().map(|node| node.id.clone()).zip(0..).collect()
}

/// Seats first, then the free ranks that newcomers hint at, then what is left.
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
    order.retain(|node| !node.seat.is_some_and(|seat| take(node, seat.rank)));
    order.sort_by(|a, b| a.by_hint(b));
    order.retain(|node| !node.hint.is_some_and(|hint| take(node, hint)));
    let mut rank = 0;
    for node in order {
        // As many nodes as ranks, so there is always another one.
        while !take(node, rank) {
            rank += 1;
        }
    }
    ranks
}

/// Compares as people do: `rack2` before `rack10`.
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
