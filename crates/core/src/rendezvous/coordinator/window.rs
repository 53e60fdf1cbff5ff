//! The join window of a round: when the round stops taking nodes, and why.

use std::fmt;
use std::time::Duration;

use crate::kv::Time;
use crate::rendezvous::sizes::{Limits, SizeReason, SizeRules};
use crate::rendezvous::succession::quorum::Lack;

/// The coordinator's view of how many nodes have joined, and how many live nodes are still expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MembershipCounts {
    /// Nodes that joined the round.
    pub joined: usize,
    /// Members of the last group that may still have workers: they have neither joined since, nor left, and are not
    /// known to be gone. No group forms beside them, however long they take.
    pub unresolved: usize,
    /// Live members of the last group that have not joined yet. They go before any other node.
    pub members_to_come: usize,
    /// Other live nodes that have not joined yet.
    pub others_to_come: usize,
    /// Members of the last group among the nodes that joined. If there are none, the round gathers a new group whose
    /// nodes may still be starting, so the number of nodes to come is unknown.
    pub returned: usize,
    /// The number of nodes in the last group; 0 unless a member of it has joined.
    pub last_world: usize,
}

/// Whether the round goes on taking nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinDecision {
    /// The round takes more nodes, for this reason.
    Wait(WaitReason),
    /// The round stops taking nodes, for this reason.
    Freeze(FreezeReason),
}

/// Why a round still takes nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitReason {
    /// Fewer nodes than the minimum have joined.
    ForEnough {
        /// The number of nodes that joined.
        joined: usize,
        /// The smallest size of the group.
        min: usize,
    },
    /// Members of the last group may still have workers.
    ForLastGroup {
        /// The number of nodes that joined.
        joined: usize,
        /// The number of members that have yet to stop their workers, or to be known as gone.
        unresolved: usize,
    },
    /// The server has lost its state, and members of a group of the lost history may still have workers.
    ForForgottenGroup {
        /// The number of nodes that joined.
        joined: usize,
        /// When those workers have certainly stopped.
        until: Time,
    },
    /// Too few nodes of the last group have come, which belongs to another server.
    ForQuorum {
        /// The number of nodes that joined.
        joined: usize,
        /// How many nodes of that group are missing.
        lack: Lack,
    },
    /// Enough nodes have joined, and the last call is open for more.
    LastCall {
        /// The number of nodes that joined.
        joined: usize,
        /// The sizes that the group may have.
        limits: Limits,
        /// The size that the nodes which joined make.
        size: usize,
        /// The number of nodes that are planned, if more of them may come.
        planned: Option<usize>,
        /// The number of live nodes that have not joined yet.
        to_come: usize,
        /// When the last call ends.
        until: Time,
    },
}

/// Why a round stopped taking nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FreezeReason {
    /// The group is full.
    Full,
    /// Every live node has joined.
    AllLiveCame,
    /// Every planned node has joined.
    PlannedCame,
    /// The last call has ended.
    LastCallOver,
}

impl WaitReason {
    /// The sentence for the log of another node: without the time that is left, which changes from one moment to the
    /// next.
    pub fn describe_to_others(&self) -> String {
        match *self {
            Self::LastCall { joined, limits, size, planned, to_come, .. } => {
                let (of, missing) = (of(limits, planned), still_to_come(to_come));
                let starts = starts(limits, (size, joined));
                format!("{joined} of {of} in the last call{missing}{starts}")
            }
            Self::ForForgottenGroup { joined, .. } => format!(
                "{} joined, the server has lost its memory, and workers of the last group may run",
                nodes(joined)
            ),
            Self::ForEnough { .. } | Self::ForLastGroup { .. } | Self::ForQuorum { .. } => {
                self.describe(Time::ZERO)
            }
        }
    }

    /// A sentence for users. `now` determines how much of the last call is left.
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
                    "{} joined, the server has lost its state, and workers of the last group may run \
                     for {left} s more",
                    nodes(joined)
                )
            }
            Self::ForQuorum { joined, lack } => format!("{} joined, {lack}", nodes(joined)),
            Self::LastCall { joined, limits, size, planned, to_come, until } => {
                let left = until.saturating_sub(now).as_secs_f64().ceil();
                let (of, missing) = (of(limits, planned), still_to_come(to_come));
                let starts = starts(limits, (size, joined));
                format!("{joined} of {of}, {left} s of last call left{missing}{starts}")
            }
        }
    }
}

fn still_to_come(nodes: usize) -> String {
    match nodes {
        0 => String::new(),
        nodes => format!(", {nodes} live nodes still to come"),
    }
}

