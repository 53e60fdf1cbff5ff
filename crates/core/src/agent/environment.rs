//! The environment variables of a worker: torchrun's names and values, and Rallypoint's own.
//!
//! This table is complete, but for [`PROGRESS_FILE`]: a worker inherits every other variable from the launcher.

use std::collections::BTreeMap;

use super::messages::Start;

/// The values that all workers of a node share.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobEnvironment {
    /// The run id.
    pub run_id: String,
    /// This node's id in the run.
    pub node_id: String,
    /// The role of this node's workers.
    pub role: String,
    /// The number of workers of this node.
    pub local_workers: u32,
    /// The restart limit of the job.
    pub max_restarts: u32,
    /// Whether an agent serves the store at the master's address. Otherwise worker 0 serves it.
    pub use_agent_store: bool,
    /// The names of the signals that the launcher passes on, separated by commas.
    pub signals_to_handle: String,
    /// Whether each worker sees one device, and has LOCAL_RANK 0.
    pub virtual_local_rank: bool,
    /// The ports of the round, which the rank-0 node holds for its workers ([`port_variable`]).
    pub ports: Vec<u16>,
    /// The environment of the launcher.
    pub inherited: BTreeMap<String, String>,
}

/// The variable with the path of a worker's notice file. The file appears when the worker is about to be stopped.
pub const NOTICE_FILE: &str = "RALLYPOINT_NOTICE_FILE";

/// The variable with the path of the file by which a worker shows progress. It is set only if the launcher looks for
/// progress.
pub const PROGRESS_FILE: &str = "RALLYPOINT_PROGRESS_FILE";

/// The prefix of the variables with the ports of the round.
pub const PORT_PREFIX: &str = "RALLYPOINT_PORT_";

/// The variable with a port of the round, by its number from 0.
pub fn port_variable(number: usize) -> String {
    format!("{PORT_PREFIX}{number}")
}

/// The variable with the directory in which workers of another launcher, such as torchrun, show progress: each by a file
/// whose name is its `RANK`. It is set only if the agent looks for progress.
pub const PROGRESS_DIRECTORY: &str = "RALLYPOINT_PROGRESS_DIR";

/// The variables with the devices that a worker may use.
const VISIBLE_DEVICES: [&str; 2] = ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"];

/// The variables of one worker, by name. `error_file` is the path of its error file, or empty without one.
///
/// ```
/// use rallypoint_core::agent::environment::{JobEnvironment, variables};
/// use rallypoint_core::agent::placement::Placement;
/// use rallypoint_core::agent::{NodeGroup, Start};
/// use rallypoint_core::rendezvous::documents::Address;
///
/// let store = Address { host: "node7".into(), port: 29500 };
/// let group = NodeGroup { round: 3, rank: 1, nodes: 2, restarts: 0, store };
/// let start = Start { attempt: 2, group, placement: Placement::identical(1, 2, 4) };
/// let job = JobEnvironment { run_id: "demo".into(), local_workers: 4, ..JobEnvironment::default() };
/// let variables = variables(&job, &start, 2, "");
/// assert_eq!(variables["RANK"], "6");
/// assert_eq!(variables["WORLD_SIZE"], "8");
/// assert_eq!(variables["RALLYPOINT_ATTEMPT"], "2");
/// ```
pub fn variables(
    job: &JobEnvironment,
    start: &Start,
    local_rank: u32,
    error_file: &str,
) -> BTreeMap<String, String> {
    let Start { attempt, group, placement } = start;
    let seen_rank = if job.virtual_local_rank { 0 } else { local_rank };
    let agent_store = if job.use_agent_store { "True" } else { "False" };
    let fixed = [
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
        // Hides the file of an outer launcher. A caller with a notice file sets its path.
        (NOTICE_FILE, String::new()),
        ("RALLYPOINT_ROUND", group.round.to_string()),
    ];
    let mut variables: BTreeMap<String, String> =
        fixed.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    for (number, port) in job.ports.iter().enumerate() {
        variables.insert(port_variable(number), port.to_string());
    }
    let mut unless_inherited = |name: &str, value: &str| {
        if !job.inherited.contains_key(name) {
            variables.insert(name.to_owned(), value.to_owned());
        }
    };
    unless_inherited("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
    if job.local_workers > 1 {
        // Otherwise each worker would start one thread for each core.
        unless_inherited("OMP_NUM_THREADS", "1");
    }
    if job.virtual_local_rank {
        for name in VISIBLE_DEVICES {
            let listed = job.inherited.get(name);
            if listed.is_some() || name == VISIBLE_DEVICES[0] {
                variables.insert(name.to_owned(), device(listed, local_rank));
            }
        }
    }
    variables
}

/// The device of this worker among those that the launcher may use.
fn device(listed: Option<&String>, local_rank: u32) -> String {
    let mut devices = listed.map_or("", String::as_str).split(',');
    let own = devices.nth(local_rank as usize).map(str::trim).filter(|device| !device.is_empty());
    own.map_or_else(|| local_rank.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests;
