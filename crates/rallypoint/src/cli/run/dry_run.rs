//! A resolved job for people to read, or as JSON: the command, the settings and their origins, and the workers' environment.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write;

use rallypoint_core::agent::environment::{NOTICE_FILE, PROGRESS_FILE, port_variable, variables};
use rallypoint_core::agent::placement::Placement;
use rallypoint_core::agent::{NodeGroup, OnHang, Start, signal_name};
use rallypoint_core::rendezvous::documents::Address;
use serde_json::{Map, Value, json};

use crate::config::Backend;
use crate::embedded::ServerPlacement;
use crate::launch::job::{JobSpec, LogDirectory, Provenance, Streams};

/// Stands for a value that only the rendezvous decides.
const LATER: &str = "<from the group>";

/// Variables that the rendezvous decides even for a single node.
const ALWAYS_LATER: [&str; 5] = [
    "MASTER_ADDR",
    "MASTER_PORT",
    "RALLYPOINT_NODE_ID",
    "RALLYPOINT_ROUND",
    "TORCHELASTIC_RESTART_COUNT",
];

/// Variables that the rendezvous decides if there are several nodes.
const LATER_AMONG_OTHERS: [&str; 6] =
    ["RANK", "GROUP_RANK", "ROLE_RANK", "WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE"];

type Variables = BTreeMap<String, String>;

/// The job as text.
pub(crate) fn text(job: &JobSpec) -> String {
    let mut lines = String::new();
    let mut line = |name: &str, value: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(lines, "{name:<22}{value}");
    };
    line("command", &shell(&command(job)));
    for (name, value) in settings(job) {
        let value = match value {
            Value::Null => "none".to_owned(),
            Value::String(text) => text,
            other => other.to_string(),
        };
        line(&name.replace('_', " "), &value);
    }
    for entry in &job.provenance {
        line("provenance", &entry.to_string());
    }
    for warning in &job.warnings {
        line("warning", warning);
    }
    let workers = workers(job);
    let is_common =
        |name: &str| workers.iter().all(|worker| worker.get(name) == workers[0].get(name));
    lines.push_str("\nevery worker's environment, beside what it inherits\n");
    for (name, value) in workers.first().into_iter().flatten().filter(|(name, _)| is_common(name)) {
        let _ = writeln!(lines, "  {name}={value}");
    }
    for (local_rank, worker) in workers.iter().enumerate() {
        let own: Vec<String> = worker
            .iter()
            .filter(|(name, _)| !is_common(name))
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let own = if own.is_empty() { "nothing else".to_owned() } else { own.join(" ") };
        let _ = writeln!(lines, "worker {local_rank}: {own}");
        if job.program.placeholders {
            let _ = writeln!(lines, "  runs {}", shell(&command_of(job, worker)));
        }
    }
    lines
}

/// The job as one JSON object.
pub(crate) fn as_json(job: &JobSpec) -> String {
    let settings: Map<String, Value> =
        settings(job).into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let provenance = |entry: &Provenance| json!({"what": entry.what, "value": entry.value, "from": entry.source});
    let workers = workers(job);
    let commands: Vec<_> = workers.iter().map(|worker| command_of(job, worker)).collect();
    let report = json!({
        "command": command(job),
        "commands": commands,
        "settings": settings,
        "provenance": job.provenance.iter().map(provenance).collect::<Vec<_>>(),
        "warnings": job.warnings,
        "workers": workers,
    });
    format!("{report:#}\n")
}

fn command(job: &JobSpec) -> Vec<String> {
    words(job, &job.program.arguments)
}

/// The command of a worker with these variables, in which placeholders are replaced.
fn command_of(job: &JobSpec, variables: &Variables) -> Vec<String> {
    words(job, &job.program.arguments_of(variables))
}

fn words(job: &JobSpec, arguments: &[OsString]) -> Vec<String> {
    let words = std::iter::once(&job.program.path).chain(arguments);
    words.map(|word| word.to_string_lossy().into_owned()).collect()
}

