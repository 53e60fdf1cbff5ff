//! All checks at once, each within its time limit.

use std::future::Future;
use std::net::IpAddr;
use std::time::Duration;

use futures_util::future::join_all;
use rallypoint_core::rendezvous::keys::Keys;
use rustix::process::{Resource, getrlimit};
use tokio::time::{Instant, timeout};

use super::devices::Devices;
use super::disk::Directory;
use super::endpoint::Job;
use super::finding::{Finding, Verdict};
use super::place::EndpointPlace;
use super::server::Expected;
use super::{
    address, clock, descriptors, devices, dial_back, disk, endpoint, host_name, peers, server,
};
use crate::config::{Endpoint, EtcdOptions, RALLYPOINT_BACKEND};
use crate::embedded::{RendezvousConfig, ServerPlacement, ThisHost};
use crate::util::blocking::blocking;

/// The time limit of the checks that ask a name server, a file system or this host itself.
const OWN: Duration = Duration::from_millis(3500);

/// The time limit of the checks of the server, and then of what it tells.
const SERVER: Duration = Duration::from_millis(4800);
const TOLD: Duration = Duration::from_millis(1000);

/// How long the server may take to connect to this host, if the time for its checks is not over before.
const DIAL_BACK: Duration = Duration::from_millis(2300);

/// What is checked: a node's part in a job, and its host.
#[derive(Debug, Clone)]
pub(crate) struct CheckedNode {
    /// This host, with lookups that end in time.
    pub(crate) host: ThisHost,
    /// The rendezvous as the launcher would use it.
    pub(crate) rendezvous: RendezvousConfig,
    /// Whether the run has a name that other nodes know.
    pub(crate) has_run_id: bool,
    pub(crate) local_workers: u32,
    /// The GPUs, if they are to be checked.
    pub(crate) devices: Option<Devices>,
    pub(crate) directories: Vec<Directory>,
    /// Whether the other nodes of the run are looked for, too.
    pub(crate) asks_peers: bool,
}

/// Runs all checks, and returns their findings in a fixed order. Takes less than five seconds, whatever hangs.
pub(crate) async fn run_checks(node: &CheckedNode) -> Vec<Finding> {
    let (name, server, address, disk) = tokio::join!(
        within(OWN, "host_name", name(node)),
        servers(node),
        within(OWN, "address", own_address(node)),
        within(OWN, "disk", disk(node)),
    );
    let nodes = node.rendezvous.parameters.max_nodes;
    let hard_limit = getrlimit(Resource::Nofile).maximum;
    let serves = node.rendezvous.server.is_here();
    let descriptors = descriptors::judge(hard_limit, nodes, node.local_workers, serves);
    let devices = node.devices.as_ref().map(devices::judge);
    let rest = std::iter::once(descriptors).chain(devices);
    [name, server, address].into_iter().flatten().chain(rest).chain(disk).collect()
}

/// The checks whose findings a launcher that waits reports. Of the endpoint and of the other nodes it tells by itself.
const WHILE_WAITING: [&str; 6] =
    ["host_name", "clock", "address", "dial_back", "descriptors", "disk"];

/// Runs the checks, and returns the findings that a launcher should report while it waits for a group.
pub(crate) async fn troubles_while_waiting(node: &CheckedNode) -> Vec<Finding> {
    let mut found = run_checks(node).await;
    let is_trouble = |one: &Finding| matches!(one.verdict, Verdict::Warn | Verdict::Fail);
    found.retain(|one| is_trouble(one) && WHILE_WAITING.contains(&one.check));
    found
}

/// The findings of a check, or one that says that it took too long.
async fn within(
    limit: Duration,
    check: &'static str,
    findings: impl Future<Output = Vec<Finding>>,
) -> Vec<Finding> {
    timeout(limit, findings).await.unwrap_or_else(|_| {
        let message = format!("The check took longer than {limit:?}.");
        vec![Finding::fail(
            check,
            message,
            "A name server or a file system does not answer: find out which",
        )]
    })
}

async fn name(node: &CheckedNode) -> Vec<Finding> {
    let (host, nodes) = (node.host.clone(), node.rendezvous.parameters.max_nodes);
    vec![blocking(move || host_name::judge(&host_name::measure(&host), nodes)).await]
}

async fn disk(node: &CheckedNode) -> Vec<Finding> {
    let directories = node.directories.clone();
    let check = |directory: &Directory| disk::judge(directory, &disk::measure(&directory.path));
    blocking(move || directories.iter().map(check).collect()).await
}

