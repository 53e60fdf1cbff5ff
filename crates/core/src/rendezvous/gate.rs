//! When a round stops taking nodes, and why.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::kv::Time;

/// How small and how large a group may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// At least so many nodes.
    pub min: usize,
    /// At most so many.
    pub max: usize,
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.min, self.max)
    }
}

/// Who is there and who is still to come, as far as the one who decides can see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Roll {
    /// Nodes that joined the round.
    pub joined: usize,
    /// Members of the last group that live but have not come yet. They go before any other node.
    pub members_to_come: usize,
    /// Other nodes that live but have not come yet.
    pub others_to_come: usize,
    /// Members of the last group that someone takes for dead and whose leases live. They may come at any
    /// moment, or never.
    pub suspects_to_come: usize,
    /// How many of those who joined are members of the last group. None means that a new group is
    /// being gathered, whose nodes may still be starting; so nobody knows who is to come.
    pub returned: usize,
}

/// Whether to go on taking nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Go on, for this reason.
    Wait(Waiting),
    /// Stop taking nodes, for this reason.
    Close(Cause),
}

/// Why a round still takes nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// There are too few.
    ForEnough {
        /// So many joined.
        joined: usize,
        /// How many it takes.
        min: usize,
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
pub enum Cause {
    /// There is no room for another node.
    Full,
    /// Every live node has come.
    AllLiveCame,
    /// The last call is over.
    LastCallOver,
}

impl Waiting {
    /// The sentence for people, `now` being needed to say how long the last call still is.
    pub fn describe(&self, now: Time) -> String {
        match *self {
            Self::ForEnough { joined, min } => {
                format!("{joined} of {min} nodes, waiting for {} more", min.saturating_sub(joined))
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

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the group is full",
            Self::AllLiveCame => "every live node has come",
            Self::LastCallOver => "the last call is over",
        })
    }
}

/// When everyone else is here, suspects have so long to show that they live. They were told to come when
/// the others were, so most who live are a moment late at worst; left out, they would make the group meet
/// once more.
const BENEFIT_OF_DOUBT: Duration = Duration::from_millis(100);

/// A round's gate. It remembers when the last call began.
#[derive(Debug, Clone)]
pub struct Gate {
    limits: Limits,
    last_call: Duration,
    courtesy: Duration,
    /// When there were enough.
    begun: Option<Time>,
    /// Since when it waits for suspects alone.
    doubting: Option<Time>,
    /// When to look again.
    wake: Option<Time>,
}

impl Gate {
    /// A gate that waits `last_call` for more nodes once there are enough.
    pub fn new(limits: Limits, last_call: Duration) -> Self {
        Self {
            limits,
            last_call,
            courtesy: Duration::ZERO,
            begun: None,
            doubting: None,
            wake: None,
        }
    }

    /// The same, but it waits at least `courtesy` for live members of the last group. They were told to
    /// come just as those who are here; were they left out for being a moment slower, they would wait for
    /// the next round at once, and with a short last call that would go on for ever.
    pub fn courteous(self, courtesy: Duration) -> Self {
        Self { courtesy, ..self }
    }

    /// Whether to go on taking nodes. The last call begins when there are enough of them, is not
    /// extended by further ones, and is called off when there are too few again.
    pub fn decide(&mut self, now: Time, roll: Roll) -> Verdict {
        let Limits { min, max } = self.limits;
        if roll.joined < min {
            (self.begun, self.doubting, self.wake) = (None, None, None);
            return Verdict::Wait(Waiting::ForEnough { joined: roll.joined, min });
        }
        let begun = *self.begun.get_or_insert(now);
        let patience = if roll.members_to_come > 0 { self.courtesy } else { Duration::ZERO };
        let until = begun.saturating_add(self.last_call.max(patience));
        self.wake = Some(until);
        // A member of the last group that is on its way goes before others who are here already.
        let room_for_members = roll.returned < max && roll.members_to_come > 0;
        if roll.joined >= max && !room_for_members {
            return self.close_unless_in_doubt(now, roll, Cause::Full);
        }
        let to_come = roll.members_to_come + roll.others_to_come;
        if roll.returned > 0 && to_come == 0 {
            return self.close_unless_in_doubt(now, roll, Cause::AllLiveCame);
        }
        self.doubting = None;
        if now >= until {
            return Verdict::Close(Cause::LastCallOver);
        }
        Verdict::Wait(Waiting::LastCall { joined: roll.joined, max, to_come, until })
    }

    fn close_unless_in_doubt(&mut self, now: Time, roll: Roll, cause: Cause) -> Verdict {
        let (joined, max, to_come) = (roll.joined, self.limits.max, roll.suspects_to_come);
        let until = self.doubting.get_or_insert(now).saturating_add(BENEFIT_OF_DOUBT);
        if to_come == 0 || roll.returned >= max || now >= until {
            return Verdict::Close(cause);
        }
        self.wake = Some(until);
        Verdict::Wait(Waiting::LastCall { joined, max, to_come, until })
    }

    /// When to decide again if nothing else happens before.
    pub fn next_wake(&self) -> Option<Time> {
        self.wake
    }
}

#[cfg(test)]
mod tests;
