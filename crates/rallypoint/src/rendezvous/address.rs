//! The address at which other nodes reach this host.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::net::{UdpSocket, lookup_host};
use tokio::time::timeout;

use super::ConfigError;
use crate::embedded::ThisHost;
use crate::util::host::host_name;

/// The time limit for a lookup by a name server.
const RESOLUTION: Duration = Duration::from_secs(2);

/// A documentation address (RFC 5737), which no host has: the route to it is the default route.
const ANYWHERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// Where others reach this host: what was `given`, or else the address by which it reaches `servers`, or else its
/// name. A loopback address is where others reach it only if the servers are written so, or if there are no others.
///
/// # Errors
/// If the servers are known here by a name that means this host to itself alone, and it cannot be told which of its
/// addresses other nodes use.
pub(crate) async fn address(
    given: Option<&str>,
    servers: &[(String, u16)],
    alone: bool,
) -> Result<String, ConfigError> {
    if let Some(given) = given {
        return Ok(given.to_owned());
    }
    let Some(towards) = address_towards(servers).await else { return Ok(host_name()) };
    if alone || !towards.is_loopback() || servers.iter().any(is_written_as_address) {
        return Ok(towards.to_string());
    }
    match among(own_addresses(), towards_host(ANYWHERE.into()).await) {
        Ok(own) => Ok(own.unwrap_or(towards).to_string()),
        // A loopback endpoint is usual where all nodes are on this host.
        Err(_) if servers.iter().any(is_localhost) => Ok(towards.to_string()),
        Err(own) => {
            let names: Vec<&str> = servers.iter().map(|(host, _)| host.as_str()).collect();
            let own: Vec<String> = own.iter().map(ToString::to_string).collect();
            let fix = format!(
                "to this host {} means a loopback address, and it cannot be told which of {} other nodes reach; give it",
                names.join(", "),
                own.join(", "),
            );
            Err(ConfigError::missing("local_addr", fix))
        }
    }
}

fn is_written_as_address((host, _): &(String, u16)) -> bool {
    host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
}

fn is_localhost((host, _): &(String, u16)) -> bool {
    host.eq_ignore_ascii_case("localhost")
}

/// The address that others use of these, of which `usual` is the one towards most networks: nothing if there are
/// none, so that there are no others either.
fn among(own: Vec<IpAddr>, usual: Option<IpAddr>) -> Result<Option<IpAddr>, Vec<IpAddr>> {
    match (&own[..], usual) {
        ([], _) => Ok(None),
        ([only], _) => Ok(Some(*only)),
        (own, Some(usual)) if own.contains(&usual) => Ok(Some(usual)),
        _ => Err(own),
    }
}

/// The addresses that other hosts can use, of one family.
fn own_addresses() -> Vec<IpAddr> {
    let mut own = ThisHost::look().addresses_for_others();
    // A host with IPv4 and IPv6 addresses is known by the former.
    if own.iter().any(IpAddr::is_ipv4) {
        own.retain(IpAddr::is_ipv4);
    }
    own
}

/// The address by which this host reaches `servers`, and therefore can be reached by those who reach
/// them too; none if it cannot be told. Names are not used, since they need not resolve elsewhere.
async fn address_towards(servers: &[(String, u16)]) -> Option<IpAddr> {
    for (host, port) in servers {
        for server in resolve(host, *port).await.unwrap_or_default() {
            if let Some(local) = towards_host(server.ip()).await {
                return Some(local);
            }
        }
    }
    None
}

/// The local address of the route to another host.
async fn towards_host(host: IpAddr) -> Option<IpAddr> {
    let any: SocketAddr = match host {
        IpAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        IpAddr::V6(_) => ([0u16; 8], 0).into(),
    };
    // Connecting a datagram socket sends nothing; it only looks up the route.
    let socket = UdpSocket::bind(any).await.ok()?;
    socket.connect((host, 9)).await.ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// The addresses of a name, if the lookup ends within its time limit.
async fn resolve(host: &str, port: u16) -> Option<Vec<SocketAddr>> {
    let found = timeout(RESOLUTION, lookup_host((host.trim_matches(['[', ']']), port))).await;
    Some(found.ok()?.ok()?.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_of_several_is_taken_only_if_it_can_be_told() {
        let (a, b) = (ip("10.0.0.1"), ip("10.1.0.1"));
        for (own, usual, chosen) in [
            (vec![], None, Ok(None)),
            (vec![a], None, Ok(Some(a))),
            (vec![a, b], Some(b), Ok(Some(b))),
            (vec![a, b], None, Err(vec![a, b])),
            (vec![a, b], Some(ip("10.2.0.1")), Err(vec![a, b])),
        ] {
            assert_eq!(among(own.clone(), usual), chosen, "{own:?} {usual:?}");
        }
    }

    #[tokio::test]
    async fn loopback_counts_where_it_is_written_or_there_is_no_other_node() {
        let own = own_addresses();
        for (host, alone, loopback) in [
            ("localhost", true, true),
            ("127.0.0.1", false, true),
            ("localhost", false, own.is_empty()),
        ] {
            let found = address(None, &[(host.to_owned(), 1)], alone).await.unwrap();
            assert_eq!(ip(&found).is_loopback(), loopback, "{host} {alone} {own:?}: {found}");
        }
        assert_eq!(address(Some("me"), &[], false).await.unwrap(), "me");
    }
}
