//! The last hang of a job, in the document of its restart budget.

use super::RestartBudget;
use crate::agent::hang::{HangOver, HangRequest};

impl RestartBudget {
    /// The document after a node asked for the stacks of all workers. Several nodes see the same hang: the first
    /// request with its number stays.
    #[must_use]
    pub fn request_stacks(&self, request: HangRequest) -> Self {
        if self.hang.as_ref().is_some_and(|known| known.order() >= request.order()) {
            return self.clone();
        }
        Self { hang: Some(request), ..self.clone() }
    }

    /// The document after a hang ended because workers make progress again. An end that comes too late, when there is
    /// another hang, changes nothing.
    #[must_use]
    pub fn end_hang(&self, over: HangOver) -> Self {
        let is_last = self.hang.as_ref().map(HangRequest::order) == Some((over.round, over.number));
        match is_last {
            true => Self { hang_over: Some(over), ..self.clone() },
            false => self.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(round: u64, number: u64, host: &str) -> HangRequest {
        HangRequest { round, number, host: host.into(), millis: 9, since: None }
    }

    #[test]
    fn of_several_nodes_that_see_a_hang_the_first_asks() {
        let budget =
            RestartBudget { used: 2, ..RestartBudget::default() }.request_stacks(ask(4, 1, "a"));
        assert_eq!((budget.used, &budget.hang), (2, &Some(ask(4, 1, "a"))));
        for late in [ask(4, 1, "b"), ask(3, 7, "b")] {
            assert_eq!(budget.request_stacks(late), budget);
        }
        for next in [ask(4, 2, "b"), ask(5, 1, "b")] {
            assert_eq!(budget.request_stacks(next.clone()).hang, Some(next));
        }
    }

    #[test]
    fn the_end_of_a_hang_is_that_of_the_last_one() {
        let over = |round, number| HangOver { round, number };
        let budget = RestartBudget::default();
        assert_eq!(budget.end_hang(over(4, 1)), budget, "there was none");
        let hung = budget.request_stacks(ask(4, 2, "a"));
        for other in [over(4, 1), over(4, 3), over(3, 2)] {
            assert_eq!(hung.end_hang(other), hung);
        }
        let ended = hung.end_hang(over(4, 2));
        assert_eq!(ended.hang_over, Some(over(4, 2)));
        assert_eq!(ended.end_hang(over(4, 2)), ended, "it is written once");
        let again = ended.request_stacks(ask(4, 3, "a"));
        assert!(!again.hang_over.unwrap().ends((4, 3)), "the next one goes on");
    }
}
