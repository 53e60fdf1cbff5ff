//! `rallypoint run`, from a job specification to an exit code: one node's agent, with real processes and real peers.
//!
//! - `job`: the job specification.
//! - `driver`: the loop that drives the agent of [`rallypoint_core::agent`], which decides.
//! - `peers`, `events`, `restarts`: the rendezvous with the other nodes, membership events, and the restart counter.
//! - `ports`: the ports of a round.
//! - `workers`: the worker processes.
//! - `preflight`: the command that must succeed before this node joins.
//! - `host_checks`: checks of this host, while it waits long for a group.
//! - `hangs`, `stacks`, `odd`: workers without progress, where they are, and which node is to blame.
//! - `liveness`: the guard, the liveness socket, and the fence.
//! - `shutdown`: the steps after the agent has finished.
//! - `pages`, `run_metrics`: what the launcher tells over HTTP.
//! - `signals`, `console`, `wait_reporter`, `report`: the user's side.

mod console;
mod driver;
mod events;
pub(crate) mod hangs;
pub(crate) mod host_checks;
pub(crate) mod job;
mod last_lines;
mod liveness;
pub(crate) mod pages;
mod peers;
pub(crate) mod ports;
mod preflight;
mod report;
pub(crate) mod restarts;
mod run_metrics;
mod shutdown;
mod signals;
pub(crate) mod stacks;
mod wait_reporter;
pub(crate) mod workers;

use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;

use rallypoint_core::agent::{NodeOutcome, RunClosure};
use thiserror::Error;
use tokio::runtime::{Builder, Runtime};
use tokio_util::task::AbortOnDropHandle;

pub(crate) use self::console::Console;
use self::driver::AgentDriver;
use self::job::JobSpec;
use self::liveness::Liveness;
use self::pages::NodePages;
use self::peers::Peers;
use self::preflight::Preflight;
pub(crate) use self::run_metrics::{RunFacts, RunMetrics};
use self::shutdown::{finish, stay, stay_member, written};
use self::signals::SignalListener;
use self::wait_reporter::{Detail, WaitReporter};
use self::workers::{OutputCopiers, StartError, WorkerSpec};
use crate::client::ClientError;
use crate::embedded::{EmbeddedServer, EmbeddedServerError, SecretError, ServerPlacement};
use crate::etcd_server::{EtcdServerError, JobMember};
use crate::events::EventFile;
use crate::http::HttpError;
use crate::log_target::LAUNCH;
use crate::rendezvous::RegistryError;
use crate::util::blocking::blocking;

