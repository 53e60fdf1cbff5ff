//! What must hold after every step, and what must have been seen in all runs together.

use std::collections::BTreeSet;

use rallypoint_core::agent::{
    AgentOutput, CloseReason, GroupChange, NodeError, NodeOutcome, PeersAtExit, RunResult, Start,
    Why,
};
use rallypoint_core::rendezvous::RendezvousView;

use crate::shared::HEADLINE;
use crate::world;
use crate::world::events::{Who, World};
use crate::world::invariants::{Verdict, violation};

/// What has come about.
#[derive(Debug, Default)]
pub(crate) struct Seen(BTreeSet<&'static str>);

const TO_SEE: [&str; 28] = [
    "again for WorkerFailed",
    "again for Changed",
    "again for Hung",
    "again for SessionLost",
    "again for NotPlaced",
    "notice",
    "announced",
    "notice of a departure",
    "refunded",
    "stacks asked for",
    "stacks taken",
    "hang over",
    "restarted without the odd node",
    "restarted with the odd node",
    "closed Done",
    "closed Failed",
    "closed NonRetryable",
    "Succeeded, Done",
    "Succeeded, NotDone",
    "Succeeded, GoneOn",
    "NotNeeded",
    "WorkerFailed",
    "RunFailed",
    "Signalled",
    "Evicted",
    "NoGroup",
    "NotStarted",
    "NotStopped",
];

impl Seen {
    pub(crate) fn add(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub(crate) fn missing(&self) -> Vec<&'static str> {
        TO_SEE.into_iter().filter(|what| !self.0.contains(what)).collect()
    }

    pub(crate) fn note(&mut self, output: &AgentOutput) {
        let what = match output {
            AgentOutput::Rendezvous { why: Why::WorkerFailed(_) } => "again for WorkerFailed",
            AgentOutput::Rendezvous { why: Why::Changed(GroupChange::Hung(_)) } => "again for Hung",
            AgentOutput::Rendezvous { why: Why::Changed(_) } => "again for Changed",
            AgentOutput::Rendezvous { why: Why::SessionLost(_) } => "again for SessionLost",
            AgentOutput::Rendezvous { why: Why::NotPlaced(_) } => "again for NotPlaced",
            AgentOutput::NotifyWorkers {
                why: Why::Changed(GroupChange::PeerLeaves(_)), ..
            } => "notice of a departure",
            AgentOutput::NotifyWorkers { .. } => "notice",
            AgentOutput::Announce { .. } => "announced",
            AgentOutput::RefundRestart { .. } => "refunded",
            AgentOutput::RequestStacks(_) => "stacks asked for",
            AgentOutput::TakeStacks(_) => "stacks taken",
            AgentOutput::EndHang(_) => "hang over",
            AgentOutput::RestartHung(restart) => match restart.without.is_empty() {
                true => "restarted with the odd node",
                false => "restarted without the odd node",
            },
            AgentOutput::Close(CloseReason::Succeeded) => "closed Done",
            AgentOutput::Close(CloseReason::Failed(_)) => "closed Failed",
            AgentOutput::Close(CloseReason::NonRetryable(_)) => "closed NonRetryable",
            AgentOutput::Finish(RunResult { outcome, .. }) => match outcome {
                NodeOutcome::Succeeded(PeersAtExit::Done) => "Succeeded, Done",
                NodeOutcome::Succeeded(PeersAtExit::NotDone) => "Succeeded, NotDone",
                NodeOutcome::Succeeded(PeersAtExit::WentOn(_)) => "Succeeded, GoneOn",
                NodeOutcome::NotNeeded(_) => "NotNeeded",
                NodeOutcome::WorkerFailed(_) => "WorkerFailed",
                NodeOutcome::RunFailed(_) => "RunFailed",
                NodeOutcome::Signalled(_) => "Signalled",
                NodeOutcome::Evicted(_) => "Evicted",
                NodeOutcome::NodeFailed(NodeError::NoGroup(_)) => "NoGroup",
                NodeOutcome::NodeFailed(NodeError::NotStarted(_)) => "NotStarted",
                NodeOutcome::NodeFailed(NodeError::NotStopped(_)) => "NotStopped",
                NodeOutcome::NodeFailed(_) => return,
            },
            _ => return,
        };
        self.0.insert(what);
    }
}

impl World {
    /// After every step: a node whose lease may be over has no workers that run, and the job has not used
    /// more restarts than it has.
    pub(crate) fn check_step(&mut self) -> Verdict {
        let reserve = self.plan.ttl_millis() - self.plan.fence();
        for (who, node) in self.nodes.iter().enumerate() {
            let overdue = node.guard.deadline.is_some_and(|end| end + reserve <= self.now);
            if overdue && !node.has_still_workers() && self.top_workers(who).is_some() {
                return violation("fencing", format!("n{who} has workers at {}", self.now));
            }
        }
        self.job.closed |= self.inspector.stores[0].closed;
        let used = self.job.restarted.difference(&self.job.refunded).count();
        let allowed = self.job.work.max_restarts;
        if used.max(self.job.budget.used as usize) > allowed as usize {
            return violation("budget", format!("{used} restarts, {allowed} are allowed"));
        }
        Ok(())
    }

    /// Who knows that a later group has formed without it has killed its workers.
    pub(crate) fn check_left_behind(&self, who: Who, view: &RendezvousView) -> Verdict {
        let workers = self.nodes[who].top.workers.as_ref();
        let left = workers.filter(|workers| {
            view.replaced_by.is_some_and(|later| later > workers.round)
                && !workers.is_being_killed(self.now)
        });
        match left.filter(|_| self.top_workers(who).is_some()) {
            Some(workers) if !world::broken::takes_its_time(self.broken) => {
                let (round, later) = (workers.round, view.replaced_by);
                let what = format!("n{who} has workers of round {round} and knows of {later:?}");
                violation("left behind", what)
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn check_output(&self, who: Who, output: &AgentOutput) -> Verdict {
        let top = &self.nodes[who].top;
        if top.result.is_some() {
            return violation("one outcome", format!("n{who} goes on with {output:?}"));
        }
        let lives = self.top_workers(who).is_some();
        match output {
            AgentOutput::Rendezvous { .. } | AgentOutput::Leave if lives => {
                violation("one workers at a time", format!("n{who} has workers left at {output:?}"))
            }
            AgentOutput::StartWorkers(start) => self.check_start(who, start),
            AgentOutput::Close(_) if top.signalled && !top.workers_failed() && !top.succeeded() => {
                violation("a signal leaves the run open", format!("n{who}: {output:?}"))
            }
            AgentOutput::Close(CloseReason::Succeeded) if !top.succeeded() => {
                violation("done means done", format!("n{who} has not succeeded"))
            }
            AgentOutput::RequestStacks(request) | AgentOutput::TakeStacks(request)
                if top.group() != Some(request.round) =>
            {
                violation("stacks of this group", format!("n{who}: {request:?}"))
            }
            AgentOutput::Finish(result) => self.check_end(who, result),
            _ => Ok(()),
        }
    }

    /// Workers are started once they have ranks, with a number of their own. That there are none of another
    /// group anywhere is seen when they run.
    fn check_start(&self, who: Who, start: &Start) -> Verdict {
        let top = &self.nodes[who].top;
        if top.placed != Some((start.group.round, start.placement)) {
            return violation("ranks first", format!("n{who}: {start:?}, {:?}", top.placed));
        }
        if top.workers.as_ref().is_some_and(|workers| workers.attempt >= start.attempt) {
            return violation("every start has its number", format!("n{who}: {start:?}"));
        }
        Ok(())
    }

    fn check_end(&self, who: Who, result: &RunResult) -> Verdict {
        let top = &self.nodes[who].top;
        let true_to_life = match &result.outcome {
            NodeOutcome::Succeeded(_) => result.exit_code == 0 && top.succeeded(),
            NodeOutcome::NotNeeded(_) => result.exit_code == 0 && result.failures.is_empty(),
            NodeOutcome::Signalled(signal) => result.exit_code == 128 + signal && top.signalled,
            NodeOutcome::Evicted(_) => {
                let evicted = top.budget.eviction_of(&self.nodes[who].id).is_some();
                result.exit_code == 77 && (top.signalled || evicted)
            }
            NodeOutcome::WorkerFailed(reason) => {
                let known = result.failures.first().map(|failure| failure.exit.clone());
                // A worker that fails when the run is being closed for a hang is no reason any more. The reason is the
                // first of the round, which may be a worker of another node.
                let hung = top.hung || reason.message().starts_with(HEADLINE);
                let failed = top.workers.as_ref().and_then(|workers| workers.failed());
                result.exit_code != 0 && (known.is_none() && hung || known == failed)
            }
            NodeOutcome::RunFailed(_) => result.exit_code != 0 && self.job.closed,
            NodeOutcome::NodeFailed(_) => result.exit_code == 1,
        };
        if true_to_life {
            return Ok(());
        }
        violation("the outcome is what happened", format!("n{who}: {result:?}, {:?}", top.workers))
    }

    /// When nothing is under way any more: every node that lives has come to its end.
    pub(crate) fn check_ended(&self) -> Verdict {
        for (who, node) in self.nodes.iter().enumerate() {
            if node.alive {
                return violation(
                    "an end",
                    format!("n{who} waits for {:?}", node.top.agent.waits_for()),
                );
            }
        }
        Ok(())
    }
}
