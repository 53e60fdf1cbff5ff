//! Workers without progress: when they hang, and the request for the stacks of all workers.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::stacks::OddNodes;
use crate::kv::Time;
use crate::rendezvous::documents::DisplayTime;

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
    /// When they last made progress, by the clock of that host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<DisplayTime>,
}

/// The end of a hang: workers of the node that reported it make progress again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HangOver {
    /// The round of the group.
    pub round: u64,
    /// The number of the hang within the round.
    pub number: u64,
}

impl HangOver {
    /// Whether this hang is over, or an earlier one than the last that is.
    pub(crate) fn ends(self, hang: (u64, u64)) -> bool {
        hang <= (self.round, self.number)
    }
}

/// What the last sign of progress says about the workers of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HangChange {
    /// The workers hang, and no node has reported this hang.
    Began {
        /// The number of the hang within the round, from 1.
        number: u64,
        /// How long there was no sign.
        silent: Duration,
    },
    /// The hang that this node has reported is over.
    Over {
        /// The number of the hang.
        number: u64,
    },
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

/// How often the node that has reported a hang looks for its end, within the limit from one sign to the next.
const LOOKS_FOR_THE_END: u32 = 10;

/// Watches the workers of one start. It looks for progress only when the limit has passed since the last known sign;
/// before the first sign, so often that a hang after it is seen in time; and more often while a hang goes on that this
/// node has reported. The launcher and agents of other programs decide by it.
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
    /// The hang that this node has noticed, unless another node was first: its number, and the silence in milliseconds.
    asked: Option<(u64, u64)>,
    /// Whether the report of that hang is in force, so that this node has to say when it is over.
    is_own: bool,
    /// The end of a hang that another node reported. The next one begins no earlier than the limit after it.
    resumed: Option<Time>,
}

impl HangWatch {
    /// Watches workers that started at `now`.
    pub fn new(policy: HangPolicy, now: Time) -> Self {
        let look_at = Some(now.saturating_add(policy.first.min(policy.after)));
        let (reported, asked, resumed) = (None, None, None);
        Self { policy, started: now, look_at, reported, number: 0, asked, is_own: false, resumed }
    }

    /// The time of the next look; `None` while the answer to a look is awaited.
    pub fn next_look(&self) -> Option<Time> {
        self.look_at
    }

    /// Whether it is time to look for progress. After `true` it waits for [`seen`](Self::seen).
    pub fn is_due(&mut self, now: Time) -> bool {
        self.look_at.take_if(|at| *at <= now).is_some()
    }

    /// Takes the last sign of progress. Returns whether a hang has begun that no node has reported, or the one that this
    /// node has reported is over.
    pub fn seen(&mut self, now: Time, latest: Option<Time>) -> Option<HangChange> {
        let HangPolicy { after, first } = self.policy;
        let limit = match latest {
            Some(latest) => latest.saturating_add(after),
            None => self.started.saturating_add(first),
        };
        let resumed = self.resumed.map_or(Time::ZERO, |resumed| resumed.saturating_add(after));
        let limit = limit.max(resumed);
        let mut over = None;
        if self.reported.is_some_and(|reported| latest > Some(reported)) {
            over = self.open();
            (self.reported, self.asked, self.is_own) = (None, None, false);
        }
        if limit > now {
            self.look_at = Some(limit.min(now.saturating_add(after)));
            return over.map(|number| HangChange::Over { number });
        }
        if self.reported.is_some() {
            let pause = if self.asked.is_some() { after / LOOKS_FOR_THE_END } else { after };
            self.look_at = Some(now.saturating_add(pause));
            return None;
        }
        self.look_at = Some(now.saturating_add(after / LOOKS_FOR_THE_END));
        self.reported = Some(now);
        let silent = now.saturating_sub(latest.unwrap_or(self.started));
        let number = self.number.saturating_add(1);
        self.asked = Some((number, millis(silent)));
        Some(HangChange::Began { number, silent })
    }

    /// The number of the hang that this node, and no other, has reported, if it goes on.
    pub fn open(&self) -> Option<u64> {
        self.asked.filter(|_| self.is_own).map(|(number, _)| number)
    }

    /// A node of the round has reported a hang, this one, which is on `host`, or another.
    pub fn told(&mut self, now: Time, request: &HangRequest, host: &str) {
        let HangRequest { number, millis, .. } = *request;
        self.number = self.number.max(number);
        self.reported = Some(now);
        self.is_own = request.host == host && self.asked == Some((number, millis));
        if !self.is_own && self.asked.take().is_some() {
            self.look_at = self.look_at.map(|_| now.saturating_add(self.policy.after));
        }
    }

