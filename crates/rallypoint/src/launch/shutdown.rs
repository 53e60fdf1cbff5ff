//! Shutdown after the agent has finished: remaining output, the report, and the embedded server.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use rallypoint_core::agent::{NodeError, NodeExit, NodeOutcome, RunResult};
use rallypoint_core::rendezvous::keys::Keys;
use tokio::time::{sleep, timeout};

use super::console::Console;
use super::peers::record_exit;
use super::preflight::PreflightError;
use super::report::FailureReport;
use super::signals::SignalListener;
use super::workers::{ExitRecord, OutputCopiers};
use crate::client::{Client, WatchError};
use crate::embedded::{EmbeddedServer, clients_gone};
use crate::etcd_server::{JobMember, quorum_lost};
use crate::launch::job::JobSpec;
use crate::log_target::LAUNCH;
use crate::rendezvous::EtcdOptions;
use crate::util::blocking::blocking;

/// The time after which a slow reader of the workers' output is logged.
const SLOW: Duration = Duration::from_secs(2);

/// The time limit for the record of a node that has not joined.
const RECORD: Duration = Duration::from_secs(2);

/// The variable with the error file of an outer launcher.
const ERROR_FILE: &str = "TORCHELASTIC_ERROR_FILE";

/// Waits until all output of the workers is written, as any program waits for its reader. A signal
/// ends the wait; a launcher that a signal stopped does not wait for a slow reader.
pub(super) async fn written(
    output: &OutputCopiers,
    result: &RunResult,
    signals: &mut SignalListener,
) {
    let mut finish = pin!(output.finish());
    if timeout(SLOW, &mut finish).await.is_ok() {
        return;
    }
    let is_told_to_go = matches!(result.outcome, NodeOutcome::Signalled(_));
    if !is_told_to_go {
        tracing::warn!(
            target: LAUNCH,
            "the reader of the workers' output is slow; a signal ends the wait for it"
        );
        tokio::select! {
            () = finish => return,
            _ = signals.next() => {}
        }
    }
    tracing::warn!(target: LAUNCH, "the last output of the workers is lost: its reader was too slow");
}

/// Reports the outcome. The files of a failure are read on a blocking thread.
pub(super) async fn finish(
    job: &JobSpec,
    result: RunResult,
    exit_records: Vec<Arc<ExitRecord>>,
    console: &Arc<Console>,
) {
    let error_file = job.inherited.get(ERROR_FILE).filter(|path| !path.is_empty()).cloned();
    let (program, console) = (job.program.clone(), console.clone());
    blocking(move || {
        let record = |local_rank: u32| exit_records.get(local_rank as usize).cloned();
        let Some(report) = FailureReport::new(&program, &result, record) else {
            tracing::info!(target: LAUNCH, "{}", result.outcome);
            return;
        };
        let text = report.text();
        match console.is_for_people() {
            true => console.say(&text),
            false => tracing::error!(target: LAUNCH, "{}", text.trim_end()),
        }
        if let Some(path) = error_file
            && let Err(error) = report.leave_error_file(path.as_ref())
        {
            tracing::warn!(target: LAUNCH, %error, path, "the error file cannot be written");
        }
    })
    .await;
}

/// The end of a node whose preflight command failed: it has not joined, and the run stays open. A server in this
/// process stays as long as other nodes use it. Returns the exit code.
pub(super) async fn unfit(
    job: &JobSpec,
    error: PreflightError,
    (host, member): (Option<EmbeddedServer>, Option<JobMember>),
    console: &Arc<Console>,
    signals: &mut SignalListener,
) -> i32 {
    let outcome = NodeOutcome::NodeFailed(NodeError::Unfit(error.to_string()));
    let exit_code = outcome.exit_code(None);
    let result = RunResult { exit_code, outcome, failures: Vec::new() };
    finish(job, result.clone(), Vec::new(), console).await;
    let run = timeout(RECORD, recorded(job, &result)).await.ok().flatten();
    if let Some(host) = host {
        if host.serves()
            && let Some((client, keys)) = &run
        {
            stay(clients_gone(client, keys), signals).await;
        }
        host.stop().await;
    }
    if let Some(member) = member {
        if let Some((client, keys)) = &run {
            stay_member(client, keys, signals).await;
        }
        member.stop().await;
    }
    exit_code
}

/// Records the exit of a node that has not joined. Returns the run, unless its server cannot be reached.
async fn recorded(job: &JobSpec, result: &RunResult) -> Option<(Client, Keys)> {
    let options = EtcdOptions::from_parameters(&job.rendezvous.parameters).ok()?;
    let client = Client::connect(options.connection.client_options()).await.ok()?;
    let keys = Keys::new(&options.handler.prefix, &options.handler.run_id);
    let host = &job.agent.host;
    if let Some(exit) = NodeExit::of(result, host, host, job.node_rank()) {
        record_exit(&client, &keys, exit).await;
    }
    Some((client, keys))
}

/// Keeps the embedded server up until the other nodes no longer need it, as `gone` tells. A signal ends the wait.
pub(super) async fn stay(
    gone: impl Future<Output = Result<(), WatchError>>,
    signals: &mut SignalListener,
) {
    tokio::select! {
        gone = gone => {
            if let Err(error) = gone {
                tracing::debug!(target: LAUNCH, %error, "cannot determine which nodes still need the server");
            }
        }
        signal = signals.next() => {
            tracing::warn!(
                target: LAUNCH,
                signal, "stopping the embedded server while other nodes may need it"
            );
        }
    }
}

/// How long a member of an etcd cluster stays after the last node has gone, so that all launchers with a member learn of
/// it while there is a majority that tells them.
const LAST_NEWS: Duration = Duration::from_secs(1);

/// Keeps this host's member of the etcd cluster up until no node needs it: none is left, or a majority of the members is
/// lost, and the remaining ones serve nobody. A signal ends the wait.
pub(super) async fn stay_member(client: &Client, keys: &Keys, signals: &mut SignalListener) {
    tokio::select! {
        () = stay(clients_gone(client, keys), signals) => sleep(LAST_NEWS).await,
        () = quorum_lost(client) => {
            tracing::warn!(target: LAUNCH, "a majority of the etcd cluster is lost; its member on this host ends");
        }
    }
}
