//! `rallypoint run`: from a command line to a plan. Nothing here runs anything.
//!
//! - `options`, `values`, `template`: what may be typed, and what it means by itself.
//! - `variables`: `PET_*` as defaults, underscores, and torchrun's options that are refused by name.
//! - `scheduler`: what Slurm, Open MPI and Kubernetes know.
//! - `host`, `devices`, `secret`: what is looked up on this host, before anything is decided.
//! - `rendezvous`: where the nodes meet, and who runs the server.
//! - `surroundings`: what of the environment others ask for.
//! - `program`, `plan`: the rest, and all of it together.
//! - `dry_run`: a plan for people to read.
//!
//! Whoever parses puts [`command`] among the subcommands, hands what clap made of it to [`prepare`], and
//! what clap refused to [`explain`].

mod devices;
mod dry_run;
mod environment;
pub(crate) mod error;
pub(crate) mod host;
mod job;
mod options;
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
pub(crate) use self::variables::{command, explain};
use crate::launch::job::JobSpec;
use crate::log_target::{EMBEDDED, LAUNCH};

/// The name of the command.
pub(crate) const NAME: &str = "run";

/// The log filter without `RUST_LOG`: warnings, the launcher's steps, and which process serves.
pub(crate) fn default_log_filter() -> String {
    format!("warn,{LAUNCH}=info,{EMBEDDED}=info")
}

/// What a command line comes to.
#[derive(Debug)]
pub(crate) enum RunAction {
    /// Run this.
    Launch(Box<JobSpec>),
    /// Print this, and do no more.
    Show(String),
}

/// Makes a plan of what was typed. Blocks where a name has to be looked up.
///
/// # Errors
/// [`RunError`] says what is wrong, and what would be right.
pub(crate) fn prepare(matches: &ArgMatches, host: &HostFacts) -> Result<RunAction, RunError> {
    let (options, taken) = variables::read(matches, &host.environment)?;
    let secret = secret::read(&options, &host.environment)?;
    let job = job::job(&options, taken, secret, host)?;
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
