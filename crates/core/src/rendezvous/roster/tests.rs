use super::super::document::encode;
use super::*;

const WAITING: usize = 1;
const SUSPECTS: usize = 2;
const MEMBERS: usize = 3;

fn event(kind: EventKind, key: &str, mod_revision: Revision) -> Event {
    let value = encode(&Joined::default());
    let kv =
        KeyValue { key: Bytes::from(key.to_owned()), value, mod_revision, ..KeyValue::default() };
    Event { kind, kv, prev_kv: None }
}

/// What a watch saw: which, and when node a's key was put or deleted.
type Seen = (usize, EventKind, Revision);

/// A roster that has seen these, in this order.
fn roster(events: &[Seen]) -> Roster {
    let mut roster = Roster::new(&TxnResult::default(), 0, 0, &BTreeSet::new());
    for (watch, kind, revision) in events {
        roster.apply(*watch, &event(*kind, "x/a", *revision));
    }
    roster
}

#[test]
fn a_node_is_lost_by_the_last_that_is_known_of_it() {
    use EventKind::{Delete, Put};
    let table: [(&[Seen], bool, &str); 7] = [
        (&[], true, "it never joined"),
        (&[(MEMBERS, Put, 5)], false, "it joined"),
        (&[(MEMBERS, Put, 5), (MEMBERS, Delete, 6)], true, "it is gone"),
        (&[(MEMBERS, Put, 5), (MEMBERS, Delete, 6), (MEMBERS, Put, 7)], false, "it came back"),
        (&[(MEMBERS, Put, 5), (SUSPECTS, Put, 6)], true, "it was reported"),
        (&[(MEMBERS, Put, 5), (SUSPECTS, Put, 4)], false, "that was before it joined"),
        (&[(SUSPECTS, Put, 6), (MEMBERS, Put, 5)], true, "it joined before it was reported"),
    ];
    for (events, lost, why) in table {
        assert_eq!(roster(events).is_lost("a"), lost, "{why}");
    }
}

#[test]
fn who_is_lost_is_looked_for_again_whenever_it_may_have_changed() {
    use EventKind::{Delete, Put};
    let steps = [(MEMBERS, Put, 5), (MEMBERS, Delete, 6), (MEMBERS, Put, 7), (SUSPECTS, Put, 8)];
    let changes: Vec<usize> = (0..=4).map(|count| roster(&steps[..count]).changes()).collect();
    assert!(changes.is_sorted_by(|a, b| a < b), "{changes:?}");
}

#[test]
fn only_those_who_wait_since_the_round_began_are_counted() {
    let kv = |key: &str, mod_revision| KeyValue {
        key: Bytes::from(key.to_owned()),
        mod_revision,
        ..KeyValue::default()
    };
    let kvs = vec![kv("waiting/slow", 4), kv("waiting/late", 6)];
    let found = |kvs| OpResult::Range(crate::kv::RangeResult { kvs, ..Default::default() });
    let results = vec![found(Vec::new()), found(kvs)];
    let survey = TxnResult { revision: 7, succeeded: true, results };
    let mut roster = Roster::new(&survey, 5, 0, &BTreeSet::new());
    assert_eq!(roster.waiting(), 1);
    roster.apply(WAITING, &event(EventKind::Put, "waiting/slow", 8));
    assert_eq!(roster.waiting(), 2, "it says that it still waits");
}

#[test]
fn a_survey_finds_those_who_were_reported_since_they_joined() {
    let kv = |key: &str, mod_revision| event(EventKind::Put, key, mod_revision).kv;
    let found = |kvs| OpResult::Range(crate::kv::RangeResult { kvs, ..Default::default() });
    let lists = [vec![kv("node/a", 5)], vec![], vec![kv("suspect/a", 6)], vec![kv("member/a", 5)]];
    let results = lists.into_iter().map(found).collect();
    let survey = TxnResult { revision: 7, succeeded: true, results };
    assert!(Roster::new(&survey, 1, 0, &BTreeSet::new()).is_lost("a"));
}

