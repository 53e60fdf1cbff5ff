//! News from outside: of the group, the session, the run, and whoever started the launcher.

use super::stopping::Next;
use super::{Agent, Crew, State};
use crate::agent::collateral::excuses;
use crate::agent::ending::{Closed, Closing, Ending, Others};
use crate::agent::interface::{Change, Output, SIGKILL, SIGTERM};
use crate::agent::why::Why;
use crate::kv::Time;

impl Agent {
    pub(super) fn changed(&mut self, now: Time, round: u64, change: Change) {
        let planned = matches!(change, Change::NodesWaiting(_));
        let gone_ahead = matches!(change, Change::GoneAhead(_));
        let replaced = matches!(change, Change::Replaced(_));
        let failed = matches!(change, Change::PeerFailed(_));
        if excuses(&change) && self.asked == Some(round) {
            self.excuse(Why::Changed(change.clone()));
        }
        let why = Why::Changed(change);
        match &self.state {
            State::Placing(group) if group.round == round => self.meet(why),
            State::Running(crew) | State::Noticing(crew, ..) if crew.round == round && replaced => {
                let crew = crew.clone();
                self.stop(crew, SIGKILL, now, why.clone(), Next::Meet(why));
            }
            State::Running(crew) if crew.round == round => {
                let crew = crew.clone();
                if planned && !self.settings.notice.is_zero() {
                    self.notify(now, crew, why);
                } else {
                    self.stop_to_meet(now, crew, why);
                }
            }
            // That others are quicker to heed the same notice is no reason to cut it short.
            State::Noticing(crew, ..) if crew.round == round && !planned && !gone_ahead => {
                let crew = crew.clone();
                self.stop_to_meet(now, crew, why);
            }
            State::Stopping(stopping) if stopping.crew.round == round && !planned => {
                if replaced {
                    self.hasten(SIGKILL, now, &why);
                }
                self.meet_unasked(why);
            }
            // After a failure the others meet again, and that will be told. To leave before would look like
            // a lost member, which excuses failures.
            State::AtBarrier(barrier) if barrier.round == round && !planned && !failed => {
                self.finish(Ending::Succeeded(Others::GoneOn(why)));
            }
            _ => {}
        }
    }

    fn notify(&mut self, now: Time, crew: Crew, why: Why) {
        let stops_at = now.saturating_add(self.settings.notice);
        let attempt = crew.attempt;
        self.state = State::Noticing(crew, stops_at, why.clone());
        self.outputs.push_back(Output::NotifyWorkers { attempt, stops_at, why });
    }

    pub(super) fn stop_to_meet(&mut self, now: Time, crew: Crew, why: Why) {
        self.stop(crew, SIGTERM, self.kill_at(now), why.clone(), Next::Meet(why));
    }

    /// Others may take this node's place at `deadline`, so its workers must be gone by then. Half of the
    /// time is for them to go by themselves, the other half for the kill to do its work.
    pub(super) fn fenced(&mut self, now: Time, deadline: Time, reason: String) {
        let why = Why::SessionLost(reason);
        let half = deadline.saturating_sub(now) / 2;
        let kill_at = self.kill_at(now).min(now.saturating_add(half));
        match &self.state {
            State::Placing(_) => self.meet(why),
            State::Running(crew) | State::Noticing(crew, ..) => {
                let crew = crew.clone();
                self.stop(crew, SIGTERM, kill_at, why.clone(), Next::Meet(why));
            }
            State::Stopping(_) => {
                self.hasten(SIGTERM, kill_at, &why);
                self.excuse(why.clone());
                self.meet_unasked(why);
            }
            State::AtBarrier(_) => self.finish(Ending::Succeeded(Others::GoneOn(why))),
            // A meeting sees to its own session.
            State::Idle | State::Meeting | State::Finished => {}
        }
    }

    pub(super) fn run_closed(&mut self, now: Time, closed: Closed) {
        let why = Why::Closed(closed.clone());
        if let State::AtBarrier(_) = self.state {
            let others = match closed.closing {
                Closing::Done => Others::Done,
                _ => Others::GoneOn(why),
            };
            return self.finish(Ending::Succeeded(others));
        }
        if closed.closing == Closing::Done {
            // Whoever still works may finish; a further group there will not be.
            return;
        }
        match &self.state {
            State::Placing(_) => self.finish(Ending::RunFailed(closed)),
            State::Running(crew) | State::Noticing(crew, ..) => {
                let crew = crew.clone();
                let next = Next::Finish(Ending::RunFailed(closed));
                self.stop(crew, SIGTERM, self.kill_at(now), why, next);
            }
            State::Stopping(_) => self.finish_instead(Ending::RunFailed(closed)),
            // A meeting learns it by itself, and also whether this node was needed.
            _ => {}
        }
    }

    pub(super) fn signalled(&mut self, now: Time, signal: i32) {
        self.signals += 1;
        let why = Why::Signal(signal);
        match &self.state {
            State::Finished => {}
            State::Running(crew) | State::Noticing(crew, ..) => {
                let crew = crew.clone();
                let next = Next::Finish(Ending::Signalled(signal));
                self.stop(crew, signal, self.kill_at(now), why, next);
            }
            State::Stopping(stopping) => {
                let kill_at = stopping.kill_at;
                match self.signals {
                    1 => self.pass_on(signal, kill_at, &why),
                    _ => self.hasten(SIGKILL, now, &why),
                }
                self.finish_instead(Ending::Signalled(signal));
            }
            _ => self.finish(Ending::Signalled(signal)),
        }
    }
}
