//! Workers that make no progress.

use super::*;

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
        let request = HangRequest { round, number, host: "there".into(), millis: 10_000 };
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