/// A command as a shell takes it.
fn shell(command: &[String]) -> String {
    command.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// The settings, by name.
fn settings(job: &JobSpec) -> Vec<(&'static str, Value)> {
    let (parameters, agent, logs) = (&job.rendezvous.parameters, &job.agent, &job.logs);
    let streams = |of: &dyn Fn(u32) -> Streams| {
        let files = (0..agent.local_workers).flat_map(|rank| {
            let streams = of(rank);
            let names = [("stdout", streams.stdout), ("stderr", streams.stderr)];
            names
                .into_iter()
                .filter(|(_, on)| *on)
                .map(move |(name, _)| format!("{rank}/{name}.log"))
        });
        json!(files.collect::<Vec<_>>())
    };
    let options: BTreeMap<&String, &str> = parameters
        .config
        .iter()
        .map(|(key, value)| (key, if key == "password" { "…" } else { value }))
        .collect();
    let notice = Some(agent.notice).filter(|time| !time.is_zero());
    let shown: Vec<u32> = (0..agent.local_workers).filter(|rank| logs.console.has(*rank)).collect();
    vec![
        ("min_nodes", json!(parameters.min_nodes)),
        ("max_nodes", json!(parameters.max_nodes)),
        ("workers", json!(agent.local_workers)),
        ("role", json!(job.role)),
        ("run_id", json!(parameters.run_id)),
        ("backend", json!(parameters.backend)),
        ("endpoint", json!(Some(&parameters.endpoint).filter(|endpoint| !endpoint.is_empty()))),
        ("server", json!(server(job))),
        ("authentication", json!(job.rendezvous.credentials.is_some())),
        ("tls", json!(job.rendezvous.tls.is_some())),
        ("rendezvous_options", json!(options)),
        ("local_address", json!(parameters.local_addr)),
        ("max_restarts", json!(job.max_restarts)),
        (
            "restart_delay",
            json!([
                agent.restart_backoff.first.as_secs_f64(),
                agent.restart_backoff.longest.as_secs_f64()
            ]),
        ),
        ("no_restart_exit_code", json!(agent.no_restart_exit_code)),
        ("shutdown_seconds", json!(agent.shutdown_timeout.as_secs_f64())),
        ("notice_seconds", json!(notice.map(|time| time.as_secs_f64()))),
        ("notice_signal", json!(notice.and_then(|_| signal_name(job.notice_signal)))),
        (
            "hang_after_seconds",
            json!(agent.hang.map(|hang| [hang.after.as_secs_f64(), hang.first.as_secs_f64()])),
        ),
        ("on_hang", json!(agent.hang.map(|_| on_hang(agent.on_hang)))),
        ("progress", json!(agent.hang.map(|_| job.progress.to_string()))),
        ("exit_barrier_seconds", json!(agent.exit_barrier.map(|time| time.as_secs_f64()))),
        ("signals", json!(job.handled.signals.to_string())),
        ("preflight", json!(job.preflight.as_ref().map(|preflight| &preflight.command))),
        (
            "preflight_seconds",
            json!(job.preflight.as_ref().map(|preflight| preflight.timeout.as_secs_f64())),
        ),
        ("stdin_of", json!(job.stdin)),
        ("numa_binding", json!(job.numa_binding.map(|binding| format!("{binding:?}")))),
        ("virtual_local_rank", json!(job.virtual_local_rank)),
        ("ports", json!(job.ports.count)),
        ("placeholders", json!(job.program.placeholders)),
        ("log_directory", json!(log_directory(&logs.directory))),
        ("redirected", streams(&|rank| logs.redirects.of(rank))),
        ("copied", streams(&|rank| logs.tee.of(rank))),
        ("line_prefix", json!(logs.prefix.to_string())),
        ("on_console", json!(shown)),
        ("http", json!(job.http)),
        ("events", json!(job.events.as_ref().map(|file| file.to_string_lossy()))),
        ("records", json!(job.records)),
    ]
}

fn on_hang(action: OnHang) -> &'static str {
    match action {
        OnHang::Report => "report",
        OnHang::Restart { .. } => "restart",
    }
}

fn server(job: &JobSpec) -> String {
    if let Some(member) = &job.etcd_member {
        let (of, address) = (member.endpoints.len(), member.client_address());
        return format!("one of {of} etcds, as a child of this process, at {address}");
    }
    match job.rendezvous.server {
        ServerPlacement::Elsewhere => "elsewhere".to_owned(),
        ServerPlacement::Loopback => "in this process, on loopback at a free port".to_owned(),
        ServerPlacement::Here { address, required: true } => {
            format!("in this process, at {address}")
        }
        ServerPlacement::Here { address, required: false } => {
            format!("in this process, at {address}, unless one is there already")
        }
        ServerPlacement::Undecided { resolves: true } => {
            "elsewhere, unless the endpoint turns out to mean this host".to_owned()
        }
        ServerPlacement::Undecided { resolves: false } => {
            "not known yet: the endpoint does not resolve on this host".to_owned()
        }
        ServerPlacement::Order { is_here: true } => {
            "in this process, or on another host of the endpoint, which succeed each other"
                .to_owned()
        }
        ServerPlacement::Order { is_here: false } => {
            "on one of the hosts of the endpoint, which succeed each other".to_owned()
        }
    }
}

fn log_directory(directory: &LogDirectory) -> String {
    match directory {
        LogDirectory::Temporary => "a new temporary one".to_owned(),
        LogDirectory::At(path) => path.to_string_lossy().into_owned(),
        LogDirectory::Nowhere => "none".to_owned(),
    }
}

/// The environment of each worker of the first start, by local rank.
fn workers(job: &JobSpec) -> Vec<Variables> {
    let local_workers = job.agent.local_workers;
    let parameters = &job.rendezvous.parameters;
    let store = Address { host: LATER.to_owned(), port: 0 };
    let start = Start {
        attempt: 0,
        group: NodeGroup { round: 0, rank: 0, nodes: 1, restarts: 0, store },
        placement: Placement::identical(0, 1, local_workers),
    };
    let is_own = Backend::named(&parameters.backend).is_some_and(Backend::is_own);
    let serves = parameters.get_as_bool("use_agent_store").ok().flatten();
    let environment = job.environment(LATER, serves.unwrap_or(is_own));
    let file = match job.logs.directory {
        LogDirectory::Nowhere => "",
        _ => "<in the log directory>",
    };
    let worker = |local_rank| {
        let mut variables = variables(&environment, &start, local_rank, file);
        variables.insert(NOTICE_FILE.to_owned(), file.to_owned());
        if job.agent.hang.is_some() {
            variables.insert(PROGRESS_FILE.to_owned(), "<in a temporary directory>".to_owned());
        }
        let among_others = LATER_AMONG_OTHERS.iter().filter(|_| parameters.max_nodes > 1);
        for name in ALWAYS_LATER.iter().chain(among_others) {
            variables.insert((*name).to_owned(), LATER.to_owned());
        }
        variables.extend((0..job.ports.count).map(|port| (port_variable(port), LATER.to_owned())));
        variables
    };
    (0..local_workers).map(worker).collect()
}

/// A word, quoted for a shell if necessary.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_=+./:,@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests;
