use super::*;
use crate::agent::{Operation, RoundFailure};
use crate::rendezvous::RunClosed;
use crate::rendezvous::documents::{NodeName, RunOutcome};

const ROUND: u64 = 4;

fn running() -> RendezvousView {
    RendezvousView {
        known: true,
        session: true,
        round: ROUND,
        member_of: Some(ROUND),
        ..RendezvousView::default()
    }
}

fn changes(view: &RendezvousView, budget: &RestartBudget, asked: bool) -> Vec<GroupChange> {
    let change = |input| match input {
        AgentInput::Changed { round: ROUND, change } => change,
        other => panic!("{other:?}"),
    };
    membership_events(view, budget, Some(KnownGroup { round: ROUND, asked }))
        .into_iter()
        .map(change)
        .collect()
}

fn charged(round: u64, verdict: RestartVerdict) -> RestartBudget {
    let last = Some(RoundFailure { round, blame: "rank 3 failed".into(), verdict, hang: false });
    RestartBudget { used: 1, last, ..RestartBudget::default() }
}

fn closed(by: &str, outcome: RunOutcome) -> RendezvousView {
    let by = NodeName { id: by.into(), address: "10.0.0.1".into() };
    let closed = Some(RunClosed { by, outcome, reason: "rank 3 is gone".into() });
    RendezvousView { closed, round: 9, nodes_waiting: 3, ..running() }
}

#[test]
fn each_thing_that_may_happen_to_a_group_is_told_as_what_it_is() {
    let unused = RestartBudget::default();
    let lost = vec!["node7".to_owned()];
    let ahead = RendezvousView { round: 5, nodes_waiting: 1, ..running() };
    let table = [
        (running(), vec![]),
        (RendezvousView { nodes_waiting: 2, ..running() }, vec![GroupChange::NodesWaiting(2)]),
        // Who is lost counts as waiting too, for those who only have a number.
        (
            RendezvousView { nodes_waiting: 1, lost: lost.clone(), ..running() },
            vec![GroupChange::PeerLost(lost)],
        ),
        (
            RendezvousView { round: 0, nodes_waiting: 1, ..running() },
            vec![GroupChange::PeerLost(vec![])],
        ),
        (ahead.clone(), vec![GroupChange::GoneAhead("round 5 has begun".into())]),
        (RendezvousView { replaced_by: Some(5), ..ahead }, vec![GroupChange::Replaced(5)]),
        // It finds out whether it still has its place.
        (RendezvousView { round: 0, session: false, ..running() }, vec![]),
        // It has left, or was fenced.
        (RendezvousView { member_of: None, round: 5, ..running() }, vec![]),
    ];
    for (view, expected) in table {
        assert_eq!(changes(&view, &unused, false), expected, "{view:?}");
    }
}

#[test]
fn a_failure_elsewhere_is_told_by_the_budget_and_ones_own_is_not() {
    let failed = vec![GroupChange::PeerFailed("rank 3 failed".into())];
    assert_eq!(changes(&running(), &charged(ROUND, RestartVerdict::Counted), false), failed);
    assert_eq!(changes(&running(), &charged(ROUND, RestartVerdict::Counted), true), []);
    assert_eq!(changes(&running(), &charged(ROUND, RestartVerdict::Refused), false), []);
    assert_eq!(changes(&running(), &charged(ROUND - 1, RestartVerdict::Counted), false), []);
}

#[test]
fn of_a_closed_run_nothing_else_is_told() {
    let view = closed("a", RunOutcome::NonRetryable);
    let news = membership_events(
        &view,
        &RestartBudget::default(),
        Some(KnownGroup { round: ROUND, asked: false }),
    );
    let [AgentInput::Closed(closed)] = news.as_slice() else { panic!("{news:?}") };
    assert_eq!(closed.reason, CloseReason::NonRetryable("rank 3 is gone".into()));
}

