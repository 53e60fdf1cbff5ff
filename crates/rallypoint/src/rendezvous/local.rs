//! What a node says of itself, and what it keeps for the group: a port, and most often a store there.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::{TcpSocket, UdpSocket, lookup_host};
use tokio::time::timeout;

use crate::store::AgentStore;

/// How long a name server may take.
const RESOLUTION: Duration = Duration::from_secs(2);

/// The name of this host.
pub(super) fn host_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

/// An id that no other node has, ever, and that still tells people which node it is.
pub(super) fn node_id(host: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    let host: String = host.chars().map(plain).collect();
    format!("{host}-{}-{:08x}", std::process::id(), fastrand::u32(..))
}

/// Where others reach this host: what was `given`, or else the address by which it reaches `servers`, or
/// else its name.
pub(super) async fn address(given: Option<&str>, servers: &[(String, u16)]) -> String {
    match given {
        Some(address) => address.to_owned(),
        None => {
            let found = address_towards(servers).await.map(|address| address.to_string());
            found.unwrap_or_else(host_name)
        }
    }
}

/// The address by which this host reaches `servers`, and therefore can be reached by those who reach
/// them too; none if it cannot be told. Names are not used, since they need not resolve elsewhere.
async fn address_towards(servers: &[(String, u16)]) -> Option<IpAddr> {
    for (host, port) in servers {
        let Some(found) = resolve(host, *port).await else { continue };
        for server in found {
            let any: SocketAddr = match server {
                SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
                SocketAddr::V6(_) => ([0u16; 8], 0).into(),
            };
            // Connecting a datagram socket sends nothing; it only looks up the way.
            let Ok(socket) = UdpSocket::bind(any).await else { continue };
            if socket.connect(server).await.is_ok()
                && let Ok(local) = socket.local_addr()
            {
                return Some(local.ip());
            }
        }
    }
    None
}

/// What a name stands for, if that can be found out in a reasonable time.
async fn resolve(host: &str, port: u16) -> Option<Vec<SocketAddr>> {
    let found = timeout(RESOLUTION, lookup_host((host.trim_matches(['[', ']']), port))).await;
    Some(found.ok()?.ok()?.collect())
}

/// A port of this host that is taken from now on, until the socket is dropped.
///
/// It does not listen yet. Whoever is to listen there takes the socket over, or binds the port as well
/// with address reuse, as PyTorch's store does; nobody is given it by chance in between.
pub(super) async fn reserve_port(address: &str) -> io::Result<(TcpSocket, u16)> {
    let resolved = resolve(address, 0).await.and_then(|found| found.into_iter().next());
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    // Behind a translated address the name is not one of ours; then any interface will do.
    let socket = match resolved.map(bound) {
        Some(Ok(socket)) => socket,
        _ => bound(any)?,
    };
    let port = socket.local_addr()?.port();
    Ok((socket, port))
}

fn bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// What rank 0 keeps for its group at the port that it has published.
#[derive(Debug)]
enum Held {
    /// The port alone, until somebody takes it.
    Port(TcpSocket),
    /// A store that listens there.
    Store { _serving: AgentStore },
}

/// The place of what rank 0 keeps for its group.
#[derive(Debug, Clone, Default)]
pub(super) struct HeldPort(Arc<Mutex<Option<Held>>>);

impl HeldPort {
    fn lock(&self) -> MutexGuard<'_, Option<Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn hold(&self, port: TcpSocket) {
        *self.lock() = Some(Held::Port(port));
    }

    /// Serves a new store at the port, in place of whatever was held for the last group.
    pub(super) fn serve(&self, port: TcpSocket) -> io::Result<()> {
        *self.lock() = Some(Held::Store { _serving: AgentStore::start(port)? });
        Ok(())
    }

    pub(super) fn take(&self) -> Option<TcpSocket> {
        let mut held = self.lock();
        match held.take() {
            Some(Held::Port(port)) => Some(port),
            other => {
                *held = other;
                None
            }
        }
    }

    pub(super) fn release(&self) {
        *self.lock() = None;
    }
}
