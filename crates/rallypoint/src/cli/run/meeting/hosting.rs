//! Whether this host runs the server, and where it listens.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::place::Origin;
use super::{Known, Notes};
use crate::cli::run::error::RunError;
use crate::cli::run::here::{Meaning, meaning};
use crate::rendezvous::Endpoint;

/// Whether this host runs the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hosting {
    /// It does not: another host does, or an etcd is there already.
    Nowhere,
    /// On loopback, at a free port: nobody else is to come.
    Loopback,
    /// Here. Unless it is `required`, someone else on this host may be there first, and then is the server.
    At { address: SocketAddr, required: bool },
}

/// Decides it for a backend that brings its server. `is_host` is what the user says.
pub(super) fn hosting(
    known: &Known<'_>,
    endpoints: &[Endpoint],
    origin: Origin,
    is_host: Option<bool>,
    notes: &mut Notes,
) -> Result<Hosting, RunError> {
    let [endpoint] = endpoints else {
        if is_host == Some(true) {
            return Err(RunError::Conflict {
                first: "is_host=true".to_owned(),
                second: "an --rdzv-endpoint of several hosts".to_owned(),
                fix: "several hosts are an etcd that is there already; name this host alone",
            });
        }
        return Ok(Hosting::Nowhere);
    };
    // A node that is alone has rank 0.
    let rank = known.node_rank.or_else(|| (known.nodes.max == 1).then_some(0));
    if let (Origin::Static, Some(rank)) = (origin, rank)
        && rank as usize >= known.nodes.max
    {
        let fix = format!("give a rank below the number of nodes, which is {}", known.nodes.max);
        return Err(RunError::invalid("--node-rank", rank.to_string(), fix));
    }
    let meaning = meaning(&endpoint.host, known.host);
    let told = match (is_host, origin, rank) {
        (Some(told), ..) => Some(told),
        (None, Origin::Static | Origin::Scheduler, Some(rank)) => Some(rank == 0),
        _ => None,
    };
    if !told.unwrap_or(meaning != Meaning::Elsewhere) {
        return Ok(Hosting::Nowhere);
    }
    let ip = listening(known, &endpoint.host, meaning, notes);
    let address = SocketAddr::new(ip, endpoint.port);
    Ok(Hosting::At { address, required: told.is_some() })
}

/// The address that the endpoint names; every address only if there is no other way.
fn listening(known: &Known<'_>, name: &str, meaning: Meaning, notes: &mut Notes) -> IpAddr {
    if let Meaning::Here(address) = meaning {
        return address;
    }
    let local = known.options.local_addr.as_deref().and_then(|text| text.parse::<IpAddr>().ok());
    if let Some(local) = local.filter(|local| known.host.addresses.contains(local)) {
        return local;
    }
    notes.warnings.push(format!(
        "the server listens on all addresses of this host, since it cannot be told which of them {name} \
         means to the others; --local-addr with an IP address says so"
    ));
    let has_v4 = known.host.addresses.iter().any(|own| own.is_ipv4() && !own.is_loopback());
    if has_v4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}
