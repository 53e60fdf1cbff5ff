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
