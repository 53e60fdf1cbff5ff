//! The job's restart budget: a document that all nodes share, changed by compare-and-set.
//!
//! The budget counts rounds, not failures: when one worker dies, workers of other nodes fail with it, and
//! all of these nodes ask for a restart. The first request of a round is recorded as the root cause, also when no
//! restart was left.

mod hangs;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::backoff::in_a_row;
use super::hang::{HangOver, HangRequest, HangRestart};
use super::operator::{MOST_ACTIONS, Operation, OperatorAction};
use crate::rendezvous::documents::Extra;
use crate::text::{LONGEST_REASON, bounded};

/// The restarts that a job has used. The empty document belongs to a job without failures.
///
/// ```
/// use std::time::Duration;
/// use rallypoint_core::agent::{RestartAnswer, RestartBudget};
/// let lived = Duration::from_secs(3600);
/// let (budget, first) = RestartBudget::default().consume(4, 1, "rank 0 failed", lived);
/// assert_eq!(first, RestartAnswer::Granted { short_lives: 0 });
/// // Another node of the same round.
/// let (budget, second) = budget.consume(4, 1, "rank 9 lost rank 0", lived);
/// assert_eq!(second, first);
/// let (_, third) = budget.consume(5, 1, "rank 0 failed again", lived);
/// assert_eq!(third, RestartAnswer::Refused { used: 1, blame: "rank 0 failed again".into() });
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RestartBudget {
    /// The number of restarts used.
    #[serde(default)]
    pub used: u32,
    /// The last round in which a worker failed. Earlier rounds cannot change any more.
    #[serde(default)]
    pub last: Option<RoundFailure>,
    /// The number of counted rounds in a row, up to the last, in which workers failed soon after their start.
    #[serde(default)]
    pub short_lives: u32,
    /// The last node that was asked to leave, and its deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub departure: Option<Departure>,
    /// The limit of the nodes, `--max-restarts`, for operators. A document without it was written by no launcher, but by
    /// an operator, before the run or after the server lost its state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// What operators did to the run, the latest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<OperatorAction>,
    /// The last request for the stacks of all workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hang: Option<HangRequest>,
    /// The last hang that is over, unless a new round ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hang_over: Option<HangOver>,
    /// Fields of later versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The first failure of a round, and the verdict on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundFailure {
    /// The round.
    pub round: u64,
    /// The first failure, in a sentence.
    pub blame: String,
    /// Whether the round used a restart.
    pub verdict: RestartVerdict,
    /// Whether the job hung, and no worker failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hang: bool,
}

/// A member of a group that was asked to leave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Departure {
    /// The round of the group.
    pub round: u64,
    /// How long after this was written it stops its workers, in milliseconds. Clocks of hosts differ.
    pub millis: u64,
    /// Which node, and why.
    pub why: String,
}

impl Departure {
    /// The time that the workers have, counted from the write of this document.
    pub fn left(&self) -> Duration {
        Duration::from_millis(self.millis)
    }
}

/// Whether the failures of a round used a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RestartVerdict {
    /// The round used a restart.
    Counted,
    /// No restart was left.
    Refused,
    /// The failure was collateral, so the restart was refunded.
    Refunded,
}

/// The budget's answer to a node whose worker failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RestartAnswer {
    /// The node may rejoin the rendezvous.
    Granted {
        /// The number of short lives in a row: see [`RestartBackoff`](super::RestartBackoff).
        short_lives: u32,
    },
    /// No restart is left.
    Refused {
        /// The number of restarts that the job has used.
        used: u32,
        /// The first failure of the round, which may be another node's.
        blame: String,
    },
}

impl RestartBudget {
    /// The budget after a worker failed in `round`, and the answer to its node. At most `max` restarts are
    /// granted, and at most one for each round. The first request of a round decides how long workers `lived`.
    pub fn consume(
        &self,
        round: u64,
        max: u32,
        blame: &str,
        lived: Duration,
    ) -> (Self, RestartAnswer) {
        let failure =
            |verdict| Some(RoundFailure { round, blame: blame.to_owned(), verdict, hang: false });
        match &self.last {
            // The group has met again since, so the job went on in spite of it.
            Some(last) if last.round > round => {
                (self.clone(), RestartAnswer::Granted { short_lives: 0 })
            }
            Some(last) if last.round == round => (self.clone(), self.answer(last)),
            _ if self.used < max => {
                let short_lives = in_a_row(self.short_lives, lived);
                let (used, last) = (self.used + 1, failure(RestartVerdict::Counted));
                let budget = Self { used, last, short_lives, ..self.clone() };
                (budget, RestartAnswer::Granted { short_lives })
            }
            _ => {
                let refused = RestartAnswer::Refused { used: self.used, blame: blame.to_owned() };
                (Self { last: failure(RestartVerdict::Refused), ..self.clone() }, refused)
            }
        }
    }

