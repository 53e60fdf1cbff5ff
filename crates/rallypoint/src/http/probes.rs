//! The pages that probes ask: `/healthz` and `/readyz`.
//!
//! A probe that restarts a process asks `/healthz`. It answers from the start, also while a node waits for the other
//! nodes of its group, which may take hours: a restart would not help.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use tokio::time::timeout;

use super::Process;

/// How long the event loop of the job may take to run a task that does nothing. Half of this is lost work already.
const PATIENCE: Duration = Duration::from_secs(5);

type Answer = (StatusCode, String);

/// Whether the event loop of the job answers.
pub(super) async fn healthz(State(process): State<Process>) -> Answer {
    match timeout(PATIENCE, process.job.spawn(async {})).await {
        Ok(Ok(())) => ok(),
        Ok(Err(_)) => unavailable("the process is ending"),
        Err(_) => unavailable(&format!("the event loop has not answered for {PATIENCE:?}")),
    }
}

/// Whether the process does its work.
pub(super) async fn readyz(State(process): State<Process>) -> Answer {
    match process.told.readiness() {
        Ok(()) => ok(),
        Err(reason) => unavailable(&reason),
    }
}

fn ok() -> Answer {
    (StatusCode::OK, "ok\n".to_owned())
}

fn unavailable(reason: &str) -> Answer {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n"))
}
