//! How it ends: for the run, for this node, and for whoever reads the exit code.

use std::fmt;

use super::failure::Failure;
use super::why::Why;

/// As what a run is closed. Its text is the reason that the run keeps, so it can be read back from there.
///
/// ```
/// use rallypoint_core::agent::Closing;
/// let closing = Closing::Failed("rank 3 is gone".into());
/// assert_eq!(closing.to_string(), "failed: rank 3 is gone");
/// assert_eq!(Closing::from_reason("failed: rank 3 is gone"), closing);
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

const DONE: &str = "done: all workers succeeded";
const FAILED: &str = "failed: ";
const HOPELESS: &str = "failed for good: ";

impl Closing {
    /// What a reason stands for. One that no agent wrote is taken for a failure: somebody, or another
    /// program, ended the run before it was done.
    pub fn from_reason(reason: &str) -> Self {
        if reason == DONE {
            return Self::Done;
        }
        match reason.strip_prefix(HOPELESS) {
            Some(what) => Self::Hopeless(what.to_owned()),
            None => Self::Failed(reason.strip_prefix(FAILED).unwrap_or(reason).to_owned()),
        }
    }
}

impl fmt::Display for Closing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str(DONE),
            Self::Failed(what) => write!(f, "{FAILED}{what}"),
            Self::Hopeless(what) => write!(f, "{HOPELESS}{what}"),
        }
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
    fn what_a_run_was_closed_as_can_be_read_from_its_reason() {
        let what = || "rank 3 failed".to_owned();
        for closing in [Closing::Done, Closing::Failed(what()), Closing::Hopeless(what())] {
            assert_eq!(Closing::from_reason(&closing.to_string()), closing);
        }
        let foreign = "a member of the group shut down";
        assert_eq!(Closing::from_reason(foreign), Closing::Failed(foreign.into()));
    }
}
