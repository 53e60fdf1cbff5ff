//! Resolves the options, the environment and the host into a [`JobSpec`]: a pure function of the three.

use std::net::SocketAddr;
use std::time::Duration;

use rallypoint_core::agent::{AgentSettings, OnHang};

use super::devices;
use super::engine;
use super::error::RunError;
use super::host::HostFacts;
use super::options::{JobPurpose, Options};
use super::program::program;
use super::rendezvous::{Known, Notes, rendezvous_config};
use super::scheduler::{self, Scheduler};
use super::secret::Secret;
use super::values::{HangAction, Nodes, TimeLimit, Workers, seconds};
use crate::config::PortRange;
use crate::embedded::RendezvousConfig;
use crate::launch::job::{
    Environment, HIDDEN, HandledSignals, JobSpec, LogDirectory, Logs, PortsSpec, PrefixTemplate,
    PreflightCommand, ProgressSign, Provenance,
};
use crate::rendezvous::EtcdOptions;

/// Resolves the job. `provenance` lists the options that were set in the environment.
pub(super) fn job(
    options: &Options,
    provenance: Vec<Provenance>,
    secret: Option<Secret>,
    host: &HostFacts,
) -> Result<JobSpec, RunError> {
    let environment = &host.environment;
    let mut notes = Notes { provenance, warnings: Vec::new() };
    let program = program(options, host)?;
    let scheduler =
        if options.standalone { Scheduler::Unknown } else { Scheduler::detect(environment) };
    let nodes = nodes(options, scheduler, host, &mut notes)?;
    let node_rank = node_rank(options, scheduler, nodes, environment, &mut notes)?;
    let local_workers = local_workers(options, host, scheduler, &mut notes)?;
    let known = Known { options, host, scheduler, nodes, node_rank, local_workers, secret };
    let rendezvous = rendezvous_config(&known, &mut notes)?;
    let etcd_member = engine::etcd_member(&known, &rendezvous, &mut notes)?;
    let remark = remark(&known, &rendezvous);
    let notice = options.notice.unwrap_or_default();
    warn_of_long_notice(notice.time, &rendezvous, &mut notes);
    if local_workers > 1 && !environment.contains_key("OMP_NUM_THREADS") {
        let reason = "the launcher, as there are several workers; set it to what suits them best";
        notes.provenance.push(Provenance::new("OMP_NUM_THREADS", 1, reason));
    }
    let http = http(options, &rendezvous)?;
    let ports = PortsSpec { count: options.ports, range: store_ports(&rendezvous) };
    let agent = AgentSettings {
        host: host.here.name.clone(),
        local_workers,
        shutdown_timeout: shutdown_timeout(options, environment, &mut notes)?,
        notice: notice.time,
        exit_barrier: exit_barrier(options, environment, &mut notes)?,
        no_restart_exit_code: options.no_restart_exit_code.0,
        restart_backoff: options.restart_delay.0,
        hang: options.hang_after.map(|limits| limits.0),
        on_hang: on_hang(options, smallest(&rendezvous), &mut notes),
        ..AgentSettings::default()
    };
    if agent.hang.is_none() && options.progress != ProgressSign::default() {
        notes.warnings.push("--progress has no effect without --hang-after".to_owned());
    }
    let mut inherited = environment.clone();
    for hidden in HIDDEN {
        inherited.remove(hidden);
    }
    let preflight = options
        .preflight
        .clone()
        .map(|command| PreflightCommand { command, timeout: options.preflight_timeout });
    Ok(JobSpec {
        program,
        preflight,
        rendezvous,
        etcd_member,
        agent,
        role: options.role.clone(),
        max_restarts: options.max_restarts,
        handled: HandledSignals {
            signals: options.signals_to_handle.clone().unwrap_or_default(),
            named: options.signals_to_handle.is_some(),
        },
        progress: options.progress.clone(),
        notice_signal: notice.signal,
        logs: logs(options, environment, &mut notes)?,
        http,
        events: options.events.clone(),
        records: options.records,
        stdin: stdin(options, local_workers)?,
        numa_binding: options.numa_binding,
        virtual_local_rank: options.virtual_local_rank,
        ports,
        inherited,
        remark,
        provenance: notes.provenance,
        warnings: notes.warnings,
    })
}

