//! A node that an operator evicts.

use super::*;
use crate::agent::operator::{Operation, OperatorAction};

fn evicted() -> AgentInput {
    let operation = Operation::Evict { node: "here_1".into() };
    let (by, reason) = ("ali@login".into(), "ECC errors".into());
    AgentInput::Evicted(OperatorAction { operation, by, reason, round: 1, at: None })
}

const END: [&str; 2] = ["leave", "exit 77: this node was evicted by ali@login: ECC errors"];

/// Invariant L1: another node may take its place as soon as it has left.
#[test]
fn it_leaves_when_its_workers_are_gone_and_not_before() {
    let mut story = Story::running(AgentSettings::default());
    assert_eq!(story.give(evicted()), ["stop 0 by 15, kill at 30"]);
    assert!(story.give(evicted()).is_empty(), "the same news again");
    assert!(story.changes(lost()).is_empty());
    assert!(story.exits(0, Exit::Signal(15)).is_empty());
    assert_eq!(story.stopped(), END);
}

#[test]
fn it_does_not_rejoin_after_a_failure_or_a_notice() {
    let mut story = Story::running(AgentSettings::default());
    assert_eq!(story.fails(), ["stop 0 by 15, kill at 30", "count 1"]);
    assert!(story.give(evicted()).is_empty());
    assert!(story.counted(granted()).is_empty());
    assert_eq!(story.stopped(), END);
    let notice = Duration::from_secs(10);
    let mut story = Story::running(AgentSettings { notice, ..AgentSettings::default() });
    story.changes(GroupChange::NodesWaiting(1));
    assert_eq!(story.give(evicted()), ["stop 0 by 15, kill at 30"]);
    assert_eq!(story.stopped(), END);
}

#[test]
fn without_workers_it_leaves_at_once() {
    let mut story = Story::begin(AgentSettings::default());
    assert_eq!(story.give(evicted()), END);
    let mut story = Story::begin(AgentSettings::default());
    story.meets(2);
    assert_eq!(story.give(evicted()), END);
    assert!(story.give(evicted()).is_empty(), "it has ended");
}

#[test]
fn workers_that_have_succeeded_stay_so() {
    let mut story = Story::running(AgentSettings::default());
    story.exits(0, Exit::Code(0));
    let outputs = story.exits(1, Exit::Code(0));
    assert!(outputs.iter().any(|output| output == "barrier 1"), "{outputs:?}");
    let outputs = story.give(evicted());
    assert!(outputs[1].starts_with("exit 0: the workers of this node succeeded"), "{outputs:?}");
}
