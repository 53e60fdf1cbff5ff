//! What a node remembers of groups, and brings along wherever it joins (rule Y1).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::Succession;
use crate::kv::{Revision, Time};
use crate::rendezvous::documents::{Active, Rounds, RunHistory, is_default};

/// Dead nodes that a claim names.
const MOST_DEAD: usize = 64;

/// Nodes without a rank that a cut names.
const MOST_WITHOUT: usize = 64;

/// Histories of which a node remembers the last rounds. An earlier one is forgotten, which costs no safety.
const MOST_HISTORIES: usize = 8;

/// Rounds of other histories that a node has tried to confirm without learning what became of them. With more, it
/// confirms no further round. One failure of a server adds at most one.
const MOST_CONFIRMED: usize = 64;

/// A group, or a round that may have formed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GroupClaim {
    /// The round.
    pub round: u64,
    /// The history that the group belongs to.
    pub history: RunHistory,
    /// The number of nodes in the group.
    pub world: u32,
}

impl GroupClaim {
    /// The group of round 0: the hosts that may serve.
    pub(in crate::rendezvous) fn of_hosts(hosts: u32) -> Self {
        Self { round: 0, history: RunHistory::new(0), world: hosts }
    }
}

/// The nodes that certainly have a rank in a frozen round: all whose joins up to a revision were executed, but for some.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Cut {
    /// The revision; 0 if it is certain of no node.
    pub revision: Revision,
    /// The ids of nodes that joined by then, and have no rank: they have left since, or the group has no room for them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub without: Vec<String>,
}

impl Cut {
    /// The cut at this revision. With many nodes that have no rank, it is certain of none.
    pub(in crate::rendezvous) fn new(revision: Revision, without: Vec<String>) -> Self {
        if without.len() > MOST_WITHOUT { Self::default() } else { Self { revision, without } }
    }

    /// Whether the node certainly has a rank, whose join was executed at this revision.
    fn includes(&self, id: &str, joined: Revision) -> bool {
        let by_then = joined > 0 && joined <= self.revision;
        by_then && self.without.iter().all(|without| without != id)
    }
}

/// A round that a node has tried to confirm, and that may have formed a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfirmedRound {
    /// The group, if it has formed.
    #[serde(flatten)]
    pub group: GroupClaim,
    /// The round of the group that it follows.
    pub base: u64,
    /// Which nodes certainly have a rank.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cut: Cut,
    /// Whether the node certainly has a rank.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ranked: bool,
}

/// What a node has seen of the rounds of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Witness {
    /// The history.
    pub history: RunHistory,
    /// The last round that it saw.
    pub round: u64,
    /// The last round that had formed a group by then.
    pub formed: u64,
    /// When the node first joined the last round, if it has not tried to confirm it; else 0.
    #[serde(default, skip_serializing_if = "is_default")]
    pub joined: Revision,
}

impl Witness {
    /// Whether this, from the node `id`, proves that the round has formed no group, and never will: a later round began
    /// without it, or the node has a rank and does not confirm it.
    pub(super) fn refutes(&self, id: &str, confirmed: &ConfirmedRound) -> bool {
        let Self { history, round, formed, joined } = *self;
        let group = confirmed.group;
        let abandoned = round > group.round && formed < group.round;
        let unconfirmed = round == group.round && confirmed.cut.includes(id, joined);
        history == group.history && (abandoned || unconfirmed)
    }
}

/// What a node that joins remembers of groups.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Claims {
    /// The last group that the node was a member of, unless it has left it since.
    #[serde(default, skip_serializing_if = "is_default")]
    pub formed: Option<GroupClaim>,
    /// Later rounds that the node has tried to confirm.
    #[serde(default, skip_serializing_if = "is_default")]
    pub confirmed: Vec<ConfirmedRound>,
    /// The last rounds of other histories.
    #[serde(default, skip_serializing_if = "is_default")]
    pub witnessed: Vec<Witness>,
    /// The time since the last response of the server of another history, in milliseconds; none without such a response.
    #[serde(default, skip_serializing_if = "is_default")]
    pub silent_ms: Option<u64>,
    /// Members of the last group that the node has proved dead.
    #[serde(default, skip_serializing_if = "is_default")]
    pub dead: Vec<String>,
}

