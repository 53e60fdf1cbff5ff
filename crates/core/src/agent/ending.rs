//! The end of a node's part in its run: the one place that decides whether the node may close the run.

use crate::rendezvous::RendezvousView;
use crate::rendezvous::documents::RunOutcome;

/// What a node that ends does with its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunAtEnd {
    /// The node closes the run.
    Close,
    /// The run is closed already, and stays as it is.
    IsClosed,
    /// The node leaves, and the run is left to its peers: they continue without it.
    LeftToPeers,
}

/// What a node that ends with this outcome does with its run. A member of the last group closes the run.
///
/// A success is that of the job only if no later round is in progress, since nodes that form another group are not
/// done. A failure ends the job also while such a round is in progress: the peers may have started it because of the
/// failure, and need not know yet that no restart helps. Once a later group has formed, the run is that group's.
pub fn run_at_end(view: &RendezvousView, outcome: RunOutcome) -> RunAtEnd {
    let last = match outcome {
        RunOutcome::Succeeded => view.round,
        RunOutcome::Failed | RunOutcome::NonRetryable => view.formed,
    };
    if view.closed.is_some() {
        RunAtEnd::IsClosed
    } else if view.member_of.is_some_and(|round| round >= last) {
        RunAtEnd::Close
    } else {
        RunAtEnd::LeftToPeers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rendezvous::RunClosed;
    use crate::rendezvous::documents::NodeName;

    #[test]
    fn a_member_of_the_last_group_closes_the_run() {
        let view = |round, formed, member_of| RendezvousView {
            round,
            formed,
            member_of,
            ..RendezvousView::default()
        };
        use RunAtEnd::{Close, LeftToPeers};
        let table = [
            // The view, and what follows from a success and from a failure.
            (view(4, 4, Some(4)), Close, Close),
            // The document of the round went with the lease of its coordinator.
            (view(0, 4, Some(4)), Close, Close),
            // The peers form another group, and have not yet.
            (view(5, 4, Some(4)), LeftToPeers, Close),
            (view(5, 5, Some(4)), LeftToPeers, LeftToPeers),
            // The node waits, is a spare, or has lost its session.
            (view(4, 4, None), LeftToPeers, LeftToPeers),
            (view(1, 0, None), LeftToPeers, LeftToPeers),
            (view(0, 0, None), LeftToPeers, LeftToPeers),
        ];
        for (view, success, failure) in table {
            assert_eq!(run_at_end(&view, RunOutcome::Succeeded), success, "{view:?}");
            assert_eq!(run_at_end(&view, RunOutcome::Failed), failure, "{view:?}");
            assert_eq!(run_at_end(&view, RunOutcome::NonRetryable), failure, "{view:?}");
            let by = NodeName { id: "b".into(), address: String::new() };
            let closed = RunClosed { by, outcome: RunOutcome::Failed, reason: String::new() };
            let view = RendezvousView { closed: Some(closed), ..view };
            assert_eq!(run_at_end(&view, RunOutcome::Succeeded), RunAtEnd::IsClosed, "{view:?}");
        }
    }
}
