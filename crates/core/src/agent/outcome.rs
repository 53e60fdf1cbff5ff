//! How a job ends: for the run, for this node, and as an exit code.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::failure::WorkerFailure;
use super::operator::OperatorAction;
use super::why::Why;
use crate::rendezvous::RunClosed;
use crate::rendezvous::documents::RunOutcome;

/// The exit code of an evicted node: EX_NOPERM. A scheduler can tell it from a failure, and need not start the node again.
const EVICTED: i32 = 77;

/// The outcome that a node closes the run with, and the explanation.
///
/// ```
/// use rallypoint_core::agent::CloseReason;
/// use rallypoint_core::rendezvous::documents::RunOutcome;
/// let reason = CloseReason::Failed("rank 3 is gone".into());
/// assert_eq!((reason.outcome(), reason.message()), (RunOutcome::Failed, "rank 3 is gone"));
/// assert_eq!(reason.to_string(), "failed: rank 3 is gone");
/// assert_eq!(CloseReason::new(RunOutcome::Failed, "rank 3 is gone"), reason);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CloseReason {
    /// The job succeeded.
    Succeeded,
    /// The job failed, and no restart is left.
    Failed(String),
    /// The job failed, and a worker reported that a restart cannot help.
    NonRetryable(String),
}

impl CloseReason {
    /// The reason with this outcome and message.
    pub fn new(outcome: RunOutcome, message: &str) -> Self {
        match outcome {
            RunOutcome::Succeeded => Self::Succeeded,
            RunOutcome::Failed => Self::Failed(message.to_owned()),
            RunOutcome::NonRetryable => Self::NonRetryable(message.to_owned()),
        }
    }

    /// The outcome that is written to the run's document.
    pub fn outcome(&self) -> RunOutcome {
        match self {
            Self::Succeeded => RunOutcome::Succeeded,
            Self::Failed(_) => RunOutcome::Failed,
            Self::NonRetryable(_) => RunOutcome::NonRetryable,
        }
    }

    /// The explanation beside the outcome.
    pub fn message(&self) -> &str {
        match self {
            Self::Succeeded => "all workers succeeded",
            Self::Failed(message) | Self::NonRetryable(message) => message,
        }
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.outcome(), self.message())
    }
}

/// A run that was closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunClosure {
    /// The node that closed the run.
    pub by: String,
    /// The outcome, and the explanation.
    pub reason: CloseReason,
}

impl From<&RunClosed> for RunClosure {
    fn from(RunClosed { by, outcome, reason }: &RunClosed) -> Self {
        Self { by: by.to_string(), reason: CloseReason::new(*outcome, reason) }
    }
}

impl fmt::Display for RunClosure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the run was closed by {}: {}", self.by, self.reason)
    }
}

/// The result of an agent's run, as the launcher reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunResult {
    /// The launcher's exit code.
    pub exit_code: i32,
    /// How the job ended for this node.
    pub outcome: NodeOutcome,
    /// The workers of this node that failed in its last attempt. The first is the root cause, as far as
    /// this node can tell.
    pub failures: Vec<WorkerFailure>,
}

/// How the job ended for this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeOutcome {
    /// All workers of this node exited with 0.
    Succeeded(PeersAtExit),
    /// The job finished without this node, for this reason.
    NotNeeded(String),
    /// A worker of this node failed, and this node closed the run.
    WorkerFailed(CloseReason),
    /// Another node closed the run.
    RunFailed(RunClosure),
    /// This node could not continue; its peers may.
    NodeFailed(NodeError),
    /// An operator evicted this node; its peers go on.
    Evicted(OperatorAction),
    /// This signal stopped the launcher.
    Signalled(i32),
}

/// The state of the other nodes when this node had succeeded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeersAtExit {
    /// All of them had succeeded.
    Done,
    /// Some had not finished when the exit barrier timed out.
    NotDone,
    /// They started another round without this node, or this node lost its view of them.
    WentOn(Why),
}

/// The launcher's exit code when the preflight command failed: `EX_UNAVAILABLE` of `sysexits.h`.
pub const UNFIT: i32 = 69;

/// The launcher's exit code when no server answers any more: `EX_TEMPFAIL` of `sysexits.h`.
pub const SERVER_LOST: i32 = 75;

/// Why a node cannot continue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeError {
    /// The preflight command failed, so the node is no member of the group.
    #[error("the preflight command failed, so this node does not join: {0}")]
    Unfit(String),
    /// No group formed.
    #[error("no group formed: {0}")]
    NoGroup(String),
    /// The node had a group, and no server has answered since.
    #[error("the server is lost: {0}")]
    ServerLost(String),
    /// The node's workers failed, and its peers have finished, so no further group can form.
    #[error("workers of this node failed, and there is no group to restart them in: {0}")]
    LeftBehind(RunClosure),
    /// The node's workers got no ranks.
    #[error("the workers got no ranks in {attempts} rounds: {reason}")]
    NotPlaced {
        /// The number of rounds in a row.
        attempts: u32,
        /// The reason in the last of these rounds.
        reason: String,
    },
    /// The node's workers could not be started.
    #[error("the workers could not be started: {0}")]
    NotStarted(String),
    /// The node's workers survive SIGKILL, so no other workers can take their place.
    #[error("the workers survive SIGKILL: {0}")]
    NotStopped(String),
}

impl NodeOutcome {
    /// The launcher's exit code: see the [table](super#exit-codes).
    pub fn exit_code(&self, no_restart: Option<i32>) -> i32 {
        match self {
            Self::Succeeded(_) | Self::NotNeeded(_) => 0,
            Self::WorkerFailed(CloseReason::NonRetryable(_))
            | Self::RunFailed(RunClosure { reason: CloseReason::NonRetryable(_), .. }) => {
                no_restart.unwrap_or(1)
            }
            Self::NodeFailed(NodeError::Unfit(_)) => UNFIT,
            Self::NodeFailed(NodeError::ServerLost(_)) => SERVER_LOST,
            Self::WorkerFailed(_) | Self::RunFailed(_) | Self::NodeFailed(_) => 1,
            Self::Evicted(_) => EVICTED,
            Self::Signalled(signal) => signal.saturating_add(128),
        }
    }
}

impl fmt::Display for NodeOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Succeeded(PeersAtExit::Done) => f.write_str("all workers of all nodes succeeded"),
            Self::Succeeded(PeersAtExit::NotDone) => {
                f.write_str("the workers of this node succeeded; other nodes have not finished")
            }
            Self::Succeeded(PeersAtExit::WentOn(why)) => {
                write!(
                    f,
                    "the workers of this node succeeded; the other nodes continue without it: {why}"
                )
            }
            Self::NotNeeded(reason) => write!(f, "this node was not needed: {reason}"),
            Self::WorkerFailed(reason) => write!(f, "the job {reason}"),
            Self::RunFailed(closed) => closed.fmt(f),
            Self::NodeFailed(trouble) => trouble.fmt(f),
            Self::Evicted(action) => Why::Evicted(action.clone()).fmt(f),
            Self::Signalled(signal) => Why::Signal(*signal).fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_run_was_closed_as_can_be_read_back() {
        let what = || "rank 3 failed".to_owned();
        for reason in
            [CloseReason::Succeeded, CloseReason::Failed(what()), CloseReason::NonRetryable(what())]
        {
            assert_eq!(CloseReason::new(reason.outcome(), reason.message()), reason);
        }
    }
}
