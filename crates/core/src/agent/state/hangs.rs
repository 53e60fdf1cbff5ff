//! Workers without progress: when to look, and when to ask all nodes for the stacks of their workers.

use super::{Agent, AgentState, Noticing, StartedWorkers};
use crate::agent::hang::HangRequest;
use crate::agent::messages::AgentOutput;
use crate::kv::Time;

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
        if let Some((number, silent)) = watch.seen(now, latest) {
            let millis = u64::try_from(silent.as_millis()).unwrap_or(u64::MAX);
            let host = self.settings.host.clone();
            let request = HangRequest { round, number, host, millis };
            self.outputs.push_back(AgentOutput::RequestStacks(request));
        }
    }

    /// All nodes of the group answer, whatever their own workers do.
    pub(super) fn stacks_wanted(&mut self, now: Time, request: HangRequest) {
        let round = match &mut self.state {
            AgentState::Running(workers) => {
                if let Some(watch) =
                    workers.watch.as_mut().filter(|_| workers.round == request.round)
                {
                    watch.told(now, request.number);
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
}