/// How many nodes are waited for.
fn of(limits: Limits, planned: Option<usize>) -> String {
    match planned {
        Some(planned) => format!("{planned} planned nodes"),
        None => format!("{} nodes", limits.max),
    }
}

/// What comes after the last call. A job that may be smaller starts smaller.
fn starts(limits: Limits, (size, joined): (usize, usize)) -> String {
    let with = if size < joined { format!(" with {size}") } else { String::new() };
    format!(", then it starts{with} ({limits} nodes)")
}

fn nodes(count: usize) -> String {
    format!("{count} node{}", if count == 1 { "" } else { "s" })
}

impl fmt::Display for FreezeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the group is full",
            Self::AllLiveCame => "every live node has come",
            Self::PlannedCame => "every planned node has come",
            Self::LastCallOver => "the last call is over",
        })
    }
}

/// The join window of one round. It remembers when the last call began.
#[derive(Debug, Clone)]
pub struct JoinWindow {
    limits: Limits,
    sizes: SizeRules,
    last_call: Duration,
    grace: Duration,
    /// When enough nodes had joined.
    begun: Option<Time>,
    /// Since when no member of the last group may have workers.
    resolved: Option<Time>,
    /// When to decide again.
    wake: Option<Time>,
}

impl JoinWindow {
    /// A join window that stays open for `last_call` once enough nodes have joined.
    pub fn new(limits: Limits, last_call: Duration) -> Self {
        let (sizes, grace) = (SizeRules::default(), Duration::ZERO);
        Self { limits, sizes, last_call, grace, begun: None, resolved: None, wake: None }
    }

    /// Adds rules for the size of the group.
    pub fn with_sizes(self, sizes: SizeRules) -> Self {
        Self { sizes, ..self }
    }

    /// When enough nodes had joined, and the last call began.
    pub(super) fn last_call_since(&self) -> Option<Time> {
        self.begun
    }

    /// Adds a grace period, for which the window waits at least for live members of the last group. They stop their
    /// workers as the members that have joined did; if the window left them out for being a moment slower, they would
    /// register for the next round at once, and with a short last call that would repeat without end.
    pub fn with_grace(self, grace: Duration) -> Self {
        Self { grace, ..self }
    }

    /// Decides whether the round takes more nodes.
    ///
    /// The last call begins when enough nodes have joined, is not extended by further ones, and is cancelled when there
    /// are too few again. `forgotten_until` is when workers of a group of a lost history have certainly stopped, if there
    /// may be any.
    ///
    /// Invariant R5: the window stays open while a member of the last group may have workers.
    pub fn decide(
        &mut self,
        now: Time,
        counts: MembershipCounts,
        forgotten_until: Option<Time>,
    ) -> JoinDecision {
        let MembershipCounts { joined, unresolved, .. } = counts;
        let chosen = self.sizes.size(self.limits, joined);
        self.wake = None;
        self.resolved = if unresolved > 0 { None } else { self.resolved.or(Some(now)) };
        if let SizeReason::TooFew { smallest: min } = chosen.reason {
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
        // A member of the last group that is expected goes before other nodes that have joined already.
        let largest = self.sizes.largest(self.limits);
        let room_for_members = counts.returned < largest && counts.members_to_come > 0;
        if joined >= largest && !room_for_members {
            return JoinDecision::Freeze(FreezeReason::Full);
        }
        let to_come = counts.members_to_come + counts.others_to_come;
        let expects_more = self.sizes.expects_more_than(joined);
        if self.sizes.planned.is_some() && !expects_more && to_come == 0 {
            return JoinDecision::Freeze(FreezeReason::PlannedCame);
        }
        // A group that grows waits for the other planned nodes, so that it need not grow once for each of them.
        let grows = chosen.size > counts.last_world;
        if counts.returned > 0 && to_come == 0 && !(grows && expects_more) {
            return JoinDecision::Freeze(FreezeReason::AllLiveCame);
        }
        let mut until = begun.saturating_add(self.last_call);
        if counts.members_to_come > 0 {
            // A member that has just stopped its workers is about to join.
            let since = self.resolved.map_or(begun, |resolved| resolved.max(begun));
            until = until.max(since.saturating_add(self.grace));
        }
        if now >= until {
            return JoinDecision::Freeze(FreezeReason::LastCallOver);
        }
        self.wake = Some(until);
        let (limits, size) = (self.limits, chosen.size);
        let planned = self.sizes.planned.filter(|_| expects_more);
        JoinDecision::Wait(WaitReason::LastCall { joined, limits, size, planned, to_come, until })
    }

    /// When to decide again if nothing else happens before.
    pub fn next_wake(&self) -> Option<Time> {
        self.wake
    }
}

#[cfg(test)]
mod tests;
