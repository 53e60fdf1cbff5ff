//! Where the nodes meet, and under which name. The name is never a fixed word that two jobs could have in
//! common: see [`run_id`].

use std::net::Ipv6Addr;

use super::{Known, Notes};
use crate::cli::run::error::RunError;
use crate::cli::run::values::Nodes;
use crate::client::ETCD_PORT;
use crate::embedded::{DEFAULT_PORT, RALLYPOINT_BACKEND, is_any_port};
use crate::launch::job::Provenance;
use crate::rendezvous::Endpoint;

/// Where it listens in torchrun's static form.
const STATIC_PORT: u16 = 29500;

/// Who named the place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    Endpoint,
    /// torchrun's static form, in which the node of rank 0 is the server.
    Static,
    /// Whoever started us, who gave us a rank too.
    Scheduler,
}

/// Where the nodes meet.
pub(super) enum Place {
    Standalone,
    At(Vec<Endpoint>, Origin),
    /// The backend knows where.
    Usual,
}

/// Where to meet.
pub(super) fn place(
    known: &Known<'_>,
    backend: &str,
    notes: &mut Notes,
) -> Result<Place, RunError> {
    let Known { options, nodes, .. } = known;
    let endpoint = options.rdzv_endpoint.as_deref().map(str::trim).filter(|text| !text.is_empty());
    let is_static = options.master_addr.is_some() || options.master_port.is_some();
    let mut ignore =
        |what: &str, why: &str| notes.warnings.push(format!("{what} is not used: {why}"));
    if options.standalone {
        if endpoint.is_some() {
            ignore("--rdzv-endpoint", "--standalone meets nobody");
        }
        if is_static {
            ignore("--master-addr or --master-port", "--standalone meets nobody");
        }
        return Ok(Place::Standalone);
    }
    if nodes.max == 1 && backend == RALLYPOINT_BACKEND && endpoint.is_some_and(is_any_port) {
        return Ok(Place::Standalone);
    }
    if let Some(endpoint) = endpoint {
        if is_static {
            ignore("--master-addr or --master-port", "--rdzv-endpoint says where to meet");
        }
        let own = backend == RALLYPOINT_BACKEND && !endpoint.contains(',');
        let port = if own { DEFAULT_PORT } else { ETCD_PORT };
        let endpoints = endpoint.split(',').map(|one| Endpoint::parse(one.trim(), port));
        let endpoints: Vec<Endpoint> = endpoints.collect::<Result<_, _>>()?;
        // It would mean another host to each of them.
        if let Some(any) = endpoints.iter().find(|at| matches!(&*at.host, "0.0.0.0" | "[::]")) {
            let fix = "this is no host; name the one that runs the server as all nodes reach it";
            return Err(RunError::invalid("--rdzv-endpoint", any.to_string(), fix));
        }
        return Ok(Place::At(endpoints, Origin::Endpoint));
    }
    if backend != RALLYPOINT_BACKEND {
        return if nodes.max > 1 { Err(no_endpoint(*nodes)) } else { Ok(Place::Usual) };
    }
    let head = known.scheduler.head(&known.host.environment)?.filter(|_| nodes.max > 1);
    if is_static {
        let head = head.as_ref().map_or("127.0.0.1", |head| &head.value.host);
        let address = options.master_addr.as_deref().unwrap_or(head);
        return Ok(Place::At(vec![static_endpoint(address, options.master_port)?], Origin::Static));
    }
    if nodes.max == 1 {
        return Ok(Place::Standalone);
    }
    let Some(head) = head else { return Err(no_endpoint(*nodes)) };
    let endpoint = Endpoint::parse(&head.value.host, DEFAULT_PORT + head.value.port_offset)?;
    notes.provenance.push(Provenance::new("endpoint", &endpoint, head.source));
    Ok(Place::At(vec![endpoint], Origin::Scheduler))
}

/// The place that torchrun's static form names.
pub(in crate::cli::run) fn static_endpoint(
    address: &str,
    port: Option<u16>,
) -> Result<Endpoint, RunError> {
    // An address is not bracketed there as it is in an endpoint.
    let is_v6 = address.parse::<Ipv6Addr>().is_ok();
    let address = if is_v6 { format!("[{address}]") } else { address.to_owned() };
    let mut endpoint = Endpoint::parse(&address, STATIC_PORT).map_err(|_| {
        RunError::invalid("--master-addr", &address, "give the name or the IP address of a host")
    })?;
    if address.contains("://") || endpoint.host != address {
        let fix = "give a host alone; --master-port names the port";
        return Err(RunError::invalid("--master-addr", address, fix));
    }
    endpoint.port = port.unwrap_or(STATIC_PORT);
    Ok(endpoint)
}

fn no_endpoint(nodes: Nodes) -> RunError {
    let fix = format!(
        "{} nodes need a place to meet; give a host that all of them reach, such as --rdzv-endpoint \
         head:{DEFAULT_PORT}, on each of them, and it will run the server",
        nodes.max
    );
    RunError::Missing { name: "--rdzv-endpoint", fix }
}

/// The name of the run: what was given; or for a node that is alone, one that nobody else has; or what the
/// scheduler calls the job; or in torchrun's static form, which has no names, the place, where the node of
/// rank 0 lets no other job in. Otherwise it is an error. A word that all jobs without a name have in common
/// would let a node into the wrong job, and that is found out late.
pub(super) fn run_id(
    known: &Known<'_>,
    place: &Place,
    notes: &mut Notes,
) -> Result<String, RunError> {
    if let Some(id) = &known.options.rdzv_id {
        return Ok(id.clone());
    }
    if known.nodes.max == 1 {
        let id = known.host.fresh_id.clone();
        notes.provenance.push(Provenance::new("run id", &id, "a random number"));
        return Ok(id);
    }
    if let Some(found) = known.scheduler.run_id(&known.host.environment) {
        notes.provenance.push(Provenance::new("run id", &found.value, found.source));
        return Ok(found.value);
    }
    match place {
        Place::At(endpoints, Origin::Static) if known.node_rank.is_some() => {
            let id =
                format!("static-{}", endpoints.iter().map(ToString::to_string).collect::<String>());
            notes.provenance.push(Provenance::new(
                "run id",
                &id,
                "--master-addr and --master-port",
            ));
            Ok(id)
        }
        place => {
            let mut fix =
                "give a name that only the nodes of this job share, the same on each of them"
                    .to_owned();
            if matches!(place, Place::At(_, Origin::Static)) {
                fix.push_str(", or a --node-rank to each");
            }
            Err(RunError::Missing { name: "--rdzv-id", fix })
        }
    }
}
