//! The rendezvous of the job by the command line and the scheduler: its endpoint, its name and its options. Which
//! node runs the server is decided in [`crate::embedded`], with the hints that only a launcher has.

mod place;

use std::collections::BTreeMap;

use rallypoint_core::rendezvous::sizes::Limits;

pub(super) use self::place::static_endpoint;
use self::place::{Origin, Place, place, run_id};
use super::error::RunError;
use super::host::HostFacts;
use super::options::Options;
use super::scheduler::Scheduler;
use super::secret::Secret;
use super::values::{Engine, Nodes};
use crate::config::sizes::{SizeOptions, written as written_sizes};
use crate::config::{Backend, RALLYPOINT_BACKEND, check_launcher, suggest};
use crate::embedded::{
    FieldNames, RendezvousConfig, SECRET_USER, ServerHints, given_credential, written,
};
use crate::launch::job::Provenance;
use crate::rendezvous::{PASSWORD, RendezvousParameters, add_password, parse_config};

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
    let Nodes { min, max } = known.nodes;
    let endpoint = written(&place.endpoints);
    let mut parameters = RendezvousParameters::new(backend, endpoint, run_id, min, max)?;
    parameters.local_addr.clone_from(&known.options.local_addr);
    parameters.config = config(known)?;
    parameters.config.extend(sizes(known)?);
    let given = given_credential(&parameters);
    let hints = ServerHints {
        is_rank0: is_rank0(known, &place)?,
        position: position(known, &place)?,
        fields: FieldNames::CommandLine,
    };
    let secret = known.secret.as_ref().map(|secret| secret.text.as_str());
    let mut config = RendezvousConfig::decide(parameters, &known.host.here, secret, hints)?;
    notes.warnings.append(&mut config.warnings);
    check_secret(known, &config, given, notes)?;
    Ok(config)
}

/// Whether this node has rank 0, where ranks are assigned and rank 0 runs the server.
fn is_rank0(known: &Known<'_>, place: &Place) -> Result<Option<bool>, RunError> {
    let max_nodes = known.nodes.max;
    // A node that is alone has rank 0.
    let rank = known.node_rank.or_else(|| (max_nodes == 1).then_some(0));
    match (place.origin, rank) {
        (Origin::Static, Some(rank)) if rank as usize >= max_nodes => {
            let fix = format!("give a rank below the number of nodes, which is {max_nodes}");
            Err(RunError::invalid("--node-rank", rank.to_string(), fix))
        }
        (Origin::Static | Origin::Scheduler, Some(rank)) => Ok(Some(rank == 0)),
        _ => Ok(None),
    }
}

/// The position of this host among those that may serve, where the scheduler tells it.
fn position(known: &Known<'_>, place: &Place) -> Result<Option<usize>, RunError> {
    if place.origin != Origin::Pods {
        return Ok(None);
    }
    let rank = known.scheduler.rank(&known.host.environment)?;
    Ok(rank.map(|rank| rank.value as usize))
}

/// The backend: `rallypoint`, or `etcd` for existing servers. Other names that torchrun's users give lead to one
/// of the two, and the log says so.
fn backend(known: &Known<'_>, notes: &mut Notes) -> Result<&'static str, RunError> {
    let asked = known.options.rdzv_backend.as_str();
    if known.options.standalone {
        return Ok(RALLYPOINT_BACKEND);
    }
    if known.options.engine == Engine::Etcd && Backend::of_launcher(asked).is_some() {
        return Ok(Backend::Etcd.name());
    }
    if let Some(backend) = Backend::of_launcher(asked).map(Backend::name) {
        if backend != asked {
            let source = format!("--rdzv-backend {asked}, whose part it takes");
            notes.provenance.push(Provenance::new("backend", backend, source));
        }
        return Ok(backend);
    }
    let guess = match suggest(asked, Backend::launcher_names()) {
        _ if Backend::named(asked).is_some() => {
            "this one is for programs that use the library; ".to_owned()
        }
        Some(name) => format!("did you mean {name}? "),
        None => String::new(),
    };
    let [own, etcd] = [Backend::Rallypoint, Backend::Etcd].map(Backend::name);
    let fix = format!("{guess}give {own}, or {etcd} for existing servers");
    Err(RunError::invalid("--rdzv-backend", asked, fix))
}

/// The backend's options: those that were given, and what is known here.
fn config(known: &Known<'_>) -> Result<BTreeMap<String, String>, RunError> {
    let options = known.options;
    let mut config = parse_config(&options.rdzv_conf)?;
    check_launcher(&config)?;
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

/// The options for the size of the group, if they allow one.
fn sizes(known: &Known<'_>) -> Result<BTreeMap<String, String>, RunError> {
    let Options { planned, sizes, node_unit, scale_up_after, .. } = known.options;
    let given = SizeOptions {
        planned: *planned,
        sizes: sizes.clone().map(|sizes| sizes.0),
        node_unit: *node_unit,
        scale_up_after: *scale_up_after,
    };
    let Nodes { min, max } = known.nodes;
    given.rules(Limits { min, max }, |name| format!("--{}", name.replace('_', "-")))?;
    let after = Some(scale_up_after.as_secs_f64()).filter(|after| *after > 0.0);
    let options = [
        ("planned", planned.map(|planned| planned.to_string())),
        ("sizes", given.sizes.as_deref().map(written_sizes)),
        ("node_unit", node_unit.map(|unit| unit.to_string())),
        ("scale_up_after", after.map(|after| after.to_string())),
    ];
    Ok(options.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect())
}

/// Says that a secret is not used, where the servers run already or the options give a user.
fn check_secret(
    known: &Known<'_>,
    config: &RendezvousConfig,
    given: Option<&str>,
    notes: &mut Notes,
) -> Result<(), RunError> {
    let fix = match known.options.engine {
        Engine::Embedded => {
            "a secret is for the server that the nodes bring; for an etcd give user and password in --rdzv-conf"
        }
        Engine::Etcd => {
            "an etcd that the job brings has no users; give --cacert, --cert and --key, and it admits who has a \
             certificate"
        }
    };
    let Some(secret) = &known.secret else { return Ok(()) };
    if given.is_none() && config.credentials.as_ref().is_some_and(|used| used.user == SECRET_USER) {
        return Ok(());
    }
    if secret.is_option {
        let second = given.map_or_else(
            || match known.options.engine {
                Engine::Embedded => "servers that are there already".to_owned(),
                Engine::Etcd => "--engine etcd".to_owned(),
            },
            |key| format!("{key} in --rdzv-conf"),
        );
        return Err(RunError::conflict("--secret-file", second, fix));
    }
    notes.warnings.push(format!("RALLYPOINT_SECRET is not used: {fix}"));
    Ok(())
}
