//! Workers that are stopped for another reason than a failure of their own.

use super::*;

fn with_notice() -> AgentSettings {
    AgentSettings { notice: Duration::from_secs(10), ..AgentSettings::default() }
}

#[test]
fn workers_are_told_before_they_are_stopped_for_a_new_node() {
    let mut story = Story::running(with_notice());
    let told = story.changes(GroupChange::NodesWaiting(1));
    assert_eq!(told, ["notify 0 of stop at 10: a node waits to join"]);
    assert!(story.fails().is_empty(), "one may well exit with anything now");
    assert_eq!(story.wakes_at(), Some(10));
    story.now = 10;
    assert_eq!(story.give(AgentInput::Wake), ["stop 0 by 15, kill at 40"]);
    assert_eq!(story.stopped(), ["rendezvous: a node waits to join"]);
}

#[test]
fn the_notice_is_over_when_no_worker_is_left() {
    let mut story = Story::running(with_notice());
    story.changes(GroupChange::NodesWaiting(2));
    story.now = 3;
    assert!(story.exits(0, Exit::Code(0)).is_empty());
    let outputs = story.exits(1, Exit::Code(0));
    assert_eq!(outputs, ["stop 0 by 15, kill at 33"], "to see to what they left");
    assert_eq!(story.stopped(), ["rendezvous: 2 nodes wait to join"]);
}

#[test]
fn only_what_cannot_wait_cuts_a_notice_short() {
    let patient =
        [GroupChange::NodesWaiting(3), GroupChange::GoneAhead("others were quicker".into())];
    for change in patient {
        let mut story = Story::running(with_notice());
        story.changes(GroupChange::NodesWaiting(1));
        assert!(story.changes(change).is_empty());
    }
    for change in [lost(), GroupChange::PeerFailed("x".into())] {
        let mut story = Story::running(with_notice());
        story.changes(GroupChange::NodesWaiting(1));
        assert_eq!(story.changes(change), ["stop 0 by 15, kill at 30"]);
    }
}

#[test]
fn what_is_not_planned_is_not_announced() {
    for change in [lost(), GroupChange::GoneAhead("x".into()), GroupChange::PeerFailed("x".into())]
    {
        let mut story = Story::running(with_notice());
        assert_eq!(story.changes(change), ["stop 0 by 15, kill at 30"]);
    }
}

#[test]
fn a_change_before_the_workers_start_costs_no_stop() {
    for change in [lost(), GroupChange::NodesWaiting(1), GroupChange::GoneAhead("x".into())] {
        let mut story = Story::begin(with_notice());
        story.meets(2);
        assert_eq!(story.changes(change.clone()), [format!("rendezvous: {change}")]);
        let placement = Placement::identical(0, 1, 2);
        assert!(story.give(AgentInput::Placed { round: 1, placement }).is_empty(), "too late");
    }
}

#[test]
fn a_fenced_node_has_no_workers_when_others_may_take_its_place() {
    let mut story = Story::running(AgentSettings::default());
    story.now = 100;
    assert_eq!(story.fenced(108), ["stop 0 by 15, kill at 104"]);
    assert_eq!(story.stopped(), ["rendezvous: the session was lost: silence"]);
    assert!(story.fenced(200).is_empty(), "a meeting sees to its own session");
}

#[test]
fn a_fence_never_gives_workers_more_time() {
    let short =
        AgentSettings { shutdown_timeout: Duration::from_secs(2), ..AgentSettings::default() };
    assert_eq!(Story::running(short).fenced(60), ["stop 0 by 15, kill at 2"]);
    assert_eq!(Story::running(AgentSettings::default()).fenced(0), ["stop 0 by 15, kill at 0"]);
    let mut story = Story::running(AgentSettings::default());
    story.changes(lost());
    assert!(story.fenced(80).is_empty(), "they go before that");
    assert_eq!(story.fenced(6), ["stop 0 by 15, kill at 3"]);
}

