//! News from outside: of the group, the session, the run, and whoever started the launcher.

use super::stopping::Next;
use super::{Agent, Crew, Noticing, State};
use crate::agent::collateral::excuses;
use crate::agent::ending::{Closed, Closing, Ending, Others};
use crate::agent::interface::{Change, Output, SIGKILL, SIGTERM};
use crate::agent::why::Why;
use crate::kv::Time;

impl Agent {
    pub(super) fn changed(&mut self, now: Time, round: u64, change: Change) {
        let left = match &change {
            Change::NodesWaiting(_) => Some(self.settings.notice),
            Change::PeerLeaves(departure) => Some(departure.left()),
            _ => None,
        };
        let gone_ahead = matches!(change, Change::GoneAhead(_));
        let replaced = matches!(change, Change::Replaced(_));
        let failed = matches!(change, Change::PeerFailed(_));
        let lost = matches!(change, Change::PeerLost(_));
        let stops_at = left.map(|left| now.saturating_add(left));
        if excuses(&change) && self.asked == Some(round) {
            self.excuse(Why::Changed(change.clone()));
        }
        let why = Why::Changed(change);
        match &mut self.state {
            State::Placing(group) if group.round == round => self.meet(why),
            State::Running(crew) if crew.round == round => {
                let crew = crew.clone();
                match stops_at.filter(|stops_at| *stops_at > now) {
                    Some(stops_at) => self.notify(crew, stops_at, why, None),
                    None if replaced => self.kill_and_then(now, crew, why, None),
                    None => self.stop_and_then(now, crew, why, None),
                }
            }
            // Of two notices the earlier end counts.
            State::Noticing(noticing) if noticing.crew.round == round && left.is_some() => {
                noticing.until = stops_at.unwrap_or(now).min(noticing.until);
            }
            // That others are quicker to heed the same notice, or to go, is no reason to cut it short.
            State::Noticing(noticing) if gone_ahead || lost && noticing.is_of_a_departure() => {}
            State::Noticing(noticing) if noticing.crew.round == round => {
                let (crew, leaves) = (noticing.crew.clone(), noticing.leaves);
                match replaced {
                    true => self.kill_and_then(now, crew, why, leaves),
                    false => self.stop_and_then(now, crew, why, leaves),
                }
            }
            State::Stopping(stopping) if stopping.crew.round == round && left.is_none() => {
                if replaced {
                    self.hasten(SIGKILL, now, &why);
                }
                match gone_ahead {
                    true => self.others_meet(why),
                    false => self.meet_unasked(why),
                }
            }
            // After a failure the others meet again, and that will be told. To leave before would look like
            // a lost member, which excuses failures.
            State::AtBarrier(barrier) if barrier.round == round && left.is_none() && !failed => {
                self.finish(Ending::Succeeded(Others::GoneOn(why)));
            }
            _ => {}
        }
    }

    fn notify(&mut self, crew: Crew, stops_at: Time, why: Why, leaves: Option<i32>) {
        let attempt = crew.attempt;
        self.state = State::Noticing(Noticing { crew, until: stops_at, why: why.clone(), leaves });
        self.outputs.push_back(Output::NotifyWorkers { attempt, stops_at, why });
    }

    /// Stops the workers, to meet again or to leave.
    pub(super) fn stop_and_then(&mut self, now: Time, crew: Crew, why: Why, leaves: Option<i32>) {
        self.stop(crew, SIGTERM, self.kill_at(now), why.clone(), next(why, leaves));
    }

    /// The same without giving them time.
    fn kill_and_then(&mut self, now: Time, crew: Crew, why: Why, leaves: Option<i32>) {
        self.stop(crew, SIGKILL, now, why.clone(), next(why, leaves));
    }

    /// Others may take this node's place at `deadline`, so its workers must be gone by then. Half of the
    /// time is for them to go by themselves, the other half for the kill to do its work.
    pub(super) fn fenced(&mut self, now: Time, deadline: Time, reason: String) {
        let why = Why::SessionLost(reason);
        let half = deadline.saturating_sub(now) / 2;
        let kill_at = self.kill_at(now).min(now.saturating_add(half));
        match &self.state {
            State::Placing(_) => self.meet(why),
            State::Running(crew) => {
                let crew = crew.clone();
                self.stop(crew, SIGTERM, kill_at, why.clone(), Next::Meet(why));
            }
            State::Noticing(noticing) => {
                let (crew, leaves) = (noticing.crew.clone(), noticing.leaves);
                self.stop(crew, SIGTERM, kill_at, why.clone(), next(why, leaves));
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
            State::Running(crew) | State::Noticing(Noticing { crew, .. }) => {
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
        let stops_at = now.saturating_add(self.settings.notice);
        let has_notice = signal == SIGTERM && stops_at > now && self.signals == 1;
        match &mut self.state {
            State::Finished => {}
            State::Running(crew) if has_notice => {
                let crew = crew.clone();
                self.announce(&crew, stops_at, &why);
                self.notify(crew, stops_at, why, Some(signal));
            }
            // The workers were told already that they will be stopped.
            State::Noticing(noticing) if has_notice => {
                noticing.until = noticing.until.min(stops_at);
                noticing.leaves = Some(signal);
                let (crew, stops_at) = (noticing.crew.clone(), noticing.until);
                self.announce(&crew, stops_at, &why);
            }
            State::Noticing(Noticing { crew, leaves: Some(_), .. }) => {
                let crew = crew.clone();
                self.kill_and_then(now, crew, why, Some(signal));
            }
            State::Running(crew) | State::Noticing(Noticing { crew, .. }) => {
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

    /// Tells the others of the group, if there are any, that this node goes.
    fn announce(&mut self, crew: &Crew, stops_at: Time, why: &Why) {
        if crew.nodes > 1 {
            let (round, why) = (crew.round, format!("{}: {why}", self.settings.host));
            self.outputs.push_back(Output::Announce { round, stops_at, why });
        }
    }
}

/// What comes after the workers: the next meeting, unless the node was told to go.
fn next(why: Why, leaves: Option<i32>) -> Next {
    match leaves {
        Some(signal) => Next::Finish(Ending::Signalled(signal)),
        None => Next::Meet(why),
    }
}
