use super::*;

const ROUND: u64 = 4;

fn running() -> RendezvousView {
    let mut view = RendezvousView::default();
    (view.known, view.session) = (true, true);
    (view.round, view.member_of) = (ROUND, Some(ROUND));
    view
}

#[test]
fn the_time_that_is_left_is_what_the_lease_has() {
    let (ttl, silent) = (Duration::from_secs(8), Duration::from_secs(7));
    let expired = Loss::Expired { lease: 1, ttl, silent, slept: None, last_error: None };
    assert_eq!(left(&expired), Duration::from_secs(1));
    let gone = Loss::Gone { lease: 1, endpoint: "a".into() };
    assert_eq!(left(&gone), Duration::ZERO);
}

/// Events from what is sent through these.
fn news() -> (watch::Sender<HandlerStatus>, watch::Sender<RestartBudget>, MembershipEvents) {
    let (say, status) =
        watch::channel(HandlerStatus { view: running(), ..HandlerStatus::default() });
    let (charge, budget) = watch::channel(RestartBudget::default());
    (say, charge, MembershipEvents::new("this".to_owned(), status, budget))
}

fn known() -> Option<KnownGroup> {
    Some(KnownGroup { round: ROUND, asked: false })
}

#[test]
fn a_session_that_is_lost_before_the_meeting_is_over_is_told_when_it_is() {
    let (say, _charge, mut news) = news();
    let loss = Loss::Gone { lease: 1, endpoint: "a".into() };
    say.send_modify(|status| status.fenced = Some(loss));
    let lost = |told: &[AgentInput]| matches!(told, [AgentInput::SessionLost { .. }]);
    assert!(lost(&news.tell(Time::ZERO, None)), "a meeting makes nothing of it");
    assert!(news.tell(Time::ZERO, None).is_empty());
    news.begin();
    assert!(lost(&news.tell(Time::ZERO, known())), "the group does");
    assert!(news.tell(Time::ZERO, known()).is_empty());
}

#[test]
fn what_is_so_is_told_once_for_each_group() {
    let (say, _charge, mut news) = news();
    say.send_modify(|status| status.view.nodes_waiting = 1);
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
    assert!(
        matches!(told.as_slice(), [AgentInput::SessionLost { deadline, .. }] if *deadline == now)
    );
    assert!(news.tell(now, known()).is_empty());
    assert!(tokio::time::timeout(Duration::from_millis(50), news.changed()).await.is_err());
}