fn nodes(
    options: &Options,
    scheduler: Scheduler,
    host: &HostFacts,
    notes: &mut Notes,
) -> Result<Nodes, RunError> {
    const ONE: Nodes = Nodes { min: 1, max: 1 };
    let wanted = options.nnodes.map(|nodes| nodes.max);
    notes.warnings.extend(scheduler::idle_nodes(&host.environment, wanted));
    match options.nnodes {
        Some(nodes) if options.standalone && nodes.max > 1 => {
            return Err(RunError::conflict(
                "--standalone",
                format!("--nnodes {}:{}", nodes.min, nodes.max),
                "--standalone is one node; several give --rdzv-endpoint instead",
            ));
        }
        Some(nodes) => return Ok(nodes),
        None if options.standalone => return Ok(ONE),
        None => {}
    }
    if let Some(found) = scheduler.nodes(&host.environment)? {
        notes.provenance.push(Provenance::new("number of nodes", found.value, found.source));
        let count = found.value as usize;
        return Ok(Nodes { min: count, max: count });
    }
    Ok(ONE)
}

/// What users should know who wait for nodes: how many the scheduler has started, if the job may have another size and
/// the user has not said how many to wait for; and that nodes on other hosts mean themselves by this endpoint.
fn remark(known: &Known<'_>, rendezvous: &RendezvousConfig) -> Option<String> {
    let Known { scheduler, nodes, node_rank, .. } = *known;
    let mut remarks = Vec::new();
    if nodes.min != nodes.max
        && known.options.planned.is_none()
        // What is not needed need not be right.
        && let Ok(Some(found)) = scheduler.nodes(&known.host.environment)
    {
        let noun = if found.value == 1 { "node is" } else { "nodes are" };
        let (count, source) = (found.value, found.source);
        remarks.push(format!("{count} {noun} planned ({source} is {count})"));
    }
    let endpoint = rendezvous.parameters.endpoint.as_str();
    let host = endpoint.rsplit_once(':').map_or(endpoint, |(host, _)| host);
    if nodes.max > 1 && node_rank != Some(0) && host.eq_ignore_ascii_case("localhost") {
        remarks.push(
            "each host means itself by localhost, so name one in --rdzv-endpoint that all nodes reach, unless all of \
             them are on this host"
                .to_owned(),
        );
    }
    (!remarks.is_empty()).then(|| remarks.join("; "))
}

fn node_rank(
    options: &Options,
    scheduler: Scheduler,
    nodes: Nodes,
    environment: &Environment,
    notes: &mut Notes,
) -> Result<Option<u32>, RunError> {
    // A single node has rank 0.
    if options.node_rank.is_some() || nodes.max == 1 {
        return Ok(options.node_rank);
    }
    let Some(found) = scheduler.rank(environment)? else { return Ok(None) };
    notes.provenance.push(Provenance::new("node rank", found.value, found.source));
    Ok(Some(found.value))
}

fn local_workers(
    options: &Options,
    host: &HostFacts,
    scheduler: Scheduler,
    notes: &mut Notes,
) -> Result<u32, RunError> {
    let gpus = devices::visible(&host.environment, &host.devices);
    let (count, source) = match options.nproc_per_node {
        Workers::Count(count) => return Ok(count),
        Workers::Gpu if gpus.devices == 0 && options.purpose == JobPurpose::Check => return Ok(1),
        Workers::Gpu if gpus.devices == 0 => {
            let fix = format!("{} shows no GPU; give a number, or auto or cpu", gpus.source);
            return Err(RunError::invalid("--nproc-per-node", "gpu", fix));
        }
        Workers::Gpu => (gpus.devices, gpus.source),
        Workers::Auto if gpus.devices > 0 => (gpus.devices, gpus.source),
        Workers::Auto | Workers::Cpu => (host.processors, "the processors of this host"),
    };
    notes.provenance.push(Provenance::new("number of workers", count, source));
    if count > 1 && scheduler.has_several_tasks_a_node(&host.environment)? {
        notes.warnings.push(format!(
            "each task of this step starts {count} workers, and there are more tasks than nodes: give srun \
             --ntasks-per-node 1, or --nproc-per-node 1 if each task is to have one"
        ));
    }
    Ok(count)
}

fn stdin(options: &Options, local_workers: u32) -> Result<Option<u32>, RunError> {
    match options.stdin {
        Some(rank) if rank >= local_workers => {
            let fix = format!("this node has the local ranks 0 to {}", local_workers - 1);
            Err(RunError::invalid("--stdin", rank.to_string(), fix))
        }
        stdin => Ok(stdin),
    }
}

/// The address of `--http`. What it tells is encrypted if the calls of the job are.
fn http(options: &Options, rendezvous: &RendezvousConfig) -> Result<Option<SocketAddr>, RunError> {
    let tls = rendezvous.tls.as_ref().filter(|_| options.http.is_some());
    if tls.is_some_and(|tls| tls.identity.is_none()) {
        let fix = "this job uses TLS, and --http does too; give --cert and --key of this node";
        return Err(RunError::missing("--cert", fix));
    }
    Ok(options.http)
}

