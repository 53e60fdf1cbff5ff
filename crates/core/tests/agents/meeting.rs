//! The model of the rendezvous: a group forms when everyone who is there has come.

use std::collections::BTreeSet;

use rallypoint_core::agent::{
    Answer, Change, Closed, Closing, Group as Formed, Input, NoGroup, Verdict as Counted,
};
use rallypoint_core::rendezvous::document::Address;

use crate::plan::Broken;
use crate::world::{Happening, Who, World};

/// The last group that formed.
#[derive(Debug)]
pub(crate) struct Group {
    round: u64,
    members: BTreeSet<Who>,
    at_barrier: BTreeSet<Who>,
    /// A member has gone to the next round.
    over: bool,
}

impl World {
    /// The members of this round's group that are still there, but for one.
    fn others(&self, who: Who, round: u64) -> Vec<Who> {
        let group = self.group.as_ref().filter(|group| group.round == round);
        let members = group.map(|group| group.members.clone()).unwrap_or_default();
        members
            .into_iter()
            .filter(|other| *other != who && self.nodes[*other].takes_part())
            .collect()
    }

    fn tell_others(&mut self, who: Who, round: u64, change: &Change) {
        for other in self.others(who, round) {
            self.tell(other, Input::Changed { round, change: change.clone() });
        }
    }

    pub(crate) fn meets(&mut self, who: Who) {
        self.visits += 1;
        let (visit, now) = (self.visits, self.now);
        let node = &mut self.nodes[who];
        node.meeting = Some(visit);
        node.fenced = None;
        let away = node.cut_until.saturating_sub(now);
        let delay = self.random.between(0, self.plan.delay);
        self.after(away + delay, Happening::Joins(who, visit));
        self.after(self.plan.patience, Happening::GivesUp(who, visit));
    }

    pub(crate) fn joins(&mut self, who: Who, visit: u64) {
        if !self.nodes[who].takes_part() || self.nodes[who].meeting != Some(visit) {
            return;
        }
        if let Some(closed) = self.closed.clone() {
            return self.turned_away(who, NoGroup::Closed(closed));
        }
        self.nodes[who].joined = true;
        self.nodes[who].leased_until = None;
        if let Some(group) = self.group.as_mut().filter(|group| !group.over) {
            let (round, size) = (group.round, group.members.len());
            if group.members.contains(&who) {
                group.over = true;
                self.tell_others(who, round, &Change::GoneAhead("a member is back".into()));
            } else if size < self.plan.max {
                self.tell_others(who, round, &Change::NodesWaiting(1));
            } else {
                self.nodes[who].spare = true;
            }
        }
        self.after(0, Happening::Forms);
    }

    fn turned_away(&mut self, who: Who, no_group: NoGroup) {
        self.nodes[who].meeting = None;
        self.nodes[who].joined = false;
        self.tell(who, Input::NotFormed(no_group));
    }

    pub(crate) fn gives_up(&mut self, who: Who, visit: u64) {
        if !self.nodes[who].takes_part() || self.nodes[who].meeting != Some(visit) {
            return;
        }
        let group = self.group.as_ref().filter(|group| !group.over);
        let round = group.map_or(0, |group| group.round);
        if self.nodes[who].spare && !self.others(who, round).is_empty() {
            return self.after(self.plan.patience, Happening::GivesUp(who, visit));
        }
        self.turned_away(who, NoGroup::Failed("time-out".into()));
        self.after(0, Happening::Forms);
    }

    pub(crate) fn forms(&mut self) {
        let now = self.now;
        let there: Vec<Who> = (0..self.nodes.len())
            .filter(|who| {
                let node = &self.nodes[*who];
                let has_session = node.alive && node.leased_until.is_none();
                node.outcome.is_none()
                    && (has_session || node.leased_until.is_some_and(|until| until > now))
            })
            .collect();
        let all_came = there.iter().all(|who| self.nodes[*who].joined);
        if self.closed.is_some() || !all_came || there.len() < self.plan.min {
            return;
        }
        let last = self.group.take().map(|group| group.members).unwrap_or_default();
        let mut order = there;
        order.sort_by_key(|who| !last.contains(who));
        self.round += 1;
        let members: BTreeSet<Who> = order.iter().copied().take(self.plan.max).collect();
        let nodes = members.len() as u32;
        for (rank, who) in (0..).zip(&members) {
            let store = Address { host: "host".into(), port: 1 };
            let restarts = self.budget.used_before(self.round);
            let formed = Formed { round: self.round, rank, nodes, restarts, store };
            self.nodes[*who].meeting = None;
            self.nodes[*who].joined = false;
            self.nodes[*who].spare = false;
            self.tell(*who, Input::Formed(formed));
        }
        for who in order.into_iter().filter(|who| !members.contains(who)) {
            self.nodes[who].spare = true;
        }
        let at_barrier = BTreeSet::new();
        self.group = Some(Group { round: self.round, members, at_barrier, over: false });
    }

    pub(crate) fn lost(&mut self, who: Who, round: u64) {
        // Once a member has gone ahead, nobody counts the members of the round any more.
        let over = self.group.as_ref().is_none_or(|group| group.over);
        if !over && self.plan.broken != Broken::LosesNews {
            self.tell_others(who, round, &Change::PeerLost(vec![format!("node {who}")]));
        }
        self.after(0, Happening::Forms);
    }

    /// The round of the group that it is in, or 0.
    pub(crate) fn round_of(&self, who: Who) -> u64 {
        let group = self.group.as_ref().filter(|group| group.members.contains(&who));
        group.map_or(0, |group| group.round)
    }

    /// A node asks the budget, and the others of its group hear what was counted.
    pub(crate) fn charges(&mut self, who: Who, round: u64, blame: &str) {
        let max = match self.plan.broken {
            Broken::GrantsEveryRestart => u32::MAX,
            _ => self.plan.max_restarts,
        };
        let (budget, answer) = self.budget.charge(round, max, blame);
        let counted = budget.last.as_ref().is_some_and(|last| last.verdict == Counted::Counted);
        let news = counted && answer == Answer::Granted && budget != self.budget;
        self.budget = budget;
        if news {
            self.tell_others(who, round, &Change::PeerFailed(blame.to_owned()));
        }
        self.tell(who, Input::Counted { round, answer });
    }

    pub(crate) fn reaches_barrier(&mut self, who: Who, round: u64) {
        let Some(group) = self.group.as_mut().filter(|group| group.round == round) else { return };
        group.at_barrier.insert(who);
        if group.at_barrier == group.members {
            for member in group.members.clone() {
                self.tell(member, Input::BarrierPassed { round });
            }
        }
    }

    pub(crate) fn closes(&mut self, by: String, closing: Closing) {
        if self.closed.is_some() {
            return;
        }
        let closed = Closed { by, closing };
        self.closed = Some(closed.clone());
        for who in 0..self.nodes.len() {
            let node = &self.nodes[who];
            if node.joined && node.spare {
                self.turned_away(who, NoGroup::NotNeeded(closed.to_string()));
            } else if node.joined {
                self.turned_away(who, NoGroup::Closed(closed.clone()));
            } else {
                self.tell(who, Input::Closed(closed.clone()));
            }
        }
    }

    pub(crate) fn leaves(&mut self, who: Who) {
        self.nodes[who].meeting = None;
        self.nodes[who].joined = false;
        let delay = self.random.between(0, self.plan.delay);
        let round = self.round_of(who);
        if self.closed.is_none() {
            self.after(delay, Happening::Lost(who, round));
        }
    }
}
