//! Workers that make no progress.

use super::*;
use crate::agent::HangOver;
use crate::agent::operator::{Operation, OperatorAction};
use crate::agent::stacks::{OddNode, OddNodes};

fn settings() -> AgentSettings {
    let (after, first) = (Duration::from_secs(10), Duration::from_secs(60));
    AgentSettings { hang: Some(HangPolicy { after, first }), ..AgentSettings::default() }
}

impl Story {
    /// The time of the next look comes, and the last sign of progress is this.
    fn progress(&mut self, now: u64, latest: Option<u64>) -> Vec<String> {
        let attempt = self.agent.starts - 1;
        assert_eq!(self.wakes_at(), Some(now));
        self.now = now;
        assert_eq!(self.give(AgentInput::Wake), [format!("look {attempt}")]);
        assert_eq!(self.wakes_at(), None, "until there is an answer");
        let latest = latest.map(Duration::from_secs);
        self.give(AgentInput::Progress { attempt, latest })
    }

    fn wanted(&mut self, round: u64, number: u64) -> Vec<String> {
        self.wanted_by("there", round, number)
    }

    fn wanted_by(&mut self, host: &str, round: u64, number: u64) -> Vec<String> {
        let host = host.into();
        let request = HangRequest { round, number, host, millis: 10_000, since: None };
        self.give(AgentInput::StacksWanted(request))
    }
}

const NOTHING: [String; 0] = [];

#[test]
fn workers_that_make_progress_are_left_alone() {
    let mut story = Story::running(settings());
    assert_eq!(story.progress(10, Some(5)), NOTHING);
    assert_eq!(story.progress(15, Some(15)), NOTHING);
    assert_eq!(story.wakes_at(), Some(25));
}

#[test]
fn without_the_option_nothing_looks_for_progress() {
    let story = Story::running(AgentSettings::default());
    assert_eq!(story.wakes_at(), None);
}

#[test]
fn a_node_without_progress_asks_all_nodes_once() {
    let mut story = Story::running(settings());
    assert_eq!(story.progress(10, Some(0)), ["ask 1.1: here silent for 10000 ms"]);
    assert_eq!(story.wanted(1, 1), ["stacks 1.1"]);
    assert_eq!(story.progress(20, Some(0)), NOTHING, "it was reported");
    assert_eq!(story.progress(30, Some(28)), NOTHING);
    assert_eq!(story.progress(38, Some(28)), ["ask 1.2: here silent for 10000 ms"]);
}

#[test]
fn who_reported_a_hang_says_when_it_is_over() {
    let mut story = Story::running(settings());
    assert_eq!(story.progress(10, Some(0)), ["ask 1.1: here silent for 10000 ms"]);
    assert_eq!(story.wanted_by("here", 1, 1), ["stacks 1.1"]);
    assert_eq!(story.progress(11, Some(0)), NOTHING, "it goes on");
    assert_eq!(story.progress(12, Some(11)), ["over 1.1"]);
    let over = HangOver { round: 1, number: 1 };
    assert_eq!(story.give(AgentInput::HangOver(over)), NOTHING);
    assert_eq!(story.progress(21, Some(20)), NOTHING, "it is said once");
}

#[test]
fn workers_that_are_done_end_the_hang_of_their_node() {
    let mut story = Story::running(settings());
    story.progress(10, Some(0));
    story.wanted_by("here", 1, 1);
    story.exits(0, Exit::Code(0));
    assert_eq!(story.exits(1, Exit::Code(0)), ["over 1.1", "barrier 1"]);
}

#[test]
fn a_node_that_is_still_silent_reports_the_next_hang() {
    let mut story = Story::running(settings());
    assert_eq!(story.wanted(1, 1), ["stacks 1.1"]);
    assert_eq!(story.progress(10, Some(0)), NOTHING, "another node has reported it");
    story.now = 12;
    assert_eq!(story.give(AgentInput::HangOver(HangOver { round: 2, number: 1 })), NOTHING);
    assert_eq!(story.give(AgentInput::HangOver(HangOver { round: 1, number: 1 })), NOTHING);
    assert_eq!(story.progress(20, Some(0)), NOTHING, "it may need a moment");
    assert_eq!(story.progress(22, Some(0)), ["ask 1.2: here silent for 22000 ms"]);
}

#[test]
fn no_sign_at_all_counts_from_the_start() {
    let mut story = Story::running(settings());
    for now in [10, 20, 30, 40, 50] {
        assert_eq!(story.progress(now, None), NOTHING);
    }
    assert_eq!(story.progress(60, None), ["ask 1.1: here silent for 60000 ms"]);
}

