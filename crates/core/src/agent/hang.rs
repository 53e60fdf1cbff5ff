//! Workers without progress: when they hang, and the request for the stacks of all workers.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::stacks::OddNodes;
use crate::kv::Time;

/// When the workers of a node hang: no worker of the node has shown a sign of progress for this long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HangPolicy {
    /// The limit from one sign of progress to the next.
    pub after: Duration,
    /// The limit from the start of the workers to their first sign of progress.
    pub first: Duration,
}

/// What follows from the report of a hang. The setting of the node with rank 0 holds, which makes the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnHang {
    /// The report is all.
    #[default]
    Report,
    /// The job restarts without the odd nodes, if the report names any.
    Restart {
        /// The least number of nodes of the job. If fewer would be left, the odd nodes restart too.
        min_nodes: u32,
    },
}

/// What the node with rank 0 found out about a hang.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HangFinding {
    /// The round of the group.
    pub round: u64,
    /// The number of the hang within the round, from 1.
    pub number: u64,
    /// The hang in one sentence: [`HangReport::headline`](super::stacks::HangReport::headline).
    pub headline: String,
    /// The nodes that are to blame, if any are.
    pub odd: OddNodes,
    /// The number of nodes that are no members of the group, and wait to be.
    pub spares: u32,
}

/// A restart of the job because it hangs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HangRestart {
    /// The round of the group.
    pub round: u64,
    /// The hang, and what follows, in a sentence.
    pub blame: String,
    /// The time since the start of the workers.
    pub lived: Duration,
    /// The ids of the nodes that leave the job.
    pub without: Vec<String>,
}

/// A node's request to all nodes of its group for the stacks of their workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HangRequest {
    /// The round of the group.
    pub round: u64,
    /// The number of the hang within the round, from 1.
    pub number: u64,
    /// The host whose workers made no progress.
    pub host: String,
    /// How long they had made none, in milliseconds.
    pub millis: u64,
}

impl HangRequest {
    /// A later hang has a greater order.
    pub(super) fn order(&self) -> (u64, u64) {
        (self.round, self.number)
    }

    /// How long the workers of the node had made no progress.
    pub fn silent(&self) -> Duration {
        Duration::from_millis(self.millis)
    }
}

/// Watches the workers of one start. It looks for progress only when the limit has passed since the last known sign;
/// before the first sign, so often that a hang after it is seen in time. The launcher and agents of other programs decide
/// by it.
#[derive(Debug, Clone)]
pub struct HangWatch {
    policy: HangPolicy,
    started: Time,
    /// The time of the next look; `None` while the answer to a look is awaited.
    look_at: Option<Time>,
    /// The time of the report of a hang that is not over.
    reported: Option<Time>,
    /// The number of the last hang of the round that this node knows of.
    number: u64,
}

impl HangWatch {
    /// Watches workers that started at `now`.
    pub fn new(policy: HangPolicy, now: Time) -> Self {
        let look_at = Some(now.saturating_add(policy.first.min(policy.after)));
        Self { policy, started: now, look_at, reported: None, number: 0 }
    }

    /// The time of the next look; `None` while the answer to a look is awaited.
    pub fn next_look(&self) -> Option<Time> {
        self.look_at
    }

    /// Whether it is time to look for progress. After `true` it waits for [`seen`](Self::seen).
    pub fn is_due(&mut self, now: Time) -> bool {
        self.look_at.take_if(|at| *at <= now).is_some()
    }

    /// Takes the last sign of progress. Returns the number of the hang and how long there was no sign, if this is a
    /// hang that no node has reported.
    pub fn seen(&mut self, now: Time, latest: Option<Time>) -> Option<(u64, Duration)> {
        let HangPolicy { after, first } = self.policy;
        let limit = match latest {
            Some(latest) => latest.saturating_add(after),
            None => self.started.saturating_add(first),
        };
        if self.reported.is_some_and(|reported| latest > Some(reported)) {
            self.reported = None;
        }
        if limit > now {
            self.look_at = Some(limit.min(now.saturating_add(after)));
            return None;
        }
        self.look_at = Some(now.saturating_add(after));
        if self.reported.is_some() {
            return None;
        }
        self.reported = Some(now);
        let silent = now.saturating_sub(latest.unwrap_or(self.started));
        Some((self.number.saturating_add(1), silent))
    }

    /// A node has reported this hang of the round.
    pub fn told(&mut self, now: Time, number: u64) {
        self.number = self.number.max(number);
        self.reported = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: HangPolicy =
        HangPolicy { after: Duration::from_secs(10), first: Duration::from_secs(60) };

    fn at(seconds: u64) -> Time {
        Duration::from_secs(seconds)
    }

    /// Looks when it is due, and finds this sign.
    fn look(watch: &mut HangWatch, now: u64, latest: Option<u64>) -> Option<(u64, u64)> {
        assert!(!watch.is_due(at(now - 1)), "{watch:?} at {now}");
        assert!(watch.is_due(at(now)), "{watch:?} at {now}");
        assert_eq!(watch.next_look(), None, "one look at a time");
        let seen = watch.seen(at(now), latest.map(at));
        seen.map(|(number, silent)| (number, silent.as_secs()))
    }

    #[test]
    fn the_first_sign_may_take_longer_than_the_next() {
        let mut watch = HangWatch::new(POLICY, at(100));
        assert_eq!(look(&mut watch, 110, None), None);
        assert_eq!(look(&mut watch, 120, Some(119)), None);
        assert_eq!(look(&mut watch, 129, Some(119)), Some((1, 10)));
        let mut silent = HangWatch::new(POLICY, at(100));
        for now in [110, 120, 130, 140, 150] {
            assert_eq!(look(&mut silent, now, None), None);
        }
        assert_eq!(look(&mut silent, 160, None), Some((1, 60)));
        let shorter = HangPolicy { first: Duration::from_secs(4), ..POLICY };
        assert_eq!(look(&mut HangWatch::new(shorter, at(100)), 104, None), Some((1, 4)));
    }

    #[test]
    fn a_hang_is_reported_once_and_the_next_one_after_progress() {
        let mut watch = HangWatch::new(POLICY, at(0));
        assert_eq!(look(&mut watch, 10, Some(0)), Some((1, 10)));
        watch.told(at(10), 1);
        assert_eq!(look(&mut watch, 20, Some(0)), None, "the same hang");
        assert_eq!(look(&mut watch, 30, Some(25)), None, "it goes on");
        assert_eq!(look(&mut watch, 35, Some(25)), Some((2, 10)));
    }

    /// The signs of this node that led another node to its report are no progress since.
    #[test]
    fn a_hang_that_another_node_reported_is_not_reported_again() {
        let mut watch = HangWatch::new(POLICY, at(0));
        assert_eq!(look(&mut watch, 10, Some(9)), None);
        watch.told(at(15), 1);
        assert_eq!(look(&mut watch, 19, Some(10)), None, "a sign before the report");
        assert_eq!(look(&mut watch, 20, Some(10)), None);
        assert_eq!(look(&mut watch, 30, Some(22)), None);
        assert_eq!(look(&mut watch, 32, Some(22)), Some((2, 10)));
    }
}
