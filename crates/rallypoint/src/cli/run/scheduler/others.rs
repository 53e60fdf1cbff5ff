//! Schedulers that say all they know in variables of their own: LeaderWorkerSet, SkyPilot, AWS Batch, Flux, LSF, PBS.
//!
//! A value that a scheduler does not tell is left to the options of the command.

use super::Head;
use crate::cli::run::environment::{FoundValue, number, text};
use crate::cli::run::error::RunError;
use crate::launch::job::Environment;

/// The variables of a scheduler. Where there are several, the first that is set counts.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::cli::run) struct OtherScheduler {
    /// The prefix of the run id.
    name: &'static str,
    /// The variables without which this scheduler did not start this launcher.
    marks: &'static [&'static str],
    rank: &'static str,
    /// The rank of the first launcher.
    first_rank: u32,
    /// The number of launchers.
    nodes: &'static [&'static str],
    /// The list of pairs of a host and its number of launchers, for one that does not tell the number of launchers.
    slots: Option<&'static str>,
    /// The host of rank 0, possibly the first of a list.
    head: Option<&'static str>,
    /// The number of the node that gets rank 0, and that is not told its own address. The other nodes keep their order.
    main: Option<&'static str>,
    /// The id of the job.
    job: &'static str,
    /// The number of the attempt at the job, if it is not part of the id.
    attempt: Option<&'static str>,
}

/// From the inner to the outer: a job of SkyPilot may run on Slurm or Kubernetes, and one of Flux within any other.
static OTHERS: [OtherScheduler; 7] = [
    OtherScheduler {
        name: "flux",
        marks: &["FLUX_JOB_ID", "FLUX_TASK_RANK"],
        rank: "FLUX_TASK_RANK",
        first_rank: 0,
        // Each task is a launcher.
        nodes: &["FLUX_JOB_SIZE"],
        slots: None,
        head: None,
        main: None,
        job: "FLUX_JOB_ID",
        attempt: None,
    },
    OtherScheduler {
        name: "lsf",
        marks: &["LSB_JOBID", "JSM_NAMESPACE_RANK"],
        rank: "JSM_NAMESPACE_RANK",
        first_rank: 0,
        nodes: &["JSM_NAMESPACE_SIZE"],
        slots: None,
        // The first host of the list is the one with the batch script, on which jsrun starts nothing.
        head: None,
        main: None,
        job: "LSB_JOBID",
        attempt: None,
    },
    OtherScheduler {
        name: "lsf",
        marks: &["LSB_JOBID", "LSF_PM_TASKID"],
        rank: "LSF_PM_TASKID",
        first_rank: 1,
        nodes: &[],
        slots: Some("LSB_MCPU_HOSTS"),
        head: Some("LSB_MCPU_HOSTS"),
        main: None,
        job: "LSB_JOBID",
        attempt: None,
    },
    OtherScheduler {
        name: "sky",
        marks: &["SKYPILOT_NODE_RANK"],
        rank: "SKYPILOT_NODE_RANK",
        first_rank: 0,
        nodes: &["SKYPILOT_NUM_NODES"],
        slots: None,
        head: Some("SKYPILOT_NODE_IPS"),
        main: None,
        job: "SKYPILOT_TASK_ID",
        attempt: None,
    },
    OtherScheduler {
        name: "lws",
        marks: &["LWS_LEADER_ADDRESS", "LWS_WORKER_INDEX"],
        rank: "LWS_WORKER_INDEX",
        first_rank: 0,
        nodes: &["LWS_GROUP_SIZE"],
        slots: None,
        head: Some("LWS_LEADER_ADDRESS"),
        main: None,
        // Each group has a leader of its own.
        job: "LWS_LEADER_ADDRESS",
        attempt: None,
    },
    OtherScheduler {
        name: "batch",
        marks: &["AWS_BATCH_JOB_ID", "AWS_BATCH_JOB_NODE_INDEX"],
        rank: "AWS_BATCH_JOB_NODE_INDEX",
        first_rank: 0,
        nodes: &["AWS_BATCH_JOB_NUM_NODES"],
        slots: None,
        head: Some("AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS"),
        main: Some("AWS_BATCH_JOB_MAIN_NODE_INDEX"),
        job: "AWS_BATCH_JOB_ID",
        attempt: Some("AWS_BATCH_JOB_ATTEMPT"),
    },
    OtherScheduler {
        name: "pbs",
        marks: &["PBS_JOBID", "PBS_NODENUM"],
        rank: "PBS_NODENUM",
        first_rank: 0,
        // Only Torque tells it; the hosts are in a file that the first of them has.
        nodes: &["PBS_NUM_NODES"],
        slots: None,
        head: None,
        main: None,
        job: "PBS_JOBID",
        attempt: None,
    },
];

