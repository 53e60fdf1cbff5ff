//! The bootstrap store of the group: rank 0's port, and most often a store behind it.

use std::io;

use rallypoint_core::rendezvous::NodeInput;
use rallypoint_core::rendezvous::documents::{Address, BootstrapStore, LivenessAddress};
use tokio::sync::mpsc::UnboundedReceiver;

use super::probe::PeerEvent;
use super::proofs::Proofs;
use crate::log_target::RENDEZVOUS;
use crate::rendezvous::PortRange;
use crate::rendezvous::local::{HeldPort, reserve_port};
use crate::store::{AgentStore, ConnectionEnd, LostPeer, PeerReport, StoreOwner};
use crate::util::random;

/// What a node publishes and uses as rank 0.
#[derive(Debug, Clone)]
pub(super) struct BootstrapNode {
    pub(super) node: String,
    /// The address at which other nodes reach it.
    pub(super) address: String,
    /// Its liveness socket, if it has one.
    pub(super) liveness: Option<LivenessAddress>,
    /// The largest size of a group.
    pub(super) max_nodes: usize,
    /// The ports that the node may use; any port if there are none.
    pub(super) ports: Option<PortRange>,
}

/// The port of rank 0, and the store behind it. Holds nothing while another node has rank 0.
pub(super) struct Bootstrap {
    own: BootstrapNode,
    /// Whether to serve a store; otherwise the port is kept for the worker that takes it.
    use_agent_store: bool,
    port: HeldPort,
    /// The round of the store.
    round: u64,
    /// The store, and its reports about the liveness connections of the members.
    serving: Option<(AgentStore, UnboundedReceiver<PeerReport>)>,
    /// Proofs of which lost members are dead.
    proofs: Proofs,
}

impl Bootstrap {
    pub(super) fn new(own: BootstrapNode, use_agent_store: bool, port: HeldPort) -> Self {
        Self { own, use_agent_store, port, round: 0, serving: None, proofs: Proofs::default() }
    }

    /// Whether a group of this node has a store, and with it peer liveness connections.
    pub(super) fn has_store(&self) -> bool {
        self.use_agent_store
    }

    /// The liveness socket of this node, if it has one.
    pub(super) fn liveness(&self) -> Option<&LivenessAddress> {
        self.own.liveness.as_ref()
    }

    /// Reserves a port for `round`. Workers connect as soon as the port is published, so it is served before.
    ///
    /// Proofs from an earlier round continue: the new round may wait for them. `runs_server`: whether this process runs the
    /// server of the job.
    pub(super) fn begin(&mut self, round: u64, runs_server: bool) -> NodeInput {
        self.round = round;
        let BootstrapNode { address: host, liveness, ports, .. } = self.own.clone();
        let kept = match ports {
            None => self.keep(0),
            // One may be taken, or still in use by the store of another round.
            Some(ports) => {
                let none = Err(io::ErrorKind::AddrNotAvailable.into());
                ports.ports().fold(none, |kept, port| kept.or_else(|_| self.keep(port)))
            }
        };
        match kept {
            Ok((port, token)) => {
                let address = Address { host, port };
                NodeInput::BootstrapStoreReady {
                    round,
                    store: BootstrapStore { address, token, liveness, runs_server },
                }
            }
            Err(error) => {
                let which = ports.map(|ports| format!(" of {ports} (store_ports)"));
                let which = which.unwrap_or_default();
                let reason = format!("no port{which} of {host} can be had: {error}");
                NodeInput::BootstrapStoreFailed { round, reason }
            }
        }
    }

    /// Reserves this port, or any if it is 0, and starts the store if there is one. Returns the port and the
    /// store's token.
    fn keep(&mut self, port: u16) -> io::Result<(u16, String)> {
        let BootstrapNode { node, address, liveness, max_nodes, .. } = self.own.clone();
        let (socket, port) = reserve_port(&address, port)?;
        let token = random::token();
        if self.use_agent_store {
            let owner = StoreOwner { node, token: token.clone(), liveness, max_members: max_nodes };
            self.serving = Some(AgentStore::start_as(socket, owner)?);
        } else {
            self.port.hold(socket);
        }
        Ok((port, token))
    }

    /// Ends the store of a group that is over: the workers of this node are gone, and other nodes may wait for
    /// nothing but the end of the store. Proofs continue: the next round waits for them.
    pub(super) fn part(&mut self) {
        self.serving = None;
        self.port.release();
    }

    /// Ends the store and the proofs, and releases the port.
    pub(super) fn release(&mut self) {
        self.proofs.end();
        self.serving = None;
        self.port.release();
    }

    /// Does what [`release`](Self::release) does, and waits until the members have received the goodbye.
    pub(super) async fn close(&mut self) {
        self.proofs.end();
        if let Some((store, _)) = self.serving.take() {
            store.stop().await;
        }
        self.port.release();
    }

    /// Waits until a node is suspected, or proved to be dead. Cancel-safe.
    ///
    /// A suspect is a member whose connection ended without a goodbye, or this node itself: if the store has ended
    /// by itself, which is a bug, the group needs another round with another store.
    pub(super) async fn next(&mut self) -> PeerEvent {
        loop {
            tokio::select! {
                report = reported(&mut self.serving) => match report {
                    Some(PeerReport::Connected { node, liveness }) => self.came(&node, liveness),
                    Some(PeerReport::Lost(lost)) => return self.lost(lost),
                    None => {
                        tracing::error!(
                            target: RENDEZVOUS,
                            "the store of the group has ended by itself"
                        );
                        self.serving = None;
                        return PeerEvent::Suspect { node: self.own.node.clone() };
                    }
                },
                (node, round) = self.proofs.proved() => return PeerEvent::Dead { node, round },
            }
        }
    }

    fn came(&mut self, node: &str, liveness: Option<LivenessAddress>) {
        self.proofs.call_off(node);
        if let Some(liveness) = liveness {
            self.proofs.verify(node, liveness);
        }
    }

    fn lost(&mut self, LostPeer { node, how, liveness }: LostPeer) -> PeerEvent {
        tracing::info!(target: RENDEZVOUS, node, ?how, "the liveness connection of a member ended");
        if let (ConnectionEnd::Closed, Some(liveness)) = (how, liveness) {
            self.proofs.prove(&node, self.round, liveness);
        }
        PeerEvent::Suspect { node }
    }
}

/// The next report of the store; `None` when the store has ended.
async fn reported(
    serving: &mut Option<(AgentStore, UnboundedReceiver<PeerReport>)>,
) -> Option<PeerReport> {
    let Some((store, reports)) = serving else { return std::future::pending().await };
    tokio::select! {
        biased;
        Some(report) = reports.recv() => Some(report),
        () = store.ended() => None,
    }
}

#[cfg(test)]
mod tests;
