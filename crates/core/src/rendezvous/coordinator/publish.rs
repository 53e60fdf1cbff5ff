//! What a running group is told of late and lost nodes.

use super::{Coordinator, CoordinatorStep, MOST_NAMED, RoundStage};
use crate::kv::Time;
use crate::rendezvous::documents::Active;
use crate::rendezvous::messages::{NodeConfig, Purpose};
use crate::rendezvous::txn::{OwnedRound, Txns};

impl Coordinator {
    /// Deletes earlier rounds, once, and publishes late and lost nodes to the group, and members that do not reach rank 0.
    pub(super) fn publish(
        &mut self,
        now: Time,
        (config, txns): (&NodeConfig, &Txns),
        own: OwnedRound<'_>,
    ) -> Option<CoordinatorStep> {
        let active = own.active;
        let late = self.membership()?.late();
        let waiting =
            self.growth.nodes(now, (config.limits, &config.sizes), (self.ranks.len(), late));
        let membership = self.membership()?;
        if !self.swept {
            let txn = txns.sweep(self.history, self.round, membership.expired_suspects());
            self.swept = true;
            return Some(CoordinatorStep::Request(Purpose::Sweep, txn, None));
        }
        let version = membership.version();
        let unreached = membership.unreached();
        let mut lost = (active.lost, active.lost_names.clone(), active.lost_because.clone());
        if Some(version) != self.checked_version {
            let mut names = self.lost(membership);
            let count = names.len();
            names.truncate(MOST_NAMED);
            let because = names.iter().map(|id| self.lost_because(membership, id)).collect();
            lost = (count, names, because);
            self.checked_version = Some(version);
        }
        let (lost, lost_names, lost_because) = lost;
        if (waiting, lost, &unreached) == (active.waiting, active.lost, &active.unreached) {
            return None;
        }
        self.stage = RoundStage::Running { publishing: true };
        let changed =
            Active { waiting, lost, lost_names, lost_because, unreached, ..active.clone() };
        let changed = own.followed_by(changed);
        let txn = txns.replace(own, &changed);
        Some(CoordinatorStep::Request(Purpose::PublishChanges, txn, Some(Box::new(changed))))
    }
}
