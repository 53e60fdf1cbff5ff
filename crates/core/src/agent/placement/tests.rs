use super::*;

fn node(rank: u32, role: &str, local_world_size: u32) -> RoleInfo {
    RoleInfo { role: role.into(), rank, local_world_size, ports: 0 }
}

fn ranks(nodes: &[RoleInfo]) -> Vec<[u32; 4]> {
    assign(nodes).unwrap().into_iter().map(<[u32; 4]>::from).collect()
}

#[test]
fn equal_nodes_are_placed_as_without_an_exchange() {
    let nodes: Vec<RoleInfo> = (0..5).map(|rank| node(rank, "default", 8)).collect();
    let placements = assign(&nodes).unwrap();
    for (rank, placement) in (0..).zip(placements) {
        assert_eq!(placement, Placement::identical(rank, 5, 8));
    }
}

#[test]
fn nodes_may_have_different_numbers_of_workers() {
    let nodes = [node(0, "default", 2), node(1, "default", 4), node(2, "default", 1)];
    assert_eq!(ranks(&nodes), [[0, 7, 0, 7], [2, 7, 2, 7], [6, 7, 6, 7]]);
}

#[test]
fn roles_are_counted_apart() {
    let nodes = [node(0, "a", 2), node(1, "b", 3), node(2, "a", 1), node(3, "b", 4)];
    assert_eq!(ranks(&nodes), [[0, 10, 0, 3], [2, 10, 0, 7], [5, 10, 2, 3], [6, 10, 3, 7]]);
}

#[test]
fn the_wire_is_torchruns() {
    let info = node(3, "default", 8);
    assert_eq!(info.encode(), r#"{"role":"default","rank":3,"local_world_size":8}"#);
    // As Python writes it.
    let value = br#"{"role": "default", "rank": 3, "local_world_size": 8}"#;
    assert_eq!(RoleInfo::decode(3, value).unwrap(), info);
    let placement = Placement::decode(3, b"[24, 32, 24, 32]").unwrap();
    assert_eq!(placement, Placement::from([24, 32, 24, 32]));
    assert_eq!(placement.encode(), "[24,32,24,32]");
    assert_eq!(role_info_key(3), "torchelastic/role_info/3");
    assert_eq!(assigned_ranks_key(12), "torchelastic/assigned_ranks/12");
}

#[test]
fn what_cannot_be_read_is_named() {
    let error = RoleInfo::decode(3, b"[]").unwrap_err().to_string();
    assert!(error.starts_with("the value at torchelastic/role_info/3 is \"[]\": "), "{error}");
    assert!(Placement::decode(0, b"[1, 2, 3]").is_err());
    assert!(Placement::decode(0, b"[-1, 2, 3, 4]").is_err());
}

#[test]
fn two_agents_of_one_rank_are_found_out() {
    let error = assign(&[node(0, "a", 1), node(0, "a", 1)]).unwrap_err();
    assert!(matches!(error, PlacementError::WrongRank { expected: 1, found: 0 }), "{error}");
}

#[test]
fn all_nodes_want_the_same_ports() {
    let with = |rank, ports| RoleInfo { ports, ..node(rank, "a", 1) };
    let error = assign(&[with(0, 2), with(1, 2), with(2, 0)]).unwrap_err().to_string();
    assert!(error.starts_with("the node of rank 2 has --ports 0, and that of rank 0 2"), "{error}");
    assert_eq!(with(1, 2).encode(), r#"{"role":"a","rank":1,"local_world_size":1,"ports":2}"#);
}

#[test]
fn numbers_too_large_to_add_are_refused() {
    let error = assign(&[node(0, "a", u32::MAX), node(1, "a", 1)]).unwrap_err();
    assert!(matches!(error, PlacementError::TooMany), "{error}");
}