impl Claims {
    /// Whether these claims, which a node has now, have nothing new for a coordinator that has read `told`. Time goes on
    /// in any case.
    pub(in crate::rendezvous) fn tells_no_more_than(&self, told: &Self) -> bool {
        let Self { formed, confirmed, witnessed, silent_ms: _, dead } = self;
        (formed, confirmed, witnessed, dead)
            == (&told.formed, &told.confirmed, &told.witnessed, &told.dead)
    }

    /// Whether the node is certainly a member of the group of this claim, if that group has formed.
    pub fn include(&self, group: GroupClaim) -> bool {
        let confirmed = |one: &ConfirmedRound| one.group == group && one.ranked;
        self.formed == Some(group) || self.confirmed.iter().any(confirmed)
    }
}

/// A node's memory of groups.
#[derive(Debug, Default)]
pub(in crate::rendezvous) struct Memory {
    formed: Option<GroupClaim>,
    confirmed: Vec<ConfirmedRound>,
    /// The last rounds of each history; that of the present history is the last one.
    witnessed: Vec<Witness>,
    /// The round that the node joined last in the present history, and when it did so first.
    joined: Option<(u64, Revision)>,
    /// When the server of the present history last answered.
    heard: Option<Time>,
    /// When the server of any other history last answered.
    heard_before: Option<Time>,
    dead: BTreeSet<String>,
}

impl Memory {
    pub(in crate::rendezvous) fn new(succession: Option<Succession>) -> Self {
        let voter = succession.filter(|succession| succession.votes);
        let formed = voter.map(|succession| GroupClaim::of_hosts(succession.hosts));
        Self { formed, ..Self::default() }
    }

    /// The server answered at this time.
    pub(in crate::rendezvous) fn hears(&mut self, at: Time) {
        self.heard = self.heard.max(Some(at));
    }

    /// The history that the node observed is lost to it. What comes next belongs to another one.
    pub(in crate::rendezvous) fn moves_on(&mut self) {
        self.heard_before = self.heard_before.max(self.heard.take());
        self.joined = None;
    }

    /// The server executed the node's join of this round at this revision. A node that joins again, because it has learned
    /// more, has been there since the first time.
    pub(in crate::rendezvous) fn joins(&mut self, round: u64, at: Revision) {
        let before = self.joined.filter(|(joined, _)| *joined == round);
        self.joined = before.or(Some((round, at)));
    }

    /// Whether the node may confirm a round. It must not forget what it has confirmed.
    pub(in crate::rendezvous) fn may_confirm(&self) -> bool {
        self.confirmed.len() < MOST_CONFIRMED
    }

    /// The node `id` is about to confirm its rank. From here on the group may form, whether or not the node learns of it.
    pub(in crate::rendezvous) fn confirms(&mut self, id: &str, frozen: &Active) {
        let group =
            GroupClaim { round: frozen.round, history: frozen.history, world: frozen.world };
        if self.confirmed.iter().any(|one| one.group == group) {
            return;
        }
        let joined = self.joined.take_if(|(round, _)| *round == frozen.round);
        let ranked = joined.is_some_and(|(_, at)| frozen.cut.includes(id, at));
        let base = frozen.previous.max(frozen.outlived);
        self.confirmed.push(ConfirmedRound { group, base, cut: frozen.cut.clone(), ranked });
        // Even if it was seen before that the node joined this round.
        for seen in self.witnessed.iter_mut().filter(|seen| seen.history == frozen.history) {
            seen.joined = 0;
        }
    }

