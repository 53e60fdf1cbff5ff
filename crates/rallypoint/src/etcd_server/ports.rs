//! Free ports.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};

/// Below the ports that Linux gives to outgoing connections. One of those could take the port of a
/// member that is down for a moment, even a connection that was meant for the member itself.
const PORTS: std::ops::Range<u16> = 12_000..32_000;

/// Takes a port of `address`, a free one if it has port 0. It is kept until the listener is dropped,
/// which must be before etcd can take it; should another be quicker, etcd says so.
pub(super) fn reserve(address: SocketAddr) -> io::Result<TcpListener> {
    if address.port() != 0 {
        return TcpListener::bind(address);
    }
    for _ in 0..100 {
        if let Ok(listener) = TcpListener::bind((address.ip(), fastrand::u16(PORTS))) {
            return Ok(listener);
        }
    }
    // This also says what is wrong, if it is not that all of them are taken.
    TcpListener::bind(address)
}

/// Where somebody on this host reaches a server that listens on `address`.
pub(super) fn reachable(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        ip if !ip.is_unspecified() => address,
        ip => SocketAddr::new(loopback(ip), address.port()),
    }
}

/// The loopback address of the same family.
pub(super) fn loopback(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
    }
}
