//! One node's part in a job, fully specified: the input of the launcher. Nothing here reads a command line.

mod prefix_template;
mod streams;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use rallypoint_core::agent::environment::JobEnvironment;
use rallypoint_core::agent::placeholders::expand;
use rallypoint_core::agent::{AgentSettings, signal_name};

pub(crate) use self::prefix_template::{LineSource, PrefixTemplate};
pub(crate) use self::streams::{LocalRanks, StreamSelection, Streams};
pub(crate) use crate::config::ProgressSign;
use crate::embedded::RendezvousConfig;
use crate::etcd_server::MemberPlan;
pub(crate) use crate::launch::ports::PortsSpec;
use crate::rendezvous::PASSWORD;

/// Environment variables, as far as they are valid UTF-8.
pub(crate) type Environment = BTreeMap<String, String>;

/// The variable with the secret that the nodes of a job share.
pub(crate) const SECRET: &str = "RALLYPOINT_SECRET";

/// The variables that workers do not inherit.
pub(crate) const HIDDEN: [&str; 2] = [SECRET, PASSWORD];

/// One node's part in a job.
#[derive(Debug, Clone)]
pub(crate) struct JobSpec {
    /// The program of every worker.
    pub(crate) program: Program,
    /// The command that must succeed before this node joins.
    pub(crate) preflight: Option<PreflightCommand>,
    /// How this node finds the other nodes.
    pub(crate) rendezvous: RendezvousConfig,
    /// The member of the job's etcd cluster that this node runs.
    pub(crate) etcd_member: Option<MemberPlan>,
    /// The policy for this node's workers.
    pub(crate) agent: AgentSettings,
    /// The role of this node's workers.
    pub(crate) role: String,
    /// The restart limit of the job.
    pub(crate) max_restarts: u32,
    /// The signals that end the launcher, by way of its workers.
    pub(crate) handled: HandledSignals,
    /// The sign by which workers show progress, if the launcher looks for it.
    pub(crate) progress: ProgressSign,
    /// The signal that notifies workers of their stop, if there is a notice.
    pub(crate) notice_signal: i32,
    /// Destinations of the workers' output.
    pub(crate) logs: Logs,
    /// The address at which this node tells its health and metrics over HTTP.
    pub(crate) http: Option<SocketAddr>,
    /// The file to which the events of this node are appended.
    pub(crate) events: Option<PathBuf>,
    /// Whether the file also has what the machines of this node were told, for a replay.
    pub(crate) records: bool,
    /// The local rank of the worker that gets standard input, if the user chose one.
    pub(crate) stdin: Option<u32>,
    /// The processors that each worker is bound to.
    pub(crate) numa_binding: Option<NumaBinding>,
    /// Whether each worker sees one device, and has LOCAL_RANK 0.
    pub(crate) virtual_local_rank: bool,
    /// The ports that the workers want in each round.
    pub(crate) ports: PortsSpec,
    /// The environment that workers inherit, without [`HIDDEN`].
    pub(crate) inherited: Environment,
    /// What users should know who wait for nodes: how many were started, or that nodes of other hosts cannot come.
    pub(crate) remark: Option<String>,
    /// The values that were not on the command line, with their origins.
    pub(crate) provenance: Vec<Provenance>,
    /// Settings that deserve a second look.
    pub(crate) warnings: Vec<String>,
}

impl JobSpec {
    /// The rank that this node was given, if it was given one.
    pub(crate) fn node_rank(&self) -> Option<u32> {
        self.rendezvous.parameters.get("node_rank")?.parse().ok()
    }

    /// The values from which the workers' environment is made, once the node has an id and the server of the workers'
    /// store is known.
    pub(crate) fn environment(&self, node_id: &str, use_agent_store: bool) -> JobEnvironment {
        JobEnvironment {
            run_id: self.rendezvous.parameters.run_id.clone(),
            node_id: node_id.to_owned(),
            role: self.role.clone(),
            local_workers: self.agent.local_workers,
            max_restarts: self.max_restarts,
            use_agent_store,
            signals_to_handle: self.handled.signals.to_string(),
            virtual_local_rank: self.virtual_local_rank,
            ports: Vec::new(),
            inherited: self.inherited.clone(),
        }
    }
}

/// A program and its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) path: OsString,
    pub(crate) arguments: Vec<OsString>,
    /// Whether placeholders in the arguments stand for values of the worker. Otherwise arguments are passed on
    /// unchanged.
    pub(crate) placeholders: bool,
}

impl Program {
    /// The arguments of a worker with these variables. What is no text is passed on unchanged.
    pub(crate) fn arguments_of(&self, variables: &BTreeMap<String, String>) -> Vec<OsString> {
        let expanded = |argument: &OsString| match argument.to_str() {
            Some(text) if self.placeholders => expand(text, variables).into(),
            _ => argument.clone(),
        };
        self.arguments.iter().map(expanded).collect()
    }
}

/// A command of the shell that must succeed before a node joins the rendezvous.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PreflightCommand {
    pub(crate) command: String,
    /// The time limit of one run.
    pub(crate) timeout: Duration,
}

/// A value that was not on the command line, and its origin, for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Provenance {
    pub(crate) what: String,
    pub(crate) value: String,
    pub(crate) source: String,
}

impl Provenance {
    pub(crate) fn new(
        what: impl Into<String>,
        value: impl ToString,
        source: impl Into<String>,
    ) -> Self {
        Self { what: what.into(), value: value.to_string(), source: source.into() }
    }
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, value, source } = self;
        write!(f, "{what} {value} from {source}")
    }
}

/// The signals that end the launcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HandledSignals {
    pub(crate) signals: SignalList,
    /// The user named the signals: the launcher handles them even if they were ignored when it started.
    pub(crate) named: bool,
}

/// Signal numbers, in the order in which they were named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SignalList(pub(crate) Vec<i32>);

impl Default for SignalList {
    /// SIGTERM, SIGINT, SIGHUP and SIGQUIT.
    fn default() -> Self {
        Self(vec![15, 2, 1, 3])
    }
}

impl fmt::Display for SignalList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().copied().filter_map(signal_name).collect();
        f.write_str(&names.join(","))
    }
}

/// Destinations of the workers' output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Logs {
    pub(crate) directory: LogDirectory,
    /// Streams that go to files instead of the console.
    pub(crate) redirects: StreamSelection,
    /// Streams that go to files and to the console.
    pub(crate) tee: StreamSelection,
    /// The prefix of a line on the console.
    pub(crate) prefix: PrefixTemplate,
    /// The workers whose output is on the console.
    pub(crate) console: LocalRanks,
}

/// The directory of the workers' files, as the user chose it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LogDirectory {
    /// A new directory below the system's temporary directory.
    Temporary,
    /// This directory.
    At(PathBuf),
    /// Workers have no files.
    Nowhere,
}

/// The processors that a worker is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NumaBinding {
    /// Those of its device's NUMA node.
    Node,
    /// Those of its device's socket.
    Socket,
    /// Its own share of the NUMA node.
    Exclusive,
    /// Those that share one last-level cache.
    CoreComplex,
}
