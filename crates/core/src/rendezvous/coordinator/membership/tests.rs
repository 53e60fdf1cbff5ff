use super::*;
use crate::rendezvous::documents::{RankHints, encode};
use crate::rendezvous::succession::claims::{Claims, GroupClaim};

const WAITING: usize = 1;
const SUSPECTS: usize = 2;
const MEMBERS: usize = 3;
const LAST_READY: usize = 5;

fn event(kind: EventKind, key: &str, mod_revision: Revision) -> Event {
    let value = encode(&Joined::default());
    let kv =
        KeyValue { key: Bytes::from(key.to_owned()), value, mod_revision, ..KeyValue::default() };
    Event { kind, kv, prev_kv: None }
}

/// What a watch saw: which, and when node a's key was put or deleted.
type SeenEvent = (usize, EventKind, Revision);

const CONTEXT: RoundContext =
    RoundContext { history: RunHistory::new(1), began: 0, previous: 0, outlived: 0 };

fn empty() -> RoundMembership {
    RoundMembership::new(&MembershipSnapshot::default(), CONTEXT, &BTreeSet::new())
}

/// A membership that has seen these, in this order.
fn membership(events: &[SeenEvent]) -> RoundMembership {
    let mut membership = empty();
    for (watch, kind, revision) in events {
        membership.apply(*watch, &event(*kind, "x/a", *revision));
    }
    membership
}

fn kvs(keys: &[(&str, Revision)]) -> Vec<KeyValue> {
    keys.iter().map(|(key, revision)| event(EventKind::Put, key, *revision).kv).collect()
}

#[test]
fn a_node_is_lost_by_the_last_that_is_known_of_it() {
    use EventKind::{Delete, Put};
    let table: [(&[SeenEvent], bool, &str); 7] = [
        (&[], true, "it never joined"),
        (&[(MEMBERS, Put, 5)], false, "it joined"),
        (&[(MEMBERS, Put, 5), (MEMBERS, Delete, 6)], true, "it is gone"),
        (&[(MEMBERS, Put, 5), (MEMBERS, Delete, 6), (MEMBERS, Put, 7)], false, "it came back"),
        (&[(MEMBERS, Put, 5), (SUSPECTS, Put, 6)], true, "it was reported"),
        (&[(MEMBERS, Put, 5), (SUSPECTS, Put, 4)], false, "that was before it joined"),
        (&[(SUSPECTS, Put, 6), (MEMBERS, Put, 5)], true, "it joined before it was reported"),
    ];
    for (events, lost, why) in table {
        assert_eq!(membership(events).is_lost("a"), lost, "{why}");
    }
}

#[test]
fn how_a_loss_is_known_follows_from_what_was_deleted_together() {
    use EventKind::{Delete, Put};
    const NODES: usize = 0;
    let peer = "a peer reported that its connection has ended";
    let table: [(&[SeenEvent], &str); 5] = [
        (&[(MEMBERS, Delete, 6)], LEFT_OR_EXPIRED),
        (&[(NODES, Delete, 6), (MEMBERS, Delete, 6)], "its lease expired"),
        (&[(MEMBERS, Delete, 6), (NODES, Delete, 7)], "it left"),
        (&[(SUSPECTS, Put, 6)], peer),
        (&[(SUSPECTS, Put, 6), (NODES, Delete, 7), (MEMBERS, Delete, 7)], peer),
    ];
    for (events, because) in table {
        let joined = [&[(MEMBERS, Put, 5)], events].concat();
        assert_eq!(membership(&joined).lost_because("a"), because, "{events:?}");
    }
}