/// The scheduler among these that started this launcher.
pub(super) fn detect(environment: &Environment) -> Option<&'static OtherScheduler> {
    let there = |name: &&'static str| text(environment, &[*name]).is_some();
    OTHERS.iter().find(|other| other.marks.iter().all(there))
}

impl OtherScheduler {
    pub(super) fn nodes(
        &self,
        environment: &Environment,
    ) -> Result<Option<FoundValue<u32>>, RunError> {
        let Some(slots) = self.slots else { return number(environment, self.nodes) };
        let Some((source, list)) = text(environment, &[slots]) else { return Ok(None) };
        let words: Vec<&str> = list.split_whitespace().collect();
        let slots = words.chunks(2).map(|pair| pair.get(1)?.parse::<u32>().ok());
        match slots.sum() {
            Some(value) => Ok(Some(FoundValue { value, source: source.to_owned() })),
            None => {
                let fix = "it should be hosts, each with its number of slots; give --nnodes";
                Err(RunError::invalid(source, list, fix))
            }
        }
    }

    pub(super) fn rank(
        &self,
        environment: &Environment,
    ) -> Result<Option<FoundValue<u32>>, RunError> {
        let Some(found) = number(environment, &[self.rank])? else { return Ok(None) };
        let FoundValue { value, source } = found;
        let main = self.main.map(|main| number(environment, &[main])).transpose()?.flatten();
        let main = main.map_or(0, |main| main.value);
        match value.checked_sub(self.first_rank) {
            Some(value) => {
                let value = match value {
                    value if value == main => 0,
                    value if value < main => value + 1,
                    value => value,
                };
                Ok(Some(FoundValue { value, source }))
            }
            None => {
                let fix = format!("it should be at least {}; give --node-rank", self.first_rank);
                Err(RunError::invalid(source, value.to_string(), fix))
            }
        }
    }

    pub(super) fn head(&self, environment: &Environment) -> Option<FoundValue<Head>> {
        let Some((source, list)) = text(environment, &[self.head?]) else {
            // This host, at an address that the other nodes are told.
            let main = number(environment, &[self.main?]).ok()??;
            let own = number(environment, &[self.rank]).ok()??;
            let here = Head::alone("localhost");
            let source = main.source;
            return (main.value == own.value).then_some(FoundValue { value: here, source });
        };
        let value = Head::alone(list.split_whitespace().next()?);
        Some(FoundValue { value, source: source.to_owned() })
    }

    pub(super) fn run_id(&self, environment: &Environment) -> Option<FoundValue<String>> {
        let (source, job) = text(environment, &[self.job])?;
        // Flux writes the first letter as the locale allows.
        let job = match self.name {
            "flux" => job.strip_prefix(['ƒ', 'f']).unwrap_or(job),
            _ => job,
        };
        // On each node of AWS Batch, its index follows the id. A run id has no slashes.
        let job = job.split('#').next().unwrap_or(job).replace('/', "-");
        let attempt = self.attempt.and_then(|name| text(environment, &[name]));
        let attempt = attempt.map_or_else(String::new, |(_, attempt)| format!("-{attempt}"));
        let value = format!("{}-{job}{attempt}", self.name);
        Some(FoundValue { value, source: source.to_owned() })
    }
}