#[test]
fn a_thousand_reports_of_one_node_are_one_piece_of_news() {
    let mut events = vec![(MEMBERS, EventKind::Put, 5)];
    events.extend((6..1006).map(|revision| (SUSPECTS, EventKind::Put, revision)));
    assert_eq!(roster(&events).changes(), roster(&events[..2]).changes());
}

/// A survey that finds these keys, list by list.
fn survey(lists: [&[(&str, Revision)]; 6]) -> TxnResult {
    let kv = |(key, revision): &(&str, Revision)| event(EventKind::Put, key, *revision).kv;
    let found = |keys: &[(&str, Revision)]| {
        let kvs = keys.iter().map(kv).collect();
        OpResult::Range(crate::kv::RangeResult { kvs, ..Default::default() })
    };
    TxnResult { revision: 20, succeeded: true, results: lists.map(found).into() }
}

#[test]
fn members_who_were_reported_are_in_doubt_until_they_join_or_are_gone() {
    let nodes: [(&str, Revision); 4] = [("node/a", 1), ("node/b", 2), ("node/c", 3), ("node/d", 4)];
    let last = [("member/a", 5), ("member/b", 6), ("member/c", 7), ("member/d", 8)];
    let survey = survey([&nodes, &[], &[("suspect/b", 15)], &[("member/a", 11)], &[], &last]);
    let slow = BTreeSet::from(["d".to_owned()]);
    let mut roster = Roster::new(&survey, 10, 3, &slow);
    let figures = |roster: &Roster| (roster.roll().members_to_come, roster.roll().suspects_to_come);
    assert_eq!(figures(&roster), (1, 1), "c is to come, b is in doubt, and d was too slow before");
    roster.apply(SUSPECTS, &event(EventKind::Put, "suspect/c", 21));
    assert_eq!(figures(&roster), (0, 2));
    roster.apply(SUSPECTS, &event(EventKind::Put, "suspect/c", 22));
    assert_eq!(figures(&roster), (0, 2), "another report says nothing new");
    roster.apply(MEMBERS, &event(EventKind::Put, "member/b", 23));
    assert_eq!(figures(&roster), (0, 1), "it lives");
    roster.apply(0, &event(EventKind::Delete, "node/c", 24));
    assert_eq!(figures(&roster), (0, 0), "it does not");
}

#[test]
fn reports_of_the_dead_can_go() {
    let suspects = [("suspect/a", 15), ("suspect/b", 16)];
    let survey = survey([&[("node/a", 1)], &[], &suspects, &[], &[], &[]]);
    assert_eq!(Roster::new(&survey, 10, 3, &BTreeSet::new()).buried(), ["b"]);
}

#[test]
fn those_who_are_here_are_named_while_they_are_few() {
    let joined = |nodes: &[(&str, Option<u32>)]| {
        let mut roster = Roster::new(&TxnResult::default(), 0, 0, &BTreeSet::new());
        for (revision, (id, hint)) in (1..).zip(nodes) {
            let mut event = event(EventKind::Put, &format!("x/{id}"), revision);
            event.kv.value = encode(&Joined { hint: *hint, ..Joined::default() });
            roster.apply(MEMBERS, &event);
        }
        roster.names()
    };
    assert_eq!(joined(&[]), "");
    assert_eq!(joined(&[("a", None), ("b", Some(3))]), "; here: a, b");
    assert_eq!(joined(&[("a", Some(0)), ("b", Some(1))]), "; here: a, b");
    let some = joined(&[("a", Some(4)), ("b", Some(1))]);
    assert_eq!(some, "; here: a, b; node ranks missing: 0, 2, 3");
    let many: Vec<(&str, Option<u32>)> =
        ["a", "b", "c", "d", "e", "f", "g", "h", "i"].map(|id| (id, None)).to_vec();
    assert_eq!(joined(&many), "");
}
