//! Free ports and local addresses for etcd.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};

/// The range of free ports, below Linux's ephemeral ports. An outgoing connection on an ephemeral port
/// could take the port of a restarting member, even a connection to the member itself.
const PORTS: std::ops::Range<u16> = 12_000..32_000;

/// Binds a port of `address`, a free one for port 0. The listener reserves it and must be dropped before
/// etcd binds it; if another process takes it in between, etcd reports that.
pub(super) fn reserve(address: SocketAddr) -> io::Result<TcpListener> {
    if address.port() != 0 {
        return TcpListener::bind(address);
    }
    for _ in 0..100 {
        if let Ok(listener) = TcpListener::bind((address.ip(), fastrand::u16(PORTS))) {
            return Ok(listener);
        }
    }
    // Port 0 works even if the range is full, and its error names any other problem.
    TcpListener::bind(address)
}

/// The address at which processes of this host reach a server that listens on `address`.
pub(super) fn reachable(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        ip if !ip.is_unspecified() => address,
        ip => SocketAddr::new(loopback(ip), address.port()),
    }
}

/// The loopback address of the same family as `ip`.
pub(super) fn loopback(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
    }
}
