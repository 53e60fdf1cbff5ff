//! What rank 0 keeps for its group: the port that it publishes, and most often a store there.

use rallypoint_core::rendezvous::Input;
use rallypoint_core::rendezvous::document::Address;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::rendezvous::local::{HeldPort, reserve_port};
use crate::store::AgentStore;

pub(super) struct Hosting {
    /// The node, and where others reach it.
    node: String,
    address: String,
    /// Whether to serve a store; otherwise the port is kept for whoever takes it.
    use_agent_store: bool,
    port: HeldPort,
    /// The store, and who holds a connection to it and dies.
    serving: Option<(AgentStore, UnboundedReceiver<String>)>,
}

impl Hosting {
    /// Whether a group of this node has a store, by which its nodes see each other die.
    pub(super) fn has_store(&self) -> bool {
        self.use_agent_store
    }

    pub(super) fn new(
        node: String,
        address: String,
        use_agent_store: bool,
        port: HeldPort,
    ) -> Self {
        Self { node, address, use_agent_store, port, serving: None }
    }

    /// Gets a port for `round`. Workers may connect as soon as they are told it, so it is served before it
    /// is published.
    pub(super) fn begin(&mut self, round: u64) -> Input {
        let host = self.address.clone();
        let kept = reserve_port(&host).and_then(|(socket, port)| {
            if self.use_agent_store {
                self.serving = Some(AgentStore::start_as(socket, &self.node)?);
            } else {
                self.port.hold(socket);
            }
            Ok(port)
        });
        match kept {
            Ok(port) => Input::Hosting { round, address: Address { host, port } },
            Err(error) => {
                let reason = format!("no port of {host} can be had: {error}");
                Input::HostFailed { round, reason }
            }
        }
    }

    /// Keeps nothing any more.
    pub(super) fn release(&mut self) {
        self.serving = None;
        self.port.release();
    }

    /// The same, and when it returns the members have been told that it is meant.
    pub(super) async fn close(&mut self) {
        if let Some((store, _)) = self.serving.take() {
            store.stop().await;
        }
        self.port.release();
    }

    /// Waits until there is somebody to suspect. It may be given up and called again.
    ///
    /// That is a member that is gone without a word, or this node itself: if the store has ended by itself,
    /// which it should not, nobody is served where the group was told, and another round has another store.
    pub(super) async fn suspects(&mut self) -> Input {
        let Some((store, lost)) = &mut self.serving else { return std::future::pending().await };
        tokio::select! {
            Some(node) = lost.recv() => {
                tracing::info!(node, "a member is gone without a word");
                return Input::Suspect { node };
            }
            () = store.ended() => {}
        }
        tracing::error!("the store of the group has ended by itself");
        self.serving = None;
        Input::Suspect { node: self.node.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_store_that_ends_by_itself_is_a_reason_to_meet_again() {
        let port = HeldPort::default();
        let mut hosting = Hosting::new("node".into(), "127.0.0.1".into(), true, port.clone());
        assert!(matches!(hosting.begin(7), Input::Hosting { round: 7, .. }));
        assert!(port.take().is_none(), "the port is in use");
        hosting.serving.as_ref().unwrap().0.tell_to_stop();
        assert!(matches!(hosting.suspects().await, Input::Suspect { node } if node == "node"));
        assert!(hosting.serving.is_none());
    }
}
