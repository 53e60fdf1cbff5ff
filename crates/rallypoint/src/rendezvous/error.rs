//! The errors of a rendezvous.

use std::error::Error as StdError;
use std::time::Duration;

use rallypoint_core::agent::OperatorAction;
use rallypoint_core::rendezvous::documents::RunOutcome;
use thiserror::Error;

/// Why a node is not in a group. The variants are PyTorch's five kinds. To PyTorch a lost server is a connection error,
/// and an eviction is a graceful exit.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RendezvousError {
    /// The run is over: no further group will form.
    #[error(
        "run {run_id:?} was closed by {by}: {outcome}: {reason}; a new job needs another run id (--rdzv-id)"
    )]
    Closed {
        /// The id of the run.
        run_id: String,
        /// The node that closed the run.
        by: String,
        /// The outcome with which the node closed the run.
        outcome: RunOutcome,
        /// The reason that the node gave.
        reason: String,
    },
    /// No group formed in time.
    #[error("no group of run {run_id:?} formed within {waited:.1?}: {missing}")]
    Timeout {
        /// The id of the run.
        run_id: String,
        /// How long the node waited.
        waited: Duration,
        /// The nodes or the condition that were missing.
        missing: String,
    },
    /// The servers could not be reached, or refused the request.
    #[error("{context}: {source}")]
    Connection {
        /// The attempted operation, and the servers.
        context: String,
        /// The cause.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// This node had a group, and no server has answered since. PyTorch's kind for it is that of `Connection`.
    #[error(
        "{}",
        match .missing {
            None => format!(
                "no server of run {run_id:?} ({servers}) has answered for {waited:.0?} (server_timeout); start the launcher \
                 of the host that serves again, and then this node, and the job goes on from its last checkpoint"
            ),
            Some(missing) => format!(
                "the server of run {run_id:?} is lost, and its successor has waited in vain for {waited:.0?} \
                 (server_timeout): {missing}; end all launchers of the job and start them again, and it goes on from its \
                 last checkpoint. Only if the missing nodes are gone for good, `rallypoint reopen --force {run_id}`, with \
                 the same --rdzv-endpoint, lets nodes that still wait form a group without them"
            ),
        }
    )]
    ServerLost {
        /// The id of the run.
        run_id: String,
        /// The servers.
        servers: String,
        /// How long the node waited for one of them.
        waited: Duration,
        /// What a successor of the server lacks; none if there is none.
        missing: Option<String>,
        /// The error of the last attempt to reach one, if it is known.
        source: Option<Box<dyn StdError + Send + Sync>>,
    },
    /// The shared state is invalid, or nodes disagree on settings that must be the same.
    #[error("{what}")]
    State {
        /// The problem and its place.
        what: String,
        /// The error of reading the state, if that is the problem.
        source: Option<Box<dyn StdError + Send + Sync>>,
    },
    /// The node was not needed, and the run is over. Not a failure: exit with success.
    #[error("this node was not needed by run {run_id:?}: {reason}")]
    GracefulExit {
        /// The id of the run.
        run_id: String,
        /// How the run ended.
        reason: String,
    },
    /// An operator evicted this node, and it has left. Not a failure of the node: its peers continue.
    #[error("{action}; it has left run {run_id:?}, and its peers continue without it")]
    Evicted {
        /// The id of the run.
        run_id: String,
        /// The eviction.
        action: OperatorAction,
    },
}
