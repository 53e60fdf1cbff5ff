//! The etcd cluster that a job brings (`--engine etcd`), and which member of it this host runs.

use std::net::IpAddr;

use super::error::RunError;
use super::rendezvous::{Known, Notes};
use super::values::Engine;
use crate::client::{Pem, TlsOptions};
use crate::config::Endpoint;
use crate::embedded::{
    DEFAULT_PORT, NameMeaning, RendezvousConfig, given_credential, listening, meaning,
};
use crate::etcd_server::{MemberPlan, check_hosts};

const ENDPOINT: &str = "--rdzv-endpoint";

/// The member that this host runs; none without `--engine etcd`, and on a host that is not named.
///
/// Blocks on name lookups.
pub(super) fn etcd_member(
    known: &Known<'_>,
    config: &RendezvousConfig,
    notes: &mut Notes,
) -> Result<Option<MemberPlan>, RunError> {
    if known.options.engine == Engine::Embedded {
        return Ok(None);
    }
    let endpoints = endpoints(known, config)?;
    let tls = certificates(config)?;
    let Some((own, listen)) = own(known, &endpoints, notes)? else { return Ok(None) };
    let run_id = config.parameters.run_id.clone();
    Ok(Some(MemberPlan { endpoints, own, listen, run_id, tls }))
}

/// The hosts of the members.
fn endpoints(known: &Known<'_>, config: &RendezvousConfig) -> Result<Vec<Endpoint>, RunError> {
    if known.options.standalone {
        let fix = "--standalone is one node with its own server; name three hosts in --rdzv-endpoint instead";
        return Err(RunError::conflict("--standalone", "--engine etcd", fix));
    }
    if let Some(key) = given_credential(&config.parameters) {
        let fix = "an etcd that the job brings has no users; --cacert, --cert and --key keep strangers out";
        return Err(RunError::conflict(format!("{key} in --rdzv-conf"), "--engine etcd", fix));
    }
    let text = config.parameters.endpoint.as_str();
    if text.is_empty() {
        let fix = "--engine etcd runs a member of an etcd cluster on each of three hosts; name them, such as a,b,c";
        return Err(RunError::missing(ENDPOINT, fix));
    }
    let endpoints = Endpoint::parse_all(text, DEFAULT_PORT)?;
    check_hosts(ENDPOINT, &endpoints)?;
    Ok(endpoints)
}

/// The certificates of the job, if it has any. Each node must have its own, since the members admit no one without.
fn certificates(config: &RendezvousConfig) -> Result<Option<TlsOptions>, RunError> {
    match &config.tls {
        None => Ok(None),
        Some(TlsOptions { identity: None, .. }) => {
            let fix = "the members of an etcd that the job brings admit who has a certificate; give --cert and --key to \
                       each node";
            Err(RunError::missing("--cert", fix))
        }
        Some(tls) => {
            let absolute = |pem: &Pem| match pem {
                // The member is another process.
                Pem::File(path) => {
                    Pem::File(std::path::absolute(path).unwrap_or_else(|_| path.clone()))
                }
                Pem::Bytes(bytes) => Pem::Bytes(bytes.clone()),
            };
            let identity = tls.identity.as_ref();
            let identity = identity.map(|(cert, key)| (absolute(cert), absolute(key)));
            Ok(Some(TlsOptions { ca: absolute(&tls.ca), identity, ..tls.clone() }))
        }
    }
}

/// Which of the hosts is this one, and the address that its member listens on.
fn own(
    known: &Known<'_>,
    endpoints: &[Endpoint],
    notes: &mut Notes,
) -> Result<Option<(usize, IpAddr)>, RunError> {
    let here = &known.host.here;
    let mut own: Option<(usize, NameMeaning)> = None;
    for (index, endpoint) in endpoints.iter().enumerate() {
        match (meaning(&endpoint.host, here), own) {
            (NameMeaning::Here(ip), _) if ip.is_loopback() => {
                let fix = "other hosts mean themselves by it; name each host as all of them reach it";
                return Err(RunError::invalid(ENDPOINT, &endpoint.host, fix));
            }
            (NameMeaning::Here(_) | NameMeaning::HereSomehow, Some((first, _))) => {
                let fix = format!(
                    "it is the same host as {}, this one; each member needs a host of its own",
                    endpoints[first].host
                );
                return Err(RunError::invalid(ENDPOINT, &endpoint.host, fix));
            }
            (found @ (NameMeaning::Here(_) | NameMeaning::HereSomehow), None) => {
                own = Some((index, found));
            }
            (NameMeaning::Unknown, _) => notes.warnings.push(format!(
                "{} does not resolve on this host yet; if it is a name of this host, its member of the etcd cluster does \
                 not start, and this launcher has to be started again",
                endpoint.host
            )),
            (NameMeaning::Elsewhere, _) => {}
        }
    }
    let Some((index, found)) = own else { return Ok(None) };
    let local = known.options.local_addr.as_deref();
    let (listen, warning) = listening(&endpoints[index].host, found, local, here);
    notes.warnings.extend(warning);
    Ok(Some((index, listen)))
}
