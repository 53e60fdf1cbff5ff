//! The way to a server: a connection to its port, and what is known of its host when there is none.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::obstacle::Obstacle;
use super::place::{EndpointPlace, within_time};
use crate::config::{ETCD_PORT, Endpoint};
use crate::embedded::ThisHost;
use crate::util::blocking::blocking;

/// How long a host may take to accept or refuse a connection.
const CONNECTION: Duration = Duration::from_millis(1200);

/// The most addresses of a name that are tried.
const MOST_TRIED: usize = 8;

/// What a launcher that waits adds to the obstacle: the addresses of the servers, whether this host is one of them, and
/// whether they accept connections at all. Sentences that follow another; nothing if they do not help.
pub(crate) async fn way(obstacle: Obstacle, servers: &str) -> String {
    let endpoints = Endpoint::parse_all(servers, ETCD_PORT);
    let (Obstacle::Refused | Obstacle::Silent, Ok(endpoints)) = (obstacle, endpoints) else {
        return String::new();
    };
    let looked = endpoints.clone();
    let places: Vec<EndpointPlace> = blocking(move || {
        let here = within_time(ThisHost::look());
        looked.iter().map(|endpoint| EndpointPlace::look(&endpoint.host, &here)).collect()
    })
    .await;
    let mut text: String =
        places.iter().filter_map(EndpointPlace::addresses).map(|one| format!(". {one}")).collect();
    let Some((place, endpoint)) =
        places.iter().zip(&endpoints).find(|(place, _)| !place.addresses.is_empty())
    else {
        return text;
    };
    if obstacle == Obstacle::Silent
        && let Err(error) = connect(&place.addresses, endpoint.port).await
        && error.kind() == io::ErrorKind::TimedOut
    {
        text.push_str(&format!(". {}", Obstacle::DROPPED));
    }
    text + &format!(". {}", place.identity())
}

/// The first address that accepts a connection; else a refusal, which says more than silence; else any error.
pub(super) async fn connect(addresses: &[IpAddr], port: u16) -> io::Result<SocketAddr> {
    let attempt = |ip: &IpAddr| {
        let address = SocketAddr::new(*ip, port);
        async move {
            match timeout(CONNECTION, TcpStream::connect(address)).await {
                Ok(connected) => connected.map(|_| address),
                Err(_) => Err(io::ErrorKind::TimedOut.into()),
            }
        }
    };
    let mut failed: io::Error = io::ErrorKind::ConnectionRefused.into();
    let mut is_first = true;
    for result in join_all(addresses.iter().take(MOST_TRIED).map(attempt)).await {
        match result {
            Ok(address) => return Ok(address),
            Err(error) if is_first || error.kind() == io::ErrorKind::ConnectionRefused => {
                failed = error
            }
            Err(_) => {}
        }
        is_first = false;
    }
    Err(failed)
}
