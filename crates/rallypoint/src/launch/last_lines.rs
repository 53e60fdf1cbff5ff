//! The last lines of a worker that failed, for operators who look at the run.

use std::sync::Arc;
use std::time::Duration;

use rallypoint_core::agent::{FailureOutput, WorkerFailure};
use rallypoint_core::kv::Put;
use rallypoint_core::rendezvous::documents::encode;
use tokio::time::{sleep, timeout};

use super::peers::Peers;
use super::report::last_lines;
use super::workers::ExitRecord;
use crate::log_target::LAUNCH;
use crate::util::blocking::blocking;

/// The time that output has which is still on its way to the log.
const ON_ITS_WAY: Duration = Duration::from_millis(100);

/// The time limit for reading the log, which may be on a network file system.
const READING: Duration = Duration::from_millis(500);

/// Leaves the last lines of a worker that failed in `round` in the run, unless another worker is to blame for the round.
/// Best effort: the log of the node has them too.
pub(super) async fn publish(
    peers: Arc<Peers>,
    record: Arc<ExitRecord>,
    round: u64,
    failure: WorkerFailure,
) {
    sleep(ON_ITS_WAY).await;
    let first = peers.restarts.changes().borrow().last.clone();
    if first.is_some_and(|first| first.round == round && first.blame != failure.to_string()) {
        return;
    }
    let lines = timeout(READING, blocking(move || last_lines(&record))).await.unwrap_or_default();
    if lines.is_empty() {
        return;
    }
    let (run, output) = (peers.run(), FailureOutput::new(round, &failure, lines));
    let put = Put::new(run.keys.failure(), encode(&output)).on_lease(run.keys.run_lease());
    if let Err(error) = run.client.put(put).await {
        tracing::debug!(target: LAUNCH, %error, "the last lines of a worker could not be written");
    }
}
