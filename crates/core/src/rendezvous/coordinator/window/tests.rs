use super::*;
use crate::rendezvous::sizes::Steps;

const SECOND: Time = Time::from_secs(1);

fn counts(
    joined: usize,
    members_to_come: usize,
    others_to_come: usize,
    returned: usize,
) -> MembershipCounts {
    let counts = MembershipCounts::default();
    MembershipCounts { joined, members_to_come, others_to_come, returned, ..counts }
}

/// A window for 2 to 4 nodes with a last call of 10 s, which began at 0 if there were enough then.
fn decide(before: MembershipCounts, now: u64, counts: MembershipCounts) -> JoinDecision {
    let mut window = JoinWindow::new(Limits { min: 2, max: 4 }, 10 * SECOND);
    window.decide(Time::ZERO, before, None);
    window.decide(now as u32 * SECOND, counts, None)
}

#[test]
fn a_round_closes_when_it_should_and_says_why() {
    use FreezeReason::{AllLiveCame, Full, LastCallOver};
    let empty = MembershipCounts::default();
    let enough = counts(2, 0, 0, 0);
    let calls = Some(LastCallOver);
    // Who was there at 0, then the time, who is there now, and why the round closes if it does.
    let table = [
        (empty, 0, counts(0, 0, 0, 0), None, "no node has joined"),
        (empty, 99, counts(1, 0, 0, 0), None, "one is too few, however long"),
        (empty, 99, counts(1, 0, 0, 1), None, "also if it is all that is left"),
        (empty, 0, counts(2, 0, 0, 0), None, "a new group waits for those who are starting"),
        (enough, 9, counts(3, 0, 0, 0), None, "the last call is not over"),
        (enough, 10, counts(3, 0, 0, 0), calls, "it is over, and a third did not extend it"),
        (empty, 10, counts(3, 0, 0, 0), None, "it begins when there are enough"),
        (empty, 0, counts(4, 0, 0, 0), Some(Full), "there is no room"),
        (empty, 0, counts(6, 0, 3, 0), Some(Full), "others who are to come find none"),
        (empty, 0, counts(4, 1, 0, 3), None, "a member on its way goes before a newcomer"),
        (empty, 0, counts(4, 1, 0, 0), None, "also if it is the first of them"),
        (empty, 0, counts(4, 1, 0, 4), Some(Full), "but not before other members"),
        (enough, 10, counts(4, 1, 0, 3), calls, "and the round does not wait for it for ever"),
        (empty, 0, counts(3, 0, 0, 3), Some(AllLiveCame), "there is no other live node"),
        (empty, 0, counts(3, 0, 0, 1), Some(AllLiveCame), "newcomers count as well"),
        (empty, 0, counts(3, 1, 0, 2), None, "a member lives and is to come"),
        (empty, 0, counts(3, 0, 1, 3), None, "a newcomer lives and is to come"),
        (enough, 10, counts(3, 0, 1, 3), calls, "but did not in time"),
    ];
    for (before, now, counts, expected, why) in table {
        let cause = match decide(before, now, counts) {
            JoinDecision::Freeze(cause) => Some(cause),
            JoinDecision::Wait(_) => None,
        };
        assert_eq!(cause, expected, "{why}: {counts:?} at {now}");
    }
}

#[test]
fn the_last_call_is_called_off_when_too_few_are_left() {
    let mut window = JoinWindow::new(Limits { min: 2, max: 4 }, 10 * SECOND);
    window.decide(Time::ZERO, counts(2, 0, 0, 0), None);
    assert_eq!(window.next_wake(), Some(10 * SECOND));
    window.decide(5 * SECOND, counts(1, 0, 0, 0), None);
    assert_eq!(window.next_wake(), None);
    window.decide(8 * SECOND, counts(2, 0, 0, 0), None);
    assert_eq!(window.next_wake(), Some(18 * SECOND), "the last call begins again");
}

