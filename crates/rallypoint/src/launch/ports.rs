//! The ports of a round (`--ports`): the rank-0 node reserves and holds them, and all nodes learn their numbers.
//!
//! A port is held by a socket that is bound on all interfaces and does not listen. The system assigns the port to no
//! other program then, and a second launcher does not reserve it; a worker that sets `SO_REUSEADDR` or `SO_REUSEPORT`,
//! as nearly all servers do, can listen on it while it is held.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytes::Bytes;
use rallypoint_core::rendezvous::keys::agent::PORTS;
use thiserror::Error;
use tokio::net::TcpSocket;

use crate::config::PortRange;
use crate::store::{Store, StoreError};

/// The number of ports that the nodes of a job want in each round, and where they come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PortsSpec {
    pub(crate) count: usize,
    /// The ports to choose from; any if there is no range.
    pub(crate) range: Option<PortRange>,
}

/// The ports of a round. On the rank-0 node they are held until this is dropped.
#[derive(Debug, Default)]
pub(super) struct RoundPorts {
    numbers: Vec<u16>,
    _held: Vec<TcpSocket>,
}

/// Why a node does not have the ports of its round.
#[derive(Debug, Error)]
pub(super) enum PortsError {
    #[error("{count} free ports{} cannot be had for --ports: {source}", range.map(|range| format!(" of {range} (store_ports)")).unwrap_or_default())]
    NotFree { count: usize, range: Option<PortRange>, source: io::Error },
    #[error(
        "rank 0 has {found:?} for --ports, and this node wants {wanted}; give all nodes the same number"
    )]
    Other { wanted: usize, found: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl RoundPorts {
    /// Reserves the ports, as rank 0 does.
    ///
    /// # Errors
    /// [`PortsError::NotFree`].
    pub(super) fn reserve(spec: PortsSpec) -> Result<Self, PortsError> {
        let PortsSpec { count, range } = spec;
        let held = match range {
            None => (0..count).map(|_| hold(0)).collect(),
            Some(range) => {
                let held: Vec<_> =
                    range.ports().filter_map(|port| hold(port).ok()).take(count).collect();
                let enough = held.len() == count;
                enough.then_some(held).ok_or_else(|| io::ErrorKind::AddrInUse.into())
            }
        };
        let ports = held.and_then(|held: Vec<TcpSocket>| {
            let number = |socket: &TcpSocket| Ok(socket.local_addr()?.port());
            let numbers = held.iter().map(number).collect::<io::Result<_>>()?;
            Ok(Self { numbers, _held: held })
        });
        ports.map_err(|source| PortsError::NotFree { count, range, source })
    }

    /// Publishes the numbers to the other nodes.
    pub(super) async fn publish(&self, store: &dyn Store) -> Result<(), PortsError> {
        let text: Vec<String> = self.numbers.iter().map(u16::to_string).collect();
        Ok(store.set(PORTS.as_bytes(), text.join(",").into()).await?)
    }

    /// Waits for the numbers that rank 0 has published.
    ///
    /// # Errors
    /// [`PortsError::Other`] if rank 0 was given another number of ports.
    pub(super) async fn published(store: &dyn Store, wanted: usize) -> Result<Self, PortsError> {
        let found = store.get(PORTS.as_bytes()).await?;
        let numbers = decode(&found).filter(|numbers| numbers.len() == wanted);
        let other =
            || PortsError::Other { wanted, found: String::from_utf8_lossy(&found).into_owned() };
        Ok(Self { numbers: numbers.ok_or_else(other)?, _held: Vec::new() })
    }

    /// The numbers, in the order of their names.
    pub(super) fn numbers(&self) -> &[u16] {
        &self.numbers
    }
}

fn decode(text: &Bytes) -> Option<Vec<u16>> {
    let text = std::str::from_utf8(text).ok()?;
    text.split_terminator(',').map(|number| number.parse().ok()).collect()
}

/// Holds this port, or any if it is 0, on all interfaces.
fn hold(port: u16) -> io::Result<TcpSocket> {
    let bind = |socket: TcpSocket, ip: IpAddr| {
        // Alone at first: not even another launcher holds this port.
        socket.bind((ip, port).into())?;
        socket.set_reuseaddr(true)?;
        socket.set_reuseport(true)?;
        io::Result::Ok(socket)
    };
    let both = || {
        let socket = TcpSocket::new_v6()?;
        rustix::net::sockopt::set_ipv6_v6only(&socket, false)?;
        bind(socket, Ipv6Addr::UNSPECIFIED.into())
    };
    match both() {
        // A host without IPv6.
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            bind(TcpSocket::new_v4()?, Ipv4Addr::UNSPECIFIED.into())
        }
        held => held,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_held_port_is_free_for_a_worker_and_for_no_other_launcher() {
        let spec = PortsSpec { count: 3, range: None };
        let ports = RoundPorts::reserve(spec).unwrap();
        let [port, _, last] = ports.numbers()[..] else { panic!("{ports:?}") };
        assert_ne!(port, last);
        // std sets SO_REUSEADDR.
        let listener = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
        std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        assert!(hold(port).is_err(), "the worker listens");
        assert!(hold(last).is_err(), "it is held");
        let alone = PortsSpec { count: 1, range: PortRange::parse(&last.to_string()).ok() };
        let words = format!("1 free ports of {last}-{last} (store_ports) cannot be had");
        let error = RoundPorts::reserve(alone).unwrap_err().to_string();
        assert!(error.starts_with(&words), "{error}");
        drop(ports);
        assert!(hold(port).is_err(), "the worker has it still");
        RoundPorts::reserve(alone).unwrap();
        drop(listener);
    }

    #[test]
    fn numbers_are_read_or_refused() {
        for (text, expected) in [
            ("", Some(vec![])),
            ("7", Some(vec![7])),
            ("7,65535", Some(vec![7, 65535])),
            ("7,x", None),
            ("70000", None),
        ] {
            assert_eq!(decode(&Bytes::from(text)), expected, "{text}");
        }
    }
}
