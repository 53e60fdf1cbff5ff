//! The commands of a handler to its driver, and the replies that its callers wait for.

use rallypoint_core::rendezvous::documents::RunOutcome;
use rallypoint_core::rendezvous::{FormedGroup, NodeInput};
use tokio::sync::oneshot;

use super::errors::connection_error;
use crate::client::ClientError;
use crate::rendezvous::RendezvousError;

type Reply<T> = oneshot::Sender<Result<T, RendezvousError>>;

/// A request of the handler to its driver.
pub(super) enum HandlerCommand {
    /// Join the next group. The number identifies the call, for [`HandlerCommand::Abandon`].
    Enter(u64, Reply<FormedGroup>),
    /// The call with this number was dropped. Its group may have formed in the meantime.
    Abandon(u64),
    Leave(oneshot::Sender<()>),
    Close(RunOutcome, String, Reply<()>),
    Reopen(Reply<bool>),
    Suspect(String),
    /// Bring the status up to date with the clock.
    Refresh,
}

/// The callers that wait for a reply. A caller that has dropped its call gets none.
#[derive(Default)]
pub(super) struct PendingReplies {
    entering: Option<Reply<FormedGroup>>,
    /// The number of the last accepted [`HandlerCommand::Enter`].
    entry: u64,
    leaving: Vec<oneshot::Sender<()>>,
    closing: Vec<Reply<()>>,
    reopening: Vec<Reply<bool>>,
}

impl PendingReplies {
    /// Keeps the reply of `command`, and returns what the command means to the node; `None` if it has no effect.
    pub(super) fn accept(&mut self, command: HandlerCommand) -> Option<NodeInput> {
        Some(match command {
            HandlerCommand::Enter(_, reply) if self.entering.is_some() => {
                let what = "a rendezvous of this handler is already in progress; wait for it, or \
                            drop it first";
                let _ = reply.send(Err(state_error(what)));
                return None;
            }
            HandlerCommand::Enter(entry, reply) => {
                (self.entering, self.entry) = (Some(reply), entry);
                NodeInput::Enter
            }
            HandlerCommand::Abandon(entry) if entry == self.entry => {
                self.entering = None;
                NodeInput::Leave
            }
            // The call was a second one at the same time, and was refused.
            HandlerCommand::Abandon(_) => return None,
            HandlerCommand::Leave(reply) => {
                self.leaving.push(reply);
                let what = "the rendezvous was given up: this node left, or was shut down";
                self.entered(Err(state_error(what)));
                NodeInput::Leave
            }
            HandlerCommand::Close(outcome, reason, reply) => {
                self.closing.push(reply);
                NodeInput::Close { outcome, reason }
            }
            HandlerCommand::Reopen(reply) => {
                self.reopening.push(reply);
                NodeInput::Reopen
            }
            HandlerCommand::Suspect(node) => NodeInput::Suspect { node },
            HandlerCommand::Refresh => NodeInput::Wake,
        })
    }

    /// The rendezvous has ended with a group, or without one. Returns whether a caller waited for it.
    pub(super) fn entered(&mut self, result: Result<FormedGroup, RendezvousError>) -> bool {
        let Some(entering) = self.entering.take() else { return false };
        // If the caller has just dropped its call, the Abandon command follows.
        let _ = entering.send(result);
        true
    }

    /// The node has left.
    pub(super) fn left(&mut self) {
        for leaving in self.leaving.drain(..) {
            let _ = leaving.send(());
        }
    }

    /// The run is closed.
    pub(super) fn closed(&mut self) {
        for closing in self.closing.drain(..) {
            let _ = closing.send(Ok(()));
        }
    }

    /// The run was reopened, or was not closed.
    pub(super) fn reopened(&mut self, reopened: bool) {
        for reopening in self.reopening.drain(..) {
            let _ = reopening.send(Ok(reopened));
        }
    }

    /// The server refuses a request, which all callers are told. Returns whether one of them waited for a rendezvous.
    pub(super) fn refused(&mut self, servers: &str, error: ClientError) -> bool {
        let text = error.to_string();
        let again = || connection_error(servers, std::io::Error::other(text.clone()));
        for closing in self.closing.drain(..) {
            let _ = closing.send(Err(again()));
        }
        for reopening in self.reopening.drain(..) {
            let _ = reopening.send(Err(again()));
        }
        self.entered(Err(connection_error(servers, error)))
    }
}

fn state_error(what: &str) -> RendezvousError {
    RendezvousError::State { what: what.to_owned(), source: None }
}

#[cfg(test)]
mod tests {
    use tonic::Status;

    use super::*;

    fn refusal() -> ClientError {
        let (request, endpoint) = ("txn", "127.0.0.1:1".to_owned());
        ClientError::Refused { request, endpoint, source: Status::permission_denied("no") }
    }

    #[test]
    fn a_second_rendezvous_is_refused_and_its_end_does_not_end_the_first() {
        let mut replies = PendingReplies::default();
        let ((first, mut waits), (second, mut refused)) = (oneshot::channel(), oneshot::channel());
        assert!(matches!(replies.accept(HandlerCommand::Enter(1, first)), Some(NodeInput::Enter)));
        assert!(replies.accept(HandlerCommand::Enter(2, second)).is_none());
        assert!(matches!(refused.try_recv(), Ok(Err(RendezvousError::State { .. }))));
        assert!(replies.accept(HandlerCommand::Abandon(2)).is_none());
        assert!(waits.try_recv().is_err());
        assert!(matches!(replies.accept(HandlerCommand::Abandon(1)), Some(NodeInput::Leave)));
        assert!(!replies.refused("a server", refusal()));
    }

    #[test]
    fn every_caller_is_told_of_a_refusal() {
        let mut replies = PendingReplies::default();
        let (entering, mut entered) = oneshot::channel();
        let (closing, mut closed) = oneshot::channel();
        let (reopening, mut reopened) = oneshot::channel();
        replies.accept(HandlerCommand::Enter(1, entering));
        replies.accept(HandlerCommand::Close(RunOutcome::Succeeded, "done".to_owned(), closing));
        replies.accept(HandlerCommand::Reopen(reopening));
        assert!(replies.refused("a server", refusal()));
        assert!(matches!(entered.try_recv(), Ok(Err(RendezvousError::Connection { .. }))));
        assert!(matches!(closed.try_recv(), Ok(Err(RendezvousError::Connection { .. }))));
        assert!(matches!(reopened.try_recv(), Ok(Err(RendezvousError::Connection { .. }))));
    }

    #[test]
    fn a_node_that_leaves_ends_its_rendezvous() {
        let mut replies = PendingReplies::default();
        let ((entering, mut entered), (leaving, mut left)) =
            (oneshot::channel(), oneshot::channel());
        replies.accept(HandlerCommand::Enter(1, entering));
        assert!(matches!(replies.accept(HandlerCommand::Leave(leaving)), Some(NodeInput::Leave)));
        assert!(matches!(entered.try_recv(), Ok(Err(RendezvousError::State { .. }))));
        assert!(left.try_recv().is_err());
        replies.left();
        assert!(left.try_recv().is_ok());
    }
}
