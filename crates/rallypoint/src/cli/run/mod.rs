//! `rallypoint run`: from a command line to a [`JobSpec`], which the launcher runs.
//!
//! - `options`, `values`: the options and their values.
//! - `variables`: `PET_*` as defaults, underscores, and torchrun's options that are refused by name.
//! - `scheduler`: values from Slurm, Open MPI and Kubernetes.
//! - `host`, `devices`, `secret`, `environment`: lookups on this host, before anything is decided.
//! - `rendezvous`: the rendezvous server, and whether this host runs it.
//! - `engine`: the etcd cluster that the job brings, and this host's member.
//! - `surroundings`: values of the environment for other programs that start workers.
//! - `program`, `job`: the program of the workers, and the whole job.
//! - `dry_run`: a job for people to read.
//!
//! The caller adds [`command`] to its subcommands, passes clap's matches to [`prepare`], and
//! clap's errors to [`explain`].

mod devices;
mod dry_run;
mod engine;
mod environment;
pub(crate) mod error;
pub(crate) mod host;
mod job;
pub(crate) mod options;
mod program;
pub(crate) mod rendezvous;
mod scheduler;
pub(crate) mod secret;
pub(super) mod surroundings;
mod values;
mod variables;

use clap::ArgMatches;

use self::error::RunError;
use self::host::HostFacts;
use self::options::JobPurpose;
use self::values::Workers;
pub(crate) use self::variables::{command, explain};
use crate::doctor::Devices;
use crate::embedded::ThisHost;
use crate::launch::job::JobSpec;
use crate::log_target::{EMBEDDED, HTTP, LAUNCH};

/// The name of the command.
pub(crate) const NAME: &str = "run";

/// The log filter without `RUST_LOG`: warnings, the launcher's steps, which process serves, and the address of the
/// pages.
pub(crate) fn default_log_filter() -> String {
    format!("warn,{LAUNCH}=info,{EMBEDDED}=info,{HTTP}=info")
}

/// The action that a command line asks for.
#[derive(Debug)]
pub(crate) enum RunAction {
    /// Run this job.
    Launch(Box<JobSpec>),
    /// Print this text.
    Show(String),
}

/// Resolves the command line of a job that is to be checked, not run. Blocks on name lookups.
///
/// # Errors
/// As for [`prepare`].
pub(crate) fn checked_job(matches: &ArgMatches, host: &HostFacts) -> Result<CheckedJob, RunError> {
    let (mut options, taken) = variables::read(matches, &host.environment)?;
    options.purpose = JobPurpose::Check;
    let secret = secret::read(&options, &host.environment)?;
    let job = job::job(&options, taken, secret, host)?;
    let gpus = devices::visible(&host.environment, &host.devices);
    let devices = Devices {
        gpus: gpus.devices,
        source: gpus.source,
        workers: job.agent.local_workers,
        one_each: options.nproc_per_node == Workers::Gpu,
    };
    let has_run_id = job.rendezvous.parameters.run_id != host.fresh_id;
    let host = host.here.clone();
    Ok(CheckedJob { job, devices, has_run_id, host, json: options.json })
}

/// A job that is to be checked.
#[derive(Debug)]
pub(crate) struct CheckedJob {
    pub(crate) job: JobSpec,
    pub(crate) devices: Devices,
    /// Whether the run has a name that other nodes know.
    pub(crate) has_run_id: bool,
    pub(crate) host: ThisHost,
    /// Whether the result is to be JSON.
    pub(crate) json: bool,
}

/// Resolves the command line into an action. Blocks on name lookups.
///
/// # Errors
/// [`RunError`] names the wrong value, and the remedy.
pub(crate) fn prepare(matches: &ArgMatches, host: &HostFacts) -> Result<RunAction, RunError> {
    let (options, provenance) = variables::read(matches, &host.environment)?;
    let secret = secret::read(&options, &host.environment)?;
    let job = job::job(&options, provenance, secret, host)?;
    match (options.dry_run, options.json) {
        (true, true) => Ok(RunAction::Show(dry_run::as_json(&job))),
        (true, false) => Ok(RunAction::Show(dry_run::text(&job))),
        (false, false) => Ok(RunAction::Launch(Box::new(job))),
        (false, true) => {
            let fix = "--json is how --dry-run says it; give both, or neither".to_owned();
            Err(RunError::missing("--dry-run", fix))
        }
    }
}

#[cfg(test)]
mod tests;
