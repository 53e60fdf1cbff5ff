//! Workers that fail, and whether there is a restart for them.

use super::*;

#[test]
fn a_failure_stops_the_other_workers_at_once_and_asks_for_a_restart() {
    let mut story = Story::running(AgentSettings::default());
    assert_eq!(story.fails(), ["stop 0 by 15, kill at 30", "count 1"]);
    assert!(story.counted(granted()).is_empty(), "workers are left");
    assert_eq!(story.stopped(), [format!("rendezvous: {FAILED}")]);
    story.forms(2);
}

#[test]
fn the_answer_may_come_after_the_workers_are_gone() {
    let mut story = Story::running(AgentSettings::default());
    story.fails();
    assert!(story.stopped().is_empty());
    assert_eq!(story.agent.waits_for(), Some("the job's budget to allow a restart"));
    assert_eq!(story.counted(granted()), [format!("rendezvous: {FAILED}")]);
}

#[test]
fn every_start_has_its_own_number() {
    let mut story = Story::running(AgentSettings::default());
    for attempt in 1..4 {
        story.changes(lost());
        story.stopped();
        story.forms(2);
        assert_eq!(story.agent.starts, attempt + 1);
    }
}

#[test]
fn without_a_restart_left_the_run_is_closed_with_the_first_failure_of_the_round() {
    let mut story = Story::running(AgentSettings::default());
    story.fails();
    assert!(story.counted(refused()).is_empty(), "news may come that excuses it");
    assert_eq!(story.wakes_at(), Some(1));
    story.now = 1;
    let text = "failed: rank 0 failed; all 2 restarts were used";
    assert_eq!(
        story.give(AgentInput::Wake),
        [format!("close: {text}")],
        "the other nodes are told at once"
    );
    assert!(story.changes(lost()).is_empty(), "that comes too late");
    assert_eq!(story.stopped(), ["leave".to_owned(), format!("exit 1: the job {text}")]);
}

#[test]
fn a_lone_node_has_no_news_to_wait_for() {
    let mut story = Story::begin(AgentSettings::default());
    story.forms(1);
    story.fails();
    story.stopped();
    let closed = story.counted(RestartAnswer::Refused { used: 0, blame: "it".into() });
    assert_eq!(closed[0], "close: failed: it; no restarts are allowed");
    assert_eq!(closed.len(), 3, "{closed:?}");
}

#[test]
fn an_exit_code_can_say_that_a_restart_is_no_use() {
    let mut story = Story::running(AgentSettings::default());
    let outputs = story.exits(0, Exit::Code(78));
    let text = "failed for good: rank 2 (local rank 0 on here) failed with exit code 78";
    assert_eq!(outputs, ["stop 0 by 15, kill at 30".to_owned(), format!("close: {text}")]);
    assert!(story.changes(lost()).is_empty(), "no news excuses it");
    assert_eq!(story.stopped(), ["leave".to_owned(), format!("exit 78: the job {text}")]);
}

#[test]
fn of_workers_that_fail_together_the_one_that_says_so_is_heard() {
    let mut story = Story::running(AgentSettings::default());
    story.fails();
    let closed = story.exits(0, Exit::Code(78));
    assert!(closed[0].starts_with("close: failed for good: rank 2"), "{closed:?}");
    assert!(story.counted(granted()).is_empty());
    assert!(story.stopped()[1].starts_with("exit 78: "));
}

#[test]
fn the_code_can_be_chosen_and_be_none() {
    let none = AgentSettings { no_restart_exit_code: None, ..AgentSettings::default() };
    assert_eq!(Story::running(none).exits(0, Exit::Code(78))[1], "count 1");
    let other = AgentSettings { no_restart_exit_code: Some(93), ..AgentSettings::default() };
    let mut story = Story::running(other);
    story.exits(0, Exit::Code(93));
    assert!(story.stopped()[1].starts_with("exit 93: "));
}