fn endpoints(node: &CheckedNode) -> Vec<Endpoint> {
    match node.rendezvous.server {
        // No other node needs to find it.
        ServerPlacement::Loopback => Vec::new(),
        _ => Endpoint::parse_list(&node.rendezvous.parameters.endpoint).unwrap_or_default(),
    }
}

/// The hosts and ports of the endpoints.
fn servers_of(endpoints: Vec<Endpoint>) -> Vec<(String, u16)> {
    endpoints.into_iter().map(|endpoint| (endpoint.host, endpoint.port)).collect()
}

async fn own_address(node: &CheckedNode) -> Vec<Finding> {
    let parameters = &node.rendezvous.parameters;
    if parameters.max_nodes == 1 {
        return vec![Finding::ok("address", "A job of one node tells its address to no other.")];
    }
    let endpoints = endpoints(node);
    let is_loopback = |endpoint: &Endpoint| {
        endpoint.ip().is_some_and(|ip: IpAddr| ip.is_loopback())
            || endpoint.host.eq_ignore_ascii_case("localhost")
    };
    let has_loopback = endpoints.iter().any(is_loopback);
    let servers = servers_of(endpoints);
    let measured = address::measure(parameters.local_addr.as_deref(), &servers).await;
    vec![address::judge(&measured, &node.host.addresses_for_others(), has_loopback)]
}

/// The endpoint's names, what answers there, and what that tells.
async fn servers(node: &CheckedNode) -> Vec<Finding> {
    let endpoints = endpoints(node);
    if endpoints.is_empty() {
        return vec![Finding::ok(
            "endpoint",
            "A job of one node brings its own server, on loopback.",
        )];
    }
    let check = |endpoint: Endpoint| async move {
        within(SERVER, "server", one_server(node, endpoint)).await
    };
    join_all(endpoints.into_iter().map(check)).await.into_iter().flatten().collect()
}

async fn one_server(node: &CheckedNode, endpoint: Endpoint) -> Vec<Finding> {
    let begun = Instant::now();
    let config = &node.rendezvous;
    let parameters = &config.parameters;
    let (host, name) = (node.host.clone(), endpoint.host.clone());
    let place = blocking(move || EndpointPlace::look(&name, &host)).await;
    let options = EtcdOptions::from_parameters(parameters).ok();
    let node_rank = options.as_ref().and_then(|options| options.handler.node_rank);
    let job = Job { nodes: parameters.max_nodes, node_rank };
    let mut found = vec![endpoint::judge(&place, job)];
    let is_embedded = parameters.backend == RALLYPOINT_BACKEND;
    let run_id = node.has_run_id.then(|| parameters.run_id.clone());
    let expected = Expected { is_embedded, run_id };
    let (answer, server) = server::measure(&endpoint, &place, config).await;
    found.push(server::judge(&endpoint, &place, &expected, &answer));
    let has_others = parameters.max_nodes > 1;
    let Some((client, address)) = server else {
        found.extend(has_others.then(dial_back::not_yet));
        return found;
    };
    let clock = within(TOLD, "clock", async {
        // The header could be read over TLS as well, but by another client.
        let measured = if config.tls.is_some() { None } else { clock::measure(address).await };
        vec![clock::judge(measured)]
    });
    let peers = within(TOLD, "peers", async {
        if !node.asks_peers {
            return Vec::new();
        }
        let Some(options) = options.as_ref().filter(|_| node.has_run_id) else {
            let message =
                "Not checked: without --rdzv-id it is not known which run's nodes these are.";
            return vec![Finding::skip("peers", message)];
        };
        let keys = Keys::new(&options.handler.prefix, &options.handler.run_id);
        match peers::measure(&client, keys.nodes()).await {
            Ok(nodes) => peers::judge(&nodes, &parameters.run_id, node_rank),
            Err(error) => vec![Finding::skip("peers", format!("Not checked: {error}."))],
        }
    });
    let dial_back = async {
        let spent = begun.elapsed() + TOLD / 4;
        let patience = DIAL_BACK.min(SERVER.saturating_sub(spent));
        let given = parameters.local_addr.as_deref();
        let servers = servers_of(endpoints(node));
        let ports = options.as_ref().and_then(|options| options.handler.store_ports);
        let client = client.with_timeout(patience);
        let measured = match dial_back::refusal(&answer) {
            Some(refusal) => Err(refusal),
            None => dial_back::measure(&client, given, &servers, ports).await,
        };
        dial_back::judge(&measured, place.is_here(), &answer)
    };
    let (clock, peers, dial_back) =
        tokio::join!(clock, peers, async { if has_others { Some(dial_back.await) } else { None } });
    found.extend(clock.into_iter().chain(peers).chain(dial_back));
    found
}
