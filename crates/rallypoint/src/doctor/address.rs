//! The address at which other nodes would be told to reach this one.
//!
//! A host cannot tell by itself whether others reach it. Here a socket is opened at that address, as a launcher would,
//! and this host connects to it: that finds an address of another host, and a firewall of this one. Whether another host
//! reaches it, `dial_back` finds out.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::time::timeout;

use super::finding::Finding;
use super::place::listed;
use crate::rendezvous::address::address;

const CHECK: &str = "address";

/// How long a connection of this host to itself may take.
const CONNECTION: Duration = Duration::from_millis(500);

/// What was found about the address of this node.
#[derive(Debug)]
pub(super) struct AddressMeasurement {
    /// The address as other nodes would be told; or why there is none.
    pub(super) published: Result<String, String>,
    /// The addresses that it means here.
    pub(super) meant: Vec<IpAddr>,
    /// Whether a socket can be opened at the first of them.
    pub(super) opened: io::Result<()>,
    /// Whether this host can connect to that socket.
    pub(super) connected: io::Result<()>,
}

/// Finds the address that the launcher would publish, opens a socket there, and connects to it.
pub(super) async fn measure(given: Option<&str>, servers: &[(String, u16)]) -> AddressMeasurement {
    let published = match address(given, servers, false).await {
        Ok(address) => address,
        Err(error) => {
            let published = Err(error.to_string());
            return AddressMeasurement {
                published,
                meant: Vec::new(),
                opened: Ok(()),
                connected: Ok(()),
            };
        }
    };
    let found = lookup_host((published.trim_matches(['[', ']']), 0)).await;
    let mut meant: Vec<IpAddr> = found.into_iter().flatten().map(|found| found.ip()).collect();
    meant.dedup();
    let (opened, connected) = match meant.first() {
        Some(ip) => try_out(*ip).await,
        None => (Ok(()), Ok(())),
    };
    AddressMeasurement { published: Ok(published), meant, opened, connected }
}

async fn try_out(ip: IpAddr) -> (io::Result<()>, io::Result<()>) {
    let opened = TcpListener::bind((ip, 0)).await;
    let (listener, there) = match opened.and_then(|listener| {
        let there = listener.local_addr()?;
        Ok((listener, there))
    }) {
        Ok(opened) => opened,
        Err(error) => return (Err(error), Ok(())),
    };
    let connected = match timeout(CONNECTION, TcpStream::connect(there)).await {
        Ok(connected) => connected.map(drop),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    };
    drop(listener);
    (Ok(()), connected)
}

/// Whether other nodes can be expected to reach this one at the address that they would be told.
pub(super) fn judge(
    measured: &AddressMeasurement,
    own: &[IpAddr],
    has_loopback_endpoint: bool,
) -> Finding {
    const SAY: &str = "Give --local-addr with an address of this host that the other nodes reach";
    let AddressMeasurement { published, meant, opened, connected } = measured;
    let published = match published {
        Ok(published) => published,
        Err(error) => return Finding::fail(CHECK, format!("{error}."), SAY),
    };
    let told = format!("Other nodes would be told that this one is at {published}");
    let all = if own.is_empty() { "only loopback addresses".to_owned() } else { listed(own) };
    if meant.is_empty() {
        return Finding::fail(CHECK, format!("{told}, which does not resolve on this host."), SAY);
    }
    if let Err(error) = opened {
        return match error.kind() {
            io::ErrorKind::AddrNotAvailable => {
                let message = format!("{told}, which is no address of this host: it has {all}.");
                Finding::warn(
                    CHECK,
                    message,
                    format!("{SAY}, unless addresses are translated on the way"),
                )
            }
            _ => Finding::fail(
                CHECK,
                format!("{told}, and no socket can be opened there: {error}."),
                SAY,
            ),
        };
    }
    if let Err(error) = connected {
        let remedy = "Let connections to this host pass in its own firewall, or pin the ports (--rdzv-conf store_ports)";
        return Finding::fail(
            CHECK,
            format!("{told}, and not even this host reaches it there: {error}."),
            remedy,
        );
    }
    if meant.iter().all(IpAddr::is_loopback) && !has_loopback_endpoint {
        return Finding::fail(
            CHECK,
            format!("{told}, which means each host itself. This host has {all}."),
            SAY,
        );
    }
    if meant.iter().all(IpAddr::is_loopback) {
        return Finding::ok(CHECK, format!("{told}, since the endpoint is on loopback too."));
    }
    let others =
        match own.iter().filter(|address| !meant.contains(address)).copied().collect::<Vec<_>>() {
            rest if rest.is_empty() => String::new(),
            rest => format!(" It also has {}; --local-addr chooses one.", listed(&rest)),
        };
    Finding::ok(CHECK, format!("{told}. A socket there accepts connections of this host.{others}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;

    #[test]
    fn an_address_should_be_this_hosts_and_not_loopback() {
        let own: Vec<IpAddr> = vec!["10.0.0.1".parse().unwrap(), "172.17.0.1".parse().unwrap()];
        let measured = |published: &str| AddressMeasurement {
            published: Ok(published.to_owned()),
            meant: published.parse().into_iter().collect(),
            opened: Ok(()),
            connected: Ok(()),
        };
        let error = |kind: io::ErrorKind| Err(kind.into());
        let missing = AddressMeasurement {
            published: Err("local_addr is missing: say it".to_owned()),
            ..measured("")
        };
        let foreign = AddressMeasurement {
            opened: error(io::ErrorKind::AddrNotAvailable),
            ..measured("10.28.1.16")
        };
        let blocked = AddressMeasurement {
            connected: error(io::ErrorKind::TimedOut),
            ..measured("10.0.0.1")
        };
        for (measured, loopback, verdict, words) in [
            (measured("10.0.0.1"), false, Verdict::Ok, "It also has 172.17.0.1"),
            (measured("127.0.0.1"), true, Verdict::Ok, "since the endpoint is on loopback too"),
            (
                measured("127.0.0.1"),
                false,
                Verdict::Fail,
                "means each host itself. This host has 10.0.0.1, 172.17.0.1",
            ),
            (measured("nowhere"), false, Verdict::Fail, "does not resolve"),
            (
                foreign,
                false,
                Verdict::Warn,
                "10.28.1.16, which is no address of this host: it has 10.0.0.1, 172.17.0.1",
            ),
            (blocked, false, Verdict::Fail, "not even this host reaches it there: timed out"),
            (missing, false, Verdict::Fail, "local_addr is missing"),
        ] {
            let found = judge(&measured, &own, loopback);
            assert_eq!(found.verdict, verdict, "{}", found.message);
            assert!(found.message.contains(words), "{}", found.message);
        }
    }
}
