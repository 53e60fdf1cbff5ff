//! Workers that are stopped for another reason than a failure of their own.

use super::*;

fn with_notice() -> Settings {
    Settings { notice: Duration::from_secs(10), ..Settings::default() }
}

#[test]
fn workers_are_told_before_they_are_stopped_for_a_new_node() {
    let mut story = Story::running(with_notice());
    let told = story.changes(Change::NodesWaiting(1));
    assert_eq!(told, ["notify 0 of stop at 10: a node waits to join"]);
    assert!(story.fails().is_empty(), "one may well exit with anything now");
    assert_eq!(story.wakes_at(), Some(10));
    story.now = 10;
    assert_eq!(story.give(Input::Wake), ["stop 0 by 15, kill at 40"]);
    assert_eq!(story.stopped(), ["meet: a node waits to join"]);
}

#[test]
fn the_notice_is_over_when_no_worker_is_left() {
    let mut story = Story::running(with_notice());
    story.changes(Change::NodesWaiting(2));
    story.now = 3;
    assert!(story.exits(0, Exit::Code(0)).is_empty());
    let outputs = story.exits(1, Exit::Code(0));
    assert_eq!(outputs, ["stop 0 by 15, kill at 33"], "to see to what they left");
    assert_eq!(story.stopped(), ["meet: 2 nodes wait to join"]);
}

#[test]
fn only_what_cannot_wait_cuts_a_notice_short() {
    let patient = [Change::NodesWaiting(3), Change::GoneAhead("others were quicker".into())];
    for change in patient {
        let mut story = Story::running(with_notice());
        story.changes(Change::NodesWaiting(1));
        assert!(story.changes(change).is_empty());
    }
    for change in [lost(), Change::PeerFailed("x".into())] {
        let mut story = Story::running(with_notice());
        story.changes(Change::NodesWaiting(1));
        assert_eq!(story.changes(change), ["stop 0 by 15, kill at 30"]);
    }
}

#[test]
fn what_is_not_planned_is_not_announced() {
    for change in [lost(), Change::GoneAhead("x".into()), Change::PeerFailed("x".into())] {
        let mut story = Story::running(with_notice());
        assert_eq!(story.changes(change), ["stop 0 by 15, kill at 30"]);
    }
}

#[test]
fn a_change_before_the_workers_start_costs_no_stop() {
    for change in [lost(), Change::NodesWaiting(1), Change::GoneAhead("x".into())] {
        let mut story = Story::begin(with_notice());
        story.meets(2);
        assert_eq!(story.changes(change.clone()), [format!("meet: {change}")]);
        let placement = Placement::identical(0, 1, 2);
        assert!(story.give(Input::Placed { round: 1, placement }).is_empty(), "too late");
    }
}

#[test]
fn a_fenced_node_has_no_workers_when_others_may_take_its_place() {
    let mut story = Story::running(Settings::default());
    story.now = 100;
    assert_eq!(story.fenced(108), ["stop 0 by 15, kill at 104"]);
    assert_eq!(story.stopped(), ["meet: the session was lost: silence"]);
    assert!(story.fenced(200).is_empty(), "a meeting sees to its own session");
}

#[test]
fn a_fence_never_gives_workers_more_time() {
    let short = Settings { shutdown_timeout: Duration::from_secs(2), ..Settings::default() };
    assert_eq!(Story::running(short).fenced(60), ["stop 0 by 15, kill at 2"]);
    assert_eq!(Story::running(Settings::default()).fenced(0), ["stop 0 by 15, kill at 0"]);
    let mut story = Story::running(Settings::default());
    story.changes(lost());
    assert!(story.fenced(80).is_empty(), "they go before that");
    assert_eq!(story.fenced(6), ["stop 0 by 15, kill at 3"]);
}

#[test]
fn being_cut_off_excuses_a_failure() {
    let mut story = Story::running(Settings::default());
    story.fails();
    assert_eq!(story.fenced(6), ["stop 0 by 15, kill at 3", "forgive 1"]);
    assert_eq!(story.stopped(), ["meet: the session was lost: silence"]);
}

#[test]
fn a_notice_does_not_outlast_the_session() {
    let mut story = Story::running(with_notice());
    story.changes(Change::NodesWaiting(1));
    assert_eq!(story.fenced(4), ["stop 0 by 15, kill at 2"]);
}

#[test]
fn workers_get_the_signal_that_the_launcher_got_and_a_second_one_kills() {
    let mut story = Story::running(Settings::default());
    assert_eq!(story.give(Input::Signal(2)), ["stop 0 by 2, kill at 30"]);
    assert!(story.exits(0, Exit::Code(1)).is_empty(), "no failure");
    story.now = 1;
    assert_eq!(story.give(Input::Signal(15)), ["stop 0 by 9, kill at 1"]);
    let outputs = story.stopped();
    assert_eq!(outputs, ["leave", "exit 130: the launcher got signal 2 (SIGINT)"]);
}

#[test]
fn a_signal_while_workers_stop_is_passed_on_and_ends_it() {
    let mut story = Story::running(Settings::default());
    story.changes(lost());
    story.now = 5;
    assert_eq!(story.give(Input::Signal(15)), ["stop 0 by 15, kill at 30"]);
    assert_eq!(story.stopped()[1], "exit 143: the launcher got signal 15 (SIGTERM)");
}

#[test]
fn what_belongs_to_another_round_or_start_is_ignored() {
    let mut story = Story::running(Settings::default());
    let old = |exit| Exited { attempt: 9, local_rank: 0, exit, message: None };
    let late = [
        Input::Changed { round: 9, change: lost() },
        Input::Exited(old(Exit::Code(1))),
        Input::Stopped { attempt: 0 },
        Input::NotStopped { attempt: 0, reason: "x".into() },
        Input::NotStarted { attempt: 9, reason: "x".into() },
        Input::NotPlaced { round: 1, reason: "x".into() },
        Input::Counted { round: 1, answer: refused() },
        Input::BarrierPassed { round: 1 },
        Input::NotFormed(NoGroup::Failed("x".into())),
        Input::Begin,
        Input::Wake,
    ];
    for input in late {
        assert!(story.give(input.clone()).is_empty(), "{input:?}");
    }
    story.fails();
    for attempt in [3, 9] {
        assert!(story.give(Input::Stopped { attempt }).is_empty());
    }
    assert!(story.give(Input::Counted { round: 9, answer: Answer::Granted }).is_empty());
    assert!(story.stopped().is_empty(), "the budget has not answered");
}
