//! What must hold after every step, and what must have been seen in all runs together.

use std::collections::BTreeSet;

use rallypoint_core::agent::{
    Change, Closing, Ending, Others, Outcome, Output, Start, Trouble, Why,
};
use rallypoint_core::rendezvous::RendezvousView;

use crate::world;
use crate::world::happening::{Who, World};
use crate::world::invariants::{Verdict, violation};

/// What has come about.
#[derive(Debug, Default)]
pub(crate) struct Seen(BTreeSet<&'static str>);

const TO_SEE: [&str; 21] = [
    "again for WorkerFailed",
    "again for Changed",
    "again for SessionLost",
    "again for NotPlaced",
    "notice",
    "announced",
    "notice of a departure",
    "forgiven",
    "closed Done",
    "closed Failed",
    "closed Hopeless",
    "Succeeded, Done",
    "Succeeded, NotDone",
    "Succeeded, GoneOn",
    "NotNeeded",
    "WorkerFailed",
    "RunFailed",
    "Signalled",
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

    pub(crate) fn note(&mut self, output: &Output) {
        let what = match output {
            Output::Meet { why: Why::WorkerFailed(_) } => "again for WorkerFailed",
            Output::Meet { why: Why::Changed(_) } => "again for Changed",
            Output::Meet { why: Why::SessionLost(_) } => "again for SessionLost",
            Output::Meet { why: Why::NotPlaced(_) } => "again for NotPlaced",
            Output::NotifyWorkers { why: Why::Changed(Change::PeerLeaves(_)), .. } => {
                "notice of a departure"
            }
            Output::NotifyWorkers { .. } => "notice",
            Output::Announce { .. } => "announced",
            Output::ForgiveRestart { .. } => "forgiven",
            Output::Close(Closing::Done) => "closed Done",
            Output::Close(Closing::Failed(_)) => "closed Failed",
            Output::Close(Closing::Hopeless(_)) => "closed Hopeless",
            Output::Finish(Outcome { ending, .. }) => match ending {
                Ending::Succeeded(Others::Done) => "Succeeded, Done",
                Ending::Succeeded(Others::NotDone) => "Succeeded, NotDone",
                Ending::Succeeded(Others::GoneOn(_)) => "Succeeded, GoneOn",
                Ending::NotNeeded(_) => "NotNeeded",
                Ending::WorkerFailed(_) => "WorkerFailed",
                Ending::RunFailed(_) => "RunFailed",
                Ending::Signalled(_) => "Signalled",
                Ending::NodeFailed(Trouble::NoGroup(_)) => "NoGroup",
                Ending::NodeFailed(Trouble::NotStarted(_)) => "NotStarted",
                Ending::NodeFailed(Trouble::NotStopped(_)) => "NotStopped",
                Ending::NodeFailed(_) => return,
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
        self.job.closed |= self.inspector.closed;
        let used = self.job.restarted.difference(&self.job.forgiven).count();
        let allowed = self.job.work.max_restarts;
        if used.max(self.job.budget.used as usize) > allowed as usize {
            return violation("budget", format!("{used} restarts, {allowed} are allowed"));
        }
        Ok(())
    }

    /// Who knows that a later group has formed without it has killed its workers.
    pub(crate) fn check_left_behind(&self, who: Who, view: &RendezvousView) -> Verdict {
        let crew = self.nodes[who].top.crew.as_ref();
        let left = crew.filter(|crew| {
            view.replaced_by.is_some_and(|later| later > crew.round)
                && !crew.is_being_killed(self.now)
        });
        match left.filter(|_| self.top_workers(who).is_some()) {
            Some(crew) if !world::broken::takes_its_time(self.broken) => {
                let (round, later) = (crew.round, view.replaced_by);
                let what = format!("n{who} has workers of round {round} and knows of {later:?}");
                violation("left behind", what)
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn check_output(&self, who: Who, output: &Output) -> Verdict {
        let top = &self.nodes[who].top;
        if top.outcome.is_some() {
            return violation("one outcome", format!("n{who} goes on with {output:?}"));
        }
        let lives = self.top_workers(who).is_some();
        match output {
            Output::Meet { .. } | Output::Leave if lives => {
                violation("one crew at a time", format!("n{who} has workers left at {output:?}"))
            }
            Output::StartWorkers(start) => self.check_start(who, start),
            Output::Close(_) if top.signalled && !top.workers_failed() && !top.succeeded() => {
                violation("a signal leaves the run open", format!("n{who}: {output:?}"))
            }
            Output::Close(Closing::Done) if !top.succeeded() => {
                violation("done means done", format!("n{who} has not succeeded"))
            }
            Output::Finish(outcome) => self.check_end(who, outcome),
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
        if top.crew.as_ref().is_some_and(|crew| crew.attempt >= start.attempt) {
            return violation("every start has its number", format!("n{who}: {start:?}"));
        }
        Ok(())
    }

    fn check_end(&self, who: Who, outcome: &Outcome) -> Verdict {
        let top = &self.nodes[who].top;
        let true_to_life = match &outcome.ending {
            Ending::Succeeded(_) => outcome.exit_code == 0 && top.succeeded(),
            Ending::NotNeeded(_) => outcome.exit_code == 0 && outcome.failures.is_empty(),
            Ending::Signalled(signal) => outcome.exit_code == 128 + signal && top.signalled,
            Ending::WorkerFailed(_) => {
                let known = outcome.failures.first().map(|failure| failure.exit.clone());
                outcome.exit_code != 0 && known == top.crew.as_ref().and_then(|crew| crew.failed())
            }
            Ending::RunFailed(_) => outcome.exit_code != 0 && self.job.closed,
            Ending::NodeFailed(_) => outcome.exit_code == 1,
        };
        if true_to_life {
            return Ok(());
        }
        violation("the outcome is what happened", format!("n{who}: {outcome:?}, {:?}", top.crew))
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
