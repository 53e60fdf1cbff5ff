//! The core's failures as the errors that callers see.

use rallypoint_core::rendezvous::{RendezvousFailure, RunClosed};

use crate::client::ClientError;
use crate::rendezvous::RendezvousError;

/// A connection error that names the endpoints.
pub(super) fn connection_error(
    servers: &str,
    source: impl std::error::Error + Send + Sync + 'static,
) -> RendezvousError {
    let context = format!("the rendezvous servers ({servers}) cannot be used");
    RendezvousError::Connection { context, source: Box::new(source) }
}

/// torchrun's name for a run without a name.
const UNNAMED: &str = "none";

/// The error for a rendezvous that failed. `last_error` is that of the last attempt to reach a server.
pub(super) fn rendezvous_error(
    failure: RendezvousFailure,
    run_id: &str,
    servers: &str,
    last_error: Option<ClientError>,
) -> RendezvousError {
    let run_id = run_id.to_owned();
    match (failure, last_error) {
        (RendezvousFailure::Closed(RunClosed { by, outcome, reason }), _) => {
            RendezvousError::Closed { run_id, by: by.to_string(), outcome, reason }
        }
        (RendezvousFailure::NotNeeded(RunClosed { by, outcome, reason }), _) => {
            let reason = format!("{by} closed it: {outcome}: {reason}");
            if run_id == UNNAMED {
                let what = format!(
                    "this node never ran: other nodes had all places of run {run_id:?}, and {reason}. Jobs without a name \
                     share that one: give each job an --rdzv-id of its own"
                );
                return RendezvousError::State { what, source: None };
            }
            RendezvousError::GracefulExit { run_id, reason }
        }
        // Without a server, the missing nodes are unknown.
        (RendezvousFailure::TimedOut { missing: None, .. }, Some(last_error)) => {
            connection_error(servers, last_error)
        }
        // The request that knows the cause may still be within its own time limit.
        (RendezvousFailure::TimedOut { missing: None, waited }, None) => {
            let text =
                format!("no answer any more, and no group of run {run_id:?} in {waited:.1?}");
            connection_error(servers, std::io::Error::new(std::io::ErrorKind::TimedOut, text))
        }
        (RendezvousFailure::TimedOut { waited, missing: Some(missing) }, _) => {
            RendezvousError::Timeout { run_id, waited, missing }
        }
        (RendezvousFailure::ServerLost { waited, missing }, last_error) => {
            let source = last_error
                .map(|error| -> Box<dyn std::error::Error + Send + Sync> { error.into() });
            let servers = servers.to_owned();
            RendezvousError::ServerLost { run_id, servers, waited, missing, source }
        }
        (RendezvousFailure::Mismatch { what, ours, theirs, other }, _) => RendezvousError::State {
            what: format!(
                "this node has {what} {ours}, but {other} has {theirs}: give every node of run \
                 {run_id:?} the same"
            ),
            source: None,
        },
        (RendezvousFailure::Unreadable(error), _) => {
            let what = format!("the state of run {run_id:?} cannot be used: {error}");
            RendezvousError::State { what, source: Some(Box::new(error)) }
        }
        (RendezvousFailure::CannotServeBootstrapStore { reason }, _) => RendezvousError::State {
            what: format!("this node has rank 0 but cannot keep a port for its group: {reason}"),
            source: None,
        },
    }
}