    /// The node that reported this hang has seen progress. This node reports its own workers if they stay silent.
    pub fn over(&mut self, now: Time, number: u64) {
        let knows_later = self.number > number || self.asked.is_some_and(|(own, _)| own > number);
        if self.reported.is_some() && !knows_later {
            (self.reported, self.asked, self.is_own) = (None, None, false);
            self.resumed = Some(now);
        }
    }
}

/// A time in whole milliseconds.
pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
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
    fn look(watch: &mut HangWatch, now: u64, latest: Option<u64>) -> Option<HangChange> {
        assert!(!watch.is_due(at(now - 1)), "{watch:?} at {now}");
        assert!(watch.is_due(at(now)), "{watch:?} at {now}");
        assert_eq!(watch.next_look(), None, "one look at a time");
        watch.seen(at(now), latest.map(at))
    }

    fn began(number: u64, seconds: u64) -> Option<HangChange> {
        Some(HangChange::Began { number, silent: at(seconds) })
    }

    fn request(number: u64, host: &str, millis: u64) -> HangRequest {
        HangRequest { round: 1, number, host: host.into(), millis, since: None }
    }

    #[test]
    fn the_first_sign_may_take_longer_than_the_next() {
        let mut watch = HangWatch::new(POLICY, at(100));
        assert_eq!(look(&mut watch, 110, None), None);
        assert_eq!(look(&mut watch, 120, Some(119)), None);
        assert_eq!(look(&mut watch, 129, Some(119)), began(1, 10));
        let mut silent = HangWatch::new(POLICY, at(100));
        for now in [110, 120, 130, 140, 150] {
            assert_eq!(look(&mut silent, now, None), None);
        }
        assert_eq!(look(&mut silent, 160, None), began(1, 60));
        let shorter = HangPolicy { first: Duration::from_secs(4), ..POLICY };
        assert_eq!(look(&mut HangWatch::new(shorter, at(100)), 104, None), began(1, 4));
    }

    #[test]
    fn a_hang_is_reported_once_and_the_next_one_after_progress() {
        let mut watch = HangWatch::new(POLICY, at(0));
        assert_eq!(look(&mut watch, 10, Some(0)), began(1, 10));
        assert_eq!(watch.open(), None, "the report is not in force");
        watch.told(at(10), &request(1, "here", 10_000), "here");
        assert_eq!(watch.open(), Some(1));
        assert_eq!(look(&mut watch, 11, Some(0)), None, "the same hang");
        assert_eq!(look(&mut watch, 12, Some(0)), None, "the same hang");
        let over = Some(HangChange::Over { number: 1 });
        assert_eq!(look(&mut watch, 13, Some(12)), over, "it goes on");
        assert_eq!(watch.open(), None);
        assert_eq!(look(&mut watch, 22, Some(12)), began(2, 10));
    }

    /// Of several nodes that notice a hang, the one whose report is in force says when it is over.
    #[test]
    fn who_was_late_with_its_report_leaves_the_end_to_the_other_node() {
        for (host, millis) in [("there", 10_000), ("here", 9_999)] {
            let mut watch = HangWatch::new(POLICY, at(0));
            assert_eq!(look(&mut watch, 10, Some(0)), began(1, 10));
            watch.told(at(10), &request(1, host, millis), "here");
            assert_eq!(look(&mut watch, 20, Some(18)), None);
        }
    }

    /// The node whose report was in force goes on, and this one does not.
    #[test]
    fn a_node_that_stays_silent_after_the_end_of_a_hang_reports_the_next() {
        let mut watch = HangWatch::new(POLICY, at(0));
        watch.told(at(5), &request(1, "there", 10_000), "here");
        assert_eq!(look(&mut watch, 10, Some(0)), None);
        watch.over(at(19), 1);
        assert_eq!(look(&mut watch, 20, Some(0)), None, "it may need a moment");
        assert_eq!(look(&mut watch, 29, Some(0)), began(2, 29));
        watch.over(at(29), 1);
        watch.told(at(29), &request(2, "here", 29_000), "here");
        assert_eq!(watch.open(), Some(2), "the end of an earlier hang is not that of this one");
    }

    /// The signs of this node that led another node to its report are no progress since.
    #[test]
    fn a_hang_that_another_node_reported_is_not_reported_again() {
        let mut watch = HangWatch::new(POLICY, at(0));
        assert_eq!(look(&mut watch, 10, Some(9)), None);
        watch.told(at(15), &request(1, "there", 10_000), "here");
        assert_eq!(look(&mut watch, 19, Some(10)), None, "a sign before the report");
        assert_eq!(look(&mut watch, 20, Some(10)), None);
        assert_eq!(look(&mut watch, 30, Some(22)), None);
        assert_eq!(look(&mut watch, 32, Some(22)), began(2, 10));
    }
}