#[test]
fn being_cut_off_excuses_a_failure() {
    let mut story = Story::running(AgentSettings::default());
    story.fails();
    assert_eq!(story.fenced(6), ["stop 0 by 15, kill at 3", "refund 1"]);
    assert_eq!(story.stopped(), ["rendezvous: the session was lost: silence"]);
}

#[test]
fn a_notice_does_not_outlast_the_session() {
    let mut story = Story::running(with_notice());
    story.changes(GroupChange::NodesWaiting(1));
    assert_eq!(story.fenced(4), ["stop 0 by 15, kill at 2"]);
}

#[test]
fn workers_get_the_signal_that_the_launcher_got_and_a_second_one_kills() {
    let mut story = Story::running(AgentSettings::default());
    assert_eq!(story.give(AgentInput::Signal(2)), ["stop 0 by 2, kill at 30"]);
    assert!(story.exits(0, Exit::Code(1)).is_empty(), "no failure");
    story.now = 1;
    assert_eq!(story.give(AgentInput::Signal(15)), ["stop 0 by 9, kill at 1"]);
    let outputs = story.stopped();
    assert_eq!(outputs, ["leave", "exit 130: the launcher got signal 2 (SIGINT)"]);
}

#[test]
fn a_signal_while_workers_stop_is_passed_on_and_ends_it() {
    let mut story = Story::running(AgentSettings::default());
    story.changes(lost());
    story.now = 5;
    assert_eq!(story.give(AgentInput::Signal(15)), ["stop 0 by 15, kill at 30"]);
    assert_eq!(story.stopped()[1], "exit 143: the launcher got signal 15 (SIGTERM)");
}

#[test]
fn what_belongs_to_another_round_or_start_is_ignored() {
    let mut story = Story::running(AgentSettings::default());
    let old = |exit| Exited { attempt: 9, local_rank: 0, exit, message: None };
    let late = [
        AgentInput::Changed { round: 9, change: lost() },
        AgentInput::Exited(old(Exit::Code(1))),
        AgentInput::Stopped { attempt: 0 },
        AgentInput::NotStopped { attempt: 0, reason: "x".into() },
        AgentInput::NotStarted { attempt: 9, reason: "x".into() },
        AgentInput::NotPlaced { round: 1, reason: "x".into() },
        AgentInput::Counted { round: 1, answer: refused() },
        AgentInput::BarrierPassed { round: 1 },
        AgentInput::NotFormed(NoGroup::Failed("x".into())),
        AgentInput::Begin,
        AgentInput::Wake,
    ];
    for input in late {
        assert!(story.give(input.clone()).is_empty(), "{input:?}");
    }
    story.fails();
    for attempt in [3, 9] {
        assert!(story.give(AgentInput::Stopped { attempt }).is_empty());
    }
    assert!(story.give(AgentInput::Counted { round: 9, answer: granted() }).is_empty());
    assert!(story.stopped().is_empty(), "the budget has not answered");
}

/// Told to go by SIGTERM, with a notice of 20 s.
fn story_that_leaves() -> Story {
    let mut story = Story::running(AgentSettings {
        notice: Duration::from_secs(20),
        ..AgentSettings::default()
    });
    let why = "the launcher got signal 15 (SIGTERM)";
    let expected = [
        format!("announce 1 of stop at 20: here: {why}"),
        format!("notify 0 of stop at 20: {why}"),
    ];
    assert_eq!(story.give(AgentInput::Signal(15)), expected);
    story
}

#[test]
fn a_node_that_is_told_to_go_tells_all_workers_first() {
    let mut story = story_that_leaves();
    assert_eq!(story.wakes_at(), Some(20));
    story.now = 20;
    assert_eq!(story.give(AgentInput::Wake), ["stop 0 by 15, kill at 50"]);
    let ended = story.stopped();
    assert_eq!(ended[0], "leave");
    assert!(ended[1].starts_with("exit 143"), "{ended:?}");
}