#[test]
fn a_lost_peer_excuses_a_failure_of_its_round() {
    // While the workers stop: whether there is an answer, and whatever it is.
    for answer in [None, Some(granted()), Some(refused())] {
        let mut story = Story::running(AgentSettings::default());
        story.fails();
        answer.into_iter().for_each(|answer| drop(story.counted(answer)));
        assert_eq!(story.changes(lost()), ["refund 1"]);
        assert!(story.changes(lost()).is_empty(), "once");
        story.now = 100;
        assert_eq!(story.stopped().len(), 1);
        story.forms(2);
    }
}

#[test]
fn a_lost_peer_excuses_a_failure_until_the_next_group_forms() {
    let mut story = Story::running(AgentSettings::default());
    story.fails();
    story.stopped();
    story.counted(granted());
    assert_eq!(story.changes(lost()), ["refund 1"]);
    let mut story = Story::running(AgentSettings::default());
    story.fails();
    story.stopped();
    story.counted(granted());
    story.forms(2);
    let late = story.give(AgentInput::Changed { round: 1, change: lost() });
    assert!(late.is_empty(), "{late:?}");
}

#[test]
fn a_refusal_does_not_end_a_job_whose_group_went_on() {
    for change in
        [GroupChange::GoneAhead("a is back".into()), GroupChange::PeerFailed("first".into())]
    {
        let mut story = Story::running(AgentSettings::default());
        story.fails();
        story.counted(refused());
        assert!(story.changes(change.clone()).is_empty(), "nothing was counted here");
        assert_eq!(story.stopped(), [format!("rendezvous: {change}")]);
    }
}

#[test]
fn a_new_node_excuses_nothing() {
    let mut story = Story::running(AgentSettings::default());
    story.fails();
    story.stopped();
    assert!(story.changes(GroupChange::NodesWaiting(1)).is_empty());
    story.now = 1;
    assert_eq!(story.counted(refused()).len(), 3, "closes, leaves and exits");
}

#[test]
fn who_learned_of_the_change_first_asks_for_nothing() {
    let changes = [
        lost(),
        GroupChange::NodesWaiting(1),
        GroupChange::GoneAhead("x".into()),
        GroupChange::PeerFailed("x".into()),
    ];
    for change in changes {
        let mut story = Story::running(AgentSettings::default());
        assert_eq!(story.changes(change.clone()), ["stop 0 by 15, kill at 30"]);
        assert!(story.fails().is_empty(), "it was told to go");
        assert_eq!(story.stopped(), [format!("rendezvous: {change}")]);
    }
}

#[test]
fn the_root_cause_is_the_first_and_those_we_killed_are_no_failures() {
    let settings = AgentSettings { settle: Duration::ZERO, ..AgentSettings::default() };
    let mut story = Story::running(AgentSettings { local_workers: 2, ..settings });
    story.fails();
    story.exits(0, Exit::Signal(11));
    story.exits(0, Exit::Signal(15));
    story.exits(0, Exit::Signal(9));
    story.exits(0, Exit::Code(0));
    story.counted(refused());
    let attempt = 0;
    story.agent.handle(Duration::ZERO, AgentInput::Stopped { attempt });
    let outcome =
        std::iter::from_fn(|| story.agent.poll_output()).find_map(|output| match output {
            AgentOutput::Finish(outcome) => Some(outcome),
            _ => None,
        });
    let failures: Vec<String> = outcome.unwrap().failures.iter().map(ToString::to_string).collect();
    let also = "rank 2 (local rank 0 on here) failed with signal 11 (SIGSEGV)";
    assert_eq!(failures, [FAILED, also]);
}

