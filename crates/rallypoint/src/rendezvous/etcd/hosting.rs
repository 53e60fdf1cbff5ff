//! What rank 0 keeps for its group: the port that it publishes, and most often a store there.

use std::io;

use rallypoint_core::rendezvous::NodeInput;
use rallypoint_core::rendezvous::documents::{Address, BootstrapStore, LivenessAddress};
use tokio::sync::mpsc::UnboundedReceiver;

use super::probe::Event;
use super::proofs::Proofs;
use crate::rendezvous::PortRange;
use crate::rendezvous::local::{HeldPort, reserve_port};
use crate::store::{AgentStore, Ended, Lost, Owner, Report};
use crate::util::random;

/// The node that hosts.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    pub(super) node: String,
    /// Where others reach it.
    pub(super) address: String,
    /// Its liveness socket, if it has one.
    pub(super) liveness: Option<LivenessAddress>,
    /// How many nodes a group has at most.
    pub(super) max_nodes: usize,
    /// The ports that it may take, if not any.
    pub(super) ports: Option<PortRange>,
}

pub(super) struct Hosting {
    own: Identity,
    /// Whether to serve a store; otherwise the port is kept for whoever takes it.
    use_agent_store: bool,
    port: HeldPort,
    /// The store, and what it reports of those who hold a connection to it.
    serving: Option<(AgentStore, UnboundedReceiver<Report>)>,
    /// Which of the lost are dead.
    proofs: Proofs,
}

impl Hosting {
    pub(super) fn new(own: Identity, use_agent_store: bool, port: HeldPort) -> Self {
        Self { own, use_agent_store, port, serving: None, proofs: Proofs::default() }
    }

    /// Whether a group of this node has a store, by which its nodes see each other die.
    pub(super) fn has_store(&self) -> bool {
        self.use_agent_store
    }

    /// The liveness socket of this node, if it has one.
    pub(super) fn liveness(&self) -> Option<&LivenessAddress> {
        self.own.liveness.as_ref()
    }

    /// Gets a port for `round`. Workers may connect as soon as they are told it, so it is served before it
    /// is published.
    ///
    /// Proofs that were begun in an earlier round go on: the round may wait for them.
    pub(super) fn begin(&mut self, round: u64) -> NodeInput {
        let Identity { address: host, liveness, ports, .. } = self.own.clone();
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
                    store: BootstrapStore { address, token, liveness },
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

    /// Takes this port, or any if it is 0, and serves there if that is wanted. Returns the port and the token.
    fn keep(&mut self, port: u16) -> io::Result<(u16, String)> {
        let Identity { node, address, liveness, max_nodes, .. } = self.own.clone();
        let (socket, port) = reserve_port(&address, port)?;
        let token = random::token();
        if self.use_agent_store {
            let owner = Owner { node, token: token.clone(), liveness, max_members: max_nodes };
            self.serving = Some(AgentStore::start_as(socket, owner)?);
        } else {
            self.port.hold(socket);
        }
        Ok((port, token))
    }

    /// The group of this node is over, and its own workers are gone: serves the others no longer, some of which may
    /// wait for nothing but the end of the store. Proofs go on: the next round waits for them.
    pub(super) fn part(&mut self) {
        self.serving = None;
        self.port.release();
    }

    /// Keeps nothing any more.
    pub(super) fn release(&mut self) {
        self.proofs.end();
        self.serving = None;
        self.port.release();
    }

    /// The same, and when it returns the members have been told that it is meant.
    pub(super) async fn close(&mut self) {
        self.proofs.end();
        if let Some((store, _)) = self.serving.take() {
            store.stop().await;
        }
        self.port.release();
    }

    /// Waits until a node is suspected, or proved to be dead. It may be given up and called again.
    ///
    /// A suspect is a member that is gone without a word, or this node itself: if the store has ended by itself,
    /// which it should not, nobody is served where the group was told, and another round has another store.
    pub(super) async fn next(&mut self) -> Event {
        loop {
            tokio::select! {
                report = reported(&mut self.serving) => match report {
                    Some(Report::Came { node, liveness }) => self.came(&node, liveness),
                    Some(Report::Lost(lost)) => return self.lost(lost),
                    None => {
                        tracing::error!("the store of the group has ended by itself");
                        self.serving = None;
                        return Event::Suspect { node: self.own.node.clone() };
                    }
                },
                node = self.proofs.proved() => return Event::Dead { node },
            }
        }
    }

    fn came(&mut self, node: &str, liveness: Option<LivenessAddress>) {
        self.proofs.call_off(node);
        if let Some(liveness) = liveness {
            self.proofs.verify(node, liveness);
        }
    }

    fn lost(&mut self, Lost { node, how, liveness }: Lost) -> Event {
        tracing::info!(node, ?how, "a member is gone without a word");
        if let (Ended::Closed, Some(liveness)) = (how, liveness) {
            self.proofs.prove(&node, liveness);
        }
        Event::Suspect { node }
    }
}

/// What the store reports next; nothing when it has ended.
async fn reported(serving: &mut Option<(AgentStore, UnboundedReceiver<Report>)>) -> Option<Report> {
    let Some((store, reports)) = serving else { return std::future::pending().await };
    tokio::select! {
        biased;
        Some(report) = reports.recv() => Some(report),
        () = store.ended() => None,
    }
}

#[cfg(test)]
mod tests;
