//! Where the nodes of the job meet, under which name, and whether this host runs the server.
//!
//! With the backend `rallypoint`, one host in the endpoint runs the server itself; several hosts are an etcd
//! that is there already.

mod place;
mod server;

use std::collections::BTreeMap;

pub(super) use self::place::static_endpoint;
use self::place::{Place, place, run_id};
use self::server::server_placement;
use super::error::RunError;
use super::host::HostFacts;
use super::options::Options;
use super::scheduler::Scheduler;
use super::secret::Secret;
use super::values::Nodes;
use crate::config::suggest;
use crate::embedded::{
    RALLYPOINT_BACKEND, RendezvousConfig, SECRET_USER, ServerPlacement, written,
};
use crate::launch::job::Provenance;
use crate::rendezvous::{EtcdOptions, PASSWORD, RendezvousParameters, add_password, parse_config};

/// The backend for an etcd that runs already.
const ETCD: &str = "etcd";

/// Names that torchrun and its plugin know, and the backend of the launcher that does what they ask for.
const ALIASES: [(&str, &str); 4] = [
    ("c10d", RALLYPOINT_BACKEND),
    ("static", RALLYPOINT_BACKEND),
    ("etcd-v2", ETCD),
    ("etcd-v3", ETCD),
];

/// What is known before it is decided where to meet.
pub(super) struct Known<'a> {
    pub(super) options: &'a Options,
    pub(super) host: &'a HostFacts,
    pub(super) scheduler: Scheduler,
    pub(super) nodes: Nodes,
    pub(super) node_rank: Option<u32>,
    pub(super) local_workers: u32,
    pub(super) secret: Option<Secret>,
}

/// What is said of it in the log.
#[derive(Debug, Default)]
pub(super) struct Notes {
    pub(super) provenance: Vec<Provenance>,
    pub(super) warnings: Vec<String>,
}

pub(super) fn rendezvous_config(
    known: &Known<'_>,
    notes: &mut Notes,
) -> Result<RendezvousConfig, RunError> {
    let backend = backend(known, notes)?;
    let place = place(known, backend, notes)?;
    let run_id = run_id(known, &place, notes)?;
    let endpoint = match &place {
        Place::At(endpoints, _) => endpoints.iter().map(written).collect::<Vec<_>>().join(","),
        Place::Standalone | Place::Usual => String::new(),
    };
    let Nodes { min, max } = known.nodes;
    let mut parameters = RendezvousParameters::new(backend, endpoint, run_id, min, max)?;
    parameters.local_addr.clone_from(&known.options.local_addr);
    parameters.config = config(known)?;
    parameters.validate()?;
    let is_host =
        if backend == RALLYPOINT_BACKEND { parameters.get_as_bool("is_host")? } else { None };
    if backend == RALLYPOINT_BACKEND {
        parameters.config.remove("is_host");
    }
    let server = match &place {
        _ if backend != RALLYPOINT_BACKEND => ServerPlacement::Elsewhere,
        Place::Standalone => ServerPlacement::Loopback,
        Place::At(endpoints, origin) => {
            server_placement(known, endpoints, *origin, is_host, notes)?
        }
        Place::Usual => ServerPlacement::Elsewhere,
    };
    let embedded = backend == RALLYPOINT_BACKEND
        && !matches!(&place, Place::At(several, _) if several.len() > 1);
    add_secret(known, &mut parameters, embedded, notes)?;
    let connection = EtcdOptions::from_parameters(&parameters)?.connection;
    let (tls, credentials) = (connection.tls, connection.credentials);
    if server.is_here() && tls.as_ref().is_some_and(|tls| tls.identity.is_none()) {
        let fix = "this host runs the server; give --cert and --key, which it shows its clients";
        return Err(RunError::Missing { name: "--cert", fix: fix.to_owned() });
    }
    Ok(RendezvousConfig { parameters, server, credentials, tls, warnings: Vec::new() })
}

/// The backend: `rallypoint`, or `etcd` for existing servers. Other names that torchrun's users give lead to one
/// of the two, and the log says so.
fn backend(known: &Known<'_>, notes: &mut Notes) -> Result<&'static str, RunError> {
    let asked = known.options.rdzv_backend.as_str();
    if known.options.standalone {
        return Ok(RALLYPOINT_BACKEND);
    }
    let own = [RALLYPOINT_BACKEND, ETCD];
    if let Some(backend) = own.into_iter().find(|backend| *backend == asked) {
        return Ok(backend);
    }
    if let Some((_, backend)) = ALIASES.into_iter().find(|(alias, _)| *alias == asked) {
        let source = format!("--rdzv-backend {asked}, whose part it takes");
        notes.provenance.push(Provenance::new("backend", backend, source));
        return Ok(backend);
    }
    let known = ALIASES.into_iter().map(|(alias, _)| alias).chain(own);
    let guess = match (asked, suggest(asked, known)) {
        ("dynamic", _) => "this one is for programs that use the library; ".to_owned(),
        (_, Some(name)) => format!("did you mean {name}? "),
        (_, None) => String::new(),
    };
    let fix = format!("{guess}give rallypoint, or etcd for existing servers");
    Err(RunError::invalid("--rdzv-backend", asked, fix))
}

/// The backend's options: those that were given, and what is known here.
fn config(known: &Known<'_>) -> Result<BTreeMap<String, String>, RunError> {
    let options = known.options;
    let mut config = parse_config(&options.rdzv_conf)?;
    add_password(&mut config, known.host.environment.get(PASSWORD).cloned());
    let files = [("cacert", &options.cacert), ("cert", &options.cert), ("key", &options.key)];
    for (key, file) in files {
        if let Some(file) = file {
            config.insert(key.to_owned(), file.clone());
        }
    }
    let mut unless_given = |key: &str, value: String| {
        config.entry(key.to_owned()).or_insert(value);
    };
    if options.cacert.is_some() {
        unless_given("protocol", "https".to_owned());
    }
    unless_given("local_world_size", known.local_workers.to_string());
    if options.reopen {
        unless_given("reopen", "true".to_owned());
    }
    if let Some(rank) = known.node_rank {
        unless_given("node_rank", rank.to_string());
    }
    Ok(config)
}

/// The secret becomes a user and a password: the client has options for them, and the server asks for what
/// its clients have.
fn add_secret(
    known: &Known<'_>,
    parameters: &mut RendezvousParameters,
    embedded: bool,
    notes: &mut Notes,
) -> Result<(), RunError> {
    const FIX: &str = "a secret is for the server that the nodes bring; for an etcd give user and password \
                       in --rdzv-conf";
    let Some(secret) = &known.secret else { return Ok(()) };
    let given = ["user", "password"].into_iter().find(|key| parameters.get(key).is_some());
    if embedded && given.is_none() {
        parameters.config.insert("user".to_owned(), SECRET_USER.to_owned());
        parameters.config.insert("password".to_owned(), secret.text.clone());
        return Ok(());
    }
    if secret.is_option {
        let second = given.map_or_else(
            || "servers that are there already".to_owned(),
            |key| format!("{key} in --rdzv-conf"),
        );
        return Err(RunError::Conflict { first: "--secret-file".to_owned(), second, fix: FIX });
    }
    notes.warnings.push(format!("RALLYPOINT_SECRET is not used: {FIX}"));
    Ok(())
}