/// Why the launcher did not start the job.
#[derive(Debug, Error)]
pub(crate) enum LaunchError {
    /// The guard, the runtime or the signal handlers cannot be set up.
    #[error("cannot set up the launcher's guard, runtime or signal handlers")]
    System(#[from] io::Error),
    /// The embedded server cannot be started on this host.
    #[error(transparent)]
    Host(#[from] EmbeddedServerError),
    /// The member of the job's etcd cluster cannot be run on this host.
    #[error("this host cannot run its member of the job's etcd cluster: {0}")]
    Member(#[from] EtcdServerError),
    /// The file of events cannot be opened.
    #[error(
        "--events {path:?} cannot be opened for appending; give a file in a directory that exists"
    )]
    Events { path: PathBuf, source: io::Error },
    /// The program cannot be executed, or the log directory cannot be created.
    #[error(transparent)]
    Workers(#[from] StartError),
    /// Health and metrics cannot be told over HTTP.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The certificate for HTTP cannot be read.
    #[error(transparent)]
    Certificate(ClientError),
    /// The server refuses this node's secret.
    #[error("{0}; give all nodes of the job the same, by --secret-file or RALLYPOINT_SECRET")]
    Secret(SecretError),
    /// The run was closed before this node joined.
    #[error(
        "run {run_id:?} is over, so this node has nothing to do: {closed}; a new job needs another \
         --rdzv-id, or --reopen to open this one again"
    )]
    Closed { run_id: String, closed: RunClosure },
    /// The rendezvous cannot be opened.
    #[error(transparent)]
    Peers(#[from] RegistryError),
}

/// Runs this node's part of the job to its end. Returns the exit code.
///
/// # Errors
/// [`LaunchError`], if the job did not start.
pub(crate) fn launch(mut job: JobSpec, console: &Arc<Console>) -> Result<i32, LaunchError> {
    // Before other nodes count on this one.
    workers::check(&job.program)?;
    let events = open_events(&mut job)?;
    let runtime = runtime(&job)?;
    let done = runtime.block_on(async {
        let done = run(job, console).await;
        if let Some(events) = events {
            events.close().await;
        }
        done
    });
    // Remaining blocking calls, such as name lookups, need not finish; everything required has finished.
    runtime.shutdown_background();
    done
}

/// Opens the file of events, if there is one, and gives the recorder to the rendezvous and to the agent.
fn open_events(job: &mut JobSpec) -> Result<Option<EventFile>, LaunchError> {
    let Some(path) = job.events.clone() else { return Ok(None) };
    let events = EventFile::append(&path, job.records)
        .map_err(|source| LaunchError::Events { path, source })?;
    job.rendezvous.parameters.recorder = Some(events.recorder());
    Ok(Some(events))
}

/// An embedded server for several nodes uses several threads; everything else needs one.
fn runtime(job: &JobSpec) -> io::Result<Runtime> {
    // A stale name is rare, and one thread suffices to serve in that case.
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
    // Before there is anything that a signal could leave behind.
    let mut signals = SignalListener::listen(&job.handled)?;
    say(&job);
    // Probes are answered from the start.
    let pages = NodePages::new(&job.rendezvous.parameters, Some(job.max_restarts));
    let _http = match job.http {
        Some(address) => Some(pages.open(address, &mut job.rendezvous).await?),
        None => None,
    };
    let mut liveness = Liveness::start(&mut job.rendezvous.parameters).await?;
    let output = Arc::new(OutputCopiers::new()?);
    let (planned, shown, copied) = (job.clone(), console.clone(), output.clone());
    let spec = move || WorkerSpec::new(&planned, planned.environment("", true), shown, copied);
    let mut spec = blocking(spec).await?;
    let host = EmbeddedServer::start(&mut job.rendezvous).await?;
    if let Some(host) = &host {
        pages.embeds(host.serving());
    }
    let mut member = tokio::select! {
        member = start_member(&job) => member?,
        signal = signals.next() => return Ok(NodeOutcome::Signalled(signal).exit_code(None)),
    };
    let mut waiting = WaitReporter::new(console.clone());
    let preflight = Preflight::of(&job, console);
    if let Some(preflight) = &preflight {
        pages.waits_for("the preflight command runs");
        let passed = tokio::select! {
            passed = preflight.pass(&mut waiting) => passed,
            signal = signals.next() => return Ok(NodeOutcome::Signalled(signal).exit_code(None)),
        };
        if let Err(error) = passed {
            waiting.show(None, None);
            return Ok(shutdown::unfit(&job, error, (host, member), console, &mut signals).await);
        }
    }
    pages.waits_for(&format!("waiting for a server at {}", job.rendezvous.parameters.endpoint));
    let peers = tokio::select! {
        peers = open(&job, &mut waiting) => Arc::new(peers.map_err(|error| no_peers(&job, error))?),
        error = failed(&mut member) => return Err(error.into()),
        signal = signals.next() => return Ok(NodeOutcome::Signalled(signal).exit_code(None)),
    };
    if let Some(member) = &mut member {
        member.joined();
    }
    liveness.follow(&peers);
    let fence = peers.run().fence_at.clone();
    let _margin = AbortOnDropHandle::new(tokio::spawn(pages.clone().follow_fence(fence)));
    if let Some(closed) = peers.closed() {
        peers.leave().await;
        return Err(LaunchError::Closed { run_id: job.rendezvous.parameters.run_id, closed });
    }
    spec.environment = job.environment(peers.node_id(), peers.use_agent_store());
    let mut driver = AgentDriver::new(&job, spec, peers.clone(), signals, waiting, pages.clone())
        .with(preflight);
    let result = driver.run().await;
    pages.waits_for("its part of the job is over");
    // A standby must not start to serve while the job ends.
    let host = match host {
        Some(host) if !host.serves() => {
            host.stop().await;
            None
        }
        host => host,
    };
    let (workers, mut signals) = driver.end().await;
    // Kills the processes that the workers left.
    let exit_records =
        blocking(move || workers.map(|workers| workers.exit_records()).unwrap_or_default()).await;
    written(&output, &result, &mut signals).await;
    finish(&job, result.clone(), exit_records, console).await;
    if let Some(host) = host {
        let run = peers.run();
        stay(host.not_needed(&run.client, &run.keys), &mut signals).await;
        host.stop().await;
    }
    if let Some(member) = member {
        let run = peers.run();
        stay_member(&run.client, &run.keys, &mut signals).await;
        member.stop().await;
    }
    Ok(result.exit_code)
}

/// Starts this host's member of the job's etcd cluster, if it has one.
async fn start_member(job: &JobSpec) -> Result<Option<JobMember>, EtcdServerError> {
    match &job.etcd_member {
        Some(plan) => JobMember::start(plan.clone()).await,
        None => Ok(None),
    }
}

/// Waits until the member of this host has failed, or for ever if there is none.
async fn failed(member: &mut Option<JobMember>) -> EtcdServerError {
    match member {
        Some(member) => member.failed().await,
        None => std::future::pending().await,
    }
}

/// Opens the rendezvous, and reports the wait if it takes long.
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

/// Words an authentication error of the embedded server, whose password is the shared secret.
fn no_peers(job: &JobSpec, error: RegistryError) -> LaunchError {
    let secret = match &error {
        RegistryError::Rendezvous(error) => job.rendezvous.secret_error(error),
        _ => None,
    };
    secret.map_or_else(|| error.into(), LaunchError::Secret)
}

/// Logs the values that were not on the command line, and the warnings.
fn say(job: &JobSpec) {
    for origin in &job.provenance {
        tracing::info!(target: LAUNCH, "{origin}");
    }
    for warning in &job.warnings {
        tracing::warn!(target: LAUNCH, "{warning}");
    }
}
