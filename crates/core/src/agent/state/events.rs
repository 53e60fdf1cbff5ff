//! Events of the group, the session and the run, and signals to the launcher.

use super::stopping::Next;
use super::{Agent, AgentState, Noticing, StartedWorkers};
use crate::agent::collateral::excuses;
use crate::agent::messages::{AgentOutput, GroupChange, SIGKILL, SIGTERM};
use crate::agent::operator::OperatorAction;
use crate::agent::outcome::{CloseReason, NodeOutcome, PeersAtExit, RunClosure};
use crate::agent::why::Why;
use crate::kv::Time;

impl Agent {
    pub(super) fn changed(&mut self, now: Time, round: u64, change: GroupChange) {
        let left = match &change {
            GroupChange::NodesWaiting(_) => Some(self.settings.notice),
            GroupChange::PeerLeaves(departure) => Some(departure.left()),
            _ => None,
        };
        let gone_ahead = matches!(change, GroupChange::GoneAhead(_));
        let replaced = matches!(change, GroupChange::Replaced(_));
        let failed = matches!(change, GroupChange::PeerFailed(_) | GroupChange::Hung(_));
        let lost = matches!(change, GroupChange::PeerLost(_));
        let stops_at = left.map(|left| now.saturating_add(left));
        if excuses(&change) && self.asked == Some(round) {
            self.excuse(Why::Changed(change.clone()));
        }
        let why = Why::Changed(change);
        match &mut self.state {
            AgentState::Placing(group) if group.round == round => self.rendezvous(why),
            AgentState::Running(workers) if workers.round == round => {
                let workers = workers.clone();
                match stops_at.filter(|stops_at| *stops_at > now) {
                    Some(stops_at) => self.notify(workers, stops_at, why, None),
                    None if replaced => self.kill_and_then(now, workers, why, None),
                    None => self.stop_and_then(now, workers, why, None),
                }
            }
            // Of two notices the earlier deadline applies.
            AgentState::Noticing(noticing) if noticing.workers.round == round && left.is_some() => {
                noticing.until = stops_at.unwrap_or(now).min(noticing.until);
            }
            // Peers may act on the same notice, or leave, earlier; that does not cut the notice short.
            AgentState::Noticing(noticing)
                if gone_ahead || lost && noticing.is_of_a_departure() => {}
            AgentState::Noticing(noticing) if noticing.workers.round == round => {
                let (workers, leaves) = (noticing.workers.clone(), noticing.leaves);
                match replaced {
                    true => self.kill_and_then(now, workers, why, leaves),
                    false => self.stop_and_then(now, workers, why, leaves),
                }
            }
            AgentState::Stopping(stopping) if stopping.workers.round == round && left.is_none() => {
                if replaced {
                    self.hasten(SIGKILL, now, &why);
                }
                match gone_ahead {
                    true => self.peers_rejoin(why),
                    false => self.rejoin_unasked(why),
                }
            }
            // After a failure the peers start another round, which is an event of its own. Leaving before it would
            // look like a lost member, which excuses failures.
            AgentState::AtBarrier(barrier)
                if barrier.round == round && left.is_none() && !failed =>
            {
                self.finish(NodeOutcome::Succeeded(PeersAtExit::WentOn(why)));
            }
            _ => {}
        }
    }

    fn notify(&mut self, workers: StartedWorkers, stops_at: Time, why: Why, leaves: Option<i32>) {
        let attempt = workers.attempt;
        self.state =
            AgentState::Noticing(Noticing { workers, until: stops_at, why: why.clone(), leaves });
        self.outputs.push_back(AgentOutput::NotifyWorkers { attempt, stops_at, why });
    }

    /// Stops the workers, to rejoin the rendezvous or to leave.
    pub(super) fn stop_and_then(
        &mut self,
        now: Time,
        workers: StartedWorkers,
        why: Why,
        leaves: Option<i32>,
    ) {
        self.stop(workers, SIGTERM, self.kill_at(now), why.clone(), next(why, leaves));
    }

    /// Kills the workers, to rejoin the rendezvous or to leave.
    fn kill_and_then(&mut self, now: Time, workers: StartedWorkers, why: Why, leaves: Option<i32>) {
        self.stop(workers, SIGKILL, now, why.clone(), next(why, leaves));
    }

    /// Another node may take this node's rank at `deadline`, so its workers must be gone by then. They have
    /// half of the time to exit by themselves; the other half is for the kill to take effect.
    pub(super) fn fenced(&mut self, now: Time, deadline: Time, reason: String) {
        let why = Why::SessionLost(reason);
        let half = deadline.saturating_sub(now) / 2;
        let kill_at = self.kill_at(now).min(now.saturating_add(half));
        match &self.state {
            AgentState::Placing(_) => self.rendezvous(why),
            AgentState::Running(workers) => {
                let workers = workers.clone();
                self.stop(workers, SIGTERM, kill_at, why.clone(), Next::Rendezvous(why));
            }
            AgentState::Noticing(noticing) => {
                let (workers, leaves) = (noticing.workers.clone(), noticing.leaves);
                self.stop(workers, SIGTERM, kill_at, why.clone(), next(why, leaves));
            }
            AgentState::Stopping(_) => {
                self.hasten(SIGTERM, kill_at, &why);
                self.excuse(why.clone());
                self.rejoin_unasked(why);
            }
            AgentState::AtBarrier(_) => {
                self.finish(NodeOutcome::Succeeded(PeersAtExit::WentOn(why)))
            }
            // The rendezvous reopens its session by itself.
            AgentState::Idle | AgentState::Rendezvous | AgentState::Finished => {}
        }
    }

