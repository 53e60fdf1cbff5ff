//! Stopping the workers: the reason, the deadline, and the next step.

use super::{Agent, AgentState, StartedWorkers};
use crate::agent::failure::{Exit, WorkerFailure};
use crate::agent::messages::{AgentOutput, SIGKILL};
use crate::agent::outcome::{CloseReason, NodeError, NodeOutcome};
use crate::agent::restarts::RestartAnswer;
use crate::agent::why::Why;
use crate::kv::Time;

/// Workers that are being stopped.
#[derive(Debug)]
pub(super) struct Stopping {
    pub(super) workers: StartedWorkers,
    /// The signals that the agent sent.
    sent: Vec<i32>,
    /// The time at which remaining processes are killed.
    pub(super) kill_at: Time,
    /// Whether no process of the workers is left.
    gone: bool,
    next: Next,
}

/// The step after the workers are gone.
#[derive(Debug)]
pub(super) enum Next {
    /// Join the next round.
    Rendezvous(Why),
    /// Join the next round if the budget allows it, or an event excuses the failure in time.
    Ask {
        failure: WorkerFailure,
        failed: Time,
        settled: Time,
        answer: Option<RestartAnswer>,
        /// The peers have started another round, so a refusal does not end the job.
        ahead: Option<Why>,
    },
    /// Join the next round at this time.
    Pause { until: Time, why: Why },
    /// End with this outcome.
    Finish(NodeOutcome),
}

impl Stopping {
    pub(super) fn next_wake(&self) -> Option<Time> {
        match &self.next {
            Next::Ask { settled, answer: Some(RestartAnswer::Refused { .. }), .. } => {
                Some(*settled)
            }
            _ => self.pauses_until(),
        }
    }

    /// The end of the restart backoff, once the workers are gone.
    pub(super) fn pauses_until(&self) -> Option<Time> {
        match &self.next {
            Next::Pause { until, .. } if self.gone => Some(*until),
            _ => None,
        }
    }

    pub(super) fn waits_for(&self) -> &'static str {
        match &self.next {
            _ if !self.gone => "the workers to stop",
            Next::Ask { answer: None, .. } => "the job's budget to allow a restart",
            Next::Pause { .. } => "the end of the restart backoff",
            _ => "the report of a lost peer, which would excuse the failure",
        }
    }
}

impl Agent {
    pub(super) fn stop(
        &mut self,
        workers: StartedWorkers,
        signal: i32,
        kill_at: Time,
        why: Why,
        next: Next,
    ) {
        let attempt = workers.attempt;
        let sent = vec![signal, SIGKILL];
        self.state = AgentState::Stopping(Stopping { workers, sent, kill_at, gone: false, next });
        self.outputs.push_back(AgentOutput::StopWorkers { attempt, signal, kill_at, why });
    }

    /// The kill deadline of workers that are asked to stop now.
    pub(super) fn kill_at(&self, now: Time) -> Time {
        now.saturating_add(self.settings.shutdown_timeout)
    }

    /// Moves the kill deadline forward, never back.
    pub(super) fn hasten(&mut self, signal: i32, kill_at: Time, why: &Why) {
        if matches!(&self.state, AgentState::Stopping(stopping) if kill_at < stopping.kill_at) {
            self.pass_on(signal, kill_at, why);
        }
    }

    pub(super) fn pass_on(&mut self, signal: i32, kill_at: Time, why: &Why) {
        let AgentState::Stopping(stopping) = &mut self.state else { return };
        if !stopping.gone {
            stopping.kill_at = kill_at;
            stopping.sent.push(signal);
            let (attempt, why) = (stopping.workers.attempt, why.clone());
            self.outputs.push_back(AgentOutput::StopWorkers { attempt, signal, kill_at, why });
        }
    }

    /// Handles the exit of a worker that was asked to stop. An exit by another signal or code means that it failed
    /// together with the first: not another failure, but possibly more detail.
    pub(super) fn fell(&mut self, failure: WorkerFailure) {
        let non_retryable = self.is_non_retryable(&failure.exit);
        let AgentState::Stopping(stopping) = &self.state else { return };
        let told = matches!(failure.exit, Exit::Signal(signal) if stopping.sent.contains(&signal));
        let asks = matches!(stopping.next, Next::Ask { .. } | Next::Pause { .. });
        if self.failures.is_empty() || told || failure.exit.is_success() {
            return;
        }
        self.failures.push(failure.clone());
        if non_retryable && asks {
            self.give_up(CloseReason::NonRetryable(failure.to_string()));
        }
    }

    /// Closes the run at once, while the workers still stop.
    pub(super) fn give_up(&mut self, reason: CloseReason) {
        self.asked = None;
        self.outputs.push_back(AgentOutput::Close(reason.clone()));
        self.finish_instead(NodeOutcome::WorkerFailed(reason));
    }

