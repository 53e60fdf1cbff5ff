//! Whether a failure was the fault of the workers that failed.
//!
//! When a member dies, the workers of the others often fail before it is missed. That is no failure of theirs: it
//! uses no restart, and is no reason to end the job. That others meet again is no sign of it, since they may do so
//! because of what failed here.

use std::time::Duration;

use super::interface::Change;
use crate::rendezvous::RendezvousView;

/// How long it may take until a member that has died is missed.
pub const MISSED_WITHIN: Duration = Duration::from_secs(1);

/// Whether this change of the group excuses a failure of workers in the same round.
pub fn excuses(change: &Change) -> bool {
    matches!(change, Change::PeerLost(_))
}

/// What can be said of a failure in the group that a node is, or was, in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Another node died, or this one lost its place: the workers failed because of that.
    Collateral,
    /// The workers failed by themselves.
    Own,
    /// Nothing tells yet. After [`MISSED_WITHIN`], the members of the round decide: see [`RollCall`].
    Open(u64),
}

/// What a node's own view says of a failure of its workers. `fenced`: it has lost its place.
pub fn fault(view: &RendezvousView, fenced: bool) -> Fault {
    match view.member_of {
        _ if fenced || !view.lost.is_empty() => Fault::Collateral,
        Some(round) if view.closed.is_none() => Fault::Open(round),
        _ => Fault::Own,
    }
}

/// Who is there of the group of a round. Once the others meet again, nobody tells its members of losses any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RollCall {
    /// Members whose leases live.
    pub there: u64,
    /// Ranks that were given.
    pub all: u64,
    /// Members that somebody has reported as dead.
    pub suspects: u64,
}

impl RollCall {
    /// Whether the group has lost a member. A server that knows of no member has taken the place of one that was
    /// lost, and a node with it.
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
            (running.clone(), false, Fault::Open(4)),
            (running.clone(), true, Fault::Collateral),
            (lost.clone(), false, Fault::Collateral),
            (RendezvousView { round: 5, ..running.clone() }, false, Fault::Open(4)),
            (RendezvousView { closed: closed.clone(), ..running.clone() }, false, Fault::Own),
            (RendezvousView { closed, ..lost }, false, Fault::Collateral),
            (RendezvousView { member_of: None, ..running }, false, Fault::Own),
        ];
        for (view, fenced, expected) in table {
            assert_eq!(fault(&view, fenced), expected, "{view:?}");
        }
    }

    #[test]
    fn a_group_has_lost_a_member_if_one_is_missing_or_reported() {
        let table = [((2, 2, 0), false), ((1, 2, 0), true), ((0, 0, 0), true), ((2, 2, 1), true)];
        for ((there, all, suspects), lost) in table {
            assert_eq!(RollCall { there, all, suspects }.lost_a_member(), lost);
        }
    }
}
