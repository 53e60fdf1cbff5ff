//! The liveness socket: it accepts connections as long as any process of this node is left.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};

use super::guard::{self, GuardHandle, LivenessResponder};
use crate::log_target::PROCESS;
use crate::rendezvous::Endpoint;
use crate::util::random;

/// The backlog of connections that were not accepted yet.
const BACKLOG: i32 = 1024;

/// A listening socket that this process, its guard and every worker hold until they end.
///
/// So if its host refuses connections at this address, all of these processes have ended. As long as one of them
/// runs, the kernel accepts connections; and while this process or the guard runs, each client receives
/// `rallypoint-guard <token>` and a line break, which identifies the node.
///
/// Dropping the socket closes it here and in the guard. Running workers hold their copies until they end.
#[derive(Debug)]
pub struct LivenessSocket {
    address: SocketAddr,
    token: String,
    handle: Arc<GuardHandle>,
    /// The thread that answers until a guard runs ends when this is dropped.
    _answering: io::PipeWriter,
}

impl LivenessSocket {
    /// Listens on a free port of this address; on all IPv4 and IPv6 addresses, if it is `::`.
    ///
    /// # Errors
    /// The address cannot be bound; it may not belong to this host.
    pub fn open(address: IpAddr) -> io::Result<Self> {
        let socket = Arc::new(bound(address)?);
        let address = socket.local_addr()?;
        let token = random::token();
        let handle = guard::program();
        handle.listen(&token, socket.clone())?;
        let answering = answer(&handle, &token, &socket)?;
        Ok(Self { address, token, handle, _answering: answering })
    }

    /// Listens where the other nodes of a run reach this one: on `local_addr` if that is an address, on loopback if
    /// the whole endpoint is on loopback, or else on all addresses.
    ///
    /// # Errors
    /// No address can be bound.
    pub fn for_node(endpoint: &str, local_addr: Option<&str>) -> io::Result<Self> {
        let [first, rest @ ..] = &addresses(endpoint, local_addr)[..] else {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        };
        let opened = rest
            .iter()
            .fold(Self::open(*first), |opened, address| opened.or_else(|_| Self::open(*address)));
        if let Ok(socket) = &opened {
            tracing::debug!(
                target: PROCESS,
                address = %socket.address(), "opened the liveness socket"
            );
        }
        opened
    }

    /// The port of the socket.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The address of the socket.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The token that clients receive: 128 random bits, known to the nodes of the run.
    pub fn token(&self) -> &str {
        &self.token
    }
}

impl Drop for LivenessSocket {
    fn drop(&mut self) {
        self.handle.close(&self.token);
    }
}

fn addresses(endpoint: &str, local_addr: Option<&str>) -> Vec<IpAddr> {
    if let Some(given) = local_addr.and_then(address) {
        return vec![given];
    }
    // A run without an endpoint has a single node.
    let servers = match endpoint.trim() {
        "" => return vec![Ipv4Addr::LOCALHOST.into()],
        endpoint => Endpoint::parse_list(endpoint).unwrap_or_default(),
    };
    let loopback = |server: &Endpoint| address(&server.host).filter(IpAddr::is_loopback);
    match servers.iter().map(loopback).collect::<Option<Vec<IpAddr>>>() {
        Some(all) if !all.is_empty() => vec![all[0]],
        _ => vec![Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()],
    }
}

fn address(host: &str) -> Option<IpAddr> {
    host.trim_matches(['[', ']']).parse().ok()
}

fn bound(address: IpAddr) -> io::Result<TcpListener> {
    let family = match address {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    if address == Ipv6Addr::UNSPECIFIED {
        sockopt::set_ipv6_v6only(&socket, false)?;
    }
    bind(&socket, &SocketAddr::new(address, 0))?;
    listen(&socket, BACKLOG)?;
    Ok(TcpListener::from(socket))
}

/// Answers clients until a guard runs, or the returned value is dropped.
fn answer(
    handle: &Arc<GuardHandle>,
    token: &str,
    socket: &Arc<TcpListener>,
) -> io::Result<io::PipeWriter> {
    let (end, answering) = io::pipe()?;
    if handle.has_guard() {
        return Ok(answering);
    }
    let mut responder = LivenessResponder::default();
    responder.add(token.to_owned(), socket.as_fd().try_clone_to_owned()?);
    let (handle, end) = (Arc::downgrade(handle), OwnedFd::from(end));
    let thread = thread::Builder::new().name("liveness".to_owned());
    thread.spawn(move || {
        // Once a guard runs, both may answer for a moment, which does no harm.
        while handle.upgrade().is_some_and(|handle| !handle.has_guard()) {
            let mut watched = vec![PollFd::new(&end, PollFlags::IN)];
            watched.extend(responder.watched());
            let _ = poll(&mut watched, None);
            if !watched[0].revents().is_empty() {
                return;
            }
            drop(watched);
            responder.answer();
        }
    })?;
    Ok(answering)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn a_node_listens_where_its_peers_reach_it() {
        for (endpoint, local, expected) in [
            ("", None, &["127.0.0.1"][..]),
            ("localhost:1", None, &["::", "0.0.0.0"]),
            ("127.0.0.1:1", None, &["127.0.0.1"]),
            ("[::1]:1", None, &["::1"]),
            ("10.0.0.1:1", None, &["::", "0.0.0.0"]),
            ("127.0.0.1:1,head:1", None, &["::", "0.0.0.0"]),
            ("head:1", Some("10.0.0.2"), &["10.0.0.2"]),
            ("head:1", Some("node7"), &["::", "0.0.0.0"]),
        ] {
            let expected: Vec<IpAddr> = expected.iter().map(|ip| ip.parse().unwrap()).collect();
            assert_eq!(addresses(endpoint, local), expected, "{endpoint} {local:?}");
        }
    }

    /// Whether this program has a guard depends on concurrent tests, and makes no difference.
    #[test]
    fn each_client_receives_the_token_until_the_socket_is_dropped() {
        let first = LivenessSocket::open(Ipv4Addr::LOCALHOST.into()).unwrap();
        let other = LivenessSocket::open(Ipv4Addr::LOCALHOST.into()).unwrap();
        assert_ne!(first.token(), other.token());
        assert_eq!(first.token().len(), 32);
        for socket in [&first, &other] {
            let mut line = String::new();
            let stream = TcpStream::connect(socket.address()).unwrap();
            BufReader::new(stream).read_line(&mut line).unwrap();
            assert_eq!(line, format!("rallypoint-guard {}\n", socket.token()));
        }
        let address = first.address();
        drop(first);
        let begun = std::time::Instant::now();
        while TcpStream::connect(address).is_ok() {
            assert!(begun.elapsed() < std::time::Duration::from_secs(20));
            thread::sleep(std::time::Duration::from_millis(5));
        }
        TcpStream::connect(other.address()).unwrap();
    }
}