    /// The server told whether the node has a rank in a round that it tried to confirm.
    pub(in crate::rendezvous) fn is_ranked(
        &mut self,
        round: u64,
        history: RunHistory,
        ranked: bool,
    ) {
        let is_it = |one: &ConfirmedRound| (one.group.round, one.group.history) == (round, history);
        self.confirmed.retain(|one| ranked || !is_it(one));
        for one in self.confirmed.iter_mut().filter(|one| is_it(one)) {
            one.ranked = true;
        }
    }

    /// The group has formed, with this node as a member.
    pub(in crate::rendezvous) fn forms(&mut self, group: GroupClaim) {
        self.formed = Some(group);
        self.confirmed.clear();
        self.dead.clear();
    }

    /// The node leaves in good order, at the server of this history. It remembers groups of other histories: their
    /// servers do not know that it left.
    pub(in crate::rendezvous) fn leaves(&mut self, history: Option<RunHistory>) {
        self.formed.take_if(|group| Some(group.history) == history);
        self.confirmed.retain(|one| Some(one.group.history) != history);
    }

    /// A member of the group of this round is dead.
    pub(in crate::rendezvous) fn proves_dead(&mut self, round: u64, node: String) {
        if self.formed.is_some_and(|group| group.round == round) && self.dead.len() < MOST_DEAD {
            self.dead.insert(node);
        }
    }

    /// The members of the last group that the node has proved dead.
    pub(in crate::rendezvous) fn dead(&self) -> &BTreeSet<String> {
        &self.dead
    }

    /// The round of the last group that the node was a member of, in this history.
    pub(in crate::rendezvous) fn member_in(&self, history: Option<RunHistory>) -> Option<u64> {
        self.formed.filter(|group| Some(group.history) == history).map(|group| group.round)
    }

    /// The node has seen these documents of this history.
    pub(in crate::rendezvous) fn sees(&mut self, history: RunHistory, rounds: &Rounds) {
        let Rounds { round, formed, .. } = *rounds;
        let joined = self.joined.filter(|(joined, _)| *joined == round).map_or(0, |(_, at)| at);
        let seen = Witness { history, round, formed, joined };
        if self.witnessed.last() != Some(&seen) {
            self.witnessed.retain(|one| one.history != history);
            self.witnessed.push(seen);
            if self.witnessed.len() > MOST_HISTORIES {
                self.witnessed.remove(0);
            }
        }
        let of_it = |one: &ConfirmedRound| one.group.history == history;
        let has_formed = |one: &ConfirmedRound| of_it(one) && one.group.round == formed;
        if let Some(group) = self.confirmed.iter().find(|one| has_formed(one) && one.ranked) {
            return self.forms(group.group);
        }
        self.confirmed.retain(|one| {
            let later = round.max(formed) > one.group.round;
            !(of_it(one) && later && formed != one.group.round)
        });
    }

    /// The latest round of which the node knows that it formed a group, or may have.
    pub(in crate::rendezvous) fn round(&self) -> u64 {
        let confirmed = self.confirmed.iter().map(|one| one.group.round);
        let seen = self.witnessed.iter().map(|seen| seen.formed);
        confirmed.chain(seen).chain(self.formed.map(|group| group.round)).max().unwrap_or(0)
    }

    /// What the node tells where it joins, in this history.
    pub(in crate::rendezvous) fn claims(&self, now: Time, history: Option<RunHistory>) -> Claims {
        let silent = self.heard_before.map(|heard| now.saturating_sub(heard).as_millis());
        let other = |seen: &&Witness| Some(seen.history) != history;
        Claims {
            formed: self.formed,
            confirmed: self.confirmed.clone(),
            witnessed: self.witnessed.iter().filter(other).copied().collect(),
            silent_ms: silent.map(|silent| u64::try_from(silent).unwrap_or(u64::MAX)),
            dead: self.dead.iter().cloned().collect(),
        }
    }
}

#[cfg(test)]
mod tests;
