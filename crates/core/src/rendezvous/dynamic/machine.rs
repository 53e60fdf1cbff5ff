//! What a node should do next with the shared document, and why.
//!
//! [`decide`] looks at a copy and says what to write in its place. The caller writes that under a
//! compare, so a decision made on what is no longer so never comes about.

use std::fmt::Write as _;

use super::document::{DynamicClosure, SharedState};
use super::observer::Observer;
use crate::kv::Time;
use crate::rendezvous::documents::Limits;
use crate::rendezvous::window::{FreezeReason, JoinDecision, JoinWindow, WaitReason};

/// What a node wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// To stay as it is: in its group, or out of everything.
    Rest,
    /// To be in a group of this round or a later one.
    Join {
        /// One more than the last round that it was in.
        not_before: u64,
    },
    /// To be gone.
    Leave,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Write this, if the document is still what was decided on.
    Write(Box<SharedState>),
    /// Nothing, until the document changes or, if one is given, this moment comes.
    Wait(Option<Time>),
    /// The group has formed, and the node is in it.
    Meet {
        /// Which round it is.
        round: u64,
        /// The node's rank.
        rank: u32,
        /// How many nodes there are.
        world_size: u32,
    },
    /// The node is out of everything.
    Gone,
    /// There will be no group.
    Fail(DynamicFailure),
}

/// Why there will be no group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DynamicFailure {
    /// The run is closed.
    Closed(DynamicClosure),
    /// The run is closed, and the node was never needed.
    NotNeeded(DynamicClosure),
    /// It took too long.
    Timeout {
        /// What was missing, and who was there.
        missing: String,
    },
    /// Other nodes want groups of another size.
    Limits {
        /// What they want.
        theirs: Limits,
        /// What this node wants.
        ours: Limits,
    },
}

/// Why something is done, or waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// The round goes on taking nodes.
    Gathering(WaitReason),
    /// The node enters the round.
    Joining(u64),
    /// The round stops taking nodes.
    Forming(FreezeReason),
    /// A group is there and has room; its members will see that somebody waits.
    LateForRound(u64),
    /// A group is there and is full.
    NotNeeded(u64),
    /// The node is in a group.
    Met(u64),
    /// The others are to see that the node lives.
    Heartbeat,
    /// Nothing is wanted.
    Resting,
    /// The node leaves.
    Leaving,
    /// See the failure.
    Failed,
}

impl Reason {
    /// The sentence for people.
    pub fn describe(&self, now: Time) -> String {
        match self {
            Self::Gathering(waiting) => waiting.describe(now),
            Self::Joining(round) => format!("joining round {round}"),
            Self::Forming(cause) => format!("forming the group: {cause}"),
            Self::LateForRound(round) => {
                format!(
                    "the group of round {round} has room; waiting for its members to come again"
                )
            }
            Self::NotNeeded(round) => {
                format!("the group of round {round} is full; standing by")
            }
            Self::Met(round) => format!("in the group of round {round}"),
            Self::Heartbeat => "showing that this node lives".into(),
            Self::Resting => "nothing to do".into(),
            Self::Leaving => "leaving".into(),
            Self::Failed => "giving up".into(),
        }
    }
}

/// What the node behind `observer` should do about `state`, and why.
///
/// The observer must have [looked](Observer::look) at `state` before. The first node, which finds no
/// state, makes one:
///
/// ```
/// use std::time::Duration;
/// use rallypoint_core::rendezvous::dynamic::{Action, Observer, DynamicSettings, Intent, decide};
/// use rallypoint_core::rendezvous::documents::Limits;
///
/// let mut observer = Observer::new("a", DynamicSettings::new(Limits { min: 1, max: 1 }));
/// let now = Duration::from_secs(5);
/// observer.begin_waiting(now);
/// let (action, _) = decide(now, None, &mut observer, Intent::Join { not_before: 1 });
/// let Action::Write(state) = action else { panic!() };
/// assert!(state.complete);
/// observer.look(now, &state);
/// let (action, _) = decide(now, Some(&state), &mut observer, Intent::Join { not_before: 1 });
/// assert_eq!(action, Action::Meet { round: 1, rank: 0, world_size: 1 });
/// ```
pub fn decide(
    now: Time,
    state: Option<&SharedState>,
    observer: &mut Observer,
    intent: Intent,
) -> (Action, Reason) {
    let step = DecisionInput { now, state, observer };
    match intent {
        Intent::Rest => step.rest(),
        Intent::Join { not_before } => step.join(not_before),
        Intent::Leave => step.leave(),
    }
}

struct DecisionInput<'a> {
    now: Time,
    state: Option<&'a SharedState>,
    observer: &'a mut Observer,
}