/// A granted restart after the third short life in a row.
fn story_that_pauses() -> Story {
    let mut story = Story::running(AgentSettings::default());
    story.now = 10;
    story.fails();
    assert!(story.counted(RestartAnswer::Granted { short_lives: 3 }).is_empty());
    assert_eq!(story.wakes_at(), None, "the workers go first");
    assert!(story.stopped().is_empty());
    assert_eq!(
        (story.wakes_at(), story.agent.pauses_until()),
        (Some(12), Some(Duration::from_secs(12)))
    );
    story
}

#[test]
fn after_short_lives_a_node_pauses() {
    let mut story = story_that_pauses();
    assert!(story.agent.waits_for().unwrap().contains("restart backoff"));
    story.now = 11;
    assert!(story.give(AgentInput::Wake).is_empty());
    assert!(
        story.changes(GroupChange::GoneAhead("a is back".into())).is_empty(),
        "they wait for it"
    );
    assert!(story.changes(GroupChange::NodesWaiting(1)).is_empty());
    story.now = 12;
    assert_eq!(story.give(AgentInput::Wake), [format!("rendezvous: {FAILED}")]);
}

#[test]
fn slow_stops_count_for_the_pause() {
    let mut story = Story::running(AgentSettings::default());
    story.fails();
    story.counted(RestartAnswer::Granted { short_lives: 3 });
    story.now = 5;
    assert_eq!(story.stopped(), [format!("rendezvous: {FAILED}")]);
}

#[test]
fn the_first_short_life_is_not_delayed_and_how_long_workers_lived_is_told() {
    let mut story = Story::running(AgentSettings::default());
    story.now = 42;
    let attempt = 0;
    let exited = Exited { attempt, local_rank: 0, exit: Exit::Code(1), message: None };
    story.agent.handle(Duration::from_secs(42), AgentInput::Exited(exited));
    let mut outputs = std::iter::from_fn(|| story.agent.poll_output());
    let lived = outputs.find_map(|output| match output {
        AgentOutput::ConsumeRestart { lived, .. } => Some(lived),
        _ => None,
    });
    assert_eq!(lived, Some(Duration::from_secs(42)));
    story.counted(RestartAnswer::Granted { short_lives: 1 });
    assert_eq!(story.stopped().len(), 1, "it meets");
}

#[test]
fn what_cannot_wait_ends_the_pause() {
    let ends = |end: fn(&mut Story) -> Vec<String>| end(&mut story_that_pauses());
    let brief = |outputs: Vec<String>| outputs.join("; ");
    let lost = brief(ends(|story| story.changes(lost())));
    assert!(lost.starts_with("refund 1; rendezvous: members were lost"), "{lost}");
    let replaced = brief(ends(|story| story.changes(GroupChange::Replaced(4))));
    assert!(replaced.contains("rendezvous: round 4"), "{replaced}");
    let fenced = brief(ends(|story| story.fenced(20)));
    assert!(fenced.contains("rendezvous: the session was lost"), "{fenced}");
    let signalled = brief(ends(|story| story.give(AgentInput::Signal(15))));
    assert!(signalled.contains("exit 143"), "{signalled}");
    let closed = brief(ends(|story| story.closed(CloseReason::Failed("enough".into()))));
    assert!(closed.contains("exit 1"), "{closed}");
}

/// The other nodes may form another group before the restart is granted here.
#[test]
fn that_others_meet_again_hides_no_answer() {
    let ahead = GroupChange::GoneAhead("a is back".into());
    let mut story = Story::running(AgentSettings::default());
    story.fails();
    assert!(story.changes(ahead.clone()).is_empty());
    assert!(story.stopped().is_empty());
    assert!(story.counted(RestartAnswer::Granted { short_lives: 3 }).is_empty());
    assert_eq!(story.wakes_at(), Some(2), "it pauses");
    let mut story = Story::running(AgentSettings::default());
    story.fails();
    assert!(story.changes(ahead.clone()).is_empty());
    assert!(story.stopped().is_empty());
    assert_eq!(story.counted(refused()), [format!("rendezvous: {ahead}")]);
}