    /// The budget after the report of a hang, and the answer: a restart like that after a failure, and the evictions of
    /// the odd nodes with it. If a worker failed first, the job restarts for that, and no node is evicted.
    pub fn restart_hung(
        &self,
        restart: &HangRestart,
        max: u32,
        evictions: &[OperatorAction],
    ) -> (Self, RestartAnswer) {
        let HangRestart { round, blame, lived, .. } = restart;
        let (mut next, answer) =
            self.consume(*round, max, &bounded(blame.clone(), LONGEST_REASON), *lived);
        if next != *self {
            if let Some(last) = &mut next.last {
                last.hang = true;
            }
            if matches!(answer, RestartAnswer::Granted { .. }) {
                next = evictions.iter().cloned().fold(next, |next, action| next.record(action));
            }
        }
        (next, answer)
    }

    /// The budget after the failures of `round` turned out to be collateral, including failures that are reported
    /// later.
    pub fn refund(&self, round: u64, why: &str) -> Self {
        let verdict = RestartVerdict::Refunded;
        match &self.last {
            Some(last) if last.round > round => self.clone(),
            // No loss explains a hang, least of all that of the node which was evicted for it.
            Some(last) if last.round == round && last.hang => self.clone(),
            Some(last) if last.round == round => {
                let given_back = u32::from(last.verdict == RestartVerdict::Counted);
                Self {
                    used: self.used.saturating_sub(given_back),
                    short_lives: self.short_lives.saturating_sub(given_back),
                    last: Some(RoundFailure { verdict, ..last.clone() }),
                    ..self.clone()
                }
            }
            _ => {
                let blame = why.to_owned();
                let last = Some(RoundFailure { round, blame, verdict, hang: false });
                Self { last, ..self.clone() }
            }
        }
    }

    /// The document after a member of the group was asked to leave. The first departure of a round notifies the
    /// workers of all nodes, so later ones of the same round change nothing.
    #[must_use]
    pub fn announce(&self, departure: Departure) -> Self {
        if self.departure.as_ref().is_some_and(|known| known.round >= departure.round) {
            return self.clone();
        }
        Self { departure: Some(departure), ..self.clone() }
    }

    /// The document with the limit of the nodes.
    #[must_use]
    pub fn limited_to(&self, max: u32) -> Self {
        Self { max: Some(max), ..self.clone() }
    }

    /// What is in force when this document was known, and `stored` is what the server has: an empty document if it has
    /// none. If no launcher has written that, the server has lost its state, and the counts of this document go on.
    /// Its rounds do not.
    #[must_use]
    pub fn remembered_in(&self, stored: Self) -> Self {
        if stored.max.is_some() {
            return stored;
        }
        // A launcher of an earlier version writes no limit.
        let (used, short_lives) =
            (stored.used.max(self.used), stored.short_lives.max(self.short_lives));
        Self { used, short_lives, max: self.max, ..stored }
    }

    /// The document after an operator did this. The oldest of many actions is forgotten.
    #[must_use]
    pub fn record(&self, action: OperatorAction) -> Self {
        let mut next = self.clone();
        next.actions
            .push(OperatorAction { reason: bounded(action.reason, LONGEST_REASON), ..action });
        let more = next.actions.len().saturating_sub(MOST_ACTIONS);
        next.actions.drain(..more);
        next
    }

    /// The eviction of this node, if an operator evicted it.
    pub fn eviction_of(&self, id: &str) -> Option<&OperatorAction> {
        let is_of = |action: &&OperatorAction| matches!(&action.operation, Operation::Evict { node } if node == id);
        self.actions.iter().rev().find(is_of)
    }

    /// The evictions of members of the group of this round.
    pub fn evictions_in(&self, round: u64) -> impl Iterator<Item = (&str, &OperatorAction)> {
        self.actions.iter().filter(move |action| action.round == round).filter_map(|action| {
            match &action.operation {
                Operation::Evict { node } => Some((node.as_str(), action)),
                Operation::Close | Operation::Reopen | Operation::Overrule | Operation::Unknown => {
                    None
                }
            }
        })
    }

