//! One group at a time (L1): no worker of a group lives, on any node, when a worker of a later group starts.
//!
//! It can become false only when workers start, and when those of a suspended node resume, so it is checked then. The
//! workers of a node that is suspended as a whole do not run, and its guard checks its deadline before they resume.

use super::events::{Who, World};
use super::inspector::GroupId;
use super::invariants::{Verdict, violation};

impl World {
    /// The workers of a node start or resume.
    pub(crate) fn check_running(&mut self, who: Who) -> Verdict {
        let Some(own) = self.top_workers(who) else { return Ok(()) };
        for other in 0..self.nodes.len() {
            if other == who || self.nodes[other].has_still_workers() {
                continue;
            }
            let Some(theirs) = self.top_workers(other).filter(|theirs| *theirs != own) else {
                continue;
            };
            let name = |who: Who, group: GroupId| {
                let (id, round) = (&self.nodes[who].id, self.inspector.group(group).round);
                let rank = self.inspector.group(group).ranks.get(id);
                format!("{id} (rank {rank:?} of round {round}, group {group})")
            };
            let (mine, theirs) = (name(who, own), name(other, theirs));
            return violation("L1", format!("{mine} has workers beside those of {theirs}"));
        }
        Ok(())
    }
}