#[test]
fn a_node_answers_another_with_workers_and_without() {
    let mut story = Story::running(AgentSettings::default());
    assert_eq!(story.wanted(2, 1), NOTHING, "another round");
    assert_eq!(story.wanted(1, 1), ["stacks 1.1"]);
    story.exits(0, Exit::Code(0));
    story.exits(1, Exit::Code(0));
    assert_eq!(story.wanted(1, 2), ["stacks 1.2"], "at the barrier");
}

#[test]
fn workers_that_are_being_stopped_are_not_looked_at_and_still_answer() {
    let mut story = Story::running(settings());
    story.changes(lost());
    assert_eq!(story.wakes_at(), None);
    assert_eq!(story.wanted(1, 1), ["stacks 1.1"]);
    story.stopped();
    assert_eq!(story.wanted(1, 2), NOTHING, "there is no group");
}

#[test]
fn a_late_answer_is_ignored() {
    let mut story = Story::running(settings());
    story.now = 60;
    assert_eq!(story.give(AgentInput::Wake), ["look 0"]);
    story.changes(lost());
    story.stopped();
    story.forms(2);
    let late = AgentInput::Progress { attempt: 0, latest: None };
    assert_eq!(story.give(late), NOTHING);
    assert_eq!(story.wakes_at(), Some(70));
}

/// The report of rank 0 on a hang of this round, with this many spares.
fn reported(round: u64, odd: &[&str], spares: u32) -> AgentInput {
    let node = |id: &&str| OddNode { id: (*id).into(), host: format!("host-{id}") };
    let odd = OddNodes { nodes: odd.iter().map(node).collect(), reason: "so it is".into() };
    AgentInput::HangReported(HangFinding {
        round,
        number: 1,
        headline: "it hangs".into(),
        odd,
        spares,
    })
}

fn restarting(min_nodes: u32) -> AgentSettings {
    AgentSettings { on_hang: OnHang::Restart { min_nodes }, ..settings() }
}

const WITHOUT: &str = "restart 1 without [\"b\"]: it hangs; the odd node is host-b";

#[test]
fn a_job_that_hangs_restarts_without_the_odd_node_if_enough_are_left() {
    for (min_nodes, spares, expected) in [
        (1, 0, WITHOUT),
        (2, 1, WITHOUT),
        (
            2,
            0,
            "restart 1 without []: it hangs; the odd node is host-b, and the job needs it: of 2 nodes, 1 would be left",
        ),
    ] {
        let mut story = Story::running(restarting(min_nodes));
        assert_eq!(story.give(reported(1, &["b"], spares)), [expected]);
        assert_eq!(story.counted(granted()), NOTHING, "all nodes see it");
        let hung = GroupChange::Hung("it hangs".into());
        assert_eq!(story.changes(hung), ["stop 0 by 15, kill at 30"]);
        assert_eq!(story.stopped(), ["rendezvous: the job hangs: it hangs"]);
    }
}

#[test]
fn only_a_report_follows_without_the_option_an_odd_node_or_workers_that_run() {
    assert_eq!(Story::running(settings()).give(reported(1, &["b"], 9)), NOTHING);
    let mut story = Story::running(restarting(1));
    assert_eq!(story.give(reported(1, &[], 9)), NOTHING);
    assert_eq!(story.give(reported(2, &["b"], 9)), NOTHING, "another round");
    story.changes(lost());
    assert_eq!(story.give(reported(1, &["b"], 9)), NOTHING, "it restarts already");
}

#[test]
fn a_hang_without_a_restart_left_ends_the_job() {
    let mut story = Story::running(restarting(1));
    assert_eq!(story.give(reported(1, &["b"], 0)), [WITHOUT]);
    assert_eq!(
        story.counted(refused()),
        ["stop 0 by 15, kill at 30", "close: failed: rank 0 failed; all 2 restarts were used"]
    );
    let end = "exit 1: the job failed: rank 0 failed; all 2 restarts were used";
    assert_eq!(story.stopped(), ["leave", end]);
}

/// The node that is to blame hears of the restart first, and of its eviction in the same breath.
#[test]
fn the_odd_node_leaves_instead_of_meeting_again() {
    let mut story = Story::running(settings());
    let hung = GroupChange::Hung("it hangs".into());
    assert_eq!(story.changes(hung), ["stop 0 by 15, kill at 30"]);
    let operation = Operation::Evict { node: "here_1".into() };
    let (by, reason) = ("a".into(), "it hangs".into());
    let action = OperatorAction { operation, by, reason, round: 1, at: None };
    assert_eq!(story.give(AgentInput::Evicted(action)), NOTHING);
    assert_eq!(story.stopped(), ["leave", "exit 77: this node was evicted by a: it hangs"]);
}

#[test]
fn a_node_at_the_barrier_stays_until_the_others_meet_again() {
    let mut story = Story::running(settings());
    story.exits(0, Exit::Code(0));
    story.exits(1, Exit::Code(0));
    assert_eq!(story.changes(GroupChange::Hung("it hangs".into())), NOTHING);
}
