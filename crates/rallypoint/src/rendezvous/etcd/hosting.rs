//! What rank 0 keeps for its group: the port that it publishes, and most often a store there.

use rallypoint_core::rendezvous::Input;
use rallypoint_core::rendezvous::document::Address;

use crate::rendezvous::local::{HeldPort, reserve_port};
use crate::store::AgentStore;

pub(super) struct Hosting {
    /// The node, and where others reach it.
    node: String,
    address: String,
    /// Whether to serve a store; otherwise the port is kept for whoever takes it.
    use_agent_store: bool,
    port: HeldPort,
    serving: Option<AgentStore>,
}

impl Hosting {
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
                self.serving = Some(AgentStore::start(socket)?);
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

    /// Waits until the store has ended by itself, which it should not. Nobody is served where the group
    /// was told then, and another round has another store.
    pub(super) async fn failed(&mut self) -> Input {
        match &self.serving {
            Some(store) => store.ended().await,
            None => std::future::pending().await,
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
        hosting.serving.as_ref().unwrap().tell_to_stop();
        assert!(matches!(hosting.failed().await, Input::Suspect { node } if node == "node"));
        assert!(hosting.serving.is_none());
    }
}