impl DecisionInput<'_> {
    fn rest(self) -> (Action, Reason) {
        let Some(state) = self.state else { return (Action::Wait(None), Reason::Resting) };
        // A node that was taken for dead does not come back by itself: the others may have met
        // without it. Its agent is told so, and enters anew.
        let present = state.nodes.contains_key(self.observer.me());
        if state.closed.is_some() || !present {
            return (Action::Wait(None), Reason::Resting);
        }
        let next = self.observer.without_dead(state);
        let reason = Reason::Met(state.round);
        self.beat_or_wait(next, None, reason)
    }

    fn leave(self) -> (Action, Reason) {
        let me = self.observer.me();
        match self.state {
            Some(state) if state.nodes.contains_key(me) => {
                let mut next = self.observer.without_dead(state);
                next.remove(me);
                next.call();
                self.write(next, Reason::Leaving)
            }
            _ => (Action::Gone, Reason::Leaving),
        }
    }

    fn join(self, not_before: u64) -> (Action, Reason) {
        let limits = self.observer.settings().limits;
        let mut next = match self.state {
            Some(state) => self.observer.without_dead(state),
            None => SharedState::fresh(limits, not_before),
        };
        let me = self.observer.me().to_owned();
        if let Some(closed) = next.closed.take() {
            let failure = match next.redundancy_list.contains(&me) {
                true => DynamicFailure::NotNeeded(closed),
                false => DynamicFailure::Closed(closed),
            };
            return (Action::Fail(failure), Reason::Failed);
        }
        if next.limits != limits {
            if next.nodes.keys().any(|id| *id != me) {
                let failure = DynamicFailure::Limits { theirs: next.limits, ours: limits };
                return (Action::Fail(failure), Reason::Failed);
            }
            // Everybody who wanted it otherwise is gone.
            next.limits = limits;
        }
        if next.redundancy_list.contains(&me) {
            // Whoever stands by may do so for ever, and has all of its time once it is needed.
            self.observer.begin_waiting(self.now);
        }
        if next.complete && next.takes_part(&me) && next.round >= not_before {
            let rank = next.participants.get(&me).copied().flatten().unwrap_or(0);
            let world_size = next.participants.len() as u32;
            return (Action::Meet { round: next.round, rank, world_size }, Reason::Met(next.round));
        }
        if self.observer.deadline.is_some_and(|deadline| self.now >= deadline) {
            return (Action::Fail(self.too_late(&next)), Reason::Failed);
        }
        if next.complete {
            // A member that comes again, for whatever reason, wants another round; and when no member
            // lives any more there is nobody else to open it.
            if !next.participants.contains_key(&me) && next.live_participants() > 0 {
                return self.stand_by(next, &me);
            }
            next.open_next();
        }
        self.gather(next, &me, not_before)
    }

    /// A group is there without this node.
    fn stand_by(self, mut next: SharedState, me: &str) -> (Action, Reason) {
        let (reason, list, other) = if next.has_room() {
            (Reason::LateForRound(next.round), &mut next.wait_list, &mut next.redundancy_list)
        } else {
            (Reason::NotNeeded(next.round), &mut next.redundancy_list, &mut next.wait_list)
        };
        let moved = other.remove(me) | list.insert(me.to_owned());
        if moved || !next.nodes.contains_key(me) {
            next.arrive(me);
            return self.write(next, reason);
        }
        let until = self.observer.deadline;
        self.beat_or_wait(next, until, reason)
    }

    /// A round takes nodes.
    fn gather(self, mut next: SharedState, me: &str, not_before: u64) -> (Action, Reason) {
        let inside = next.takes_part(me);
        if !inside {
            next.join(me);
            // Rounds only grow, also for a node that remembers one from before the state was lost.
            next.round = next.round.max(not_before);
        }
        next.call();
        let mut new_call = JoinWindow::new(next.limits, self.observer.settings().last_call);
        let gate = match &mut self.observer.gate {
            Some((call, gate)) if next.last_call == Some(*call) => gate,
            _ => &mut new_call,
        };
        let verdict = gate.decide(self.now, next.roll(), None);
        let until = [gate.next_wake(), self.observer.deadline].into_iter().flatten().min();
        match verdict {
            JoinDecision::Freeze(cause) => {
                next.form_group();
                self.write(next, Reason::Forming(cause))
            }
            JoinDecision::Wait(_) if !inside => {
                let reason = Reason::Joining(next.round);
                self.write(next, reason)
            }
            JoinDecision::Wait(waiting) => {
                let called = self.state.map(|state| state.last_call) != Some(next.last_call);
                let reason = Reason::Gathering(waiting);
                match called {
                    true => self.write(next, reason),
                    false => self.beat_or_wait(next, until, reason),
                }
            }
        }
    }

    fn too_late(&self, next: &SharedState) -> DynamicFailure {
        let me = self.observer.me();
        let mut missing = if next.complete {
            format!("the group of round {} did not come together again for this node", next.round)
        } else {
            let limits = next.limits;
            let roll = next.roll();
            let joined = roll.joined;
            let mut text = match joined < limits.min {
                true => WaitReason::ForEnough { joined, min: limits.min }.describe(self.now),
                false => format!("{joined} of {} nodes, and the last call not over", limits.max),
            };
            let late = roll.members_to_come + roll.others_to_come;
            if late > 0 {
                let _ = write!(text, " ({late} live nodes did not come)");
            }
            text
        };
        let others: Vec<&str> =
            next.participants.keys().map(String::as_str).filter(|id| *id != me).collect();
        let _ = match others.is_empty() {
            true => write!(missing, "; nobody else is there"),
            false => write!(missing, "; besides this node: {}", others.join(", ")),
        };
        DynamicFailure::Timeout { missing }
    }

    fn beat_or_wait(
        self,
        next: SharedState,
        until: Option<Time>,
        reason: Reason,
    ) -> (Action, Reason) {
        let due = self.observer.next_beat(self.now);
        if self.now >= due {
            return self.write(next, Reason::Heartbeat);
        }
        (Action::Wait(Some(until.map_or(due, |until| until.min(due)))), reason)
    }

    fn write(self, mut next: SharedState, reason: Reason) -> (Action, Reason) {
        next.sign(self.observer.me());
        (Action::Write(Box::new(next)), reason)
    }
}

#[cfg(test)]
mod tests;
