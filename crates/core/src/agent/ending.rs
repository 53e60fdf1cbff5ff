//! How it ends: for the run, for this node, and for whoever reads the exit code.

use std::fmt;

use super::failure::Failure;
use super::why::Why;
use crate::rendezvous::RunClosed;
use crate::rendezvous::documents::RunOutcome;

/// As what a run is closed.
///
/// ```
/// use rallypoint_core::agent::Closing;
/// use rallypoint_core::rendezvous::documents::RunOutcome;
/// let closing = Closing::Failed("rank 3 is gone".into());
/// assert_eq!((closing.outcome(), closing.reason()), (RunOutcome::Failed, "rank 3 is gone"));
/// assert_eq!(closing.to_string(), "failed: rank 3 is gone");
/// assert_eq!(Closing::new(RunOutcome::Failed, "rank 3 is gone"), closing);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Closing {
    /// The job is done.
    Done,
    /// It failed, and has no restart left.
    Failed(String),
    /// It failed, and a worker said that a restart is no use.
    Hopeless(String),
}

impl Closing {
    /// What a closed run says of its end.
    pub fn new(outcome: RunOutcome, reason: &str) -> Self {
        match outcome {
            RunOutcome::Succeeded => Self::Done,
            RunOutcome::Failed => Self::Failed(reason.to_owned()),
            RunOutcome::NonRetryable => Self::Hopeless(reason.to_owned()),
        }
    }

    /// What the run is told of its end.
    pub fn outcome(&self) -> RunOutcome {
        match self {
            Self::Done => RunOutcome::Succeeded,
            Self::Failed(_) => RunOutcome::Failed,
            Self::Hopeless(_) => RunOutcome::NonRetryable,
        }
    }

    /// The sentence beside it.
    pub fn reason(&self) -> &str {
        match self {
            Self::Done => "all workers succeeded",
            Self::Failed(reason) | Self::Hopeless(reason) => reason,
        }
    }
}

impl fmt::Display for Closing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.outcome(), self.reason())
    }
}

/// A run that was closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closed {
    /// By whom.
    pub by: String,
    /// As what.
    pub closing: Closing,
}

impl From<&RunClosed> for Closed {
    fn from(RunClosed { by, outcome, reason }: &RunClosed) -> Self {
        Self { by: by.to_string(), closing: Closing::new(*outcome, reason) }
    }
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the run was closed by {}: {}", self.by, self.closing)
    }
}

/// Everything that is left to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// What the launcher exits with.
    pub exit_code: i32,
    /// How it ended.
    pub ending: Ending,
    /// The workers of this node that failed in its last attempt. The first is the root cause, as far as
    /// this node can tell.
    pub failures: Vec<Failure>,
}

/// How it ended for this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// All workers of this node exited with 0.
    Succeeded(Others),
    /// The job is over, and this node was not needed for it.
    NotNeeded(String),
    /// A worker of this node failed, and the run was closed as this.
    WorkerFailed(Closing),
    /// The run was closed by another.
    RunFailed(Closed),
    /// This node could not go on; the others may.
    NodeFailed(Trouble),
    /// The launcher was told to stop, by this signal.
    Signalled(i32),
}

/// Where the others were when this node had succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Others {
    /// Done too.
    Done,
    /// Not all done in the time that this node waits.
    NotDone,
    /// On their way to another group, without this node, or out of its sight.
    GoneOn(Why),
}

/// Why a node cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// No group formed.
    #[error("no group formed: {0}")]
    NoGroup(String),
    /// Its workers failed, and the others are done, so there is nobody to meet again.
    #[error("workers of this node failed, and there is no group to restart them in: {0}")]
    LeftBehind(Closed),
    /// Its workers got no ranks.
    #[error("the workers got no ranks in {attempts} rounds: {reason}")]
    NotPlaced {
        /// How often in a row.
        attempts: u32,
        /// Why the last time.
        reason: String,
    },
    /// Its workers could not be started.
    #[error("the workers could not be started: {0}")]
    NotStarted(String),
    /// Its workers do not go, so that no others can take their place.
    #[error("the workers were killed but do not go: {0}")]
    NotStopped(String),
}

impl Ending {
    /// What the launcher exits with: see the [table](super#exit-codes).
    pub fn exit_code(&self, no_restart: Option<i32>) -> i32 {
        match self {
            Self::Succeeded(_) | Self::NotNeeded(_) => 0,
            Self::WorkerFailed(Closing::Hopeless(_))
            | Self::RunFailed(Closed { closing: Closing::Hopeless(_), .. }) => {
                no_restart.unwrap_or(1)
            }
            Self::WorkerFailed(_) | Self::RunFailed(_) | Self::NodeFailed(_) => 1,
            Self::Signalled(signal) => signal.saturating_add(128),
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Succeeded(Others::Done) => f.write_str("all workers of all nodes succeeded"),
            Self::Succeeded(Others::NotDone) => {
                f.write_str("the workers of this node succeeded; other nodes are not done yet")
            }
            Self::Succeeded(Others::GoneOn(why)) => {
                write!(f, "the workers of this node succeeded; the others go on without it: {why}")
            }
            Self::NotNeeded(reason) => write!(f, "this node was not needed: {reason}"),
            Self::WorkerFailed(closing) => write!(f, "the job {closing}"),
            Self::RunFailed(closed) => closed.fmt(f),
            Self::NodeFailed(trouble) => trouble.fmt(f),
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
        for closing in [Closing::Done, Closing::Failed(what()), Closing::Hopeless(what())] {
            assert_eq!(Closing::new(closing.outcome(), closing.reason()), closing);
        }
    }
}
