//! How it ends.

use super::*;

fn succeeded(settings: AgentSettings) -> Story {
    let mut story = Story::running(settings);
    assert!(story.exits(0, Exit::Code(0)).is_empty());
    assert_eq!(story.exits(1, Exit::Code(0)), ["barrier 1"]);
    story
}

#[test]
fn all_nodes_succeed() {
    let mut story = succeeded(AgentSettings::default());
    assert_eq!(story.wakes_at(), None, "it waits until the other nodes are done");
    let outputs = story.give(AgentInput::BarrierPassed { round: 1 });
    assert_eq!(
        outputs,
        [
            "close: done: all workers succeeded",
            "leave",
            "exit 0: all workers of all nodes succeeded",
        ]
    );
    assert!(story.give(AgentInput::Signal(2)).is_empty(), "it is over");
}

#[test]
fn a_node_that_has_waited_long_enough_leaves_without_a_restart_of_other_nodes() {
    let settings =
        AgentSettings { exit_barrier: Some(Duration::from_secs(300)), ..AgentSettings::default() };
    let mut story = succeeded(settings);
    assert_eq!(story.wakes_at(), Some(300));
    story.now = 300;
    let outputs = story.give(AgentInput::Wake);
    assert_eq!(outputs[..2], ["close: done: all workers succeeded", "leave"]);
    assert!(outputs[2].starts_with("exit 0: "), "{outputs:?}");
}

#[test]
fn a_node_that_is_done_does_not_come_back() {
    let failed = || RunClosure { by: "a".into(), reason: CloseReason::Failed("x".into()) };
    let ends = [
        AgentInput::Changed { round: 1, change: lost() },
        AgentInput::Changed { round: 1, change: GroupChange::GoneAhead("x".into()) },
        AgentInput::SessionLost { deadline: Duration::ZERO, reason: "silence".into() },
        AgentInput::Closed(failed()),
        AgentInput::Closed(RunClosure { by: "a".into(), reason: CloseReason::Succeeded }),
    ];
    for input in ends {
        let outputs = succeeded(AgentSettings::default()).give(input.clone());
        assert_eq!(outputs.len(), 2, "{input:?}: {outputs:?}");
        assert_eq!(outputs[0], "leave", "{input:?}");
        assert!(outputs[1].starts_with("exit 0: "), "{input:?}: {outputs:?}");
    }
    let mut story = succeeded(AgentSettings::default());
    for change in [GroupChange::NodesWaiting(1), GroupChange::PeerFailed("x".into())] {
        assert!(
            story.changes(change).is_empty(),
            "the other nodes may form another group, and then report it"
        );
    }
    assert!(story.give(AgentInput::Signal(15))[1].starts_with("exit 143: "));
}

#[test]
fn a_run_that_failed_elsewhere_stops_the_workers() {
    let mut story = Story::running(AgentSettings::default());
    let stop = story.closed(CloseReason::Failed("rank 0 failed".into()));
    assert_eq!(stop, ["stop 0 by 15, kill at 30"]);
    assert!(story.changes(lost()).is_empty(), "who closed it leaves");
    let outputs = story.stopped();
    assert_eq!(outputs, ["leave", "exit 1: the run was closed by a: failed: rank 0 failed"]);
    let mut story = Story::running(AgentSettings::default());
    story.closed(CloseReason::NonRetryable("x".into()));
    assert!(story.stopped()[1].starts_with("exit 78: "));
}

#[test]
fn a_run_that_is_done_lets_the_workers_finish() {
    let mut story = Story::running(AgentSettings::default());
    assert!(story.closed(CloseReason::Succeeded).is_empty());
    story.exits(0, Exit::Code(0));
    assert_eq!(story.exits(1, Exit::Code(0)), ["barrier 1"]);
}

