//! Values of the job from what started it: Slurm, Open MPI, Kubernetes, and those of [`mod@others`].
//!
//! Variables are read on demand, so a malformed one is an error only where its value is needed.
//!
//! Not used: where `srun` was typed (`SLURM_LAUNCH_NODE_IPADDR`), which may be a login node that no
//! launcher runs on; and outside of a step, Slurm's counts, since a batch script runs once, on one node.

mod nodelist;
mod others;

use self::others::OtherScheduler;
use super::environment::{FoundValue, number, text};
use super::error::RunError;
use crate::launch::job::Environment;

/// The scheduler that started this launcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheduler {
    /// Slurm: a task of a step, by `srun`.
    Slurm,
    /// Open MPI: `mpirun`, possibly within a Slurm job.
    Mpi,
    /// Kubernetes: a pod of an indexed job.
    Kubernetes,
    /// One whose variables need no more than a table.
    Other(&'static OtherScheduler),
    /// No known scheduler.
    Unknown,
}

/// The number of hosts that may serve, if the scheduler names as many: any one of them may be lost.
pub(super) const ORDER: usize = 3;

/// The host for the rendezvous server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) host: String,
    /// Further hosts, which may succeed it.
    pub(super) successors: Vec<String>,
    /// Added to the default port, since jobs, and steps of a job, may share a host.
    pub(super) port_offset: u16,
}

impl Head {
    /// A host without successors, at the default port.
    fn alone(host: &str) -> Self {
        Self { host: host.to_owned(), successors: Vec::new(), port_offset: 0 }
    }
}

const MPI_RANK: &[&str] = &["OMPI_COMM_WORLD_RANK"];
const MPI_SIZE: &[&str] = &["OMPI_COMM_WORLD_SIZE"];
const STEP: &[&str] = &["SLURM_STEP_ID", "SLURM_STEPID"];
const JOB: &[&str] = &["SLURM_JOB_ID", "SLURM_JOBID"];
const STEP_NODES: &[&str] = &["SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"];
const STEP_TASKS: &[&str] = &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"];
const HOSTS: &[&str] = &["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"];

impl Scheduler {
    /// The innermost scheduler, since one may run within another.
    pub(super) fn detect(environment: &Environment) -> Self {
        let there = |names| text(environment, names).is_some();
        match () {
            () if there(MPI_RANK) => Self::Mpi,
            () if there(JOB) && there(STEP) => Self::Slurm,
            () => match others::detect(environment) {
                Some(other) => Self::Other(other),
                None if there(&["PMIX_RANK"]) => Self::Mpi,
                None if there(&["JOB_COMPLETION_INDEX"]) => Self::Kubernetes,
                None => Self::Unknown,
            },
        }
    }

    /// The number of launchers in the job.
    pub(super) fn nodes(
        self,
        environment: &Environment,
    ) -> Result<Option<FoundValue<u32>>, RunError> {
        let found = match self {
            Self::Slurm if several_tasks(environment)? => number(environment, STEP_TASKS)?,
            Self::Slurm => number(environment, STEP_NODES)?,
            Self::Mpi => number(environment, MPI_SIZE)?,
            Self::Other(other) => other.nodes(environment)?,
            Self::Kubernetes | Self::Unknown => None,
        };
        match found {
            Some(FoundValue { value: 0, source }) => {
                Err(RunError::invalid(source, "0", "a job has at least 1 node; give --nnodes"))
            }
            found => Ok(found),
        }
    }

    /// The rank of this launcher among them.
    pub(super) fn rank(
        self,
        environment: &Environment,
    ) -> Result<Option<FoundValue<u32>>, RunError> {
        let rank = match self {
            Self::Slurm if several_tasks(environment)? => number(environment, &["SLURM_PROCID"])?,
            Self::Slurm => number(environment, &["SLURM_NODEID", "SLURM_PROCID"])?,
            Self::Mpi => mpi_rank(environment)?,
            Self::Kubernetes => number(environment, &["JOB_COMPLETION_INDEX"])?,
            Self::Other(other) => other.rank(environment)?,
            Self::Unknown => None,
        };
        if let (Some(rank), Some(nodes)) = (&rank, self.nodes(environment)?)
            && rank.value >= nodes.value
        {
            let fix = format!(
                "it should be below {}, which is {}; give --node-rank",
                nodes.source, nodes.value
            );
            return Err(RunError::invalid(rank.source.clone(), rank.value.to_string(), fix));
        }
        Ok(rank)
    }

    /// Whether several launchers share a node.
    pub(super) fn has_several_tasks_a_node(
        self,
        environment: &Environment,
    ) -> Result<bool, RunError> {
        Ok(self == Self::Slurm && several_tasks(environment)?)
    }