/// They stand in the confirmations of its peers, which are empty, or a store, or tell of a missing connection.
#[test]
fn proofs_of_deaths_are_read_from_confirmations() {
    const READY: usize = 4;
    let mut membership = empty();
    let mut confirms = |id: &str, value: &str| {
        let mut event = event(EventKind::Put, &format!("ready/{id}"), 5);
        event.kv.value = Bytes::from(value.to_owned());
        membership.apply(READY, &event);
        membership.proved_dead().iter().cloned().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(confirms("a", ""), "");
    assert_eq!(confirms("b", r#"{"format":1,"unreached":"no connection"}"#), "");
    assert_eq!(confirms("c", r#"{"format":1,"proved_dead":["x"]}"#), "x");
    let store = r#"{"format":1,"host":"h","port":1,"token":"t","proved_dead":["x","y"]}"#;
    assert_eq!(confirms("d", store), "x y");
    assert!(membership.confirmation("d").is_some() && membership.unreached().len() == 1);
}

#[test]
fn who_is_lost_is_looked_for_again_whenever_it_may_have_changed() {
    use EventKind::{Delete, Put};
    let steps = [(MEMBERS, Put, 5), (MEMBERS, Delete, 6), (MEMBERS, Put, 7), (SUSPECTS, Put, 8)];
    let changes: Vec<usize> = (0..=4).map(|count| membership(&steps[..count]).version()).collect();
    assert!(changes.is_sorted_by(|a, b| a < b), "{changes:?}");
}

#[test]
fn only_those_who_wait_since_the_round_began_are_counted() {
    let waiting = &kvs(&[("waiting/slow", 4), ("waiting/late", 6)]);
    let snapshot = MembershipSnapshot { revision: 7, waiting, ..MembershipSnapshot::default() };
    let mut membership =
        RoundMembership::new(&snapshot, RoundContext { began: 5, ..CONTEXT }, &BTreeSet::new());
    assert_eq!(membership.late(), 1);
    membership.apply(WAITING, &event(EventKind::Put, "waiting/slow", 8));
    assert_eq!(membership.late(), 2, "it says that it still waits");
}

#[test]
fn spares_are_late_nodes_too() {
    const SPARES: usize = 7;
    let spares = &kvs(&[("spare/old", 4), ("spare/new", 6)]);
    let snapshot = MembershipSnapshot { revision: 7, spares, ..MembershipSnapshot::default() };
    let mut membership =
        RoundMembership::new(&snapshot, RoundContext { began: 5, ..CONTEXT }, &BTreeSet::new());
    assert_eq!(membership.late(), 1);
    membership.apply(SPARES, &event(EventKind::Put, "spare/old", 8));
    membership.apply(WAITING, &event(EventKind::Put, "waiting/other", 9));
    assert_eq!(membership.late(), 3);
    membership.apply(SPARES, &event(EventKind::Delete, "spare/new", 10));
    assert_eq!(membership.late(), 2);
}

#[test]
fn the_size_of_the_last_group_is_known_from_those_who_return() {
    let history = CONTEXT.history;
    let previous = PreviousAssignment { history, round: 3, rank: 0, world: 6, held: false };
    let group = |round, world| GroupClaim { round, history: RunHistory::new(2), world };
    let of_another_server = |group| Joined {
        claims: Claims { formed: Some(group), ..Claims::default() },
        ..Joined::default()
    };
    for (joined, expected, why) in [
        (Joined::default(), (0, 0), "a newcomer"),
        (Joined { previous_assignment: Some(previous), ..Joined::default() }, (1, 6), "a member"),
        (of_another_server(group(2, 4)), (1, 4), "a member of a group at another server"),
        (of_another_server(group(0, 3)), (0, 0), "a host that may serve, before any group"),
    ] {
        let context = RoundContext { previous: 3, ..CONTEXT };
        let mut membership =
            RoundMembership::new(&MembershipSnapshot::default(), context, &BTreeSet::new());
        membership.lineage = Some(Lineage::default());
        let mut event = event(EventKind::Put, "member/a", 5);
        event.kv.value = encode(&joined);
        membership.apply(MEMBERS, &event);
        let counts = membership.counts();
        assert_eq!((counts.returned, counts.last_world), expected, "{why}");
    }
}

#[test]
fn a_snapshot_finds_those_who_were_reported_since_they_joined() {
    let nodes = &kvs(&[("node/a", 5)]);
    let (suspects, members) = (&kvs(&[("suspect/a", 6)]), &kvs(&[("member/a", 5)]));
    let snapshot = MembershipSnapshot {
        revision: 7,
        nodes,
        suspects,
        members,
        ..MembershipSnapshot::default()
    };
    assert!(RoundMembership::new(&snapshot, CONTEXT, &BTreeSet::new()).is_lost("a"));
}

#[test]
fn a_thousand_reports_of_one_node_are_one_piece_of_news() {
    let mut events = vec![(MEMBERS, EventKind::Put, 5)];
    events.extend((6..1006).map(|revision| (SUSPECTS, EventKind::Put, revision)));
    assert_eq!(membership(&events).version(), membership(&events[..2]).version());
}

#[test]
fn members_of_the_last_group_are_unresolved_until_they_enter_leave_or_are_gone() {
    let nodes = &kvs(&[("node/a", 1), ("node/b", 2), ("node/c", 3)]);
    let members = &kvs(&[("member/a", 11)]);
    let last_members = &kvs(&[("member/a", 5), ("member/b", 6), ("member/c", 7)]);
    let last_ready = &kvs(&[("ready/b", 8), ("ready/c", 9)]);
    let suspects = &kvs(&[("suspect/b", 15)]);
    let snapshot = MembershipSnapshot {
        revision: 20,
        nodes,
        members,
        last_members,
        last_ready,
        suspects,
        ..MembershipSnapshot::default()
    };
    let context = RoundContext { began: 10, previous: 3, ..CONTEXT };
    let mut membership = RoundMembership::new(&snapshot, context, &BTreeSet::new());
    let figures = |membership: &RoundMembership| {
        (membership.counts().unresolved, membership.counts().members_to_come)
    };
    assert_eq!(figures(&membership), (2, 1), "a report says nothing about workers");
    membership.apply(SUSPECTS, &event(EventKind::Put, "suspect/c", 21));
    assert_eq!(figures(&membership), (2, 0));
    assert_eq!(membership.names_of_unresolved(), "; waiting for: b, c");
    membership.apply(MEMBERS, &event(EventKind::Put, "member/b", 23));
    membership.apply(LAST_READY, &event(EventKind::Delete, "ready/b", 23));
    assert_eq!(figures(&membership), (1, 0), "it has entered");
    membership.apply(LAST_READY, &event(EventKind::Delete, "ready/c", 24));
    assert_eq!(figures(&membership), (0, 1), "it has entered, or its lease is over");
    membership.apply(0, &event(EventKind::Delete, "node/c", 24));
    assert_eq!(figures(&membership), (0, 0), "its lease is over");
    membership.apply(LAST_READY, &event(EventKind::Put, "ready/c", 25));
    assert_eq!(figures(&membership), (1, 0), "it has slept, and has its place again");
    membership.apply(0, &event(EventKind::Delete, "node/c", 26));
    membership.apply(LAST_READY, &event(EventKind::Delete, "ready/c", 26));
    assert_eq!(figures(&membership), (0, 0), "whichever is told first");
}

#[test]
fn reports_of_the_dead_can_go() {
    let suspects = &kvs(&[("suspect/a", 15), ("suspect/b", 16)]);
    let nodes = &kvs(&[("node/a", 1)]);
    let snapshot =
        MembershipSnapshot { revision: 20, nodes, suspects, ..MembershipSnapshot::default() };
    let context = RoundContext { began: 10, previous: 3, ..CONTEXT };
    assert_eq!(
        RoundMembership::new(&snapshot, context, &BTreeSet::new()).expired_suspects(),
        ["b"]
    );
}

const LEASE: Duration = Duration::from_secs(10);

#[test]
fn a_server_that_follows_another_is_given_the_rest_of_a_lease_unless_somebody_vouches() {
    let whole: &[_] = &[("a", 5, true), ("b", 5, true), ("c", 5, true)];
    for (previous, nodes, silent, left, why) in [
        (
            0,
            &[][..],
            4,
            Some(6),
            "the group is unknown, and the last lease may have been renewed 4 s before",
        ),
        (0, &[], 0, Some(10), "the same, a moment before"),
        (0, &[], 10, None, "every lease is over"),
        (3, &[], 0, None, "a group has formed since"),
        (0, whole, 0, None, "all of the last group are here"),
        (0, &whole[..2], 4, Some(6), "one of the last group is missing"),
        (3, &whole[..2], 4, Some(6), "the same, and a group has formed since that did not know"),
        (0, &whole[..2], 10, None, "the same, and every lease is over"),
    ] {
        let mut membership = remembering(previous, nodes);
        membership.predecessor = Some(Duration::from_secs(silent));
        let left = left.map(Duration::from_secs);
        assert_eq!(membership.forgotten_for(LEASE), left, "{why}");
    }
}

/// Nodes of a forgotten group of three, each with whether it held its lease to the end.
fn remembering(previous: u64, nodes: &[(&str, u64, bool)]) -> RoundMembership {
    let context = RoundContext { previous, ..CONTEXT };
    let mut membership =
        RoundMembership::new(&MembershipSnapshot::default(), context, &BTreeSet::new());
    for (revision, (id, round, held)) in (1..).zip(nodes) {
        let history = RunHistory::new(9);
        let previous_assignment =
            Some(PreviousAssignment { history, round: *round, rank: 2, world: 3, held: *held });
        let earlier = Earlier { round: round + 1, formed: *round };
        let mut event = event(EventKind::Put, &format!("x/{id}"), revision);
        event.kv.value = encode(&Joined { previous_assignment, earlier, ..Joined::default() });
        membership.apply(MEMBERS, &event);
    }
    membership
}

#[test]
fn members_of_a_forgotten_group_may_be_missing_until_all_are_here() {
    type Nodes = &'static [(&'static str, u64, bool)];
    let table: [(u64, Nodes, bool, &str); 6] = [
        (0, &[], false, "no node remembers a group"),
        (0, &[("a", 5, true)], true, "two may still run"),
        (0, &[("a", 5, true), ("b", 5, false), ("c", 5, true)], false, "all three are here"),
        (0, &[("a", 5, false), ("b", 5, false), ("c", 5, false)], true, "it may not be the last"),
        (0, &[("a", 5, true), ("b", 4, false), ("c", 5, true)], true, "one is of an earlier group"),
        (7, &[("a", 5, true)], true, "another group has formed since, of nodes that did not know"),
    ];
    for (previous, nodes, may_miss, why) in table {
        let waits = may_miss.then_some(LEASE);
        assert_eq!(remembering(previous, nodes).forgotten_for(LEASE), waits, "{why}");
    }
    let mut later = remembering(0, &[("a", 5, true)]);
    later.context.outlived = 5;
    assert_eq!(later.forgotten_for(LEASE), None, "a round before this one has waited for them");
    assert_eq!(remembering(0, &[("a", 5, true), ("b", 8, true)]).remembered().round, 9);
}

#[test]
fn a_place_in_a_forgotten_group_counts_only_until_another_has_formed() {
    let ranks = |membership: RoundMembership| {
        membership.candidates().pop().unwrap().previous.map(|last| last.rank)
    };
    assert_eq!(ranks(remembering(0, &[("a", 5, true)])), Some(2));
    assert_eq!(ranks(remembering(7, &[("a", 5, true)])), None);
    assert_eq!(remembering(5, &[("a", 5, true)]).counts().returned, 0, "the numbers are equal");
}

#[test]
fn those_who_are_here_are_named_while_they_are_few() {
    let joined_of = |wanted, nodes: &[(&str, Option<u32>)]| {
        let mut membership = empty();
        for (revision, (id, hint)) in (1..).zip(nodes) {
            let mut event = event(EventKind::Put, &format!("x/{id}"), revision);
            let rank_hints = RankHints { hint: *hint, topology: None };
            event.kv.value = encode(&Joined { rank_hints, ..Joined::default() });
            membership.apply(MEMBERS, &event);
        }
        membership.names(wanted)
    };
    let joined = |nodes: &[(&str, Option<u32>)]| joined_of(0, nodes);
    assert_eq!(joined(&[]), "");
    assert_eq!(joined(&[("a", None), ("b", Some(3))]), "; here: a, b");
    assert_eq!(joined(&[("a", Some(0)), ("b", Some(1))]), "; here: a, b");
    let some = joined(&[("a", Some(4)), ("b", Some(1))]);
    assert_eq!(some, "; here: a, b; node ranks missing: 0, 2, 3");
    let same = joined_of(3, &[("a", Some(1)), ("b", Some(1))]);
    let words = "; here: a, b; node rank 1 was given to both a and b; node ranks missing: 0, 2";
    assert_eq!(same, words);
    let many: Vec<(&str, Option<u32>)> =
        ["a", "b", "c", "d", "e", "f", "g", "h", "i"].map(|id| (id, None)).to_vec();
    assert_eq!(joined(&many), "");
    // The missing are named however many have come, as long as those are few.
    let many: Vec<(String, Option<u32>)> =
        (0..21).filter(|rank| *rank != 13).map(|rank| (format!("n{rank}"), Some(rank))).collect();
    let many: Vec<(&str, Option<u32>)> =
        many.iter().map(|(id, hint)| (id.as_str(), *hint)).collect();
    assert_eq!(joined_of(21, &many), "; node ranks missing: 13");
    assert_eq!(joined_of(23, &many), "; node ranks missing: 13, 21, 22");
    let first = joined_of(100, &[("a", Some(0))]);
    assert_eq!(first, "; here: a; node ranks missing: 1, 2, 3, 4, 5, 6, 7, 8 and 91 more");
    let strange = joined_of(2, &[("a", Some(u32::MAX))]);
    assert!(strange.ends_with("7 and 4294967287 more"), "{strange}");
}

/// Some of the missing are named, however many they are.
#[test]
fn those_who_are_missing_are_named_however_many_they_are() {
    let keys: Vec<String> = (1..=10).map(|number| format!("x/n{number:02}")).collect();
    let keys: Vec<(&str, Revision)> = keys.iter().map(|key| (key.as_str(), 1)).collect();
    let nodes = &kvs(&keys)[..];
    let snapshot = MembershipSnapshot {
        revision: 1,
        last_ready: nodes,
        nodes,
        ..MembershipSnapshot::default()
    };
    let membership = RoundMembership::new(&snapshot, CONTEXT, &BTreeSet::new());
    let named = "n01, n02, n03, n04, n05, n06, n07, n08 and 2 more";
    assert_eq!(membership.names_of_unresolved(), format!("; waiting for: {named}"));
    assert_eq!(membership.names(0), format!("; yet to come: {named}"));
}

/// A member without a connection to rank 0 says so in its confirmation, and takes it back.
#[test]
fn members_that_do_not_reach_rank_0_are_named_until_they_do() {
    const READY: usize = 4;
    let mut membership = empty();
    let mut says = |id: &str, revision, value: Bytes| {
        let mut event = event(EventKind::Put, &format!("ready/{id}"), revision);
        event.kv.value = value;
        membership.apply(READY, &event);
        membership.unreached()
    };
    assert!(says("a", 1, Bytes::new()).is_empty());
    let why = encode(&Unreached { unreached: "no connection".to_owned() });
    assert_eq!(says("b", 2, why), ["b has no connection"]);
    assert!(says("b", 3, Bytes::new()).is_empty());
}
