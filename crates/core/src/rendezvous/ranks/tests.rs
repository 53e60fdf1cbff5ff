use super::*;

fn node(id: &str, arrived: i64) -> Candidate {
    Candidate { id: id.into(), arrived, ..Candidate::default() }
}

fn previous(round: u64, rank: u32) -> Option<PreviousAssignment> {
    Some(PreviousAssignment { history: RunHistory::new(1), round, rank, world: 3, held: false })
}

fn returning(id: &str, arrived: i64, rank: u32) -> Candidate {
    Candidate { previous: previous(4, rank), ..node(id, arrived) }
}

fn in_order(policy: RankPolicy, members: &[Candidate]) -> Vec<String> {
    let mut ranks: Vec<(u32, String)> =
        assign(policy, members).into_iter().map(|(id, rank)| (rank, id)).collect();
    ranks.sort();
    assert!(ranks.iter().enumerate().all(|(index, (rank, _))| index == *rank as usize));
    ranks.into_iter().map(|(_, id)| id).collect()
}

#[test]
fn a_member_keeps_its_rank_and_a_newcomer_takes_the_dead_ones() {
    let members = [node("new", 1), returning("c", 9, 2), returning("a", 8, 0)];
    assert_eq!(in_order(RankPolicy::Stable, &members), ["a", "new", "c"]);
}

#[test]
fn who_sat_above_the_new_size_moves_into_a_hole() {
    let members = [returning("d", 1, 3), returning("a", 2, 0), returning("b", 3, 1)];
    assert_eq!(in_order(RankPolicy::Stable, &members), ["a", "b", "d"]);
}

#[test]
fn the_later_group_counts_when_two_claim_one_rank() {
    let old = Candidate { previous: previous(2, 0), ..node("old", 1) };
    assert_eq!(in_order(RankPolicy::Stable, &[old, returning("a", 2, 0)]), ["a", "old"]);
}

#[test]
fn hints_count_for_newcomers_of_a_stable_group_too() {
    let hinted = |id, arrived, hint| {
        let rank_hints = RankHints { hint: Some(hint), topology: None };
        Candidate { rank_hints, ..node(id, arrived) }
    };
    let members = [hinted("second", 1, 1), node("last", 0), hinted("first", 2, 0)];
    assert_eq!(in_order(RankPolicy::Stable, &members), ["first", "second", "last"]);
    assert_eq!(in_order(RankPolicy::Hint, &members), ["first", "second", "last"]);
}

#[test]
fn without_hints_ranks_follow_the_names_of_the_hosts_and_not_who_came_first() {
    let members =
        [node("gpu10-7-b", 1), node("gpu2-31-a", 2), node("gpu2-7-c", 3), node("gpu1-9-d", 4)];
    let by_name = ["gpu1-9-d", "gpu2-7-c", "gpu2-31-a", "gpu10-7-b"];
    for policy in [RankPolicy::Stable, RankPolicy::Hint, RankPolicy::Topology] {
        assert_eq!(in_order(policy, &members), by_name, "{policy}");
    }
    let by_arrival = ["gpu10-7-b", "gpu2-31-a", "gpu2-7-c", "gpu1-9-d"];
    assert_eq!(in_order(RankPolicy::Arrival, &members), by_arrival);
}

#[test]
fn neighbours_get_neighbouring_ranks() {
    let at = |id, arrived, place: &str| {
        let rank_hints = RankHints { hint: None, topology: Some(place.into()) };
        Candidate { rank_hints, ..node(id, arrived) }
    };
    let members =
        [at("c", 1, "rack10/n1"), node("d", 0), at("a", 3, "rack2/n2"), at("b", 2, "rack2/n11")];
    assert_eq!(in_order(RankPolicy::Topology, &members), ["a", "b", "c", "d"]);
}

#[test]
fn members_get_in_before_those_who_came_first() {
    let chosen = select(vec![node("spare", 1), returning("a", 8, 0), returning("b", 9, 1)], 2);
    assert_eq!(chosen.iter().map(|node| node.id.as_str()).collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn policies_read_as_they_are_written() {
    for (name, policy) in POLICIES {
        assert_eq!(name.parse(), Ok(policy));
        assert_eq!(policy.to_string(), name);
    }
    let error = "random".parse::<RankPolicy>().unwrap_err().to_string();
    assert_eq!(error, "rank_policy \"random\": give stable, hint, topology or arrival");
}
