//! When a round stops taking nodes, and why.

use std::fmt;
use std::time::Duration;

use crate::kv::Time;
use crate::rendezvous::documents::Limits;

/// Who is there and who is still to come, as far as the one who decides can see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MembershipCounts {
    /// Nodes that joined the round.
    pub joined: usize,
    /// Members of the last group that may still have workers: they have neither entered since, nor left, and
    /// are not known to be gone. No group forms beside them, however long they take.
    pub unresolved: usize,
    /// Members of the last group that live but have not come yet. They go before any other node.
    pub members_to_come: usize,
    /// Other nodes that live but have not come yet.
    pub others_to_come: usize,
    /// How many of those who joined are members of the last group. None means that a new group is
    /// being gathered, whose nodes may still be starting; so nobody knows who is to come.
    pub returned: usize,
}

/// Whether to go on taking nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinDecision {
    /// Go on, for this reason.
    Wait(WaitReason),
    /// Stop taking nodes, for this reason.
    Close(FreezeReason),
}

/// Why a round still takes nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitReason {
    /// There are too few.
    ForEnough {
        /// So many joined.
        joined: usize,
        /// How many it takes.
        min: usize,
    },
    /// Members of the last group may still have workers.
    ForLastGroup {
        /// So many joined.
        joined: usize,
        /// So many members have yet to stop their workers, or to be known as gone.
        unresolved: usize,
    },
    /// The server has lost its memory, and members of a group that it has forgotten may still have workers.
    ForForgottenGroup {
        /// So many joined.
        joined: usize,
        /// When they have none any more.
        until: Time,
    },
    /// Enough are there; the rest may come until the last call is over.
    LastCall {
        /// So many joined.
        joined: usize,
        /// At most so many can.
        max: usize,
        /// Live nodes that have not come yet.
        to_come: usize,
        /// When the last call is over.
        until: Time,
    },
}

/// Why a round stopped taking nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FreezeReason {
    /// There is no room for another node.
    Full,
    /// Every live node has come.
    AllLiveCame,
    /// The last call is over.
    LastCallOver,
}

impl WaitReason {
    /// The sentence for people, `now` being needed to say how long the last call still is.
    pub fn describe(&self, now: Time) -> String {
        match *self {
            Self::ForEnough { joined, min } => {
                format!("{joined} of {min} nodes, waiting for {} more", min.saturating_sub(joined))
            }
            Self::ForLastGroup { joined, unresolved } => {
                format!(
                    "{} joined, waiting for {unresolved} of the last group to stop workers, or for \
                     leases to expire",
                    nodes(joined)
                )
            }
            Self::ForForgottenGroup { joined, until } => {
                let left = until.saturating_sub(now).as_secs_f64().ceil();
                format!(
                    "{} joined, the server has lost its memory, and workers of the last group may run \
                     for {left} s more",
                    nodes(joined)
                )
            }
            Self::LastCall { joined, max, to_come, until } => {
                let left = until.saturating_sub(now).as_secs_f64().ceil();
                let missing = match to_come {
                    0 => String::new(),
                    to_come => format!(", {to_come} live nodes still to come"),
                };
                format!("{joined} of {max} nodes, {left} s of last call left{missing}")
            }
        }
    }
}

fn nodes(count: usize) -> String {
    format!("{count} node{}", if count == 1 { "" } else { "s" })
}

impl fmt::Display for FreezeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the group is full",
            Self::AllLiveCame => "every live node has come",
            Self::LastCallOver => "the last call is over",
        })
    }
}

/// A round's gate. It remembers when the last call began.
#[derive(Debug, Clone)]
pub struct JoinWindow {
    limits: Limits,
    last_call: Duration,
    grace: Duration,
    /// When there were enough.
    begun: Option<Time>,
    /// Since when nobody may have workers of the last group.
    resolved: Option<Time>,
    /// When to look again.
    wake: Option<Time>,
}

impl JoinWindow {
    /// A gate that waits `last_call` for more nodes once there are enough.
    pub fn new(limits: Limits, last_call: Duration) -> Self {
        Self { limits, last_call, grace: Duration::ZERO, begun: None, resolved: None, wake: None }
    }

    /// The same, but it waits at least `grace` for live members of the last group. They were told to
    /// come just as those who are here; were they left out for being a moment slower, they would wait for
    /// the next round at once, and with a short last call that would go on for ever.
    pub fn with_grace(self, grace: Duration) -> Self {
        Self { grace, ..self }
    }

    /// Whether to go on taking nodes. The last call begins when there are enough of them, is not
    /// extended by further ones, and is called off when there are too few again. `forgotten_until` is when
    /// members of a group that the server has forgotten have no workers any more, if there may be any.
    ///
    /// Invariant R5: it does not end while a member of the last group may have workers.
    pub fn decide(
        &mut self,
        now: Time,
        roll: MembershipCounts,
        forgotten_until: Option<Time>,
    ) -> JoinDecision {
        let Limits { min, max } = self.limits;
        let MembershipCounts { joined, unresolved, .. } = roll;
        self.wake = None;
        self.resolved = if unresolved > 0 { None } else { self.resolved.or(Some(now)) };
        if joined < min {
            self.begun = None;
            return JoinDecision::Wait(WaitReason::ForEnough { joined, min });
        }
        let begun = *self.begun.get_or_insert(now);
        if unresolved > 0 {
            return JoinDecision::Wait(WaitReason::ForLastGroup { joined, unresolved });
        }
        if let Some(until) = forgotten_until.filter(|until| now < *until) {
            self.wake = Some(until);
            return JoinDecision::Wait(WaitReason::ForForgottenGroup { joined, until });
        }
        // A member of the last group that is on its way goes before others who are here already.
        let room_for_members = roll.returned < max && roll.members_to_come > 0;
        if joined >= max && !room_for_members {
            return JoinDecision::Close(FreezeReason::Full);
        }
        let to_come = roll.members_to_come + roll.others_to_come;
        if roll.returned > 0 && to_come == 0 {
            return JoinDecision::Close(FreezeReason::AllLiveCame);
        }
        let mut until = begun.saturating_add(self.last_call);
        if roll.members_to_come > 0 {
            // Who has just stopped its workers is about to join.
            let since = self.resolved.map_or(begun, |resolved| resolved.max(begun));
            until = until.max(since.saturating_add(self.grace));
        }
        if now >= until {
            return JoinDecision::Close(FreezeReason::LastCallOver);
        }
        self.wake = Some(until);
        JoinDecision::Wait(WaitReason::LastCall { joined, max, to_come, until })
    }

    /// When to decide again if nothing else happens before.
    pub fn next_wake(&self) -> Option<Time> {
        self.wake
    }
}

#[cfg(test)]
mod tests;
