//! The endpoint of the job and its name, by the command line or the scheduler. The name is never a fixed word that two
//! jobs could share: see [`run_id`].

use std::net::Ipv6Addr;

use super::{Known, Notes};
use crate::cli::run::error::RunError;
use crate::cli::run::options::JobPurpose;
use crate::cli::run::scheduler::{Head, ORDER, Scheduler};
use crate::cli::run::values::{Engine, Nodes};
use crate::config::{Endpoint, RALLYPOINT_BACKEND};
use crate::embedded::{DEFAULT_PORT, FieldNames, leaves_port_open};
use crate::launch::job::Provenance;

/// Where it listens in torchrun's static form.
const STATIC_PORT: u16 = 29500;

/// Where the endpoint comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// There is none: the node is alone, or the backend has a default.
    Default,
    /// `--rdzv-endpoint`.
    Endpoint,
    /// torchrun's static form, in which the node of rank 0 is the server.
    Static,
    /// The scheduler, which has assigned a rank too.
    Scheduler,
    /// `--rdzv-endpoint`, which names a pod of an indexed job: the index is the position.
    Pods,
}

/// The servers of the job.
pub(super) struct Place {
    /// Their addresses; none by default.
    pub(super) endpoints: Vec<Endpoint>,
    /// Where they come from.
    pub(super) origin: Origin,
}

impl Place {
    const DEFAULT: Self = Self { endpoints: Vec::new(), origin: Origin::Default };
}

/// Finds the servers of the job.
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
            ignore("--rdzv-endpoint", "--standalone runs a single node");
        }
        if is_static {
            ignore("--master-addr or --master-port", "--standalone runs a single node");
        }
        return Ok(Place::DEFAULT);
    }
    if backend == RALLYPOINT_BACKEND
        && endpoint.is_some_and(|endpoint| leaves_port_open(endpoint, nodes.max))
    {
        return Ok(Place::DEFAULT);
    }
    if let Some(endpoint) = endpoint {
        if is_static {
            ignore("--master-addr or --master-port", "--rdzv-endpoint says where to meet");
        }
        let endpoints = match options.engine {
            Engine::Embedded => FieldNames::CommandLine.endpoints(endpoint, backend)?,
            Engine::Etcd => Endpoint::parse_all(endpoint, DEFAULT_PORT)?,
        };
        let is_order = known.scheduler == Scheduler::Kubernetes
            && backend == RALLYPOINT_BACKEND
            && options.engine == Engine::Embedded
            && nodes.max >= ORDER;
        if let ([first], true) = (&endpoints[..], is_order)
            && let Some(index) = known.scheduler.rank(&known.host.environment)?
            && let Some(endpoints) = pods(first, index.value, &known.host.here.name)
        {
            let source = "the endpoint and JOB_COMPLETION_INDEX".to_owned();
            notes.provenance.push(Provenance::new("endpoint", listed(&endpoints), source));
            return Ok(Place { endpoints, origin: Origin::Pods });
        }
        return Ok(Place { endpoints, origin: Origin::Endpoint });
    }
    if backend != RALLYPOINT_BACKEND {
        return if nodes.max > 1 { Err(no_endpoint(*nodes)) } else { Ok(Place::DEFAULT) };
    }
    let head = known.scheduler.head(&known.host.environment)?.filter(|_| nodes.max > 1);
    if is_static {
        let head = head.as_ref().map_or("127.0.0.1", |head| &head.value.host);
        let address = options.master_addr.as_deref().unwrap_or(head);
        let endpoints = vec![static_endpoint(address, options.master_port)?];
        return Ok(Place { endpoints, origin: Origin::Static });
    }
    if nodes.max == 1 {
        return Ok(Place::DEFAULT);
    }
    let Some(head) = head else { return Err(no_endpoint(*nodes)) };
    let Head { host, successors, port_offset } = head.value;
    // Two nodes cannot outvote each other.
    let successors =
        if nodes.max < ORDER || successors.len() + 1 < ORDER { &[] } else { &successors[..] };
    let hosts = std::iter::once(&host).chain(successors);
    let endpoints = hosts.map(|host| Endpoint::parse(host, DEFAULT_PORT + port_offset));
    let endpoints = endpoints.collect::<Result<Vec<_>, _>>()?;
    notes.provenance.push(Provenance::new("endpoint", listed(&endpoints), head.source));
    Ok(Place { endpoints, origin: Origin::Scheduler })
}

fn listed(endpoints: &[Endpoint]) -> String {
    endpoints.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// In Kubernetes, the names of the first pods of an indexed job, if the endpoint is that of the first one: they may
/// succeed each other. The name of a pod is that of the job and its index, and then the service. A pod of another name
/// belongs to another job, and the endpoint may be a server outside of this one.
fn pods(endpoint: &Endpoint, index: u32, own_name: &str) -> Option<Vec<Endpoint>> {
    let (pod, service) = endpoint.host.split_once('.')?;
    let job = pod.strip_suffix("-0")?;
    let own_pod = own_name.split_once('.').map_or(own_name, |(pod, _)| pod);
    if own_pod != format!("{job}-{index}") {
        return None;
    }
    let named = |index| Endpoint { host: format!("{job}-{index}.{service}"), ..endpoint.clone() };
    Some((0..ORDER).map(named).collect())
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
    FieldNames::CommandLine.missing_endpoint(nodes.max).into()
}

/// The name of the run: the given one; or for a node that is alone, a random one; or the scheduler's name of the job;
/// or in torchrun's static form, which has no names, the endpoint, at which the node of rank 0 lets no other job in.
/// Otherwise it is an error. A word that all jobs without a name share would let a node into the wrong job, and that
/// shows late.
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
    let is_static = place.origin == Origin::Static;
    if is_static && known.node_rank.is_some() {
        let id = format!(
            "static-{}",
            place.endpoints.iter().map(ToString::to_string).collect::<String>()
        );
        notes.provenance.push(Provenance::new("run id", &id, "--master-addr and --master-port"));
        return Ok(id);
    }
    if known.options.purpose == JobPurpose::Check {
        return Ok(known.host.fresh_id.clone());
    }
    let mut fix =
        "give a name that only the nodes of this job share, the same on each of them".to_owned();
    if is_static {
        fix.push_str(", or a --node-rank to each");
    }
    Err(RunError::missing("--rdzv-id", fix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_pods_succeed_each_other_if_the_endpoint_is_one_of_this_job() {
        let hosts = |endpoint: &str, index, own_name: &str| {
            let found = pods(&Endpoint::parse(endpoint, DEFAULT_PORT).unwrap(), index, own_name);
            found.map(|found| listed(&found))
        };
        let order = "train-0.train:29400,train-1.train:29400,train-2.train:29400";
        for (endpoint, index, own_name, expected) in [
            ("train-0.train", 0, "train-0", Some(order)),
            ("train-0.train", 7, "train-7", Some(order)),
            ("train-0.train", 1, "train-1.train.default.svc", Some(order)),
            // A server of its own, beside the job.
            ("rdzv-0.rdzv", 0, "train-0", None),
            ("train-0.train", 1, "train-0", None),
            ("train-1.train", 0, "train-0", None),
            ("train-0", 0, "train-0", None),
        ] {
            let found = hosts(endpoint, index, own_name);
            assert_eq!(found.as_deref(), expected, "{endpoint} on {own_name}");
        }
    }
}