    /// The number of restarts used before `round`: the same for all of its nodes, whenever they read it.
    pub fn used_before(&self, round: u64) -> u32 {
        let of_this =
            |last: &RoundFailure| last.round == round && last.verdict == RestartVerdict::Counted;
        self.used.saturating_sub(u32::from(self.last.as_ref().is_some_and(of_this)))
    }

    fn answer(&self, last: &RoundFailure) -> RestartAnswer {
        match last.verdict {
            RestartVerdict::Counted => RestartAnswer::Granted { short_lives: self.short_lives },
            RestartVerdict::Refunded => RestartAnswer::Granted { short_lives: 0 },
            RestartVerdict::Refused => {
                RestartAnswer::Refused { used: self.used, blame: last.blame.clone() }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    fn consume(budget: &mut RestartBudget, round: u64, max: u32) -> bool {
        let (next, answer) = budget.consume(round, max, &format!("round {round}"), LONG);
        *budget = next;
        matches!(answer, RestartAnswer::Granted { .. })
    }

    #[test]
    fn short_lives_are_counted_by_rounds_until_a_long_one() {
        let mut budget = RestartBudget::default();
        let mut consume = |round, seconds| {
            let (next, answer) = budget.consume(round, 9, "", Duration::from_secs(seconds));
            budget = next;
            let RestartAnswer::Granted { short_lives } = answer else { panic!("{answer:?}") };
            short_lives
        };
        assert_eq!(consume(1, 0), 1);
        assert_eq!(consume(1, 3600), 1, "another node of the same round");
        assert_eq!(consume(2, 10), 2);
        assert_eq!(consume(1, 0), 0, "the job went on without it");
        assert_eq!(consume(4, 3600), 0);
        assert_eq!(consume(5, 0), 1);
        budget = budget.refund(5, "a member was lost");
        let (_, late) = budget.consume(5, 9, "", Duration::ZERO);
        assert_eq!(late, RestartAnswer::Granted { short_lives: 0 });
        let (_, next) = budget.consume(6, 9, "", Duration::ZERO);
        assert_eq!(next, RestartAnswer::Granted { short_lives: 1 }, "the failure was collateral");
    }

    #[test]
    fn a_round_uses_one_restart_however_many_nodes_fail() {
        let mut budget = RestartBudget::default();
        assert!((0..3).all(|_| consume(&mut budget, 1, 2)));
        assert_eq!(budget.used, 1);
        assert!(consume(&mut budget, 2, 2));
        assert!(!consume(&mut budget, 3, 2));
        assert_eq!(budget.used, 2);
    }

    #[test]
    fn a_refusal_names_the_first_failure_of_the_round() {
        let (budget, _) = RestartBudget::default().consume(1, 0, "the cause", LONG);
        let (after, answer) = budget.consume(1, 0, "its effect", LONG);
        assert_eq!(answer, RestartAnswer::Refused { used: 0, blame: "the cause".into() });
        assert_eq!(after, budget);
    }

    #[test]
    fn a_refund_is_made_once() {
        let mut budget = RestartBudget::default();
        assert!(consume(&mut budget, 1, 1));
        budget = budget.refund(1, "").refund(1, "");
        assert_eq!(budget.used, 0);
        assert!(consume(&mut budget, 1, 1), "who comes late in the same round");
        assert_eq!(budget.used, 0);
        assert!(consume(&mut budget, 2, 1));
        assert_eq!(budget.refund(1, "").used, 1, "an earlier round is over");
    }

    #[test]
    fn a_refusal_and_a_late_report_can_be_refunded() {
        let mut budget = RestartBudget::default();
        assert!(!consume(&mut budget, 1, 0));
        budget = budget.refund(1, "a member was lost");
        assert!(consume(&mut budget, 1, 0));
        budget = budget.refund(2, "a member was lost");
        assert!(consume(&mut budget, 2, 0));
        assert_eq!(budget.used, 0);
    }

    #[test]
    fn all_nodes_of_a_round_are_told_the_same_number() {
        let mut budget = RestartBudget::default();
        assert_eq!(budget.used_before(1), 0);
        assert!(consume(&mut budget, 1, 3));
        assert_eq!((budget.used_before(1), budget.used_before(2)), (0, 1));
        assert!(consume(&mut budget, 2, 3));
        assert_eq!((budget.used_before(2), budget.used_before(3)), (1, 2));
    }

    #[test]
    fn a_document_that_no_launcher_wrote_makes_no_restart_new() {
        let mut known = RestartBudget::default().limited_to(3);
        assert!(consume(&mut known, 7, 3) && consume(&mut known, 8, 3));
        known.short_lives = 1;
        let action = OperatorAction {
            operation: Operation::Close,
            by: "ali@login".into(),
            reason: String::new(),
            round: 1,
            at: None,
        };
        let of_operator = RestartBudget::default().record(action);
        let counts = |budget: &RestartBudget| (budget.used, budget.short_lives, budget.max);
        for stored in [RestartBudget::default(), of_operator.clone()] {
            let budget = known.remembered_in(stored.clone());
            assert_eq!(counts(&budget), (2, 1, Some(3)));
            assert_eq!((&budget.last, &budget.actions), (&None, &stored.actions));
            assert_eq!(budget.remembered_in(stored), budget, "it is remembered once");
        }
        // A node that remembers nothing takes what is there, and a launcher's word is the last.
        assert_eq!(RestartBudget::default().remembered_in(of_operator.clone()), of_operator);
        let of_launcher = of_operator.limited_to(3);
        assert_eq!(known.remembered_in(of_launcher.clone()), of_launcher);
        let of_earlier_version = RestartBudget { used: 3, ..RestartBudget::default() };
        assert_eq!(known.remembered_in(of_earlier_version).used, 3);
    }

    #[test]
    fn the_first_departure_of_a_round_is_told() {
        let departure = |round, why: &str| Departure { round, millis: 30_000, why: why.into() };
        let budget =
            RestartBudget { used: 2, ..RestartBudget::default() }.announce(departure(4, "a"));
        assert_eq!((budget.used, &budget.departure), (2, &Some(departure(4, "a"))));
        assert_eq!(budget.announce(departure(4, "b")), budget);
        assert_eq!(budget.announce(departure(3, "b")), budget);
        assert_eq!(budget.announce(departure(5, "b")).departure, Some(departure(5, "b")));
    }

    #[test]
    fn a_hang_uses_a_restart_once_and_evicts_with_it() {
        let eviction = |round| OperatorAction {
            operation: Operation::Evict { node: "b".into() },
            by: "a".into(),
            reason: "it hangs".into(),
            round,
            at: None,
        };
        let hang = |round| HangRestart {
            round,
            blame: "it hangs".into(),
            lived: LONG,
            without: vec!["b".into()],
        };
        let restart = |budget: &RestartBudget, round, max| {
            budget.restart_hung(&hang(round), max, &[eviction(round)])
        };
        let granted = RestartAnswer::Granted { short_lives: 0 };
        let (budget, answer) = restart(&RestartBudget::default(), 4, 1);
        assert_eq!((budget.used, &answer), (1, &granted));
        assert_eq!(budget.eviction_of("b"), Some(&eviction(4)));
        assert_eq!(restart(&budget, 4, 1), (budget.clone(), granted.clone()), "said twice");
        assert_eq!(budget.refund(4, "b was lost"), budget, "b was lost because of it");
        let (refused, answer) = restart(&budget, 5, 1);
        let no = RestartAnswer::Refused { used: 1, blame: "it hangs".into() };
        assert_eq!((refused.actions.len(), answer), (1, no), "the job ends, and nobody leaves it");
        let (failed, _) = RestartBudget::default().consume(4, 1, "rank 3 failed", LONG);
        assert_eq!(restart(&failed, 4, 1), (failed, granted), "a worker failed first");
    }

    #[test]
    fn an_operation_of_a_later_version_leaves_the_budget_readable() {
        let text = r#"{"used":2,"actions":[{"operation":"drain","by":"ali@login","round":4},
            {"operation":"evict","node":"b","by":"ali@login","round":4}]}"#;
        let budget: RestartBudget = serde_json::from_str(text).unwrap();
        assert_eq!((budget.used, budget.actions[0].operation.clone()), (2, Operation::Unknown));
        assert_eq!(budget.evictions_in(4).map(|(node, _)| node).collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn a_node_that_the_job_went_on_without_costs_nothing() {
        let mut budget = RestartBudget::default();
        assert!(consume(&mut budget, 5, 1));
        assert!(consume(&mut budget, 4, 1));
        assert_eq!(budget.used, 1);
    }
}
