//! How many restarts the whole job has used: a document that its nodes share, changed under a compare.
//!
//! What is counted is rounds, not failures: when one worker dies, those of other nodes fail for it, and
//! all of them ask. The first to ask in a round is remembered as the one to blame, also when there was no
//! restart left to give.

use serde::{Deserialize, Serialize};

use crate::rendezvous::document::Extra;

/// The restarts of a job. The empty document is that of a job which has had no failure.
///
/// ```
/// use rallypoint_core::agent::{Answer, Budget};
/// let (budget, first) = Budget::default().charge(4, 1, "rank 0 failed");
/// assert_eq!(first, Answer::Granted);
/// // Another node of the same round.
/// let (budget, second) = budget.charge(4, 1, "rank 9 lost rank 0");
/// assert_eq!(second, Answer::Granted);
/// let (_, third) = budget.charge(5, 1, "rank 0 failed again");
/// assert_eq!(third, Answer::Refused { used: 1, blame: "rank 0 failed again".into() });
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Budget {
    /// How many were used.
    #[serde(default)]
    pub used: u32,
    /// The last round in which a worker failed. Earlier ones are over for good.
    #[serde(default)]
    pub last: Option<Charge>,
    /// What a later version says besides.
    #[serde(flatten)]
    pub extra: Extra,
}

/// What came of the failures of a round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charge {
    /// The round.
    pub round: u64,
    /// The first failure, in a sentence.
    pub blame: String,
    /// What was made of it.
    pub verdict: Verdict,
}

/// What was made of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It used a restart.
    Counted,
    /// There was none left.
    Refused,
    /// It was not the workers' fault.
    Forgiven,
}

/// The budget's answer to a node whose worker failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It may meet again.
    Granted,
    /// There is no restart left.
    Refused {
        /// How many the job has used.
        used: u32,
        /// The first failure of the round, which may be another node's.
        blame: String,
    },
}

impl Budget {
    /// The budget after a worker failed in `round`, and what to tell its node. At most `max` restarts are
    /// given, and at most one for each round.
    pub fn charge(&self, round: u64, max: u32, blame: &str) -> (Self, Answer) {
        let charge = |verdict| Some(Charge { round, blame: blame.to_owned(), verdict });
        let after = |used, last| Self { used, last, extra: self.extra.clone() };
        match &self.last {
            // The group has met again since, so the job went on in spite of it.
            Some(last) if last.round > round => (self.clone(), Answer::Granted),
            Some(last) if last.round == round => (self.clone(), self.answer(last)),
            _ if self.used < max => {
                let used = self.used + 1;
                (after(used, charge(Verdict::Counted)), Answer::Granted)
            }
            _ => {
                let refused = Answer::Refused { used: self.used, blame: blame.to_owned() };
                (after(self.used, charge(Verdict::Refused)), refused)
            }
        }
    }

    /// The budget after it turned out that the failures of `round` were not the workers' fault. Also those
    /// that are not reported yet.
    pub fn forgive(&self, round: u64, why: &str) -> Self {
        let verdict = Verdict::Forgiven;
        let after = |used, last| Self { used, last: Some(last), extra: self.extra.clone() };
        match &self.last {
            Some(last) if last.round > round => self.clone(),
            Some(last) if last.round == round => {
                let given_back = u32::from(last.verdict == Verdict::Counted);
                let last = Charge { verdict, ..last.clone() };
                after(self.used.saturating_sub(given_back), last)
            }
            _ => after(self.used, Charge { round, blame: why.to_owned(), verdict }),
        }
    }

    /// How many restarts were used before `round`: the same for all of its nodes, whenever they look.
    pub fn used_before(&self, round: u64) -> u32 {
        let of_this = |last: &Charge| last.round == round && last.verdict == Verdict::Counted;
        self.used.saturating_sub(u32::from(self.last.as_ref().is_some_and(of_this)))
    }

    fn answer(&self, last: &Charge) -> Answer {
        match last.verdict {
            Verdict::Counted | Verdict::Forgiven => Answer::Granted,
            Verdict::Refused => Answer::Refused { used: self.used, blame: last.blame.clone() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn charge(budget: &mut Budget, round: u64, max: u32) -> bool {
        let (next, answer) = budget.charge(round, max, &format!("round {round}"));
        *budget = next;
        answer == Answer::Granted
    }

    #[test]
    fn a_round_uses_one_restart_however_many_nodes_fail() {
        let mut budget = Budget::default();
        assert!((0..3).all(|_| charge(&mut budget, 1, 2)));
        assert_eq!(budget.used, 1);
        assert!(charge(&mut budget, 2, 2));
        assert!(!charge(&mut budget, 3, 2));
        assert_eq!(budget.used, 2);
    }

    #[test]
    fn a_refusal_names_the_first_failure_of_the_round() {
        let (budget, _) = Budget::default().charge(1, 0, "the cause");
        let (after, answer) = budget.charge(1, 0, "its effect");
        assert_eq!(answer, Answer::Refused { used: 0, blame: "the cause".into() });
        assert_eq!(after, budget);
    }

    #[test]
    fn what_is_forgiven_is_given_back_once() {
        let mut budget = Budget::default();
        assert!(charge(&mut budget, 1, 1));
        budget = budget.forgive(1, "").forgive(1, "");
        assert_eq!(budget.used, 0);
        assert!(charge(&mut budget, 1, 1), "who comes late in the same round");
        assert_eq!(budget.used, 0);
        assert!(charge(&mut budget, 2, 1));
        assert_eq!(budget.forgive(1, "").used, 1, "an earlier round is over");
    }

    #[test]
    fn a_refusal_can_be_forgiven_and_so_can_a_report_that_comes_late() {
        let mut budget = Budget::default();
        assert!(!charge(&mut budget, 1, 0));
        budget = budget.forgive(1, "a member was lost");
        assert!(charge(&mut budget, 1, 0));
        budget = budget.forgive(2, "a member was lost");
        assert!(charge(&mut budget, 2, 0));
        assert_eq!(budget.used, 0);
    }

    #[test]
    fn all_nodes_of_a_round_are_told_the_same_number() {
        let mut budget = Budget::default();
        assert_eq!(budget.used_before(1), 0);
        assert!(charge(&mut budget, 1, 3));
        assert_eq!((budget.used_before(1), budget.used_before(2)), (0, 1));
        assert!(charge(&mut budget, 2, 3));
        assert_eq!((budget.used_before(2), budget.used_before(3)), (1, 2));
    }

    #[test]
    fn a_node_that_the_job_went_on_without_costs_nothing() {
        let mut budget = Budget::default();
        assert!(charge(&mut budget, 5, 1));
        assert!(charge(&mut budget, 4, 1));
        assert_eq!(budget.used, 1);
    }
}
