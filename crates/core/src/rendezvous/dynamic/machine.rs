//! The decisions of a node about the shared document, with their reasons.
//!
//! [`decide`] gets a copy of the document and returns what to write in its place. The caller writes by
//! compare-and-set, so a decision on a stale copy has no effect.

use std::fmt::Write as _;

use super::document::{DynamicClosure, SharedState};
use super::observer::Observer;
use crate::kv::Time;
use crate::rendezvous::documents::Limits;
use crate::rendezvous::window::{FreezeReason, JoinDecision, JoinWindow, WaitReason};

/// The intent of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// To stay a member of its group, or to stay outside.
    Rest,
    /// To join the group of this round or of a later one.
    Join {
        /// The first acceptable round: one more than that of the node's last group.
        not_before: u64,
    },
    /// To leave the run.
    Leave,
}

/// The action that a node must take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Write this state by compare-and-set.
    Write(Box<SharedState>),
    /// Wait until the document changes, or until this time if one is given.
    Wait(Option<Time>),
    /// Report the formed group, of which the node is a member.
    Meet {
        /// The round of the group.
        round: u64,
        /// The node's rank.
        rank: u32,
        /// The number of members.
        world_size: u32,
    },
    /// Report that the node has left the run.
    Gone,
    /// Report that no group forms with this node.
    Fail(DynamicFailure),
}

/// Why no group forms with a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DynamicFailure {
    /// The run is closed.
    Closed(DynamicClosure),
    /// The run is closed, and the node was a spare.
    NotNeeded(DynamicClosure),
    /// The join timeout is over.
    Timeout {
        /// What was missing, and which nodes had joined.
        missing: String,
    },
    /// Other nodes have different limits of the group size.
    Limits {
        /// The limits in the document.
        theirs: Limits,
        /// The limits of this node.
        ours: Limits,
    },
}

/// The reason for an [`Action`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// The join window of the round is open.
    Gathering(WaitReason),
    /// The node joins this round.
    Joining(u64),
    /// The join window of the round closes.
    Forming(FreezeReason),
    /// The group of this round has formed and has room; its members will see that a node waits.
    LateForRound(u64),
    /// The group of this round has formed and is full.
    NotNeeded(u64),
    /// The node is a member of the group of this round.
    Met(u64),
    /// The node sends a heartbeat.
    Heartbeat,
    /// The node is not in a round and does not join one.
    Resting,
    /// The node leaves the run.
    Leaving,
    /// No group forms; the action has the failure.
    Failed,
}

impl Reason {
    /// The sentence for users.
    pub fn describe(&self, now: Time) -> String {
        match self {
            Self::Gathering(waiting) => waiting.describe(now),
            Self::Joining(round) => format!("joining round {round}"),
            Self::Forming(cause) => format!("forming the group: {cause}"),
            Self::LateForRound(round) => {
                format!(
                    "the group of round {round} has room; waiting for its members to join the next round"
                )
            }
            Self::NotNeeded(round) => {
                format!("the group of round {round} is full; standing by")
            }
            Self::Met(round) => format!("in the group of round {round}"),
            Self::Heartbeat => "sending a heartbeat".into(),
            Self::Resting => "nothing to do".into(),
            Self::Leaving => "leaving".into(),
            Self::Failed => "giving up".into(),
        }
    }
}

/// Decides what the node of `observer` does about `state`, and returns the reason with it.
///
/// The observer must have [seen](Observer::look) `state` before. The first node, which finds no state, creates
/// one:
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

/// The input of one decision.
struct DecisionInput<'a> {
    now: Time,
    state: Option<&'a SharedState>,
    observer: &'a mut Observer,
}

impl DecisionInput<'_> {
    fn rest(self) -> (Action, Reason) {
        let Some(state) = self.state else { return (Action::Wait(None), Reason::Resting) };
        // A node that was removed as dead does not return by itself: the other nodes may have formed a group
        // without it. Its agent sees that, and joins again.
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
            // No node with the other limits is left.
            next.limits = limits;
        }
        if next.redundancy_list.contains(&me) {
            // A spare may wait for ever, and has its full join timeout once the group has room for it.
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
            // A member that joins again needs another round. When no member is left, this node must open it.
            if !next.participants.contains_key(&me) && next.live_participants() > 0 {
                return self.stand_by(next, &me);
            }
            next.open_next();
        }
        self.gather(next, &me, not_before)
    }

    /// Waits beside a formed group, of which this node is not a member.
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

    /// Joins the round, or waits in it until its join window closes.
    fn gather(self, mut next: SharedState, me: &str, not_before: u64) -> (Action, Reason) {
        let inside = next.takes_part(me);
        if !inside {
            next.join(me);
            // Round numbers only grow, also for a node that was in a round before the state was lost.
            next.round = next.round.max(not_before);
        }
        next.call();
        let mut new_call = JoinWindow::new(next.limits, self.observer.settings().last_call);
        let window = match &mut self.observer.window {
            Some((call, window)) if next.last_call == Some(*call) => window,
            _ => &mut new_call,
        };
        let decision = window.decide(self.now, next.counts(), None);
        let until = [window.next_wake(), self.observer.deadline].into_iter().flatten().min();
        match decision {
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
            format!("the members of round {} did not join another round with this node", next.round)
        } else {
            let limits = next.limits;
            let counts = next.counts();
            let joined = counts.joined;
            let mut text = match joined < limits.min {
                true => WaitReason::ForEnough { joined, min: limits.min }.describe(self.now),
                false => format!(
                    "{joined} of {} nodes had joined, and the last call was not over",
                    limits.max
                ),
            };
            let late = counts.members_to_come + counts.others_to_come;
            if late > 0 {
                let _ = write!(text, " ({late} live nodes did not join)");
            }
            text
        };
        let others: Vec<&str> =
            next.participants.keys().map(String::as_str).filter(|id| *id != me).collect();
        let _ = match others.is_empty() {
            true => write!(missing, "; no other node has joined"),
            false => write!(missing, "; joined besides this node: {}", others.join(", ")),
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
