//! The end of a node's part in its run. The core decides whether the node closes the run.

use std::time::Duration;

use rallypoint_core::agent::{CloseReason, RunAtEnd, run_at_end};
use tokio::time::timeout;

use super::collateral::is_collateral;
use super::handler::EtcdRendezvousHandler;
use crate::log_target::RENDEZVOUS;
use crate::rendezvous::RendezvousHandler as _;

/// How long a node tries to close the run.
const CLOSING: Duration = Duration::from_secs(10);

/// How long a node that could not close the run tries to leave.
const LAST_WORD: Duration = Duration::from_secs(1);

/// Why a node's part in its run ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// This node's part of the job is done, and with it the job.
    Done,
    /// The job cannot continue, for this reason.
    Failed(String),
    /// This node leaves, and its peers continue.
    Leaves,
}

impl EtcdRendezvousHandler {
    /// Ends this node's part in the run: closes the run if the node may, and leaves. A member of the last group may
    /// close the run; but not for a failure if the group has lost another member, or has within a second, since that
    /// loss probably caused the failure. False if the run should be closed and could not be.
    pub async fn end(&self, ending: Ending) -> bool {
        let closing = match ending {
            Ending::Done => Some(CloseReason::Succeeded),
            Ending::Failed(_) if is_collateral(self).await => {
                tracing::warn!(
                    target: RENDEZVOUS,
                    "the group has lost a member anyway, so its other members decide about the run"
                );
                None
            }
            Ending::Failed(reason) => Some(CloseReason::Failed(reason)),
            Ending::Leaves => None,
        };
        let closed = match closing {
            Some(closing) => self.close_at_end(&closing).await,
            None => true,
        };
        if closed {
            self.leave().await;
        } else {
            // The servers that did not answer probably do not answer now either.
            let _ = timeout(LAST_WORD, self.leave()).await;
        }
        closed
    }

    async fn close_at_end(&self, closing: &CloseReason) -> bool {
        match run_at_end(&self.status().view, closing.outcome()) {
            RunAtEnd::Close => {}
            RunAtEnd::IsClosed => return true,
            RunAtEnd::LeftToPeers => {
                tracing::info!(
                    target: RENDEZVOUS,
                    "other nodes continue without this node, so the run is left to them"
                );
                return true;
            }
        }
        match timeout(CLOSING, self.close(closing.outcome(), closing.message())).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::warn!(target: RENDEZVOUS, %error, "the run could not be closed");
                false
            }
            Err(_) => {
                tracing::warn!(target: RENDEZVOUS, "the run could not be closed within {CLOSING:?}");
                false
            }
        }
    }
}