/// The ports that nodes may use.
fn store_ports(rendezvous: &RendezvousConfig) -> Option<PortRange> {
    EtcdOptions::from_parameters(&rendezvous.parameters).ok()?.handler.store_ports
}

/// What follows from a hang, with warnings of what would have no effect, or another one than was meant.
fn on_hang(options: &Options, smallest: usize, notes: &mut Notes) -> OnHang {
    if options.on_hang == HangAction::Report {
        return OnHang::Report;
    }
    if options.hang_after.is_none() {
        notes.warnings.push("--on-hang has no effect without --hang-after".to_owned());
    } else if options.max_restarts == 0 {
        notes.warnings.push(
            "--on-hang restart needs a restart, and --max-restarts is 0: a hang that is one node's fault ends the job"
                .to_owned(),
        );
    }
    OnHang::Restart { min_nodes: u32::try_from(smallest).unwrap_or(u32::MAX) }
}

/// The smallest size that the group may have.
fn smallest(rendezvous: &RendezvousConfig) -> usize {
    let options = EtcdOptions::from_parameters(&rendezvous.parameters).ok();
    options.map_or(rendezvous.parameters.min_nodes, |EtcdOptions { handler, .. }| {
        handler.sizes.smallest(handler.limits())
    })
}

/// Warns of a notice that exceeds the last call: nodes end their notice at different times, and the first to rejoin
/// wait for the rest no longer than the last call.
fn warn_of_long_notice(notice: Duration, rendezvous: &RendezvousConfig, notes: &mut Notes) {
    let last_call = EtcdOptions::from_parameters(&rendezvous.parameters).ok();
    if let Some(last_call) = last_call.map(|options| options.handler.last_call)
        && notice > last_call
    {
        notes.warnings.push(format!(
            "--notice {notice:?} is longer than the last call, {last_call:?}: a node that uses all of it may \
             find the group formed without it; give a larger last_call_timeout in --rdzv-conf"
        ));
    }
}

fn shutdown_timeout(
    options: &Options,
    environment: &Environment,
    notes: &mut Notes,
) -> Result<Duration, RunError> {
    let usual = AgentSettings::default().shutdown_timeout;
    let found =
        variable(environment, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "--shutdown-timeout", seconds);
    or_variable(options.shutdown_timeout, found, notes, usual)
}

fn exit_barrier(
    options: &Options,
    environment: &Environment,
    notes: &mut Notes,
) -> Result<Option<Duration>, RunError> {
    let name = "TORCH_ELASTIC_EXIT_BARRIER_TIMEOUT";
    let read = |text: &str| text.parse::<TimeLimit>();
    let found = variable(environment, name, "--exit-barrier-timeout", read);
    let TimeLimit(time) = or_variable(options.exit_barrier_timeout, found, notes, TimeLimit(None))?;
    Ok(time)
}

fn logs(options: &Options, environment: &Environment, notes: &mut Notes) -> Result<Logs, RunError> {
    let name = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE";
    let read = |text: &str| text.parse::<PrefixTemplate>();
    let found = variable(environment, name, "--log-line-prefix-template", read);
    let given = options.log_line_prefix_template.clone();
    let directory = match &options.log_dir {
        None => LogDirectory::Temporary,
        Some(path) if path.as_os_str() == "/dev/null" => LogDirectory::Nowhere,
        Some(path) => LogDirectory::At(path.clone()),
    };
    Ok(Logs {
        directory,
        redirects: options.redirects.clone(),
        tee: options.tee.clone(),
        prefix: or_variable(given, found, notes, PrefixTemplate::default())?,
        console: options.local_ranks_filter.clone(),
    })
}

/// The value of an option in a variable of torchrun.
fn variable<T>(
    environment: &Environment,
    name: &'static str,
    option: &'static str,
    read: impl Fn(&str) -> Result<T, String>,
) -> Option<Result<(T, Provenance), RunError>> {
    let value = environment.get(name).filter(|value| !value.is_empty())?;
    Some(match read(value) {
        Ok(found) => Ok((found, Provenance::new(option, value, name))),
        Err(fix) => Err(RunError::invalid(name, value, fix)),
    })
}

/// The value on the command line, or else of the variable, or else the default.
fn or_variable<T>(
    given: Option<T>,
    found: Option<Result<(T, Provenance), RunError>>,
    notes: &mut Notes,
    usual: T,
) -> Result<T, RunError> {
    match (given, found) {
        (Some(given), _) => Ok(given),
        (None, None) => Ok(usual),
        (None, Some(found)) => {
            let (value, origin) = found?;
            notes.provenance.push(origin);
            Ok(value)
        }
    }
}
