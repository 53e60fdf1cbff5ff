//! The five ways in which a meeting does not come about.

use std::error::Error as StdError;
use std::time::Duration;

use rallypoint_core::rendezvous::documents::RunOutcome;
use thiserror::Error;

/// Why a node is not in a group. The variants are PyTorch's five kinds.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RendezvousError {
    /// The run is over: no further group will form.
    #[error(
        "run {run_id:?} was closed by {by}: {outcome}: {reason}; a new job needs another run id (--rdzv-id)"
    )]
    Closed {
        /// The run.
        run_id: String,
        /// Which node closed it.
        by: String,
        /// As what.
        outcome: RunOutcome,
        /// Why.
        reason: String,
    },
    /// No group formed in time.
    #[error("no group of run {run_id:?} formed within {waited:.1?}: {missing}")]
    Timeout {
        /// The run.
        run_id: String,
        /// How long it was waited.
        waited: Duration,
        /// Who or what was missing.
        missing: String,
    },
    /// The servers could not be reached, or did not want us.
    #[error("{context}: {source}")]
    Connection {
        /// What was tried, and at which servers.
        context: String,
        /// How it failed.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// What the nodes share makes no sense, or nodes disagree on what they must agree on.
    #[error("{what}")]
    State {
        /// What is wrong, and where.
        what: String,
        /// Why it cannot be read, if that is it.
        source: Option<Box<dyn StdError + Send + Sync>>,
    },
    /// The node was not needed, and the run is over. Not a failure: exit with success.
    #[error("this node was not needed by run {run_id:?}: {reason}")]
    GracefulExit {
        /// The run.
        run_id: String,
        /// How the run ended.
        reason: String,
    },
}
