use super::*;
use crate::agent::messages::NodeGroup;
use crate::agent::placement::Placement;
use crate::rendezvous::documents::Address;

fn start() -> Start {
    let store = Address { host: "10.0.0.7".into(), port: 29400 };
    let group = NodeGroup { round: 6, rank: 1, nodes: 3, restarts: 2, store };
    Start { attempt: 4, group, placement: Placement::from([4, 10, 1, 5]) }
}

fn job() -> JobEnvironment {
    JobEnvironment {
        run_id: "run".into(),
        node_id: "node_1".into(),
        role: "trainer".into(),
        local_workers: 4,
        max_restarts: 3,
        use_agent_store: true,
        signals_to_handle: "SIGTERM,SIGINT".into(),
        ..JobEnvironment::default()
    }
}

fn inherit(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn a_worker_finds_all_that_torchrun_gives_and_ours() {
    let found = variables(&job(), &start(), 3, "/logs/error.json");
    let expected = [
        ("GROUP_RANK", "1"),
        ("GROUP_WORLD_SIZE", "3"),
        ("LOCAL_RANK", "3"),
        ("LOCAL_WORLD_SIZE", "4"),
        ("MASTER_ADDR", "10.0.0.7"),
        ("MASTER_PORT", "29400"),
        ("OMP_NUM_THREADS", "1"),
        ("RALLYPOINT_ATTEMPT", "4"),
        ("RALLYPOINT_NODE_ID", "node_1"),
        ("RALLYPOINT_NOTICE_FILE", ""),
        ("RALLYPOINT_ROUND", "6"),
        ("RANK", "7"),
        ("ROLE_NAME", "trainer"),
        ("ROLE_RANK", "4"),
        ("ROLE_WORLD_SIZE", "5"),
        ("TORCHELASTIC_ERROR_FILE", "/logs/error.json"),
        ("TORCHELASTIC_MAX_RESTARTS", "3"),
        ("TORCHELASTIC_RESTART_COUNT", "2"),
        ("TORCHELASTIC_RUN_ID", "run"),
        ("TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT"),
        ("TORCHELASTIC_USE_AGENT_STORE", "True"),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
        ("WORLD_SIZE", "10"),
    ];
    let found: Vec<(&str, &str)> =
        found.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(found, expected);
}

#[test]
fn what_the_user_has_set_is_not_set_again() {
    let set = [("OMP_NUM_THREADS", "8"), ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")];
    let found = variables(&JobEnvironment { inherited: inherit(&set), ..job() }, &start(), 0, "");
    assert!(set.iter().all(|(name, _)| !found.contains_key(*name)), "{found:?}");
}

#[test]
fn the_ports_of_the_round_are_numbered() {
    let job = JobEnvironment { ports: vec![4001, 4000], ..job() };
    let found = variables(&job, &start(), 0, "");
    let ports: Vec<(&str, &str)> = found
        .iter()
        .filter(|(name, _)| name.starts_with(PORT_PREFIX))
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    assert_eq!(ports, [("RALLYPOINT_PORT_0", "4001"), ("RALLYPOINT_PORT_1", "4000")]);
}

#[test]
fn a_lone_worker_may_use_all_cores() {
    let found = variables(&JobEnvironment { local_workers: 1, ..job() }, &start(), 0, "");
    assert!(!found.contains_key("OMP_NUM_THREADS"));
    assert_eq!(
        variables(&JobEnvironment::default(), &start(), 0, "")["TORCHELASTIC_USE_AGENT_STORE"],
        "False"
    );
}

#[test]
fn under_a_virtual_rank_each_worker_sees_one_device() {
    let virtually = |pairs: &[(&str, &str)]| {
        let job = JobEnvironment { virtual_local_rank: true, inherited: inherit(pairs), ..job() };
        let found = variables(&job, &start(), 2, "");
        assert_eq!((found["LOCAL_RANK"].as_str(), found["RANK"].as_str()), ("0", "6"));
        VISIBLE_DEVICES.map(|name| found.get(name).cloned().unwrap_or_default())
    };
    assert_eq!(virtually(&[]), ["2", ""]);
    assert_eq!(virtually(&[("CUDA_VISIBLE_DEVICES", "4,5, 6,7")]), ["6", ""]);
    assert_eq!(
        virtually(&[("CUDA_VISIBLE_DEVICES", "4"), ("HIP_VISIBLE_DEVICES", "")]),
        ["2", "2"]
    );
}