#[test]
fn a_wait_is_told_in_a_sentence() {
    let enough = WaitReason::ForEnough { joined: 1, min: 3 };
    assert_eq!(enough.describe(SECOND), "1 of 3 nodes, waiting for 2 more");
    let call = |to_come| WaitReason::LastCall {
        joined: 2,
        limits: Limits { min: 1, max: 4 },
        size: 2,
        planned: None,
        to_come,
        until: 10 * SECOND,
    };
    assert_eq!(
        call(0).describe(SECOND),
        "2 of 4 nodes, 9 s of last call left, then it starts (1:4 nodes)"
    );
    assert_eq!(
        call(1).describe(11 * SECOND),
        "2 of 4 nodes, 0 s of last call left, 1 live nodes still to come, then it starts (1:4 nodes)"
    );
    let limits = Limits { min: 2, max: 8 };
    let (planned, until) = (Some(6), 10 * SECOND);
    let planned = WaitReason::LastCall { joined: 5, limits, size: 4, planned, to_come: 0, until };
    assert_eq!(
        planned.describe(SECOND),
        "5 of 6 planned nodes, 9 s of last call left, then it starts with 4 (2:8 nodes)"
    );
    assert_eq!(
        planned.describe_to_others(),
        "5 of 6 planned nodes in the last call, then it starts with 4 (2:8 nodes)"
    );
}

#[test]
fn members_who_live_are_waited_for_even_if_the_last_call_is_short() {
    let mut window = JoinWindow::new(Limits { min: 2, max: 4 }, Time::ZERO).with_grace(5 * SECOND);
    let closes = |verdict| matches!(verdict, JoinDecision::Freeze(FreezeReason::LastCallOver));
    assert!(!closes(window.decide(SECOND, counts(2, 1, 0, 1), None)), "a member is on its way");
    assert_eq!(window.next_wake(), Some(6 * SECOND));
    assert!(closes(window.decide(6 * SECOND, counts(2, 1, 0, 1), None)), "but not for ever");
    assert!(closes(window.decide(2 * SECOND, counts(2, 0, 1, 1), None)), "others are not");
}

#[test]
fn no_round_closes_while_a_member_of_the_last_group_may_have_workers() {
    for (before, now, counts) in [
        (MembershipCounts::default(), 0, counts(4, 0, 0, 4)),
        (counts(2, 0, 0, 2), 10_000, counts(2, 1, 0, 2)),
        (MembershipCounts::default(), 0, counts(3, 0, 0, 3)),
        (counts(2, 0, 0, 0), 10_000, counts(3, 0, 0, 0)),
        (counts(4, 0, 0, 0), 10_000, counts(9, 0, 0, 4)),
    ] {
        let one_left = |counts| MembershipCounts { unresolved: 1, ..counts };
        let verdict = decide(one_left(before), now, one_left(counts));
        let waits = WaitReason::ForLastGroup { joined: counts.joined, unresolved: 1 };
        assert_eq!(verdict, JoinDecision::Wait(waits), "{counts:?} at {now}");
        assert!(
            matches!(decide(one_left(before), 10_000, counts), JoinDecision::Freeze(_)),
            "{counts:?}"
        );
    }
}

#[test]
fn who_has_just_stopped_its_workers_is_waited_for() {
    let mut window = JoinWindow::new(Limits { min: 2, max: 4 }, Time::ZERO).with_grace(5 * SECOND);
    window.decide(SECOND, MembershipCounts { unresolved: 1, ..counts(2, 1, 0, 2) }, None);
    let waits = window.decide(30 * SECOND, counts(2, 1, 0, 2), None);
    assert!(
        matches!(waits, JoinDecision::Wait(WaitReason::LastCall { to_come: 1, .. })),
        "{waits:?}"
    );
    assert_eq!(window.next_wake(), Some(35 * SECOND));
    let closes = window.decide(31 * SECOND, counts(3, 0, 0, 3), None);
    assert_eq!(closes, JoinDecision::Freeze(FreezeReason::AllLiveCame));
}

