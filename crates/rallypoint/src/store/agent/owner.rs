//! The node that owns a store, and the peer nodes that are connected to it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bytes::Bytes;
use rallypoint_core::rendezvous::documents::LivenessAddress;
use subtle::ConstantTimeEq;
use tokio::sync::mpsc::UnboundedSender;

use super::outgoing::Outgoing;
use super::request::{Hello, ProtocolViolation};

/// The node that owns a store.
#[derive(Debug, Clone)]
pub struct StoreOwner {
    /// The id of the owner.
    pub node: String,
    /// The token of the group, which peer nodes send in HELLO.
    pub token: String,
    /// The liveness socket of the owner, if it has one.
    pub liveness: Option<LivenessAddress>,
    /// The largest number of peer nodes at one time.
    pub max_members: usize,
}

/// A report of a store to its owner about a peer node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerReport {
    /// The node has connected and sent HELLO.
    Connected {
        /// The id of the node.
        node: String,
        /// The liveness socket of the node, if it has one.
        liveness: Option<LivenessAddress>,
    },
    /// The connection of the node has ended without GOODBYE.
    Lost(LostPeer),
}

/// A peer node whose connection has ended without GOODBYE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostPeer {
    /// The id of the node.
    pub node: String,
    /// How the connection ended.
    pub how: ConnectionEnd,
    /// The liveness socket of the node. `None` if the node has none, or if the two ends of the connection saw
    /// different addresses: then a proxy between them may have ended the connection, and not the node.
    pub liveness: Option<LivenessAddress>,
}

/// How a connection ended without GOODBYE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// The other end closed it, as its kernel does when a process dies.
    Closed,
    /// An error ended it: a reset, or a timeout of the TCP keep-alive.
    Reset,
}

/// A connected peer node.
#[derive(Debug)]
pub(super) struct PeerNode {
    name: Box<str>,
    liveness: Option<LivenessAddress>,
}

/// The connected peer nodes of a store, and the channel to its owner.
#[derive(Debug)]
pub(super) struct PeerRegistry {
    owner: StoreOwner,
    reports: UnboundedSender<PeerReport>,
    /// The connection of each peer node, by its id.
    peers: BTreeMap<Box<str>, usize>,
}

impl PeerRegistry {
    pub(super) fn new(owner: StoreOwner, reports: UnboundedSender<PeerReport>) -> Self {
        Self { owner, reports, peers: BTreeMap::new() }
    }

    /// Registers the node that a client names in HELLO. Also returns the older connection of the same node, if
    /// there is one.
    pub(super) fn register(
        &mut self,
        id: usize,
        hello: &Hello<'_>,
        peer: Option<SocketAddr>,
    ) -> Result<(PeerNode, Option<usize>), ProtocolViolation> {
        let StoreOwner { token, .. } = &self.owner;
        // An empty token would admit every client.
        if token.is_empty() || !bool::from(hello.token.ct_eq(token.as_bytes())) {
            return Err(ProtocolViolation::Token);
        }
        let name: Box<str> = name(hello.name)?.into();
        if !self.peers.contains_key(&name) && self.peers.len() >= self.owner.max_members {
            return Err(ProtocolViolation::TooManyNodes(self.peers.len()));
        }
        let liveness = liveness(hello);
        let node = String::from(name.clone());
        // A dropped receiver means that the store is about to end.
        let _ = self.reports.send(PeerReport::Connected { node, liveness: liveness.clone() });
        let before = self.peers.insert(name.clone(), id);
        let seen = parse(hello.address);
        let direct = seen.is_some() && seen == peer.map(canonical);
        Ok((PeerNode { name, liveness: liveness.filter(|_| direct) }, before))
    }

    /// Answers HELLO with the owner's id and liveness socket, and the address of this end of the connection.
    pub(super) fn reply(&self, outgoing: &mut Outgoing, local: Option<SocketAddr>) {
        let StoreOwner { node, liveness, .. } = &self.owner;
        let local = local.map(|local| canonical(local).to_string()).unwrap_or_default();
        let none = LivenessAddress { host: String::new(), port: 0, token: String::new() };
        let LivenessAddress { host, port, token } = liveness.as_ref().unwrap_or(&none);
        for text in [node, &local, host, token] {
            outgoing.put_string(&Bytes::copy_from_slice(text.as_bytes()));
        }
        outgoing.put(&port.to_le_bytes());
    }

    /// Removes a peer node. Reports it as lost if `how` says that its connection ended without GOODBYE.
    pub(super) fn gone(&mut self, id: usize, peer_node: PeerNode, how: Option<ConnectionEnd>) {
        let PeerNode { name, liveness } = peer_node;
        if self.peers.get(&name) == Some(&id) {
            self.peers.remove(&name);
        }
        if let Some(how) = how {
            let _ =
                self.reports.send(PeerReport::Lost(LostPeer { node: name.into(), how, liveness }));
        }
    }
}

/// Checks the id of a node, which becomes part of a key.
fn name(name: &[u8]) -> Result<&str, ProtocolViolation> {
    let strange =
        |text: &str| text.is_empty() || text.contains('/') || text.contains(char::is_control);
    match std::str::from_utf8(name) {
        Ok(name) if !strange(name) => Ok(name),
        _ => Err(ProtocolViolation::Name(String::from_utf8_lossy(name).into_owned())),
    }
}

/// The liveness socket in a HELLO. Bytes that are not UTF-8 count as none.
fn liveness(hello: &Hello<'_>) -> Option<LivenessAddress> {
    let text = |bytes| std::str::from_utf8(bytes).ok().map(str::to_owned);
    let host = text(hello.liveness_host).filter(|host| !host.is_empty())?;
    let (port, token) = (hello.liveness_port, text(hello.liveness_token)?);
    Some(LivenessAddress { host, port, token })
}

fn parse(address: &[u8]) -> Option<SocketAddr> {
    std::str::from_utf8(address).ok()?.parse().ok().map(canonical)
}

/// The address in a form that both ends compare: an IPv4-mapped address as IPv4, and without the flow and
/// scope of IPv6, which mean something on one host only.
pub(in crate::store) fn canonical(address: SocketAddr) -> SocketAddr {
    (address.ip().to_canonical(), address.port()).into()
}