#[test]
fn workers_stop_for_whatever_an_agent_would_be_told_and_for_no_success() {
    let sentence = |view: &RendezvousView| {
        must_stop(view, &RestartBudget::default(), None, "me").map(|why| why.to_string())
    };
    assert_eq!(sentence(&running()), None);
    assert_eq!(sentence(&closed("a", RunOutcome::Succeeded)), None);
    assert_eq!(sentence(&closed("me", RunOutcome::Failed)), None, "it knows by itself");
    let by_another = sentence(&closed("a", RunOutcome::Failed)).unwrap();
    assert!(by_another.ends_with("failed: rank 3 is gone"), "{by_another}");
    let waiting = RendezvousView { nodes_waiting: 2, ..running() };
    assert_eq!(sentence(&waiting).as_deref(), Some("2 nodes wait to join"));
    let gone = RendezvousView { member_of: None, ..waiting };
    assert_eq!(sentence(&gone), None);
    let fenced = must_stop(&gone, &RestartBudget::default(), Some("silence".into()), "me")
        .unwrap()
        .to_string();
    assert_eq!(fenced, "the session was lost: silence");
}

#[test]
fn an_agent_that_has_only_a_number_is_told_to_stop_by_it() {
    let lost = vec!["node7".to_owned()];
    let waiting = |nodes_waiting| RendezvousView { nodes_waiting, ..running() };
    let outside = RendezvousView { member_of: None, ..running() };
    let fenced = || Some("silence".to_owned());
    let table = [
        (running(), None, 0),
        (waiting(2), None, 2),
        (RendezvousView { lost, ..waiting(1) }, None, 1),
        (RendezvousView { round: 5, ..waiting(1) }, None, 1),
        (RendezvousView { round: 5, replaced_by: Some(5), ..running() }, None, 1),
        (outside.clone(), None, 0),
        (outside, fenced(), 1),
        (waiting(2), fenced(), 2),
        (RendezvousView { nodes_waiting: 0, ..closed("a", RunOutcome::Failed) }, None, 1),
        (closed("a", RunOutcome::Succeeded), None, 0),
        (closed("me", RunOutcome::Failed), None, 0),
    ];
    for (view, fenced, expected) in table {
        assert_eq!(
            num_nodes_waiting(&view, &RestartBudget::default(), fenced, "me"),
            expected,
            "{view:?}"
        );
    }
}

#[test]
fn a_lost_member_is_told_with_the_operator_who_evicted_it() {
    let operation = Operation::Evict { node: "node7".into() };
    let (by, reason) = ("ali@login".into(), String::new());
    let action = OperatorAction { operation, by, reason, round: ROUND, at: None };
    let budget = RestartBudget::default().record(action);
    let told = vec![GroupChange::PeerLost(vec!["node7, evicted by ali@login".into()])];
    let lost = vec!["node7".to_owned()];
    let view = RendezvousView { nodes_waiting: 1, lost, ..running() };
    assert_eq!(changes(&view, &budget, false), told);
    // The coordinator took the list of lost members with it.
    let gone = RendezvousView { round: 0, nodes_waiting: 1, ..running() };
    assert_eq!(changes(&gone, &budget, false), told);
    let earlier = RestartBudget::default()
        .record(OperatorAction { round: ROUND - 1, ..budget.actions[0].clone() });
    assert_eq!(changes(&gone, &earlier, false), [GroupChange::PeerLost(vec![])]);
}

/// The agent of another launcher stops its workers for an eviction, and says whose eviction it misses; what launchers
/// agree on is not for it.
#[test]
fn a_foreign_agent_knows_evictions_and_no_other_word_of_launchers() {
    let operation = Operation::Evict { node: "me".into() };
    let by = "ali@login".into();
    let action = OperatorAction { operation, by, reason: "its disk".into(), round: 4, at: None };
    let budget = RestartBudget::default().record(action.clone());
    let view = RendezvousView { round: 4, member_of: Some(4), ..RendezvousView::default() };
    let sentence = |view, budget, id| must_stop(view, budget, None, id).map(|why| why.to_string());
    let evicted = sentence(&view, &budget, "me").unwrap();
    assert_eq!(evicted, "this node was evicted by ali@login: its disk");
    assert_eq!(num_nodes_waiting(&view, &budget, None, "me"), 1);
    assert_eq!(sentence(&view, &budget, "other"), None);
    let without = RendezvousView { lost: vec!["me".into()], nodes_waiting: 1, ..view.clone() };
    let missed = sentence(&without, &budget, "other").unwrap();
    assert_eq!(missed, "members were lost: me, evicted by ali@login: its disk");
    let (charged, _) = budget.consume(4, 9, "rank 0 failed", std::time::Duration::ZERO);
    assert_eq!(sentence(&view, &charged, "other"), None);
}