#[test]
fn a_group_that_the_server_has_forgotten_is_waited_out() {
    let mut window = JoinWindow::new(Limits { min: 2, max: 2 }, Time::ZERO);
    let until = Some(5 * SECOND);
    let waits = WaitReason::ForForgottenGroup { joined: 2, until: 5 * SECOND };
    assert_eq!(window.decide(SECOND, counts(2, 0, 0, 0), until), JoinDecision::Wait(waits));
    assert_eq!(window.next_wake(), until);
    let closes = window.decide(5 * SECOND, counts(2, 0, 0, 0), until);
    assert_eq!(closes, JoinDecision::Freeze(FreezeReason::Full));
}

#[test]
fn a_round_waits_for_the_smallest_allowed_size_and_is_full_at_the_largest() {
    let unit = SizeRules { steps: Steps::Unit(3), ..SizeRules::default() };
    let window = JoinWindow::new(Limits { min: 2, max: 8 }, 10 * SECOND).with_sizes(unit);
    for (joined, expected) in [
        (2, JoinDecision::Wait(WaitReason::ForEnough { joined: 2, min: 3 })),
        (6, JoinDecision::Freeze(FreezeReason::Full)),
        (7, JoinDecision::Freeze(FreezeReason::Full)),
    ] {
        let found = window.clone().decide(Time::ZERO, counts(joined, 0, 0, 0), None);
        assert_eq!(found, expected, "{joined} nodes");
    }
    let waits = window.clone().decide(Time::ZERO, counts(5, 0, 0, 0), None);
    assert!(
        matches!(waits, JoinDecision::Wait(WaitReason::LastCall { size: 3, planned: None, .. })),
        "{waits:?}"
    );
}

#[test]
fn planned_nodes_are_waited_for_and_their_coming_ends_the_last_call() {
    use FreezeReason::{AllLiveCame, LastCallOver, PlannedCame};
    let planned = SizeRules { planned: Some(6), ..SizeRules::default() };
    let window =
        JoinWindow::new(Limits { min: 2, max: 8 }, 10 * SECOND).with_sizes(planned.clone());
    let of = |last_world, counts| MembershipCounts { last_world, ..counts };
    // The time, who is there since 0, and why the round closes if it does.
    let table = [
        (0, counts(2, 0, 0, 0), None, "a new group waits for the planned nodes"),
        (9, counts(5, 0, 0, 0), None, "until the last one is there"),
        (10, counts(5, 0, 0, 0), Some(LastCallOver), "or the last call is over"),
        (0, counts(6, 0, 0, 0), Some(PlannedCame), "all of them are there"),
        (0, counts(7, 0, 0, 0), Some(PlannedCame), "and one more"),
        (0, counts(6, 0, 1, 0), None, "another live node is about to join"),
        (0, of(6, counts(5, 0, 0, 5)), Some(AllLiveCame), "a loss is not waited out"),
        (0, of(5, counts(5, 0, 0, 5)), Some(AllLiveCame), "nor is a failure"),
        (0, of(4, counts(5, 0, 0, 4)), None, "a group that grows waits for the other ones"),
        (10, of(4, counts(5, 0, 0, 4)), Some(LastCallOver), "but not for ever"),
        (0, of(5, counts(6, 0, 0, 5)), Some(PlannedCame), "it has grown to its size"),
    ];
    for (now, counts, expected, why) in table {
        let mut window = window.clone();
        window.decide(
            Time::ZERO,
            MembershipCounts { joined: 2, ..MembershipCounts::default() },
            None,
        );
        let found = match window.decide(now * SECOND, counts, None) {
            JoinDecision::Freeze(reason) => Some(reason),
            JoinDecision::Wait(_) => None,
        };
        assert_eq!(found, expected, "{why}: {counts:?} at {now}");
    }
    let steps = SizeRules { steps: Steps::Only(vec![2, 4, 8]), planned: Some(8), ..planned };
    let window = JoinWindow::new(Limits { min: 2, max: 8 }, 10 * SECOND).with_sizes(steps);
    let same = window.clone().decide(Time::ZERO, of(2, counts(3, 0, 0, 2)), None);
    assert_eq!(same, JoinDecision::Freeze(AllLiveCame), "three nodes are no larger group than two");
    let waits = window.clone().decide(Time::ZERO, of(2, counts(4, 0, 0, 2)), None);
    assert!(matches!(waits, JoinDecision::Wait(_)), "{waits:?}");
}
