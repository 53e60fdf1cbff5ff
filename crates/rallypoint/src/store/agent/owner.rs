//! The owner of a store, and the nodes that have said hello to it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bytes::Bytes;
use rallypoint_core::rendezvous::documents::LivenessAddress;
use subtle::ConstantTimeEq;
use tokio::sync::mpsc::UnboundedSender;

use super::outgoing::Outgoing;
use super::request::{Hello, Refused};

/// The node that a store belongs to.
#[derive(Debug, Clone)]
pub struct Owner {
    /// Its id.
    pub node: String,
    /// What other nodes show when they say hello.
    pub token: String,
    /// Its liveness socket, if it has one.
    pub liveness: Option<LivenessAddress>,
    /// Limit of nodes at one time.
    pub max_members: usize,
}

/// What a store tells its owner of another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// It has said hello.
    Came {
        /// Its id.
        node: String,
        /// Its liveness socket, if it has one.
        liveness: Option<LivenessAddress>,
    },
    /// It is gone without a goodbye.
    Lost(Lost),
}

/// A node whose connection has ended without a goodbye.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// Its id.
    pub node: String,
    /// How the connection ended.
    pub how: Ended,
    /// The node's liveness socket. None if it has none, or if the two ends of the connection did not agree on their
    /// addresses: then something between them may have ended it, and not the node.
    pub liveness: Option<LivenessAddress>,
}

/// How a connection ended without a goodbye.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// In good order, as the system of the other end does when a process dies.
    Closed,
    /// By an error: it was reset, or nothing was heard for too long.
    Reset,
}

/// A node that has said hello.
#[derive(Debug)]
pub(super) struct Guest {
    name: Box<str>,
    liveness: Option<LivenessAddress>,
}

/// The owner, as its store knows it.
#[derive(Debug)]
pub(super) struct Host {
    owner: Owner,
    reports: UnboundedSender<Report>,
    /// The connected nodes by their connections.
    guests: BTreeMap<Box<str>, usize>,
}

impl Host {
    pub(super) fn new(owner: Owner, reports: UnboundedSender<Report>) -> Self {
        Self { owner, reports, guests: BTreeMap::new() }
    }

    /// Hears which node a client is. Returns with it the client that said so before, if that is still there.
    pub(super) fn introduce(
        &mut self,
        id: usize,
        hello: &Hello<'_>,
        peer: Option<SocketAddr>,
    ) -> Result<(Guest, Option<usize>), Refused> {
        let Owner { token, .. } = &self.owner;
        // An owner without a token would let everybody in.
        if token.is_empty() || !bool::from(hello.token.ct_eq(token.as_bytes())) {
            return Err(Refused::Token);
        }
        let name: Box<str> = name(hello.name)?.into();
        if !self.guests.contains_key(&name) && self.guests.len() >= self.owner.max_members {
            return Err(Refused::Crowded(self.guests.len()));
        }
        let liveness = liveness(hello);
        let node = String::from(name.clone());
        // Without a receiver the store is about to end.
        let _ = self.reports.send(Report::Came { node, liveness: liveness.clone() });
        let before = self.guests.insert(name.clone(), id);
        let seen = parse(hello.address);
        let direct = seen.is_some() && seen == peer.map(canonical);
        Ok((Guest { name, liveness: liveness.filter(|_| direct) }, before))
    }

    /// Says who the owner is, with the address of this end of the connection.
    pub(super) fn reply(&self, outgoing: &mut Outgoing, local: Option<SocketAddr>) {
        let Owner { node, liveness, .. } = &self.owner;
        let local = local.map(|local| canonical(local).to_string()).unwrap_or_default();
        let none = LivenessAddress { host: String::new(), port: 0, token: String::new() };
        let LivenessAddress { host, port, token } = liveness.as_ref().unwrap_or(&none);
        for text in [node, &local, host, token] {
            outgoing.put_string(&Bytes::copy_from_slice(text.as_bytes()));
        }
        outgoing.put(&port.to_le_bytes());
    }

    /// A node is gone: how, if that was without a goodbye.
    pub(super) fn gone(&mut self, id: usize, guest: Guest, how: Option<Ended>) {
        let Guest { name, liveness } = guest;
        if self.guests.get(&name) == Some(&id) {
            self.guests.remove(&name);
        }
        if let Some(how) = how {
            let _ = self.reports.send(Report::Lost(Lost { node: name.into(), how, liveness }));
        }
    }
}

/// A node's name will be part of a key, so it must look like one.
fn name(name: &[u8]) -> Result<&str, Refused> {
    let strange =
        |text: &str| text.is_empty() || text.contains('/') || text.contains(char::is_control);
    match std::str::from_utf8(name) {
        Ok(name) if !strange(name) => Ok(name),
        _ => Err(Refused::Name(String::from_utf8_lossy(name).into_owned())),
    }
}

/// The liveness socket that a node names. What is no text is none: it could not greet either.
fn liveness(hello: &Hello<'_>) -> Option<LivenessAddress> {
    let text = |bytes| std::str::from_utf8(bytes).ok().map(str::to_owned);
    let host = text(hello.liveness_host).filter(|host| !host.is_empty())?;
    let (port, token) = (hello.liveness_port, text(hello.liveness_token)?);
    Some(LivenessAddress { host, port, token })
}

fn parse(address: &[u8]) -> Option<SocketAddr> {
    std::str::from_utf8(address).ok()?.parse().ok().map(canonical)
}

/// An address of the fourth version as such, also where a socket of both kinds has it, and without what is of
/// use on one host only.
pub(in crate::store) fn canonical(address: SocketAddr) -> SocketAddr {
    (address.ip().to_canonical(), address.port()).into()
}
