//! How a node's part ends, and what the others make of it.

use std::time::Duration;

use rallypoint::embedded::{EmbeddedServer, clients_gone};
use rallypoint::log_target::RENDEZVOUS;
use rallypoint::rendezvous::{EtcdRendezvousHandler, HandlerStatus, RendezvousHandler as _};
use rallypoint_core::agent::{CloseReason, Why, must_stop};
use rallypoint_core::rendezvous::RendezvousView;
use tokio::time::timeout;

use super::collateral::is_collateral;

/// How long a node tries to close the run.
const CLOSING: Duration = Duration::from_secs(10);

/// How long it tries to leave after that was in vain.
const LAST_WORD: Duration = Duration::from_secs(1);

/// How it ends for this node.
pub(super) enum Ending {
    /// Its part of the job is done, and with it the job.
    Done,
    /// The job cannot go on, for this reason.
    Failed(String),
    /// It goes, and the others go on.
    Leaves,
}

/// Why the workers of this node have to stop; nothing if they need not.
pub(super) fn disturbance(status: &HandlerStatus, node: &str) -> Option<Why> {
    must_stop(&status.view, status.fenced.as_ref().map(ToString::to_string), node)
}

/// Ends it. False if the run could not be closed although it should be.
pub(super) async fn end(
    handler: &EtcdRendezvousHandler,
    server: Option<EmbeddedServer>,
    ending: Ending,
) -> bool {
    let closing = match ending {
        Ending::Done => Some(CloseReason::Succeeded),
        Ending::Failed(_) if is_collateral(handler).await => {
            tracing::warn!(
                target: RENDEZVOUS,
                "the group has lost a member anyway, so the run is left to the others"
            );
            None
        }
        Ending::Failed(reason) => Some(CloseReason::Failed(reason)),
        Ending::Leaves => None,
    };
    let closed = match closing {
        Some(closing) => close(handler, &closing).await,
        None => true,
    };
    if closed {
        handler.leave().await;
    } else {
        // Nobody seems to hear it either.
        let _ = timeout(LAST_WORD, handler.leave()).await;
    }
    if let Some(server) = server {
        if server.serves()
            && let Err(error) = clients_gone(handler.client(), handler.keys()).await
        {
            tracing::debug!(target: RENDEZVOUS, %error, "nobody can tell who is left");
        }
        server.stop().await;
    }
    closed
}

/// Whether this node can say for all that the job is over: it is in the group, and that is the last. Others that
/// meet again are not done, whoever is; but they need not know yet that there is no point in it.
fn speaks_for_all(view: &RendezvousView, closing: &CloseReason) -> bool {
    let last = match closing {
        CloseReason::Succeeded => view.round,
        CloseReason::Failed(_) | CloseReason::NonRetryable(_) => view.formed,
    };
    view.member_of.is_some_and(|round| round >= last)
}

/// A run that is closed already stays as it is.
async fn close(handler: &EtcdRendezvousHandler, closing: &CloseReason) -> bool {
    let view = handler.status().view;
    if view.closed.is_some() {
        return true;
    }
    if !speaks_for_all(&view, closing) {
        tracing::info!(
            target: RENDEZVOUS,
            "others go on without this node, so the run is left to them"
        );
        return true;
    }
    match timeout(CLOSING, handler.close(closing.outcome(), closing.message())).await {
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
