//! Workers without progress: when to look, and when to ask all nodes for the stacks of their workers.

use super::stopping::Next;
use super::{Agent, AgentState, Noticing, StartedWorkers};
use crate::agent::hang::{
    HangChange, HangFinding, HangOver, HangRequest, HangRestart, OnHang, millis,
};
use crate::agent::messages::{AgentOutput, SIGTERM};
use crate::agent::outcome::{CloseReason, NodeOutcome};
use crate::agent::stacks::OddNodes;
use crate::agent::why::Why;
use crate::kv::Time;
use crate::text::{LONGEST_REASON, bounded};

impl Agent {
    /// Looks for progress when the limit has passed.
    pub(super) fn look_for_progress(&mut self, now: Time) {
        let AgentState::Running(StartedWorkers { attempt, watch: Some(watch), .. }) =
            &mut self.state
        else {
            return;
        };
        if watch.is_due(now) {
            let attempt = *attempt;
            self.outputs.push_back(AgentOutput::CheckProgress { attempt });
        }
    }

    pub(super) fn progressed(&mut self, now: Time, attempt: u64, latest: Option<Time>) {
        let AgentState::Running(workers) = &mut self.state else { return };
        let (round, watch) = (workers.round, workers.watch.as_mut());
        let Some(watch) = watch.filter(|_| workers.attempt == attempt) else { return };
        let output = match watch.seen(now, latest) {
            Some(HangChange::Began { number, silent }) => {
                let (host, millis) = (self.settings.host.clone(), millis(silent));
                AgentOutput::RequestStacks(HangRequest { round, number, host, millis, since: None })
            }
            Some(HangChange::Over { number }) => AgentOutput::EndHang(HangOver { round, number }),
            None => return,
        };
        self.outputs.push_back(output);
    }

    /// The node that reported the hang has seen progress.
    pub(super) fn hang_over(&mut self, now: Time, over: HangOver) {
        let AgentState::Running(workers) = &mut self.state else { return };
        if let Some(watch) = workers.watch.as_mut().filter(|_| workers.round == over.round) {
            watch.over(now, over.number);
        }
    }

    /// All nodes of the group answer, whatever their own workers do.
    pub(super) fn stacks_wanted(&mut self, now: Time, request: HangRequest) {
        let round = match &mut self.state {
            AgentState::Running(workers) => {
                if let Some(watch) =
                    workers.watch.as_mut().filter(|_| workers.round == request.round)
                {
                    watch.told(now, &request, &self.settings.host);
                }
                workers.round
            }
            AgentState::Noticing(Noticing { workers, .. }) => workers.round,
            AgentState::Stopping(stopping) => stopping.workers.round,
            AgentState::AtBarrier(barrier) => barrier.round,
            _ => return,
        };
        if round == request.round {
            self.outputs.push_back(AgentOutput::TakeStacks(request));
        }
    }

    /// This node has rank 0, and its report names the odd nodes, if there are any.
    pub(super) fn hang_reported(&mut self, now: Time, finding: HangFinding) {
        let HangFinding { round, headline, odd, spares, .. } = finding;
        let OnHang::Restart { min_nodes } = self.settings.on_hang else { return };
        let AgentState::Running(workers) = &mut self.state else { return };
        if workers.round != round || odd.nodes.is_empty() {
            return;
        }
        workers.hung = true;
        let lived = now.saturating_sub(workers.since);
        let (without, named) = leave_out(&odd, workers.nodes, spares, min_nodes);
        let room = LONGEST_REASON.saturating_sub(named.len() + 2);
        let blame = format!("{}; {named}", bounded(headline, room));
        self.outputs.push_back(AgentOutput::RestartHung(HangRestart {
            round,
            blame,
            lived,
            without,
        }));
    }

    /// No restart is left for a job that hangs.
    pub(super) fn hang_refused(&mut self, now: Time, reason: CloseReason) {
        let AgentState::Running(workers) = &self.state else { return };
        let (workers, why) = (workers.clone(), Why::Hung(reason.message().to_owned()));
        let next = Next::Finish(NodeOutcome::WorkerFailed(reason.clone()));
        self.stop(workers, SIGTERM, self.kill_at(now), why, next);
        self.outputs.push_back(AgentOutput::Close(reason));
    }
}

/// The ids of the odd nodes if the job can do without them, and what is to say of them. `nodes`: the number of nodes of
/// the group. The words hold whether the budget grants the restart or not.
fn leave_out(odd: &OddNodes, nodes: u32, spares: u32, min_nodes: u32) -> (Vec<String>, String) {
    let named = match odd.nodes.len() {
        1 => format!("the odd node is {}", odd.hosts()),
        _ => format!("the odd nodes are {}", odd.hosts()),
    };
    let others = nodes.saturating_sub(u32::try_from(odd.nodes.len()).unwrap_or(u32::MAX));
    let left = others.saturating_add(spares);
    if left >= min_nodes {
        return (odd.nodes.iter().map(|node| node.id.clone()).collect(), named);
    }
    let needs =
        format!("{named}, and the job needs it: of {min_nodes} nodes, {left} would be left");
    (Vec::new(), needs)
}
