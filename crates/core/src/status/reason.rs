//! The state of a run in one phrase, as the column REASON of `squeue` has it.

use super::{NodeState, RunState, RunStatus, count, hang, some_of};

/// What the run waits for, or how it fares. The first that applies.
pub(super) fn reason(status: &RunStatus) -> String {
    let ids = |wanted: NodeState| {
        let nodes = status.nodes.iter().filter(move |node| node.state == wanted);
        nodes.map(|node| node.id.as_str()).collect::<Vec<_>>()
    };
    let of = |wanted: NodeState, phrase: &str| {
        let ids = ids(wanted);
        (!ids.is_empty()).then(|| phrase.replace("{}", &some_of(ids)))
    };
    let counts = status.counts;
    match status.state {
        RunState::None => match (status.round, status.nodes.len()) {
            (0, 0) => "no such run on this server".to_owned(),
            (_, 0) => "no node is there".to_owned(),
            _ => "no round is in progress".to_owned(),
        },
        RunState::Joinable => {
            let few = (counts.needed > ids(NodeState::Stopping).len())
                .then(|| format!("waits for {}", count(counts.needed, "more node")));
            few.or_else(|| of(NodeState::Stopping, "waits for {} to stop workers"))
                .or_else(|| of(NodeState::Suspect, "waits for the lease of {}"))
                .or_else(|| of(NodeState::Objector, "{} disagrees with the round"))
                .or_else(|| {
                    let lack = status.lacks_quorum.as_ref();
                    lack.map(|_| "waits for more of the last group".to_owned())
                })
                .or_else(|| {
                    let here = counts.present;
                    let planned = status.planned();
                    planned.map(|planned| format!("last call: {here} of {planned} planned nodes"))
                })
                .unwrap_or_else(|| "last call for more nodes".to_owned())
        }
        RunState::Frozen => of(NodeState::Lost, "lost {} before the group formed")
            .or_else(|| of(NodeState::Joined, "waits for {} to confirm"))
            .unwrap_or_else(|| "the group is about to form".to_owned()),
        RunState::Final => of(NodeState::Lost, "lost {}")
            .or_else(|| of(NodeState::Suspect, "{} may be dead"))
            .or_else(|| status.current_hang().map(hang::phrase))
            .or_else(|| {
                let waiting = (counts.waiting > 0).then(|| count(counts.waiting, "node"));
                let soon = status.sizes.scale_up_after().is_zero();
                let how = if soon { "about to join" } else { "waiting to join (scale_up_after)" };
                waiting.map(|nodes| format!("{nodes} {how}"))
            })
            .or_else(|| {
                let unreached = status
                    .nodes
                    .iter()
                    .filter(|node| node.state == NodeState::Member && !node.note.is_empty());
                let ids: Vec<&str> = unreached.map(|node| node.id.as_str()).collect();
                (!ids.is_empty()).then(|| format!("{} needs attention", some_of(ids)))
            })
            .unwrap_or_else(|| "running".to_owned()),
        RunState::Closed => {
            let closed = status.closed.as_ref();
            closed.map_or_else(String::new, |closed| match closed.reason.as_str() {
                "" => closed.outcome.to_string(),
                reason => format!("{}: {reason}", closed.outcome),
            })
        }
    }
}