#[test]
fn no_group_forms() {
    let closed = |reason| NoGroup::Closed(RunClosure { by: "a".into(), reason });
    let table = [
        (NoGroup::NotNeeded("spare".into()), 0),
        (closed(CloseReason::Succeeded), 0),
        (closed(CloseReason::Failed("x".into())), 1),
        (closed(CloseReason::NonRetryable("x".into())), 78),
        (closed(CloseReason::Failed("an operator closed it".into())), 1),
        (NoGroup::Failed("no group within 600 s".into()), 1),
        (NoGroup::Unfit("it exited with 3".into()), 69),
        (NoGroup::ServerLost("no answer for 300 s".into()), 75),
    ];
    for (no_group, code) in table {
        let outputs =
            Story::begin(AgentSettings::default()).give(AgentInput::NotFormed(no_group.clone()));
        assert_eq!(outputs[0], "leave");
        assert!(outputs[1].starts_with(&format!("exit {code}: ")), "{no_group:?}: {outputs:?}");
    }
}

#[test]
fn a_node_whose_workers_failed_has_not_succeeded_because_others_have() {
    let mut story = Story::running(AgentSettings::default());
    story.fails();
    story.counted(granted());
    story.stopped();
    let closed = RunClosure { by: "a".into(), reason: CloseReason::Succeeded };
    let outputs = story.give(AgentInput::NotFormed(NoGroup::Closed(closed)));
    assert!(outputs[1].starts_with("exit 1: workers of this node failed"), "{outputs:?}");
}

#[test]
fn a_spare_has_nothing_to_answer_for() {
    let mut story = Story::running(AgentSettings::default());
    story.fails();
    story.counted(granted());
    story.stopped();
    story.agent.handle(Duration::ZERO, AgentInput::NotFormed(NoGroup::NotNeeded("over".into())));
    let outputs: Vec<AgentOutput> = std::iter::from_fn(|| story.agent.poll_output()).collect();
    let outcome = NodeOutcome::NotNeeded("over".into());
    let outcome = RunResult { exit_code: 0, outcome, failures: Vec::new() };
    assert_eq!(outputs, [AgentOutput::Leave, AgentOutput::Finish(outcome)]);
}

#[test]
fn a_signal_leaves_the_run_open() {
    let mut idle = Story { agent: Agent::new(AgentSettings::default()), now: 0, round: 0 };
    assert_eq!(idle.give(AgentInput::Signal(15))[0], "leave");
    let mut placing = Story::begin(AgentSettings::default());
    placing.meets(2);
    for mut story in [Story::begin(AgentSettings::default()), placing] {
        let outputs = story.give(AgentInput::Signal(2));
        assert_eq!(outputs, ["leave", "exit 130: the launcher got signal 2 (SIGINT)"]);
    }
}

#[test]
fn a_node_that_cannot_start_its_workers_does_not_restart_other_nodes() {
    let mut story = Story::running(AgentSettings::default());
    let reason = "no such program".to_owned();
    let stop = story.give(AgentInput::NotStarted { attempt: 0, reason });
    assert_eq!(stop, ["stop 0 by 9, kill at 0"], "some may have started");
    assert!(story.exits(0, Exit::Code(1)).is_empty());
    let outputs = story.stopped();
    assert_eq!(outputs, ["leave", "exit 1: the workers could not be started: no such program"]);
}

#[test]
fn ranks_are_tried_for_in_three_rounds() {
    let mut story = Story::begin(AgentSettings::default());
    let fails = |story: &mut Story| {
        story.meets(2);
        let round = story.round;
        story.give(AgentInput::NotPlaced { round, reason: "time-out".into() })
    };
    assert_eq!(fails(&mut story), ["rendezvous: the workers got no ranks: time-out"]);
    fails(&mut story);
    let outputs = fails(&mut story);
    assert_eq!(outputs, ["leave", "exit 1: the workers got no ranks in 3 rounds: time-out"]);
    let mut story = Story::begin(AgentSettings::default());
    for _ in 0..3 {
        fails(&mut story);
        story.forms(2);
        story.changes(lost());
        assert_eq!(story.stopped().len(), 1, "it counts rounds in a row");
    }
}

#[test]
fn workers_that_do_not_go_are_not_joined_by_others() {
    let mut story = Story::running(AgentSettings::default());
    story.changes(lost());
    let outputs = story.give(AgentInput::NotStopped { attempt: 0, reason: "pid 7".into() });
    assert_eq!(outputs, ["leave", "exit 1: the workers survive SIGKILL: pid 7"]);
}
