//! Workers that end by themselves, or never begin.

use super::stopping::Next;
use super::{Agent, Barrier, Crew, Noticing, State};
use crate::agent::ending::{Closing, Ending, Trouble};
use crate::agent::failure::{Exit, Failure};
use crate::agent::interface::{Exited, Output, SIGKILL, SIGTERM};
use crate::agent::why::Why;
use crate::kv::Time;

impl Agent {
    pub(super) fn not_started(&mut self, now: Time, attempt: u64, reason: String) {
        let Some(crew) = self.crew_of(attempt) else { return };
        let next = Next::Finish(Ending::NodeFailed(Trouble::NotStarted(reason.clone())));
        self.stop(crew, SIGKILL, now, Why::NotStarted(reason), next);
    }

    /// The workers, if they are those of this start and are not being stopped.
    fn crew_of(&self, attempt: u64) -> Option<Crew> {
        match &self.state {
            State::Running(crew) | State::Noticing(Noticing { crew, .. }) => Some(crew),
            _ => None,
        }
        .filter(|crew| crew.attempt == attempt)
        .cloned()
    }

    pub(super) fn exited(&mut self, now: Time, exited: Exited) {
        let Exited { attempt, local_rank, exit, message } = exited;
        let everyone = self.settings.local_workers as usize;
        let host = self.settings.host.clone();
        match &mut self.state {
            State::Running(crew) if crew.attempt == attempt => {
                crew.gone.insert(local_rank);
                if !exit.is_success() {
                    let rank = crew.base_rank.saturating_add(local_rank);
                    let crew = crew.clone();
                    let failure = Failure { host, local_rank, rank, exit, message };
                    self.failed(now, crew, failure);
                } else if crew.gone.len() == everyone {
                    let round = crew.round;
                    let until = self.settings.exit_barrier.map(|time| now.saturating_add(time));
                    self.state = State::AtBarrier(Barrier { round, until });
                    self.outputs.push_back(Output::ExitBarrier { round });
                }
            }
            State::Noticing(Noticing { crew, until, .. }) if crew.attempt == attempt => {
                crew.gone.insert(local_rank);
                if crew.gone.len() == everyone {
                    *until = now;
                }
            }
            State::Stopping(stopping) if stopping.crew.attempt == attempt => {
                let rank = stopping.crew.base_rank.saturating_add(local_rank);
                self.fell(Failure { host, local_rank, rank, exit, message });
            }
            _ => {}
        }
    }

    /// A worker failed that nobody had told to go.
    fn failed(&mut self, now: Time, crew: Crew, failure: Failure) {
        let round = crew.round;
        let settle = if crew.nodes > 1 { self.settings.settle } else { Time::ZERO };
        let settled = now.saturating_add(settle);
        let lived = now.saturating_sub(crew.since);
        let (failed, answer, ahead) = (now, None, None);
        let next = Next::Ask { failure: failure.clone(), failed, settled, answer, ahead };
        let hopeless = self.is_hopeless(&failure.exit);
        self.failures.push(failure.clone());
        self.stop(crew, SIGTERM, self.kill_at(now), Why::WorkerFailed(failure.clone()), next);
        if hopeless {
            return self.give_up(Closing::Hopeless(failure.to_string()));
        }
        self.asked = Some(round);
        self.outputs.push_back(Output::CountRestart { round, blame: failure.to_string(), lived });
    }

    pub(super) fn is_hopeless(&self, exit: &Exit) -> bool {
        self.settings.no_restart_exit_code.is_some_and(|code| *exit == Exit::Code(code))
    }
}