    /// Makes this outcome the next step, unless the agent already ends with another.
    pub(super) fn finish_instead(&mut self, outcome: NodeOutcome) {
        if let AgentState::Stopping(Stopping { next, .. }) = &mut self.state
            && !matches!(next, Next::Finish(_))
        {
            *next = Next::Finish(outcome);
        }
    }

    /// The peers have started another round, most likely because of the failure here, and wait for this node. The
    /// node still waits for the budget's answer, which may require a backoff.
    pub(super) fn peers_rejoin(&mut self, why: Why) {
        let AgentState::Stopping(Stopping { next, .. }) = &mut self.state else { return };
        match next {
            Next::Ask { answer: None, ahead, .. } => *ahead = Some(why),
            Next::Ask { answer: Some(_), .. } => *next = Next::Rendezvous(why),
            Next::Rendezvous(_) | Next::Pause { .. } | Next::Finish(_) => {}
        }
    }

    /// The group ended for another reason than the failure here, so the budget is not asked.
    pub(super) fn rejoin_unasked(&mut self, why: Why) {
        if let AgentState::Stopping(Stopping { next, .. }) = &mut self.state
            && matches!(next, Next::Ask { .. } | Next::Pause { .. })
        {
            *next = Next::Rendezvous(why);
        }
    }

    /// The failure was collateral, so the restart is refunded.
    pub(super) fn excuse(&mut self, why: Why) {
        if let Some(round) = self.asked.take() {
            self.outputs.push_back(AgentOutput::RefundRestart { round, why });
        }
    }

    pub(super) fn counted(&mut self, now: Time, round: u64, counted: RestartAnswer) {
        // Asked for because of a hang. All nodes see a restart that is granted, and this one too.
        if let AgentState::Running(workers) = &self.state {
            if let RestartAnswer::Refused { used, blame } = counted
                && workers.round == round
                && workers.hung
            {
                self.hang_refused(now, no_restart_left(used, &blame));
            }
            return;
        }
        let delay = self.settings.restart_backoff;
        let AgentState::Stopping(Stopping { workers, next, .. }) = &mut self.state else { return };
        let Next::Ask { failure, failed, answer, ahead, .. } = next else { return };
        if workers.round != round {
            return;
        }
        match counted {
            RestartAnswer::Granted { short_lives } => {
                let until = failed.saturating_add(delay.after(short_lives));
                *next = Next::Pause { until, why: Why::WorkerFailed(failure.clone()) };
            }
            refused @ RestartAnswer::Refused { .. } => match ahead.take() {
                Some(why) => *next = Next::Rendezvous(why),
                None => *answer = Some(refused),
            },
        }
    }

    pub(super) fn stopped(&mut self, attempt: u64) {
        if let AgentState::Stopping(stopping) = &mut self.state
            && stopping.workers.attempt == attempt
        {
            stopping.gone = true;
        }
    }

    /// Workers that survive SIGKILL hold resources that the next ones would need, so the node gives up.
    pub(super) fn not_stopped(&mut self, attempt: u64, reason: String) {
        let AgentState::Stopping(stopping) = &mut self.state else { return };
        if stopping.workers.attempt == attempt {
            stopping.gone = true;
            self.finish_instead(NodeOutcome::NodeFailed(NodeError::NotStopped(reason)));
        }
    }

    /// Takes the next step, once it is decided and no process of the workers is left.
    pub(super) fn proceed(&mut self, now: Time) {
        if let Some(reason) = self.last_word(now) {
            self.give_up(reason);
        }
        let AgentState::Stopping(stopping) = &self.state else { return };
        if !stopping.gone {
            return;
        }
        match &stopping.next {
            Next::Rendezvous(why) => {
                let why = why.clone();
                self.rendezvous(why);
            }
            Next::Pause { until, why } if *until <= now => {
                let why = why.clone();
                self.rendezvous(why);
            }
            Next::Ask { .. } | Next::Pause { .. } => {}
            Next::Finish(outcome) => {
                let outcome = outcome.clone();
                self.finish(outcome);
            }
        }
    }

    /// The reason to close the run, if no restart is left and no event has excused the failure in time.
    fn last_word(&self, now: Time) -> Option<CloseReason> {
        let AgentState::Stopping(stopping) = &self.state else { return None };
        let Next::Ask { settled, answer, .. } = &stopping.next else { return None };
        match answer {
            Some(RestartAnswer::Refused { used, blame }) if *settled <= now => {
                Some(no_restart_left(*used, blame))
            }
            _ => None,
        }
    }
}

fn no_restart_left(used: u32, blame: &str) -> CloseReason {
    let used = match used {
        0 => "no restarts are allowed".to_owned(),
        1 => "the 1 restart was used".to_owned(),
        used => format!("all {used} restarts were used"),
    };
    CloseReason::Failed(format!("{blame}; {used}"))
}
