use super::*;
use crate::rendezvous::documents::{Extra, NodeName, Status};

const HOME: RunHistory = RunHistory::new(1);
const OTHER: RunHistory = RunHistory::new(2);

fn at(seconds: u64) -> Time {
    Time::from_secs(seconds)
}

fn frozen(round: u64, cut: Revision) -> Active {
    let cut = Cut::new(cut, Vec::new());
    let by = NodeName { id: "a".into(), address: String::new() };
    Active { world: 3, previous: 4, cut, ..Active::new(HOME, round, Status::Frozen, by) }
}

fn rounds(round: u64, formed: u64) -> Rounds {
    Rounds { round, formed, outlived: 0, events: 0, extra: Extra::new() }
}

fn confirmed(memory: &Memory) -> Vec<(u64, bool)> {
    let claims = memory.claims(at(100), Some(OTHER));
    claims.confirmed.iter().map(|one| (one.group.round, one.ranked)).collect()
}

#[test]
fn a_host_that_may_serve_is_a_member_of_round_0_until_it_has_voted() {
    let votes =
        |votes| Memory::new(Some(Succession { hosts: 3, votes })).claims(at(0), None).formed;
    assert_eq!(votes(true), Some(GroupClaim::of_hosts(3)));
    assert_eq!(votes(false), None);
    assert_eq!(Memory::new(None).claims(at(0), None), Claims::default());
}

#[test]
fn a_round_counts_from_the_moment_that_the_node_tries_to_confirm_it() {
    let mut memory = Memory::default();
    memory.joins(5, 12);
    memory.confirms("a", &frozen(5, 11));
    assert_eq!(
        confirmed(&memory),
        [(5, false)],
        "the node joined after the last join that is certain"
    );
    memory.is_ranked(5, HOME, true);
    assert_eq!(confirmed(&memory), [(5, true)]);
    // Another attempt of the same request changes nothing.
    memory.confirms("a", &frozen(5, 11));
    assert_eq!(confirmed(&memory), [(5, true)]);
    let mut memory = Memory::default();
    memory.joins(5, 11);
    memory.confirms("a", &frozen(5, 11));
    assert_eq!(confirmed(&memory), [(5, true)]);
    memory.is_ranked(5, HOME, false);
    assert_eq!(confirmed(&memory), [], "it had no rank");
}

#[test]
fn a_node_that_joined_in_time_has_a_rank_unless_it_is_named() {
    let cut = Cut::new(11, vec!["b".into()]);
    let table =
        [("a", 10, true), ("a", 11, true), ("a", 12, false), ("a", 0, false), ("b", 10, false)];
    for (id, joined, ranked) in table {
        assert_eq!(cut.includes(id, joined), ranked, "{id} at {joined}");
        let mut memory = Memory::default();
        memory.joins(5, joined);
        memory.confirms(id, &Active { cut: cut.clone(), ..frozen(5, 0) });
        assert_eq!(confirmed(&memory), [(5, ranked)], "{id} at {joined}");
    }
    let many = Cut::new(11, vec!["b".into(); MOST_WITHOUT + 1]);
    assert!(!many.includes("a", 10), "it is certain of no node");
}

#[test]
fn the_documents_of_its_history_tell_what_became_of_a_round() {
    // The documents, and the round that is still open or has formed.
    let table = [
        (rounds(5, 4), Some(5), None),
        (rounds(5, 5), None, Some(5)),
        (rounds(6, 5), None, Some(5)),
        (rounds(6, 4), None, None),
        (rounds(7, 7), None, None),
    ];
    for (seen, open, formed) in table {
        let mut memory = Memory::default();
        memory.joins(5, 11);
        memory.confirms("a", &frozen(5, 11));
        memory.sees(HOME, &seen);
        let claims = memory.claims(at(0), Some(OTHER));
        let still = claims.confirmed.first().map(|one| one.group.round);
        assert_eq!((still, claims.formed.map(|group| group.round)), (open, formed), "{seen:?}");
        // Those of another history tell nothing.
        let mut memory = Memory::default();
        memory.confirms("a", &frozen(5, 11));
        memory.sees(OTHER, &seen);
        assert_eq!(confirmed(&memory).len(), 1);
    }
}

#[test]
fn a_node_testifies_for_rounds_that_it_joined_and_did_not_confirm() {
    let mut memory = Memory::default();
    memory.joins(5, 11);
    memory.sees(HOME, &rounds(5, 4));
    let seen = Witness { history: HOME, round: 5, formed: 4, joined: 11 };
    assert_eq!(memory.claims(at(0), Some(OTHER)).witnessed, [seen]);
    assert_eq!(memory.claims(at(0), Some(HOME)).witnessed, [], "its own server knows better");
    memory.confirms("a", &frozen(5, 11));
    memory.sees(HOME, &rounds(5, 4));
    let seen = Witness { joined: 0, ..seen };
    assert_eq!(memory.claims(at(0), Some(OTHER)).witnessed, [seen]);
}

#[test]
fn a_node_that_joins_again_testifies_from_its_first_join_on() {
    let mut memory = Memory::default();
    memory.joins(5, 11);
    memory.joins(5, 13);
    memory.sees(HOME, &rounds(5, 4));
    assert_eq!(memory.claims(at(0), Some(OTHER)).witnessed[0].joined, 11);
    // The coordinator had seen no later join when it froze the round.
    memory.confirms("a", &frozen(5, 12));
    assert_eq!(confirmed(&memory), [(5, true)]);
    memory.joins(6, 17);
    memory.sees(HOME, &rounds(6, 4));
    assert_eq!(memory.claims(at(0), Some(OTHER)).witnessed[0].joined, 17);
}

#[test]
fn silence_counts_from_the_last_response_of_another_server() {
    let mut memory = Memory::default();
    memory.hears(at(10));
    memory.hears(at(8));
    assert_eq!(memory.claims(at(30), Some(HOME)).silent_ms, None, "it is the present server");
    memory.moves_on();
    memory.hears(at(29));
    assert_eq!(memory.claims(at(30), Some(OTHER)).silent_ms, Some(20_000));
}

#[test]
fn a_node_that_leaves_forgets_the_group_of_the_server_that_it_tells() {
    let group = GroupClaim { round: 5, history: HOME, world: 3 };
    let mut memory = Memory::default();
    memory.forms(group);
    memory.leaves(Some(OTHER));
    assert_eq!(memory.member_in(Some(HOME)), Some(5));
    memory.leaves(Some(HOME));
    assert_eq!(memory.member_in(Some(HOME)), None);
}

#[test]
fn a_proof_counts_for_the_group_in_which_it_was_found() {
    let mut memory = Memory::default();
    memory.forms(GroupClaim { round: 5, history: HOME, world: 3 });
    memory.proves_dead(4, "b".into());
    memory.proves_dead(5, "c".into());
    assert_eq!(memory.claims(at(0), None).dead, ["c"]);
    memory.forms(GroupClaim { round: 6, history: HOME, world: 2 });
    assert!(memory.claims(at(0), None).dead.is_empty());
}
