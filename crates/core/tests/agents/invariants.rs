//! What must hold after every step, and what must have been seen in all runs together.

use std::collections::BTreeSet;

use rallypoint_core::agent::{Closing, Ending, Others, Outcome, Output, Start, Trouble, Why};

use crate::world::{Who, World};

/// An invariant that does not hold.
#[derive(Debug)]
pub(crate) struct Violation {
    pub(crate) invariant: &'static str,
    pub(crate) what: String,
}

pub(crate) type Verdict = Result<(), Violation>;

pub(crate) fn broken(invariant: &'static str, what: String) -> Verdict {
    Err(Violation { invariant, what })
}

/// What has come about.
#[derive(Debug, Default)]
pub(crate) struct Seen(BTreeSet<&'static str>);

const TO_SEE: [&str; 19] = [
    "again for WorkerFailed",
    "again for Changed",
    "again for SessionLost",
    "again for NotPlaced",
    "notice",
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
            Output::NotifyWorkers { .. } => "notice",
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
    /// After every step: a node that others may take the place of has no workers, and the job has not
    /// used more restarts than it has.
    pub(crate) fn check(&self) -> Verdict {
        for (who, node) in self.nodes.iter().enumerate() {
            let overdue = node.fenced.is_some_and(|deadline| deadline <= self.now);
            if overdue && node.crew.as_ref().is_some_and(|crew| crew.lives() && !crew.undying) {
                return broken("fencing", format!("node {who} has workers at {}", self.now));
            }
        }
        let used = self.restarted.difference(&self.forgiven).count();
        if used.max(self.budget.used as usize) > self.plan.max_restarts as usize {
            let what = format!("{used} restarts, {} are allowed", self.plan.max_restarts);
            return broken("budget", what);
        }
        Ok(())
    }

    pub(crate) fn check_output(&self, who: Who, output: &Output) -> Verdict {
        let node = &self.nodes[who];
        if node.outcome.is_some() {
            return broken("one outcome", format!("node {who} goes on with {output:?}"));
        }
        let lives = node.crew.as_ref().is_some_and(|crew| crew.lives() && !crew.undying);
        match output {
            Output::Meet { .. } | Output::Leave if lives => {
                broken("one crew at a time", format!("node {who} has workers left at {output:?}"))
            }
            Output::StartWorkers(start) => self.check_start(who, start),
            Output::Close(_) if node.signalled && !node.workers_failed() && !node.succeeded() => {
                broken("a signal leaves the run open", format!("node {who}: {output:?}"))
            }
            Output::Close(Closing::Done) if !node.succeeded() => {
                broken("done means done", format!("node {who} has not succeeded"))
            }
            Output::Finish(outcome) => self.check_end(who, outcome),
            _ => Ok(()),
        }
    }

    /// Workers are started once they have ranks, with a number of their own, and nowhere are there any of
    /// another round.
    fn check_start(&self, who: Who, start: &Start) -> Verdict {
        let node = &self.nodes[who];
        if node.placed != Some((start.group.round, start.placement)) {
            return broken("ranks first", format!("node {who}: {start:?}, {:?}", node.placed));
        }
        if node.crew.as_ref().is_some_and(|crew| crew.attempt >= start.attempt) {
            return broken("every start has its number", format!("node {who}: {start:?}"));
        }
        for (other, node) in self.nodes.iter().enumerate() {
            if let Some(crew) = node.crew.as_ref().filter(|crew| crew.lives() && !crew.undying)
                && crew.round != start.group.round
            {
                let rounds = format!("{} at {other}, {} at {who}", crew.round, start.group.round);
                return broken("one round at a time", rounds);
            }
        }
        Ok(())
    }

    fn check_end(&self, who: Who, outcome: &Outcome) -> Verdict {
        let node = &self.nodes[who];
        let true_to_life = match &outcome.ending {
            Ending::Succeeded(_) => outcome.exit_code == 0 && node.succeeded(),
            Ending::NotNeeded(_) => outcome.exit_code == 0 && outcome.failures.is_empty(),
            Ending::Signalled(signal) => outcome.exit_code == 128 + signal && node.signalled,
            Ending::WorkerFailed(_) => {
                let known = outcome.failures.first().map(|failure| failure.exit.clone());
                outcome.exit_code != 0 && known == node.crew.as_ref().and_then(|crew| crew.failed())
            }
            Ending::RunFailed(_) => outcome.exit_code != 0 && self.closed.is_some(),
            Ending::NodeFailed(_) => outcome.exit_code == 1,
        };
        if true_to_life {
            return Ok(());
        }
        broken("the outcome is what happened", format!("node {who}: {outcome:?}, {:?}", node.crew))
    }

    /// When nothing is under way any more: every node that lives has come to its end.
    pub(crate) fn check_ended(&self) -> Verdict {
        for (who, node) in self.nodes.iter().enumerate() {
            if node.alive && node.outcome.is_none() {
                return broken(
                    "an end",
                    format!("node {who} waits for {:?}", node.agent.waits_for()),
                );
            }
        }
        Ok(())
    }
}
