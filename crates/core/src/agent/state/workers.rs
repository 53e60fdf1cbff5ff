//! Workers that exit by themselves, or cannot be started.

use super::stopping::Next;
use super::{Agent, AgentState, Barrier, Noticing, StartedWorkers};
use crate::agent::failure::{Exit, WorkerFailure};
use crate::agent::hang::{HangOver, HangWatch};
use crate::agent::messages::{AgentOutput, Exited, SIGKILL, SIGTERM};
use crate::agent::outcome::{CloseReason, NodeError, NodeOutcome};
use crate::agent::why::Why;
use crate::kv::Time;

impl Agent {
    pub(super) fn not_started(&mut self, now: Time, attempt: u64, reason: String) {
        let Some(workers) = self.workers_of(attempt) else { return };
        let next = Next::Finish(NodeOutcome::NodeFailed(NodeError::NotStarted(reason.clone())));
        self.stop(workers, SIGKILL, now, Why::NotStarted(reason), next);
    }

    /// The workers of this start, unless they are being stopped.
    fn workers_of(&self, attempt: u64) -> Option<StartedWorkers> {
        match &self.state {
            AgentState::Running(workers) | AgentState::Noticing(Noticing { workers, .. }) => {
                Some(workers)
            }
            _ => None,
        }
        .filter(|workers| workers.attempt == attempt)
        .cloned()
    }

    pub(super) fn exited(&mut self, now: Time, exited: Exited) {
        let Exited { attempt, local_rank, exit, message } = exited;
        let everyone = self.settings.local_workers as usize;
        let host = self.settings.host.clone();
        match &mut self.state {
            AgentState::Running(workers) if workers.attempt == attempt => {
                workers.gone.insert(local_rank);
                if !exit.is_success() {
                    let rank = workers.base_rank.saturating_add(local_rank);
                    let workers = workers.clone();
                    let failure = WorkerFailure { host, local_rank, rank, exit, message };
                    self.failed(now, workers, failure);
                } else if workers.gone.len() == everyone {
                    let round = workers.round;
                    // Workers that are done hang no more.
                    let open = workers.watch.as_ref().and_then(HangWatch::open);
                    let over = open.map(|number| AgentOutput::EndHang(HangOver { round, number }));
                    self.outputs.extend(over);
                    let until = self.settings.exit_barrier.map(|time| now.saturating_add(time));
                    self.state = AgentState::AtBarrier(Barrier { round, until });
                    self.outputs.push_back(AgentOutput::ExitBarrier { round });
                }
            }
            AgentState::Noticing(Noticing { workers, until, .. }) if workers.attempt == attempt => {
                workers.gone.insert(local_rank);
                if workers.gone.len() == everyone {
                    *until = now;
                }
            }
            AgentState::Stopping(stopping) if stopping.workers.attempt == attempt => {
                let rank = stopping.workers.base_rank.saturating_add(local_rank);
                self.fell(WorkerFailure { host, local_rank, rank, exit, message });
            }
            _ => {}
        }
    }

    /// Handles the failure of a worker that was not asked to stop.
    fn failed(&mut self, now: Time, workers: StartedWorkers, failure: WorkerFailure) {
        let round = workers.round;
        let settle = if workers.nodes > 1 { self.settings.settle } else { Time::ZERO };
        let settled = now.saturating_add(settle);
        let lived = now.saturating_sub(workers.since);
        let (failed, answer, ahead) = (now, None, None);
        let next = Next::Ask { failure: failure.clone(), failed, settled, answer, ahead };
        let non_retryable = self.is_non_retryable(&failure.exit);
        self.failures.push(failure.clone());
        self.stop(workers, SIGTERM, self.kill_at(now), Why::WorkerFailed(failure.clone()), next);
        if non_retryable {
            return self.give_up(CloseReason::NonRetryable(failure.to_string()));
        }
        self.asked = Some(round);
        self.outputs.push_back(AgentOutput::ConsumeRestart {
            round,
            blame: failure.to_string(),
            lived,
        });
    }

    pub(super) fn is_non_retryable(&self, exit: &Exit) -> bool {
        self.settings.no_restart_exit_code.is_some_and(|code| *exit == Exit::Code(code))
    }
}
