//! How many restarts the whole job has used: a document that its nodes share, changed under a compare.
//!
//! What is counted is rounds, not failures: when one worker dies, those of other nodes fail for it, and
//! all of them ask. The first to ask in a round is remembered as the one to blame, also when there was no
//! restart left to give.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::haste::in_a_row;
use crate::rendezvous::documents::Extra;

/// The restarts of a job. The empty document is that of a job which has had no failure.
///
/// ```
/// use std::time::Duration;
/// use rallypoint_core::agent::{Answer, Budget};
/// let lived = Duration::from_secs(3600);
/// let (budget, first) = Budget::default().charge(4, 1, "rank 0 failed", lived);
/// assert_eq!(first, Answer::Granted { short_lives: 0 });
/// // Another node of the same round.
/// let (budget, second) = budget.charge(4, 1, "rank 9 lost rank 0", lived);
/// assert_eq!(second, first);
/// let (_, third) = budget.charge(5, 1, "rank 0 failed again", lived);
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
    /// In how many of the rounds that were counted, up to the last, the workers lived only shortly.
    #[serde(default)]
    pub short_lives: u32,
    /// The last node that was told to go, and when it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub departure: Option<Departure>,
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

/// A member of a group that was told to go.
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
    /// How long its workers have from the moment that this was written.
    pub fn left(&self) -> Duration {
        Duration::from_millis(self.millis)
    }
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
    Granted {
        /// How often in a row workers have lived only shortly: see [`RestartDelay`](super::RestartDelay).
        short_lives: u32,
    },
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
    /// given, and at most one for each round. The first to ask says how long workers have `lived`.
    pub fn charge(&self, round: u64, max: u32, blame: &str, lived: Duration) -> (Self, Answer) {
        let charge = |verdict| Some(Charge { round, blame: blame.to_owned(), verdict });
        match &self.last {
            // The group has met again since, so the job went on in spite of it.
            Some(last) if last.round > round => (self.clone(), Answer::Granted { short_lives: 0 }),
            Some(last) if last.round == round => (self.clone(), self.answer(last)),
            _ if self.used < max => {
                let short_lives = in_a_row(self.short_lives, lived);
                let (used, last) = (self.used + 1, charge(Verdict::Counted));
                let budget = Self { used, last, short_lives, ..self.clone() };
                (budget, Answer::Granted { short_lives })
            }
            _ => {
                let refused = Answer::Refused { used: self.used, blame: blame.to_owned() };
                (Self { last: charge(Verdict::Refused), ..self.clone() }, refused)
            }
        }
    }

    /// The budget after it turned out that the failures of `round` were not the workers' fault. Also those
    /// that are not reported yet.
    pub fn forgive(&self, round: u64, why: &str) -> Self {
        let verdict = Verdict::Forgiven;
        match &self.last {
            Some(last) if last.round > round => self.clone(),
            Some(last) if last.round == round => {
                let given_back = u32::from(last.verdict == Verdict::Counted);
                Self {
                    used: self.used.saturating_sub(given_back),
                    short_lives: self.short_lives.saturating_sub(given_back),
                    last: Some(Charge { verdict, ..last.clone() }),
                    ..self.clone()
                }
            }
            _ => {
                let last = Some(Charge { round, blame: why.to_owned(), verdict });
                Self { last, ..self.clone() }
            }
        }
    }

    /// The document after a member of the group of `round` was told to go. The first one tells the workers of all
    /// nodes, so nothing is left to say for others.
    #[must_use]
    pub fn announce(&self, departure: Departure) -> Self {
        if self.departure.as_ref().is_some_and(|known| known.round >= departure.round) {
            return self.clone();
        }
        Self { departure: Some(departure), ..self.clone() }
    }

    /// How many restarts were used before `round`: the same for all of its nodes, whenever they look.
    pub fn used_before(&self, round: u64) -> u32 {
        let of_this = |last: &Charge| last.round == round && last.verdict == Verdict::Counted;
        self.used.saturating_sub(u32::from(self.last.as_ref().is_some_and(of_this)))
    }

    fn answer(&self, last: &Charge) -> Answer {
        match last.verdict {
            Verdict::Counted => Answer::Granted { short_lives: self.short_lives },
            Verdict::Forgiven => Answer::Granted { short_lives: 0 },
            Verdict::Refused => Answer::Refused { used: self.used, blame: last.blame.clone() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    fn charge(budget: &mut Budget, round: u64, max: u32) -> bool {
        let (next, answer) = budget.charge(round, max, &format!("round {round}"), LONG);
        *budget = next;
        matches!(answer, Answer::Granted { .. })
    }

    #[test]
    fn short_lives_are_counted_by_rounds_until_a_long_one() {
        let mut budget = Budget::default();
        let mut charge = |round, seconds| {
            let (next, answer) = budget.charge(round, 9, "", Duration::from_secs(seconds));
            budget = next;
            let Answer::Granted { short_lives } = answer else { panic!("{answer:?}") };
            short_lives
        };
        assert_eq!(charge(1, 0), 1);
        assert_eq!(charge(1, 3600), 1, "another node of the same round");
        assert_eq!(charge(2, 10), 2);
        assert_eq!(charge(1, 0), 0, "the job went on without it");
        assert_eq!(charge(4, 3600), 0);
        assert_eq!(charge(5, 0), 1);
        budget = budget.forgive(5, "a member was lost");
        let (_, late) = budget.charge(5, 9, "", Duration::ZERO);
        assert_eq!(late, Answer::Granted { short_lives: 0 });
        let (_, next) = budget.charge(6, 9, "", Duration::ZERO);
        assert_eq!(next, Answer::Granted { short_lives: 1 }, "it was nobody's fault");
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
        let (budget, _) = Budget::default().charge(1, 0, "the cause", LONG);
        let (after, answer) = budget.charge(1, 0, "its effect", LONG);
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
    fn the_first_departure_of_a_round_is_told() {
        let departure = |round, why: &str| Departure { round, millis: 30_000, why: why.into() };
        let budget = Budget { used: 2, ..Budget::default() }.announce(departure(4, "a"));
        assert_eq!((budget.used, &budget.departure), (2, &Some(departure(4, "a"))));
        assert_eq!(budget.announce(departure(4, "b")), budget);
        assert_eq!(budget.announce(departure(3, "b")), budget);
        assert_eq!(budget.announce(departure(5, "b")).departure, Some(departure(5, "b")));
    }

    #[test]
    fn a_node_that_the_job_went_on_without_costs_nothing() {
        let mut budget = Budget::default();
        assert!(charge(&mut budget, 5, 1));
        assert!(charge(&mut budget, 4, 1));
        assert_eq!(budget.used, 1);
    }
}
