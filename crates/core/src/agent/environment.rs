//! What a worker finds in its environment: torchrun's names and values, and ours beside them.
//!
//! One table. What it does not name, a worker inherits from the launcher.

use std::collections::BTreeMap;

use super::interface::Start;

/// What all workers of a node have in common.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Job {
    /// The name of the run.
    pub run_id: String,
    /// This node's id in it.
    pub node_id: String,
    /// What its workers do.
    pub role: String,
    /// How many workers this node has.
    pub local_workers: u32,
    /// How many restarts the job may use.
    pub max_restarts: u32,
    /// Whether the store at the master's address is served by an agent. If not, worker 0 serves it.
    pub use_agent_store: bool,
    /// The signals that the launcher passes on, by name, with commas between them.
    pub signals_to_handle: String,
    /// Each worker sees one device, and takes itself for the first of its node.
    pub virtual_local_rank: bool,
    /// The launcher's own environment.
    pub inherited: BTreeMap<String, String>,
}

/// Names the file in which a worker is told that it will be stopped. There is none until then.
pub const NOTICE_FILE: &str = "RALLYPOINT_NOTICE_FILE";

/// Which devices a worker may use, on the platforms that ask.
const VISIBLE_DEVICES: [&str; 2] = ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"];

/// The variables of one worker, by name. `error_file` is where it may say why it failed; empty if nowhere.
///
/// ```
/// use rallypoint_core::agent::environment::{Job, variables};
/// use rallypoint_core::agent::placement::Placement;
/// use rallypoint_core::agent::{Group, Start};
/// use rallypoint_core::rendezvous::documents::Address;
///
/// let store = Address { host: "node7".into(), port: 29500 };
/// let group = Group { round: 3, rank: 1, nodes: 2, restarts: 0, store };
/// let start = Start { attempt: 2, group, placement: Placement::identical(1, 2, 4) };
/// let job = Job { run_id: "demo".into(), local_workers: 4, ..Job::default() };
/// let variables = variables(&job, &start, 2, "");
/// assert_eq!(variables["RANK"], "6");
/// assert_eq!(variables["WORLD_SIZE"], "8");
/// assert_eq!(variables["RALLYPOINT_ATTEMPT"], "2");
/// ```
pub fn variables(
    job: &Job,
    start: &Start,
    local_rank: u32,
    error_file: &str,
) -> BTreeMap<&'static str, String> {
    let Start { attempt, group, placement } = start;
    let seen_rank = if job.virtual_local_rank { 0 } else { local_rank };
    let agent_store = if job.use_agent_store { "True" } else { "False" };
    let mut variables = BTreeMap::from([
        ("RANK", placement.base_rank.saturating_add(local_rank).to_string()),
        ("LOCAL_RANK", seen_rank.to_string()),
        ("GROUP_RANK", group.rank.to_string()),
        ("ROLE_RANK", placement.base_role_rank.saturating_add(local_rank).to_string()),
        ("ROLE_NAME", job.role.clone()),
        ("WORLD_SIZE", placement.world_size.to_string()),
        ("LOCAL_WORLD_SIZE", job.local_workers.to_string()),
        ("GROUP_WORLD_SIZE", group.nodes.to_string()),
        ("ROLE_WORLD_SIZE", placement.role_world_size.to_string()),
        ("MASTER_ADDR", group.store.host.clone()),
        ("MASTER_PORT", group.store.port.to_string()),
        ("TORCHELASTIC_RESTART_COUNT", group.restarts.to_string()),
        ("TORCHELASTIC_MAX_RESTARTS", job.max_restarts.to_string()),
        ("TORCHELASTIC_RUN_ID", job.run_id.clone()),
        ("TORCHELASTIC_USE_AGENT_STORE", agent_store.to_owned()),
        ("TORCHELASTIC_ERROR_FILE", error_file.to_owned()),
        ("TORCHELASTIC_SIGNALS_TO_HANDLE", job.signals_to_handle.clone()),
        ("RALLYPOINT_ATTEMPT", attempt.to_string()),
        ("RALLYPOINT_NODE_ID", job.node_id.clone()),
        // Not that of a launcher above this one. Whoever has a file for it puts its name here.
        (NOTICE_FILE, String::new()),
        ("RALLYPOINT_ROUND", group.round.to_string()),
    ]);
    let mut unless_inherited = |name, value: &str| {
        if !job.inherited.contains_key(name) {
            variables.insert(name, value.to_owned());
        }
    };
    unless_inherited("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
    if job.local_workers > 1 {
        // Or else each of them would take all cores for itself.
        unless_inherited("OMP_NUM_THREADS", "1");
    }
    if job.virtual_local_rank {
        for name in VISIBLE_DEVICES {
            let listed = job.inherited.get(name);
            if listed.is_some() || name == VISIBLE_DEVICES[0] {
                variables.insert(name, device(listed, local_rank));
            }
        }
    }
    variables
}

/// The worker's own of the devices that the launcher may use.
fn device(listed: Option<&String>, local_rank: u32) -> String {
    let mut devices = listed.map_or("", String::as_str).split(',');
    let own = devices.nth(local_rank as usize).map(str::trim).filter(|device| !device.is_empty());
    own.map_or_else(|| local_rank.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests;