    pub(super) fn run_closed(&mut self, now: Time, closed: RunClosure) {
        let why = Why::Closed(closed.clone());
        if let AgentState::AtBarrier(_) = self.state {
            let others = match closed.reason {
                CloseReason::Succeeded => PeersAtExit::Done,
                _ => PeersAtExit::WentOn(why),
            };
            return self.finish(NodeOutcome::Succeeded(others));
        }
        if closed.reason == CloseReason::Succeeded {
            // Running workers may finish; no further group forms.
            return;
        }
        match &self.state {
            AgentState::Placing(_) => self.finish(NodeOutcome::RunFailed(closed)),
            AgentState::Running(workers) | AgentState::Noticing(Noticing { workers, .. }) => {
                let workers = workers.clone();
                let next = Next::Finish(NodeOutcome::RunFailed(closed));
                self.stop(workers, SIGTERM, self.kill_at(now), why, next);
            }
            AgentState::Stopping(_) => self.finish_instead(NodeOutcome::RunFailed(closed)),
            // The rendezvous reports it by itself, and also whether this node was needed.
            _ => {}
        }
    }

    /// The node leaves when its workers are gone, and not before: another node may take its place then (invariant L1).
    pub(super) fn evicted(&mut self, now: Time, action: OperatorAction) {
        let why = Why::Evicted(action.clone());
        match &self.state {
            AgentState::Finished => {}
            AgentState::AtBarrier(_) => {
                self.finish(NodeOutcome::Succeeded(PeersAtExit::WentOn(why)));
            }
            AgentState::Running(workers) | AgentState::Noticing(Noticing { workers, .. }) => {
                let workers = workers.clone();
                let next = Next::Finish(NodeOutcome::Evicted(action));
                self.stop(workers, SIGTERM, self.kill_at(now), why, next);
            }
            AgentState::Stopping(_) => self.finish_instead(NodeOutcome::Evicted(action)),
            AgentState::Idle | AgentState::Rendezvous | AgentState::Placing(_) => {
                self.finish(NodeOutcome::Evicted(action));
            }
        }
    }

    pub(super) fn signalled(&mut self, now: Time, signal: i32) {
        self.signals += 1;
        let why = Why::Signal(signal);
        let stops_at = now.saturating_add(self.settings.notice);
        let has_notice = signal == SIGTERM && stops_at > now && self.signals == 1;
        match &mut self.state {
            AgentState::Finished => {}
            AgentState::Running(workers) if has_notice => {
                let workers = workers.clone();
                self.announce(&workers, stops_at, &why);
                self.notify(workers, stops_at, why, Some(signal));
            }
            // The workers have got notice already.
            AgentState::Noticing(noticing) if has_notice => {
                noticing.until = noticing.until.min(stops_at);
                noticing.leaves = Some(signal);
                let (workers, stops_at) = (noticing.workers.clone(), noticing.until);
                self.announce(&workers, stops_at, &why);
            }
            AgentState::Noticing(Noticing { workers, leaves: Some(_), .. }) => {
                let workers = workers.clone();
                self.kill_and_then(now, workers, why, Some(signal));
            }
            AgentState::Running(workers) | AgentState::Noticing(Noticing { workers, .. }) => {
                let workers = workers.clone();
                let next = Next::Finish(NodeOutcome::Signalled(signal));
                self.stop(workers, signal, self.kill_at(now), why, next);
            }
            AgentState::Stopping(stopping) => {
                let kill_at = stopping.kill_at;
                match self.signals {
                    1 => self.pass_on(signal, kill_at, &why),
                    _ => self.hasten(SIGKILL, now, &why),
                }
                self.finish_instead(NodeOutcome::Signalled(signal));
            }
            _ => self.finish(NodeOutcome::Signalled(signal)),
        }
    }

    /// Announces this node's departure to the other nodes of the group, if there are any.
    fn announce(&mut self, workers: &StartedWorkers, stops_at: Time, why: &Why) {
        if workers.nodes > 1 {
            let (round, why) = (workers.round, format!("{}: {why}", self.settings.host));
            self.outputs.push_back(AgentOutput::Announce { round, stops_at, why });
        }
    }
}

/// The step after the workers are gone: the next rendezvous, unless a signal asked the node to leave.
fn next(why: Why, leaves: Option<i32>) -> Next {
    match leaves {
        Some(signal) => Next::Finish(NodeOutcome::Signalled(signal)),
        None => Next::Rendezvous(why),
    }
}
