use rallypoint_core::agent::Charge;
use rallypoint_core::rendezvous::document::Author;

use super::*;

const ROUND: u64 = 4;

fn running() -> View {
    View { known: true, session: true, round: ROUND, member_of: Some(ROUND), ..View::default() }
}

fn changes(view: &View, budget: &Budget, asked: bool) -> Vec<Change> {
    let change = |input| match input {
        Input::Changed { round: ROUND, change } => change,
        other => panic!("{other:?}"),
    };
    told(view, budget, Some(Known { round: ROUND, asked })).into_iter().map(change).collect()
}

fn charged(round: u64, verdict: Verdict) -> Budget {
    Budget { used: 1, last: Some(Charge { round, blame: "rank 3 failed".into(), verdict }) }
}

#[test]
fn each_thing_that_may_happen_to_a_group_is_told_as_what_it_is() {
    let unused = Budget::default();
    let lost = vec!["node7".to_owned()];
    let table = [
        (running(), vec![]),
        (View { nodes_waiting: 2, ..running() }, vec![Change::NodesWaiting(2)]),
        // Who is lost counts as waiting too, for those who only have a number.
        (View { nodes_waiting: 1, lost: lost.clone(), ..running() }, vec![Change::PeerLost(lost)]),
        (View { round: 0, nodes_waiting: 1, ..running() }, vec![Change::PeerLost(vec![])]),
        (
            View { round: 5, nodes_waiting: 1, ..running() },
            vec![Change::GoneAhead("round 5 has begun".into())],
        ),
        // It has left, or was fenced.
        (View { member_of: None, round: 5, ..running() }, vec![]),
    ];
    for (view, expected) in table {
        assert_eq!(changes(&view, &unused, false), expected, "{view:?}");
    }
}

#[test]
fn a_failure_elsewhere_is_told_by_the_budget_and_ones_own_is_not() {
    let failed = vec![Change::PeerFailed("rank 3 failed".into())];
    assert_eq!(changes(&running(), &charged(ROUND, Verdict::Counted), false), failed);
    assert_eq!(changes(&running(), &charged(ROUND, Verdict::Counted), true), []);
    assert_eq!(changes(&running(), &charged(ROUND, Verdict::Refused), false), []);
    assert_eq!(changes(&running(), &charged(ROUND - 1, Verdict::Counted), false), []);
}

#[test]
fn of_a_closed_run_nothing_else_is_told() {
    let by = Author { id: "a".into(), address: "10.0.0.1".into() };
    let closed = Some((by, "failed: rank 3 is gone".to_owned()));
    let view = View { closed, round: 9, nodes_waiting: 3, ..running() };
    let news = told(&view, &Budget::default(), Some(Known { round: ROUND, asked: false }));
    let [Input::Closed(closed)] = news.as_slice() else { panic!("{news:?}") };
    assert_eq!(closed.closing, Closing::Failed("rank 3 is gone".into()));
}

#[test]
fn the_time_that_is_left_is_what_the_lease_has() {
    let (ttl, silent) = (Duration::from_secs(8), Duration::from_secs(7));
    let expired = Loss::Expired { lease: 1, ttl, silent, slept: None, last_error: None };
    assert_eq!(left(&expired), Duration::from_secs(1));
    let gone = Loss::Gone { lease: 1, endpoint: "a".into() };
    assert_eq!(left(&gone), Duration::ZERO);
}

/// News of what is sent through these.
fn news() -> (watch::Sender<Standing>, watch::Sender<Budget>, News) {
    let (say, standing) = watch::channel(Standing { view: running(), ..Standing::default() });
    let (charge, budget) = watch::channel(Budget::default());
    let source = Source::Told { standing, budget };
    (say, charge, News { source, told: Vec::new(), fenced: None })
}

fn known() -> Option<Known> {
    Some(Known { round: ROUND, asked: false })
}

#[test]
fn a_session_that_is_lost_before_the_meeting_is_over_is_told_when_it_is() {
    let (say, _charge, mut news) = news();
    let loss = Loss::Gone { lease: 1, endpoint: "a".into() };
    say.send_modify(|standing| standing.fenced = Some(loss));
    let lost = |told: &[Input]| matches!(told, [Input::SessionLost { .. }]);
    assert!(lost(&news.tell(Time::ZERO, None)), "a meeting makes nothing of it");
    assert!(news.tell(Time::ZERO, None).is_empty());
    news.begin();
    assert!(lost(&news.tell(Time::ZERO, known())), "the group does");
    assert!(news.tell(Time::ZERO, known()).is_empty());
}

#[test]
fn what_is_so_is_told_once_for_each_group() {
    let (say, _charge, mut news) = news();
    say.send_modify(|standing| standing.view.nodes_waiting = 1);
    assert_eq!(news.tell(Time::ZERO, known()).len(), 1);
    assert!(news.tell(Time::ZERO, known()).is_empty());
    news.begin();
    assert_eq!(news.tell(Time::ZERO, known()).len(), 1);
}

#[tokio::test]
async fn a_rendezvous_that_ends_by_itself_ends_the_workers() {
    let (say, _charge, mut news) = news();
    drop(say);
    news.changed().await;
    let now = Duration::from_secs(7);
    let told = news.tell(now, known());
    assert!(matches!(told.as_slice(), [Input::SessionLost { deadline, .. }] if *deadline == now));
    assert!(news.tell(now, known()).is_empty());
    assert!(tokio::time::timeout(Duration::from_millis(50), news.changed()).await.is_err());
}
