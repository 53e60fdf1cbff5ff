//! The size of a group: which sizes it may have, which of them the nodes that are here make, and when it grows.
//!
//! [`SizeRules::size`] is the only place that decides how many of the nodes that are here become members. The others are
//! spares.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::documents::is_default;

/// Sizes that a sentence lists; of more it names the first ones and the last.
const MOST_LISTED: usize = 8;

/// The smallest and the largest number of nodes that a group may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// The smallest number of nodes.
    pub min: usize,
    /// The largest number of nodes.
    pub max: usize,
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.min, self.max)
    }
}

/// Which numbers of nodes within the limits a group may have.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Steps {
    /// Every number.
    #[default]
    Every,
    /// Multiples of this number.
    Unit(usize),
    /// These numbers, in ascending order.
    Only(Vec<usize>),
}

impl Steps {
    /// The largest step up to `most`; 0 if there is none.
    fn up_to(&self, most: usize) -> usize {
        match self {
            Self::Every => most,
            Self::Unit(unit) => most - most.checked_rem(*unit).unwrap_or(most),
            Self::Only(sizes) => {
                sizes.iter().rev().find(|size| **size <= most).map_or(0, |size| *size)
            }
        }
    }

    /// The smallest step above `size`.
    fn above(&self, size: usize) -> Option<usize> {
        match self {
            Self::Every => size.checked_add(1),
            Self::Unit(unit) => (size.checked_div(*unit)? + 1).checked_mul(*unit),
            Self::Only(sizes) => sizes.iter().find(|step| **step > size).copied(),
        }
    }
}

/// What the sizes of a group depend on besides its limits. All nodes of a run must agree on it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SizeRules {
    /// Which numbers of nodes a group may have.
    #[serde(default, skip_serializing_if = "is_default")]
    pub steps: Steps,
    /// The number of nodes that are planned to come.
    #[serde(default, skip_serializing_if = "is_default")]
    pub planned: Option<usize>,
    /// How long after it has formed a group does not grow, in milliseconds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub scale_up_after_ms: u64,
}

/// The size of a group, and why it is that one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chosen {
    /// The number of members; 0 if there are too few nodes for a group.
    pub size: usize,
    /// Why.
    pub reason: SizeReason,
}

/// Why a group has its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SizeReason {
    /// Fewer nodes are here than the smallest size.
    TooFew {
        /// The smallest size.
        smallest: usize,
    },
    /// Every node that is here becomes a member.
    Everyone,
    /// More nodes are here than the largest size.
    Largest,
    /// More nodes are here than this size, and fewer than the next one.
    Between {
        /// The next size.
        next: usize,
    },
}

impl SizeRules {
    /// Decides the size of a group of the nodes that are here: the largest allowed size that they make.
    ///
    /// ```
    /// use rallypoint_core::rendezvous::sizes::{Limits, SizeReason, SizeRules, Steps};
    /// let rules = SizeRules { steps: Steps::Unit(4), ..SizeRules::default() };
    /// let chosen = rules.size(Limits { min: 2, max: 16 }, 7);
    /// assert_eq!((chosen.size, chosen.reason), (4, SizeReason::Between { next: 8 }));
    /// ```
    pub fn size(&self, limits: Limits, present: usize) -> Chosen {
        let size = self.steps.up_to(present.min(limits.max));
        if size < limits.min.max(1) {
            let reason = SizeReason::TooFew { smallest: self.smallest(limits) };
            return Chosen { size: 0, reason };
        }
        let reason = match self.next(limits, size) {
            _ if size == present => SizeReason::Everyone,
            Some(next) => SizeReason::Between { next },
            None => SizeReason::Largest,
        };
        Chosen { size, reason }
    }

    /// The smallest allowed size above `size`.
    pub fn next(&self, limits: Limits, size: usize) -> Option<usize> {
        let next = self.steps.above(size.max(limits.min.saturating_sub(1)));
        next.filter(|next| *next <= limits.max)
    }

    /// The smallest allowed size. Without any, which [`check`](Self::check) refuses, it is out of reach.
    pub fn smallest(&self, limits: Limits) -> usize {
        self.next(limits, 0).unwrap_or(usize::MAX)
    }

    /// The largest allowed size.
    pub fn largest(&self, limits: Limits) -> usize {
        self.size(limits, usize::MAX).size
    }

