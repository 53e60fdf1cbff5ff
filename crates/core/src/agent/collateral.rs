//! Collateral failures: workers that fail because another node was lost.
//!
//! When a member dies, workers of its peers often fail before the loss is detected. Such a failure is collateral: it
//! uses no restart, and does not end the job. A new round of the peers is no evidence of it, since they may have
//! started the round because of the failure here.

use std::time::Duration;

use super::messages::GroupChange;
use crate::rendezvous::RendezvousView;

/// The time within which the failure detector reports a dead member.
pub const DETECTION_TIMEOUT: Duration = Duration::from_secs(1);

/// Whether this change of the group excuses a failure of workers in the same round.
pub fn excuses(change: &GroupChange) -> bool {
    matches!(change, GroupChange::PeerLost(_))
}

/// The origin of a failure in the group that a node is, or was, a member of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureOrigin {
    /// Another node died, or this node lost its session, and the workers failed because of that.
    Collateral,
    /// The workers failed by themselves.
    Own,
    /// Not known yet. After [`DETECTION_TIMEOUT`], the members of the round decide: see [`RoundMembers`].
    Undecided(u64),
}

/// The origin of a failure of a node's workers, as its own view tells. `fenced`: the node has lost its session.
pub fn failure_origin(view: &RendezvousView, fenced: bool) -> FailureOrigin {
    match view.member_of {
        _ if fenced || !view.lost.is_empty() => FailureOrigin::Collateral,
        Some(round) if view.closed.is_none() => FailureOrigin::Undecided(round),
        _ => FailureOrigin::Own,
    }
}

/// Counts of a round's members. Once a later round has begun, members of this one are not told of losses any more, so
/// they count by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundMembers {
    /// Members with a live lease.
    pub there: u64,
    /// Ranks that were assigned.
    pub all: u64,
    /// Members that a peer has reported as suspect.
    pub suspects: u64,
}

impl RoundMembers {
    /// Whether the group has lost a member. A server without any member replaced one that was lost together with a
    /// node.
    pub fn lost_a_member(self) -> bool {
        self.there == 0 || self.there < self.all || self.suspects > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rendezvous::RunClosed;
    use crate::rendezvous::documents::{NodeName, RunOutcome};

    #[test]
    fn a_failure_is_collateral_if_a_member_is_lost_or_this_node_is() {
        let running = RendezvousView { member_of: Some(4), round: 4, ..RendezvousView::default() };
        let lost = RendezvousView { lost: vec!["b".into()], ..running.clone() };
        let by = NodeName { id: "b".into(), address: String::new() };
        let closed = Some(RunClosed { by, outcome: RunOutcome::Failed, reason: String::new() });
        let table = [
            (running.clone(), false, FailureOrigin::Undecided(4)),
            (running.clone(), true, FailureOrigin::Collateral),
            (lost.clone(), false, FailureOrigin::Collateral),
            (RendezvousView { round: 5, ..running.clone() }, false, FailureOrigin::Undecided(4)),
            (
                RendezvousView { closed: closed.clone(), ..running.clone() },
                false,
                FailureOrigin::Own,
            ),
            (RendezvousView { closed, ..lost }, false, FailureOrigin::Collateral),
            (RendezvousView { member_of: None, ..running }, false, FailureOrigin::Own),
        ];
        for (view, fenced, expected) in table {
            assert_eq!(failure_origin(&view, fenced), expected, "{view:?}");
        }
    }

    #[test]
    fn a_group_has_lost_a_member_if_one_is_missing_or_reported() {
        let table = [((2, 2, 0), false), ((1, 2, 0), true), ((0, 0, 0), true), ((2, 2, 1), true)];
        for ((there, all, suspects), lost) in table {
            assert_eq!(RoundMembers { there, all, suspects }.lost_a_member(), lost);
        }
    }
}
