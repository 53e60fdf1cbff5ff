use super::*;
use crate::rendezvous::succession::claims::{Cut, Witness};

const TTL: Duration = Duration::from_secs(24);
const HERE: RunHistory = RunHistory::new(1);
const OTHER: RunHistory = RunHistory::new(2);
const THIRD: RunHistory = RunHistory::new(3);

fn at(seconds: u64) -> Time {
    Duration::from_secs(seconds)
}

fn group(round: u64, history: RunHistory, world: u32) -> GroupClaim {
    GroupClaim { round, history, world }
}

/// A member of this group, which last heard of its server 10 s ago.
fn member(group: GroupClaim) -> Claims {
    Claims { formed: Some(group), silent_ms: Some(10_000), ..Claims::default() }
}

fn confirmed(group: GroupClaim, base: u64) -> ConfirmedRound {
    ConfirmedRound { group, base, cut: Cut::new(5, Vec::new()), ranked: true }
}

/// What a group of these nodes waits for, whose claims were read at 100 s.
fn quorum(nodes: &[(&str, Claims)], home: Option<HomeGroup<'_>>, known: u64) -> Quorum {
    overruled(nodes, home, known, None)
}

/// The same after an operator has decided about the groups up to a round.
fn overruled(
    nodes: &[(&str, Claims)],
    home: Option<HomeGroup<'_>>,
    known: u64,
    up_to: Option<u64>,
) -> Quorum {
    let claimant = |(id, claims): &'_ (&'_ str, Claims)| -> (String, Claims) {
        ((*id).to_owned(), claims.clone())
    };
    let owned: Vec<(String, Claims)> = nodes.iter().map(claimant).collect();
    let all: Vec<Claimant<'_>> = owned
        .iter()
        .map(|(id, claims)| Claimant { id, claims, since: at(100), chosen: true })
        .collect();
    Ancestors::of(&all, Some(HERE), home, known).overruled(up_to).quorum(&all, TTL)
}

fn lack(round: u64, here: usize, needed: usize, world: usize) -> Option<Lack> {
    Some(Lack { round, here, needed, world })
}

#[test]
fn more_than_half_of_the_last_group_is_needed_at_another_server() {
    let last = group(4, OTHER, 5);
    let of = |count: usize| -> Vec<(&str, Claims)> {
        ["a", "b", "c", "d", "e"].into_iter().take(count).map(|id| (id, member(last))).collect()
    };
    assert_eq!(quorum(&of(2), None, 0).lack, lack(4, 2, 3, 5));
    // The workers of the two that are missing may live for a while after the last response to any of the three.
    let enough = quorum(&of(3), None, 0);
    assert_eq!((enough.lack, enough.until), (None, Some(at(90) + outlives(TTL))));
    let all = quorum(&of(5), None, 0);
    assert_eq!((all.lack, all.until), (None, None));
    // Other nodes fill the group, and do not count.
    let mut strangers = of(2);
    strangers.extend(["x", "y", "z"].map(|id| (id, Claims::default())));
    assert_eq!(quorum(&strangers, None, 0).lack, lack(4, 2, 3, 5));
}

#[test]
fn two_nodes_cannot_outvote_each_other() {
    let last = group(1, OTHER, 2);
    assert_eq!(quorum(&[("b", member(last))], None, 0).lack, lack(1, 1, 2, 2));
    let home = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
    let home = HomeGroup { round: 1, members: &home };
    assert_eq!(quorum(&[("a", Claims::default())], Some(home), 1).lack, None);
}

#[test]
fn proofs_shorten_the_wait_and_replace_no_majority() {
    let last = group(4, OTHER, 3);
    let proof = |dead: &[&str]| Claims {
        dead: dead.iter().map(|id| (*id).to_owned()).collect(),
        ..member(last)
    };
    assert_eq!(quorum(&[("b", proof(&["a", "c"]))], None, 0).lack, lack(4, 1, 2, 3));
    let two = [("b", proof(&["a"])), ("c", proof(&["a"]))];
    assert_eq!(quorum(&two, None, 0), Quorum::default());
    // A node that joined is not dead, and does not count twice.
    let two = [("b", proof(&["c"])), ("c", proof(&[]))];
    assert!(quorum(&two, None, 0).until.is_some());
}

#[test]
fn the_latest_group_counts_wherever_it_was() {
    let (old, new) = (group(4, OTHER, 3), group(6, THIRD, 3));
    let nodes = [("a", member(old)), ("b", member(old)), ("c", member(new))];
    assert_eq!(quorum(&nodes, None, 0).lack, lack(6, 1, 2, 3));
    // The old head has come back with its server, which knows of round 4.
    let home = BTreeSet::from(["a".to_owned(), "b".to_owned(), "c".to_owned()]);
    let home = HomeGroup { round: 4, members: &home };
    assert_eq!(quorum(&nodes, Some(home), 4).lack, lack(6, 1, 2, 3));
    // A node that only saw the latest group tells that it is missing.
    assert_eq!(quorum(&nodes[..2], None, 6).lack, lack(6, 0, 1, 0));
}