    /// The host for the rendezvous server: the first of the list.
    pub(super) fn head(
        self,
        environment: &Environment,
    ) -> Result<Option<FoundValue<Head>>, RunError> {
        match self {
            Self::Slurm | Self::Mpi => {}
            Self::Other(other) => return Ok(other.head(environment)),
            Self::Kubernetes | Self::Unknown => return Ok(None),
        }
        let Some((name, list)) = text(environment, HOSTS) else { return Ok(None) };
        let hosts = nodelist::first_hosts(list, ORDER).map_err(|what| {
            RunError::invalid(name, list, format!("{what}; give --rdzv-endpoint"))
        })?;
        let mut hosts = hosts.into_iter();
        let Some(host) = hosts.next() else { return Ok(None) };
        let successors = hosts.collect();
        let job = number(environment, JOB)?.map_or(0, |job| u64::from(job.value));
        // Steps of one job may start on one host. Far enough apart to avoid the ports of the next jobs.
        let step = number(environment, STEP)?.map_or(0, |step| u64::from(step.value));
        let port_offset = u16::try_from((job + 37 * step) % 1000).unwrap_or_default();
        let value = Head { host, successors, port_offset };
        Ok(Some(FoundValue { value, source: name.to_owned() }))
    }

    /// An id that no other job has.
    pub(super) fn run_id(self, environment: &Environment) -> Option<FoundValue<String>> {
        let found =
            |(source, value): (&str, String)| FoundValue { value, source: source.to_owned() };
        match self {
            Self::Slurm => {
                let (source, job) = text(environment, JOB)?;
                let (_, step) = text(environment, STEP)?;
                // A requeued job has the same number.
                let again = text(environment, &["SLURM_RESTART_COUNT"]).filter(|(_, n)| *n != "0");
                let again = again.map_or_else(String::new, |(_, n)| format!("-{n}"));
                Some(found((source, format!("slurm-{job}.{step}{again}"))))
            }
            Self::Mpi => {
                let names = ["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"];
                let (source, name) = text(environment, &names)?;
                // The id becomes one component of a path.
                Some(found((source, format!("mpi-{}", name.replace('/', "-")))))
            }
            Self::Other(other) => other.run_id(environment),
            Self::Kubernetes | Self::Unknown => None,
        }
    }
}

/// The nodes of a Slurm job that this launcher and its peers do not use, in a sentence. `wanted`: the largest number of
/// nodes that the job may have, if the user gave one.
pub(super) fn idle_nodes(environment: &Environment, wanted: Option<usize>) -> Option<String> {
    text(environment, JOB)?;
    let count = |names| text(environment, names)?.1.parse::<usize>().ok();
    let all = count(&["SLURM_JOB_NUM_NODES", "SLURM_NNODES"])?;
    match text(environment, STEP) {
        // A batch script runs once, on one node.
        None if all > 1 && wanted.is_none_or(|wanted| wanted == 1) => Some(format!(
            "Slurm gave this job {all} nodes, and this launcher uses one of them: {} idle; \
             `srun rallypoint run ...` starts one on each",
            others(all - 1)
        )),
        None => None,
        Some(_) => {
            let step = count(&["SLURM_STEP_NUM_NODES"])?;
            (step < all).then(|| {
                format!(
                    "Slurm gave this job {all} nodes, and this step has {step} of them: {} idle, unless another step \
                     uses them; `srun --nodes {all}` uses all",
                    others(all - step)
                )
            })
        }
    }
}

fn others(count: usize) -> String {
    if count == 1 { "1 is".to_owned() } else { format!("{count} are") }
}

/// With several tasks on a node, each task is a launcher, so tasks are counted rather than hosts.
fn several_tasks(environment: &Environment) -> Result<bool, RunError> {
    let (tasks, nodes) = (number(environment, STEP_TASKS)?, number(environment, STEP_NODES)?);
    Ok(tasks.is_some() && tasks.map(|tasks| tasks.value) != nodes.map(|nodes| nodes.value))
}

fn mpi_rank(environment: &Environment) -> Result<Option<FoundValue<u32>>, RunError> {
    let (ours, theirs) = (number(environment, MPI_RANK)?, number(environment, &["PMIX_RANK"])?);
    match (ours, theirs) {
        (Some(one), Some(other)) if one.value != other.value => Err(RunError::conflict(
            format!("{} {}", one.source, one.value),
            format!("{} {}", other.source, other.value),
            "give --node-rank",
        )),
        (one, other) => Ok(one.or(other)),
    }
}

#[cfg(test)]
mod tests;