#[test]
fn it_leaves_as_soon_as_its_workers_are_gone_however_they_went() {
    let mut story = story_that_leaves();
    story.now = 3;
    assert!(story.exits(0, Exit::Code(0)).is_empty());
    assert_eq!(story.exits(1, Exit::Code(1)), ["stop 0 by 15, kill at 33"]);
    assert!(story.stopped()[1].starts_with("exit 143"));
}

#[test]
fn whatever_happens_meanwhile_it_still_leaves() {
    let ends: [fn(&mut Story) -> Vec<String>; 2] =
        [|story| story.changes(GroupChange::Replaced(7)), |story| story.fenced(10)];
    for end in ends {
        let mut story = story_that_leaves();
        assert_eq!(end(&mut story).len(), 1, "the workers are stopped");
        assert!(story.stopped()[1].starts_with("exit 143"));
    }
}

/// All nodes may be told to go at once, and one of them is the first.
#[test]
fn that_a_member_is_gone_does_not_cut_the_notice_of_a_departure_short() {
    let why = "b: the launcher got SIGTERM".to_owned();
    let mut told = Story::running(AgentSettings::default());
    told.changes(GroupChange::PeerLeaves(Departure { round: 1, millis: 20_000, why }));
    for mut story in [told, story_that_leaves()] {
        assert!(story.changes(lost()).is_empty());
        assert!(story.changes(GroupChange::GoneAhead("c is back".into())).is_empty());
        assert_eq!(story.wakes_at(), Some(20));
        story.now = 20;
        assert_eq!(story.give(AgentInput::Wake), ["stop 0 by 15, kill at 50"]);
    }
}

#[test]
fn a_second_signal_cuts_the_notice_short() {
    for signal in [2, 15] {
        let mut story = story_that_leaves();
        story.now = 1;
        assert_eq!(story.give(AgentInput::Signal(signal)), ["stop 0 by 9, kill at 1"]);
        assert!(story.stopped()[1].starts_with(&format!("exit {}", 128 + signal)));
    }
}

#[test]
fn other_signals_and_lone_nodes_announce_nothing() {
    let notice = AgentSettings { notice: Duration::from_secs(20), ..AgentSettings::default() };
    let mut story = Story::running(notice.clone());
    assert_eq!(story.give(AgentInput::Signal(2)), ["stop 0 by 2, kill at 30"]);
    let mut story = Story::begin(notice);
    story.forms(1);
    let told = story.give(AgentInput::Signal(15));
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("notify 0 of stop at 20"), "{told:?}");
}

#[test]
fn a_member_that_leaves_is_a_notice_of_its_length_here_too() {
    let leaves = |millis| {
        GroupChange::PeerLeaves(Departure {
            round: 1,
            millis,
            why: "b: the launcher got SIGTERM".into(),
        })
    };
    let mut story = Story::running(AgentSettings::default());
    let told = story.changes(leaves(20_000));
    assert_eq!(told, ["notify 0 of stop at 20: a member leaves: b: the launcher got SIGTERM"]);
    assert!(story.changes(leaves(10_000)).is_empty(), "workers are told once");
    assert_eq!(story.wakes_at(), Some(10), "and the earlier end counts");
    story.now = 10;
    assert_eq!(story.give(AgentInput::Wake), ["stop 0 by 15, kill at 40"]);
    assert!(story.stopped()[0].starts_with("rendezvous: a member leaves"));
}

#[test]
fn a_node_that_was_told_of_another_can_be_told_to_go_itself() {
    let mut story = Story::running(AgentSettings {
        notice: Duration::from_secs(20),
        ..AgentSettings::default()
    });
    story.changes(GroupChange::NodesWaiting(1));
    story.now = 5;
    let told = story.give(AgentInput::Signal(15));
    assert_eq!(told.len(), 1, "the workers know: {told:?}");
    assert!(told[0].starts_with("announce 1 of stop at 20"), "{told:?}");
    story.now = 20;
    story.give(AgentInput::Wake);
    assert!(story.stopped()[1].starts_with("exit 143"));
}