#[test]
fn a_round_that_may_have_formed_a_group_counts_like_one() {
    let (last, next) = (group(4, OTHER, 3), group(5, OTHER, 3));
    let sure = Claims { confirmed: vec![confirmed(next, 4)], ..member(last) };
    // One has confirmed, another one never heard of it: the third may run with the first.
    let nodes = [("a", sure.clone()), ("b", member(last))];
    assert_eq!(quorum(&nodes, None, 0).lack, lack(5, 1, 2, 3));
    assert_eq!(quorum(&[("a", sure.clone()), ("b", sure.clone())], None, 0).lack, None);
    // Who does not know whether it has a rank does not count, but tells of the round.
    let unsure = ConfirmedRound { ranked: false, ..confirmed(next, 4) };
    let unsure = Claims { confirmed: vec![unsure], ..member(last) };
    let nodes = [("a", sure.clone()), ("b", unsure.clone())];
    assert_eq!(quorum(&nodes, None, 0).lack, lack(5, 1, 2, 3));
    // The documents of this server tell what became of its own rounds.
    let own = Claims { confirmed: vec![confirmed(group(5, HERE, 3), 4)], ..member(last) };
    assert_eq!(quorum(&[("a", own), ("b", member(last))], None, 0).lack, None);
}

#[test]
fn a_round_that_cannot_have_formed_a_group_is_passed_over() {
    let (last, next) = (group(4, OTHER, 3), group(5, OTHER, 3));
    let sure = Claims { confirmed: vec![confirmed(next, 4)], ..member(last) };
    let seen = |round, formed, joined| {
        let witness = Witness { history: OTHER, round, formed, joined };
        Claims { witnessed: vec![witness], ..member(last) }
    };
    // What the other node has seen, and whether the round is passed over.
    let table = [
        // It joined in time to have a rank, and never confirmed.
        (seen(5, 4, 5), true),
        (seen(5, 4, 6), false),
        (seen(5, 4, 0), false),
        // A later round began, and this one had formed none.
        (seen(6, 4, 0), true),
        (seen(6, 5, 0), false),
        (seen(4, 4, 0), false),
    ];
    for (other, passed) in table {
        let lack = quorum(&[("a", sure.clone()), ("b", other.clone())], None, 0).lack;
        assert_eq!(lack.is_none(), passed, "{other:?}");
    }
    // A group has one successor: a round after round 2 is none if round 4 has formed.
    let stale = Claims { confirmed: vec![confirmed(group(9, THIRD, 3), 2)], ..member(last) };
    assert_eq!(quorum(&[("a", stale), ("b", member(last))], None, 0).lack, None);
}

#[test]
fn the_first_group_needs_more_than_half_of_the_hosts_that_may_serve() {
    let voter = || Claims { formed: Some(GroupClaim::of_hosts(3)), ..Claims::default() };
    let nodes = [("a", voter()), ("x", Claims::default()), ("y", Claims::default())];
    let wait = quorum(&nodes, None, 0);
    assert_eq!((wait.lack, wait.until), (lack(0, 1, 2, 3), None));
    assert_eq!(quorum(&[("a", voter()), ("c", voter())], None, 0), Quorum::default());
    assert_eq!(quorum(&nodes[1..], None, 0).lack, lack(0, 0, 1, 0));
}

#[test]
fn what_is_missing_is_said_in_a_sentence() {
    let table = [
        (
            lack(7, 2, 3, 5),
            "2 of the last group are here, and 3 are needed, more than half of the 5 that the group of round 7 had",
        ),
        (lack(7, 0, 1, 0), "and no member of the last group, of round 7, is here"),
        (
            lack(0, 1, 2, 3),
            "1 of the 3 hosts that may serve are here, and 2 are needed for the first group",
        ),
        (lack(0, 0, 1, 0), "and none of the hosts that may serve is here"),
    ];
    for (lack, sentence) in table {
        assert_eq!(lack.map(|lack| lack.to_string()).as_deref(), Some(sentence));
    }
}

#[test]
fn an_operator_overrules_the_quorum_and_not_the_margin() {
    let last = group(4, OTHER, 5);
    let one = [("b", member(last))];
    let short = lack(4, 1, 3, 5);
    let until = Some(at(90) + outlives(TTL));
    let waits = Quorum { lack: short, overruled: None, until };
    assert_eq!(quorum(&one, None, 0), waits);
    // What the operator has decided about an earlier group says nothing of this one.
    assert_eq!(overruled(&one, None, 0, Some(3)), waits);
    let decided = Quorum { lack: None, overruled: short, until };
    assert_eq!(overruled(&one, None, 0, Some(4)), decided);
}

#[test]
fn a_later_group_than_the_operator_knew_of_is_not_overruled() {
    let nodes = [("a", member(group(4, OTHER, 5))), ("b", member(group(6, THIRD, 3)))];
    let found = overruled(&nodes, None, 0, Some(4));
    assert_eq!((found.lack, found.overruled), (lack(6, 1, 2, 3), None));
    // Nor is one of which it is known only that there was one.
    let found = overruled(&nodes[..1], None, 5, Some(4));
    assert_eq!((found.lack, found.overruled), (lack(5, 0, 1, 0), lack(4, 1, 3, 5)));
    // A round that may have formed a group after that one.
    let tried = Claims { confirmed: vec![confirmed(group(5, THIRD, 4), 4)], ..nodes[0].1.clone() };
    assert_eq!(overruled(&[("a", tried)], None, 0, Some(4)).lack, lack(5, 1, 3, 4));
}

#[test]
fn an_operator_overrules_at_the_server_of_the_last_group_and_before_the_first_one() {
    let home = BTreeSet::from(["a".to_owned(), "b".to_owned(), "c".to_owned()]);
    let home = HomeGroup { round: 4, members: &home };
    let one = [("a", Claims::default())];
    assert_eq!(quorum(&one, Some(home), 4).lack, lack(4, 1, 2, 3));
    assert_eq!(overruled(&one, Some(home), 4, Some(4)).lack, None);
    let host = [("a", Claims { formed: Some(GroupClaim::of_hosts(3)), ..Claims::default() })];
    assert_eq!(quorum(&host, None, 0).lack, lack(0, 1, 2, 3));
    assert_eq!(overruled(&host, None, 0, Some(0)).lack, None);
}
