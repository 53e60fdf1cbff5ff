//! `rallypoint run`, from a job specification to an exit code: one node's agent, with real processes and real peers.
//!
//! - `driver`: the loop between the agent of [`rallypoint_core::agent`], which decides, and the world.
//! - `peers`, `news`, `restarts`: the other nodes: meeting them, what happens to them, what the job has used.
//! - `workers`: the processes.
//! - `liveness`: the guard, what others see of our end, and the fence.
//! - `outcome`: what is left to do then.
//! - `signals`, `console`, `waiting`, `report`: whoever started the launcher.

mod console;
mod driver;
mod events;
pub(crate) mod job;
mod liveness;
mod peers;
mod report;
mod restarts;
mod shutdown;
mod signals;
mod wait_reporter;
mod workers;

use std::io;
use std::pin::pin;
use std::sync::Arc;

use rallypoint_core::agent::{NodeOutcome, RunClosure};
use thiserror::Error;
use tokio::runtime::{Builder, Runtime};

pub(crate) use self::console::Console;
use self::driver::AgentDriver;
use self::job::JobSpec;
use self::liveness::Liveness;
use self::peers::Peers;
use self::shutdown::{finish, stay, written};
use self::signals::SignalListener;
use self::wait_reporter::{Detail, WaitReporter};
use self::workers::{OutputCopiers, StartError, WorkerSpec};
use crate::embedded::{EmbeddedServer, EmbeddedServerError, SecretError, ServerPlacement};
use crate::log_target::LAUNCH;
use crate::rendezvous::RegistryError;
use crate::util::blocking::blocking;

/// Why nothing was run.
#[derive(Debug, Error)]
pub(crate) enum LaunchError {
    /// The system does not let us.
    #[error("the operating system refused")]
    System(#[from] io::Error),
    /// The server of the job is to run here, and cannot.
    #[error(transparent)]
    Host(#[from] EmbeddedServerError),
    /// The program is none, or there is no place for its files.
    #[error(transparent)]
    Workers(#[from] StartError),
    /// The others do not let us in.
    #[error("{0}; give all nodes of the job the same, by --secret-file or RALLYPOINT_SECRET")]
    Secret(SecretError),
    /// It was over before this node came.
    #[error(
        "run {run_id:?} is over, so this node has nothing to do: {closed}; a new job needs another \
         --rdzv-id, or --reopen to begin this one anew"
    )]
    Closed { run_id: String, closed: RunClosure },
    /// The others cannot be reached.
    #[error(transparent)]
    Peers(#[from] RegistryError),
}

/// Runs the workers of this node, with the others, until it is over. Returns the exit code.
///
/// # Errors
/// [`LaunchError`], if it did not even begin.
pub(crate) fn launch(job: JobSpec, console: &Arc<Console>) -> Result<i32, LaunchError> {
    // Before anybody counts on this node.
    workers::check(&job.program)?;
    let runtime = runtime(&job)?;
    let done = runtime.block_on(run(job, console));
    // A name server or a disk that hangs is nothing to wait for; what must be done was waited for.
    runtime.shutdown_background();
    done
}

/// A server for many nodes has work for many threads; everything else waits most of the time.
fn runtime(job: &JobSpec) -> io::Result<Runtime> {
    // A name that is out of date is rare, and its host can serve with one thread.
    let serves = !matches!(
        job.rendezvous.server,
        ServerPlacement::Elsewhere | ServerPlacement::Undecided { resolves: true }
    );
    match serves && job.rendezvous.parameters.max_nodes > 1 {
        true => Builder::new_multi_thread(),
        false => Builder::new_current_thread(),
    }
    .enable_all()
    .build()
}

async fn run(mut job: JobSpec, console: &Arc<Console>) -> Result<i32, LaunchError> {
    // Before anything is there that they could leave behind.
    let mut signals = SignalListener::listen(&job.handled)?;
    say(&job);
    let mut liveness = Liveness::start(&mut job.rendezvous.parameters).await?;
    let output = Arc::new(OutputCopiers::new()?);
    let (planned, shown, copied) = (job.clone(), console.clone(), output.clone());
    let spec = move || WorkerSpec::new(&planned, planned.environment("", true), shown, copied);
    let mut spec = blocking(spec).await?;
    let host = EmbeddedServer::start(&mut job.rendezvous).await?;
    let mut waiting = WaitReporter::new(console.clone());
    let peers = tokio::select! {
        peers = open(&job, &mut waiting) => Arc::new(peers.map_err(|error| no_peers(&job, error))?),
        signal = signals.next() => return Ok(NodeOutcome::Signalled(signal).exit_code(None)),
    };
    liveness.follow(&peers);
    if let Some(closed) = peers.closed() {
        peers.leave().await;
        return Err(LaunchError::Closed { run_id: job.rendezvous.parameters.run_id, closed });
    }
    spec.environment = job.environment(peers.node_id(), peers.use_agent_store());
    let mut driver = AgentDriver::new(&job, spec, peers.clone(), signals, waiting);
    let result = driver.run().await;
    // Whoever only stands by is not to serve when all are about to go.
    let host = match host {
        Some(host) if !host.serves() => {
            host.stop().await;
            None
        }
        host => host,
    };
    let (workers, mut signals) = driver.end().await;
    // Whatever they have left is ended with them.
    let exit_records =
        blocking(move || workers.map(|workers| workers.exit_records()).unwrap_or_default()).await;
    written(&output, &result, &mut signals).await;
    finish(&job, result.clone(), exit_records, console).await;
    if let Some(host) = host {
        stay(peers.run(), &mut signals).await;
        host.stop().await;
    }
    Ok(result.exit_code)
}

/// Connects to the others, and says so if that takes long.
async fn open(job: &JobSpec, waiting: &mut WaitReporter) -> Result<Peers, RegistryError> {
    let parameters = job.rendezvous.parameters.clone();
    let waits_for = format!("a server at {}", parameters.endpoint);
    let mut opening = pin!(Peers::open(parameters, job.max_restarts));
    loop {
        let detail = Detail { waits_for: waits_for.clone(), patience: None };
        waiting.show(Some("a server"), Some(detail));
        tokio::select! {
            opened = &mut opening => return opened,
            () = waiting.tick() => {}
        }
    }
}

/// A server that the nodes bring knows of users and passwords, but its users only of a secret.
fn no_peers(job: &JobSpec, error: RegistryError) -> LaunchError {
    let secret = match &error {
        RegistryError::Rendezvous(error) => job.rendezvous.secret_error(error),
        _ => None,
    };
    secret.map_or_else(|| error.into(), LaunchError::Secret)
}

/// What was decided without being asked for.
fn say(job: &JobSpec) {
    for origin in &job.provenance {
        tracing::info!(target: LAUNCH, "{origin}");
    }
    for warning in &job.warnings {
        tracing::warn!(target: LAUNCH, "{warning}");
    }
}
