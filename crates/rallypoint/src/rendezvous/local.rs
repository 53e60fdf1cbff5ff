//! The identity of this node, and the port that it reserves for the group.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::TcpSocket;

use crate::util::random;

/// A node id that is never used twice, and that names host and process for people.
pub(super) fn node_id(host: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    let host: String = host.chars().map(plain).collect();
    // In containers, hosts may share a name and processes a number.
    format!("{host}-{}-{:016x}", std::process::id(), random::number())
}

/// Reserves a port of this host until the socket is dropped: this port, or any if it is 0.
///
/// The socket does not listen yet. The program that will listen takes the socket over, or binds the port as well
/// with address reuse, as PyTorch's store does. The system assigns the port to no other program in between.
pub(crate) fn reserve_port(address: &str, port: u16) -> io::Result<(TcpSocket, u16)> {
    let [first, rest @ ..] = interfaces(address);
    let or_at = |socket: io::Result<TcpSocket>, ip| socket.or_else(|_| bound(ip, port));
    let socket = rest.into_iter().fold(bound(first, port), or_at)?;
    let port = socket.local_addr()?.port();
    Ok((socket, port))
}

/// The addresses to listen on for clients that are given `address`, in order of preference.
fn interfaces(address: &str) -> [IpAddr; 3] {
    let named = match address {
        "localhost" => Some(IpAddr::from(Ipv4Addr::LOCALHOST)),
        address => address.trim_matches(['[', ']']).parse().ok(),
    };
    // Others may know a name by another address than we do, or by several; and behind a translation not
    // even an address is one of ours. Then it is all interfaces.
    let all = [IpAddr::from(Ipv6Addr::UNSPECIFIED), IpAddr::from(Ipv4Addr::UNSPECIFIED)];
    [named.unwrap_or(all[0]), all[0], all[1]]
}

fn bound(ip: IpAddr, port: u16) -> io::Result<TcpSocket> {
    let socket = match ip {
        IpAddr::V4(_) => TcpSocket::new_v4()?,
        IpAddr::V6(_) => TcpSocket::new_v6()?,
    };
    if ip == Ipv6Addr::UNSPECIFIED {
        // IPv4 and IPv6.
        rustix::net::sockopt::set_ipv6_v6only(&socket, false)?;
    }
    socket.set_reuseaddr(true)?;
    socket.bind((ip, port).into())?;
    Ok(socket)
}

/// A reserved port that is kept until a caller takes its socket.
#[derive(Debug, Clone, Default)]
pub(super) struct HeldPort(Arc<Mutex<Option<TcpSocket>>>);

impl HeldPort {
    fn lock(&self) -> MutexGuard<'_, Option<TcpSocket>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn hold(&self, port: TcpSocket) {
        *self.lock() = Some(port);
    }

    pub(super) fn take(&self) -> Option<TcpSocket> {
        self.lock().take()
    }

    pub(super) fn release(&self) {
        drop(self.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_whose_generators_agree_have_different_names() {
        let names = [0; 2].map(|_| {
            fastrand::seed(7);
            node_id("a host")
        });
        assert_ne!(names[0], names[1]);
        assert!(names[0].starts_with(&format!("a-host-{}-", std::process::id())), "{}", names[0]);
    }

    #[test]
    fn a_name_is_served_on_all_interfaces_and_an_address_on_its_own() {
        for (address, first) in [
            ("localhost", "127.0.0.1"),
            ("10.0.0.3", "10.0.0.3"),
            ("fe80::1", "fe80::1"),
            ("[::1]", "::1"),
            // A host often resolves its own name to a loopback address, and other hosts to another one.
            ("node7", "::"),
            ("node7.cluster.local", "::"),
        ] {
            let expected: [IpAddr; 3] = [first, "::", "0.0.0.0"].map(|ip| ip.parse().unwrap());
            assert_eq!(interfaces(address), expected, "{address}");
        }
    }
}