    /// Whether further planned nodes may come to the `joined` ones.
    pub fn expects_more_than(&self, joined: usize) -> bool {
        self.planned.is_some_and(|planned| joined < planned)
    }

    /// How long after it has formed a group does not grow.
    pub fn scale_up_after(&self) -> Duration {
        Duration::from_millis(self.scale_up_after_ms)
    }

    /// The allowed sizes after a semicolon, if not every number within the limits is one.
    pub fn listed(&self, limits: Limits) -> String {
        match self.list(limits) {
            Some(sizes) => format!("; sizes {sizes}"),
            None => String::new(),
        }
    }

    /// The allowed sizes; none if every number within the limits is one.
    pub fn list(&self, limits: Limits) -> Option<String> {
        if self.steps == Steps::Every {
            return None;
        }
        let all = std::iter::successors(self.next(limits, 0), |size| self.next(limits, *size));
        let mut listed: Vec<String> =
            all.take(MOST_LISTED + 1).map(|size| size.to_string()).collect();
        if listed.len() > MOST_LISTED {
            listed.truncate(MOST_LISTED - 2);
            listed.push("…".to_owned());
            listed.push(self.largest(limits).to_string());
        }
        Some(listed.join(", "))
    }

    /// The options in which two nodes differ: the name, the value of this one, the value of the other one.
    pub fn differences(
        &self,
        other: &Self,
    ) -> impl Iterator<Item = (&'static str, String, String)> {
        let both = self.terms().into_iter().zip(other.terms());
        both.filter(|(ours, theirs)| ours != theirs)
            .map(|((what, ours), (_, theirs))| (what, ours, theirs))
    }

    /// The rules by the names of their options, with their values.
    fn terms(&self) -> [(&'static str, String); 4] {
        let none = || "none".to_owned();
        let (mut sizes, mut unit) = (none(), none());
        match &self.steps {
            Steps::Every => {}
            Steps::Unit(number) => unit = number.to_string(),
            Steps::Only(only) => {
                sizes = only.iter().map(ToString::to_string).collect::<Vec<_>>().join("/");
            }
        }
        let planned = self.planned.map_or_else(none, |planned| planned.to_string());
        let after = self.scale_up_after().as_secs_f64().to_string();
        [("sizes", sizes), ("node_unit", unit), ("planned", planned), ("scale_up_after", after)]
    }

    /// Checks that the rules and the limits allow a group.
    ///
    /// # Errors
    /// The first rule that does not fit.
    pub fn check(&self, limits: Limits) -> Result<(), SizesError> {
        if let Steps::Only(sizes) = &self.steps
            && let Some(size) = sizes.iter().find(|size| !limits.contain(**size)).copied()
        {
            return Err(SizesError::Outside { size, limits });
        }
        match (&self.steps, self.next(limits, 0)) {
            (Steps::Unit(unit), None) => Err(SizesError::NoMultiple { unit: *unit, limits }),
            (_, Some(smallest)) => match self.planned {
                Some(planned) if !(smallest..=limits.max).contains(&planned) => {
                    Err(SizesError::Planned { planned, smallest, largest: limits.max })
                }
                _ => Ok(()),
            },
            (Steps::Every | Steps::Only(_), None) => Err(SizesError::Empty),
        }
    }
}

impl Limits {
    fn contain(self, size: usize) -> bool {
        (self.min..=self.max).contains(&size)
    }
}

/// The error that the rules and the limits of a group contradict each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SizesError {
    /// A size is none that the limits allow.
    #[error("{size} is not within {limits} nodes")]
    Outside {
        /// The size.
        size: usize,
        /// The limits.
        limits: Limits,
    },
    /// No multiple of the unit is within the limits.
    #[error("no multiple of {unit} is within {limits} nodes")]
    NoMultiple {
        /// The unit.
        unit: usize,
        /// The limits.
        limits: Limits,
    },
    /// The planned number of nodes is none that a group may have.
    #[error("a group has {smallest} to {largest} nodes, and {planned} are planned")]
    Planned {
        /// The number of nodes that are planned.
        planned: usize,
        /// The smallest size.
        smallest: usize,
        /// The largest size.
        largest: usize,
    },
    /// No size is allowed.
    #[error("no size is allowed")]
    Empty,
}

#[cfg(test)]
mod tests;
