//! The end: what is still written, said and served when the agent has nothing left to do.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use rallypoint_core::agent::{NodeOutcome, RunResult};
use tokio::time::timeout;

use super::console::Console;
use super::report::FailureReport;
use super::signals::SignalListener;
use super::workers::{ExitRecord, OutputCopiers};
use crate::embedded::clients_gone;
use crate::launch::job::JobSpec;
use crate::log_target::LAUNCH;
use crate::rendezvous::RunAccess;
use crate::util::blocking::blocking;

/// Who has not taken the output of workers by then, when all of them are gone, takes his time.
const SLOW: Duration = Duration::from_secs(2);

/// Where a launcher above this one looks for what went wrong.
const ERROR_FILE: &str = "TORCHELASTIC_ERROR_FILE";

/// Waits until everything is written that the workers have said, as any program waits for who reads it. A signal
/// ends that; to a launcher that was told to go by one, it matters little.
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
            "nobody reads the last output of the workers; a signal ends the wait for it"
        );
        tokio::select! {
            () = finish => return,
            _ = signals.next() => {}
        }
    }
    tracing::warn!(target: LAUNCH, "the last output of the workers is lost: nobody read it");
}

/// Says how it ended, with the files of a failure looked at away from the threads that must not wait.
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

/// The server is here, and others may need it. Whoever does not want to wait says so by another signal.
pub(super) async fn stay(run: &RunAccess, signals: &mut SignalListener) {
    tokio::select! {
        gone = clients_gone(&run.client, &run.keys) => {
            if let Err(error) = gone {
                tracing::debug!(target: LAUNCH, %error, "nobody can tell who is left");
            }
        }
        signal = signals.next() => {
            tracing::warn!(
                target: LAUNCH,
                signal, "not staying any longer; the others lose their server"
            );
        }
    }
}
