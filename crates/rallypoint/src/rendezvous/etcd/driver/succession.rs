//! What the driver does when the node's server has ended, or is another one from now on.

use std::time::Duration;

use rallypoint_core::rendezvous::NodeInput;
use tokio::time::timeout;

use super::NodeDriver;
use crate::session::Loss;

/// The time limit for revoking the lease at a server that the node leaves. If it passes, the lease expires.
const LEAVING: Duration = Duration::from_millis(250);

impl NodeDriver {
    /// The latest group that the node knows of, and whether it has a session, if the node looks for a server: a member of
    /// a group has one.
    pub(super) fn seeks(&self) -> Option<(u64, bool)> {
        let has_session = self.session.is_some();
        let is_member = has_session && self.node.holds_place();
        let remembers = self.status.borrow().view.remembers;
        (!is_member).then_some((remembers, has_session))
    }

    /// The session is over, since its server has ended. The node is told when the loop sees the loss.
    pub(super) fn end_session(&self) {
        if let Some((session, _)) = &self.session {
            let (endpoint, left) = (self.search.host(), session.remaining());
            session.lose(Loss::ServerEnded { endpoint, left });
        }
    }

    /// The server has ended.
    pub(super) fn server_ended(&mut self) -> Option<NodeInput> {
        self.end_session();
        None
    }

    /// Goes to the server of another host. The node has no workers that rely on the lease of the server before.
    pub(super) async fn go_to(&mut self, host: usize) -> Option<NodeInput> {
        let mut lost = None;
        if let Some((session, _)) = self.session.take() {
            let silent = session.silent();
            let _ = timeout(LEAVING, session.close()).await;
            self.loss = Some(Loss::Closed);
            lost = Some(NodeInput::SessionLost { slept: false, silent });
        }
        self.search.go_to(host);
        self.active.reopen_elsewhere();
        if self.opening.take().is_some() && !self.status.borrow().view.known {
            // The node has seen no server yet, so it does not ask for a session again by itself.
            self.open_session();
        }
        lost
    }
}
