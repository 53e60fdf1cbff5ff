//! The options of `rallypoint run`, as the user types them. [`super::job`] makes a job of them.
//!
//! Names and meanings are torchrun's where torchrun has the option. The order is that of the help.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use super::values::{
    Delay, Engine, HangAction, HangAfter, NoRestart, Nodes, NoticeOption, SizeList, TimeLimit,
    Workers, interval, name, ports, seconds, shell_command,
};
use crate::config::RALLYPOINT_BACKEND;
use crate::launch::job::{
    LocalRanks, NumaBinding, PrefixTemplate, ProgressSign, SignalList, StreamSelection,
};

const NODES: &str = "Nodes and workers";
const MEETING: &str = "Rendezvous";
const STATIC: &str = "Rendezvous, torchrun's static form";
const SECURITY: &str = "Security";
const STOPPING: &str = "Restarts and stopping";
const PROGRAM: &str = "Program";
const OUTPUT: &str = "Output of the workers";
const MONITORING: &str = "Monitoring";

const AFTER_HELP: &str = "\
Option names take dashes or underscores, and may be abbreviated to any unambiguous prefix. Each option
can also be set in the environment: PET_NNODES for --nnodes, and so on, with 0 or 1 for options
without a value. The command line takes precedence. Missing values come from Slurm, Open MPI, an
indexed Kubernetes job, LeaderWorkerSet, SkyPilot, AWS Batch, Flux, LSF or PBS, if one of them started
this command.

Examples:
  Four workers on this host, any program:
    rallypoint run --standalone --nproc-per-node 4 -- sh -c 'echo \"rank $RANK of $WORLD_SIZE\"'
  A Python script, one worker for each GPU, on two to four hosts; the same line on each of them:
    rallypoint run --nnodes 2:4 --nproc-per-node gpu --rdzv-endpoint head --rdzv-id job7 \\
        --max-restarts 3 train.py --epochs 10
  On three hosts that succeed each other as the host of the server, so that any one of them may be lost:
    rallypoint run --nnodes 2:4 --rdzv-endpoint a,b,c --rdzv-id job7 ./train
  The same under Slurm, which supplies the other values:
    srun --ntasks-per-node 1 rallypoint run --nproc-per-node gpu train.py
  In groups of 4 or 8 hosts, whose workers are not restarted for new hosts within 10 minutes of a start:
    rallypoint run --nnodes 4:8 --node-unit 4 --planned 8 --scale-up-after 600 --rdzv-endpoint head \\
        --rdzv-id job7 train.py
  With an etcd of its own on three of its hosts, which need the etcd binary:
    rallypoint run --nnodes 2:4 --engine etcd --rdzv-endpoint a,b,c --rdzv-id job7 ./train
  On an existing etcd cluster:
    rallypoint run --nnodes 4 --rdzv-backend etcd --rdzv-endpoint a,b,c --rdzv-id job7 ./train
  A node joins only if its GPUs answer:
    rallypoint run --nnodes 2:4 --rdzv-endpoint head --rdzv-id job7 --preflight 'nvidia-smi -L' train.py
  Print the resolved job without running it:
    rallypoint run --dry-run --nproc-per-node auto train.py

Exit codes:
  0        the workers of this node succeeded; or it was a spare; or the job finished without it
  1        the job failed, here or elsewhere; or this node could not continue
  2        the command line is wrong
  69       the preflight command failed (--preflight), and this node did not join
  75       this node had a group, and no server has answered since (server_timeout)
  77       this node was evicted, by an operator (rallypoint evict) or for a hang (--on-hang)
  78       a worker failed with a non-retryable exit code (--no-restart-exit-code)
  128 + n  stopped by signal n";

/// What the options of a job are read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum JobPurpose {
    /// The job is to be run.
    #[default]
    Run,
    /// The job is to be checked: it needs no program, no name and no GPU yet.
    Check,
}

/// The text after the options, with the options of the backend from their table.
fn after_help() -> String {
    let (first, rest) = AFTER_HELP.split_once("Examples:").unwrap_or((AFTER_HELP, ""));
    format!("{first}{}\nExamples:{rest}", crate::config::help())
}

/// Run this node's workers of a distributed job, and restart them when its membership changes
#[derive(Debug, Clone, Parser)]
#[command(name = "run", after_help = after_help(), override_usage = "rallypoint run [OPTIONS] [--] PROGRAM [ARGS]...")]
pub(crate) struct Options {
    /// Number of nodes: N, or MIN:MAX for an elastic job [default: 1]
    #[arg(long, value_name = "N|MIN:MAX", help_heading = NODES)]
    pub(super) nnodes: Option<Nodes>,
    /// Number of nodes that are planned to come, within --nnodes MIN:MAX. When they are there, the job starts without
    /// waiting for more; with fewer it starts when the last call is over
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = NODES)]
    pub(super) planned: Option<u32>,
    /// The only sizes that the group may have, such as 2,4,8. The largest that fits is taken, and further nodes are
    /// spares
    #[arg(long, value_name = "N,...", help_heading = NODES)]
    pub(super) sizes: Option<SizeList>,
    /// The group has a multiple of this number of nodes, and further nodes are spares
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = NODES)]
    pub(super) node_unit: Option<u32>,
    /// Seconds after a group has formed in which it does not re-form for late nodes alone. A failure or a lost node
    /// re-forms it at once, with the late nodes
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = seconds, help_heading = NODES)]
    pub(super) scale_up_after: Duration,
    /// Number of workers on this node: a number, cpu, gpu, or auto (GPUs if there are any, else CPUs)
    #[arg(long, value_name = "N|auto|cpu|gpu", default_value = "1", help_heading = NODES)]
    pub(super) nproc_per_node: Workers,
    /// Single-node job with its own rendezvous server on loopback
    #[arg(long, help_heading = NODES)]
    pub(super) standalone: bool,
    /// Preferred rank of this node
    #[arg(long, value_name = "RANK", help_heading = NODES)]
    pub(super) node_rank: Option<u32>,
    /// Address at which the other nodes reach this one, if the detected one is wrong
    #[arg(long, value_name = "HOST", value_parser = name, help_heading = NODES)]
    pub(super) local_addr: Option<String>,
    /// Role of this node's workers; ROLE_RANK and ROLE_WORLD_SIZE are assigned per role
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = name, help_heading = NODES)]
    pub(super) role: String,

    /// Rendezvous server: the host that runs it, on port 29400 by default. Of several hosts, separated by commas, the
    /// first one serves, and the others succeed it when it is lost; with --engine etcd they run the members of an etcd
    /// cluster. With --rdzv-backend etcd: an existing etcd, on port 2379 by default
    #[arg(long, value_name = "HOST[:PORT],...", help_heading = MEETING)]
    pub(super) rdzv_endpoint: Option<String>,
    /// Server that the named hosts run: embedded, Rallypoint's own on one host; or etcd, one member of an etcd cluster
    /// on each of three hosts (or 5, 7, 9), so that the job survives the loss of any of them. Each of them needs an etcd
    /// binary: TORCHELASTIC_ETCD_BINARY_PATH, or beside this program, or in PATH. Members use port 29400 by default, and
    /// the next one among themselves
    #[arg(long, value_name = "embedded|etcd", default_value = "embedded", help_heading = MEETING)]
    pub(super) engine: Engine,
    /// Job id: the same on all nodes of the job, and different from any other job's
    #[arg(long, value_name = "NAME", value_parser = name, help_heading = MEETING)]
    pub(super) rdzv_id: Option<String>,
    /// If a job with this id has finished, start it again instead of refusing to
    #[arg(long, help_heading = MEETING)]
    pub(super) reopen: bool,
    /// Rendezvous backend: rallypoint, or etcd for existing servers
    #[arg(long, value_name = "NAME", default_value = RALLYPOINT_BACKEND, value_parser = name, help_heading = MEETING)]
    pub(super) rdzv_backend: String,
    /// Backend options, such as lease_ttl=5,last_call_timeout=10,timeout=600; they are listed below
    #[arg(long, value_name = "KEY=VALUE,...", default_value = "", hide_default_value = true, help_heading = MEETING)]
    pub(super) rdzv_conf: String,
    /// Host of the node with --node-rank 0, which runs the rendezvous server
    #[arg(long, value_name = "HOST", value_parser = name, help_heading = STATIC)]
    pub(super) master_addr: Option<String>,
    /// Port of the rendezvous server [default: 29500]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..), help_heading = STATIC)]
    pub(super) master_port: Option<u16>,

    /// File with the shared secret of this job's nodes; the server refuses nodes without it [default: the
    /// variable RALLYPOINT_SECRET]
    #[arg(long, value_name = "FILE", help_heading = SECURITY)]
    pub(super) secret_file: Option<PathBuf>,
    /// CA certificates that verify the servers, PEM; enables TLS
    #[arg(long, value_name = "FILE", help_heading = SECURITY)]
    pub(super) cacert: Option<String>,
    /// Certificate of this node, PEM; required on the host that runs the server
    #[arg(long, value_name = "FILE", help_heading = SECURITY)]
    pub(super) cert: Option<String>,
    /// Private key of the certificate, PEM
    #[arg(long, value_name = "FILE", help_heading = SECURITY)]
    pub(super) key: Option<String>,

    /// Restart limit for the whole job; membership changes do not count
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = STOPPING)]
    pub(super) max_restarts: u32,
    /// Backoff before restarting workers that failed twice in a row within a minute of their start: the first pause
    /// and, doubling each time, the longest; one number sets both. A first failure is not delayed
    #[arg(long, value_name = "SECONDS[:LONGEST]", default_value = "1:30", help_heading = STOPPING)]
    pub(super) restart_delay: Delay,
    /// Worker exit code that marks a failure as non-retryable, or none
    #[arg(long, value_name = "CODE", default_value = "78", help_heading = STOPPING)]
    pub(super) no_restart_exit_code: NoRestart,
    /// Notify workers this long before a stop for a new node, or, on all nodes, after SIGTERM to one launcher: in
    /// the file RALLYPOINT_NOTICE_FILE, and by SIGUSR1 or the given signal if they handle it
    #[arg(long, value_name = "SECONDS[:SIGNAL]", help_heading = STOPPING)]
    pub(super) notice: Option<NoticeOption>,
    /// Time that workers have to stop before they are killed
    /// [default: TORCH_ELASTIC_SHUTDOWN_TIMEOUT, or 30]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, help_heading = STOPPING)]
    pub(super) shutdown_timeout: Option<Duration>,
    /// If no worker of a node has made progress for this long, log where the workers of all nodes are. The first sign of
    /// progress after a start may take longer, three times as long by default
    #[arg(long, value_name = "SECONDS[:FIRST]", help_heading = STOPPING)]
    pub(super) hang_after: Option<HangAfter>,
    /// What follows from a hang: report, only the log; or restart: if the stacks name an odd node, the job restarts
    /// without it, or with it if fewer than the least number of nodes would be left. It uses a restart. The option of
    /// the node with rank 0 holds
    #[arg(long, value_name = "report|restart", default_value = "report", help_heading = STOPPING)]
    pub(super) on_hang: HangAction,
    /// Sign of progress for --hang-after: output of a worker; beat, a write to the file RALLYPOINT_PROGRESS_FILE, as
    /// rallypoint.beat() makes it; a change of a file; or auto: beats once there are any, until then the output of the
    /// workers of the node with rank 0
    #[arg(long, value_name = "auto|output|beat|file:PATH", default_value = "auto", help_heading = STOPPING)]
    pub(super) progress: ProgressSign,
    /// Time that a node whose workers succeeded waits for the other nodes, or none for no limit
    /// [default: TORCH_ELASTIC_EXIT_BARRIER_TIMEOUT, or none]
    #[arg(long, value_name = "SECONDS", help_heading = STOPPING)]
    pub(super) exit_barrier_timeout: Option<TimeLimit>,
    /// Signals that stop the workers and then this launcher. SIGUSR1 and SIGUSR2, unless listed here, are forwarded
    /// to the workers that handle them. A signal that was ignored at start, as under nohup, stays ignored unless
    /// listed here [default: SIGTERM,SIGINT,SIGHUP,SIGQUIT]
    #[arg(long, value_name = "NAME,...", help_heading = STOPPING)]
    pub(super) signals_to_handle: Option<SignalList>,
    /// Accepted for compatibility with torchrun; has no effect, since nothing here polls
    #[arg(long, value_name = "SECONDS", default_value = "0.1", value_parser = interval, help_heading = STOPPING)]
    pub(super) monitor_interval: Duration,

    /// Run PROGRAM as a Python module, like python3 -m
    #[arg(short, long, help_heading = PROGRAM)]
    pub(super) module: bool,
    /// Run PROGRAM without Python, even if its name ends in .py
    #[arg(long, help_heading = PROGRAM)]
    pub(super) no_python: bool,
    /// Command of the shell that must succeed before this node joins the rendezvous: at the start, and again before
    /// each restart that a failure of this node's workers caused. If it fails, this node stays out and exits with 69
    #[arg(long, value_name = "CMD", value_parser = shell_command, help_heading = PROGRAM)]
    pub(super) preflight: Option<String>,
    /// Time limit of the preflight command, which is killed then and has failed
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = interval, help_heading = PROGRAM)]
    pub(super) preflight_timeout: Duration,
    /// Number of free ports for the workers in each round: RALLYPOINT_PORT_0 and so on, the same on all nodes. The node
    /// of rank 0 holds them until a worker there listens on them. All nodes give the same number
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = ports, help_heading = PROGRAM)]
    pub(super) ports: usize,
    /// Replace {rank}, {local_rank}, {node_rank}, {world_size}, {nnodes}, {master_addr}, {master_port}, {port0} and so on
    /// in the arguments of PROGRAM; {{rank}} stays {rank}
    #[arg(long, help_heading = PROGRAM)]
    pub(super) placeholders: bool,
    /// Show each worker one GPU only, with LOCAL_RANK=0
    #[arg(long, help_heading = PROGRAM)]
    pub(super) virtual_local_rank: bool,
    /// Bind each worker to CPUs near its GPU
    #[arg(long, value_name = "HOW", help_heading = PROGRAM)]
    pub(super) numa_binding: Option<NumaBinding>,

    /// Directory for log files, or /dev/null for none [default: a new temporary directory]
    #[arg(long, value_name = "DIR", help_heading = OUTPUT)]
    pub(super) log_dir: Option<PathBuf>,
    /// Redirect workers' output to files instead of the console: 1 stdout, 2 stderr, 3 both; or per local
    /// rank, as in 0:3,11:1
    #[arg(short, long, value_name = "WHAT", default_value = "0", help_heading = OUTPUT)]
    pub(super) redirects: StreamSelection,
    /// Copy workers' output to files and to the console, with a prefix on the console; values as for --redirects
    #[arg(short, long, value_name = "WHAT", default_value = "0", help_heading = OUTPUT)]
    pub(super) tee: StreamSelection,
    /// Prefix of console lines, with ${role_name}, ${local_rank}, ${rank} and ${hostname}
    /// [default: TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE, or [${role_name}${local_rank}]:]
    #[arg(long, value_name = "TEXT", help_heading = OUTPUT)]
    pub(super) log_line_prefix_template: Option<PrefixTemplate>,
    /// Connect standard input to the worker of this local rank, for breakpoint() [default: the worker, if it is the
    /// only one and standard input is a terminal]
    #[arg(long, value_name = "LOCAL_RANK", help_heading = PROGRAM)]
    pub(super) stdin: Option<u32>,
    /// Show only these workers on the console; files contain all
    #[arg(long, value_name = "RANK,...", default_value = "", hide_default_value = true, help_heading = OUTPUT)]
    pub(super) local_ranks_filter: LocalRanks,

    /// Serve health (/healthz, /readyz) and Prometheus metrics (/metrics) of this node, and the page of runs (/), over
    /// HTTP at this address; port 0 picks a free port. With --cert it is HTTPS, and with a secret the metrics need it
    #[arg(long, value_name = "IP:PORT", value_parser = crate::http::address, help_heading = MONITORING)]
    pub(super) http: Option<SocketAddr>,

    /// File to which this node appends its events, one JSON object a line: what it decided and why
    #[arg(long, value_name = "FILE", help_heading = MONITORING)]
    pub(super) events: Option<PathBuf>,
    /// With --events, also record what this node was told, so that `rallypoint replay` can decide it again
    #[arg(long, requires = "events", help_heading = MONITORING)]
    pub(super) records: bool,

    /// Print the resolved job without running it
    #[arg(long)]
    pub(super) dry_run: bool,
    /// With --dry-run, print JSON
    #[arg(long)]
    pub(super) json: bool,

    /// What the options are read for.
    #[arg(skip)]
    pub(super) purpose: JobPurpose,

    /// Program of the workers and its arguments, passed on unchanged without --placeholders. A *.py file runs under python3 -u, or under the
    /// Python environment that this command is installed in (PYTHON_EXEC overrides it); any other file is executed
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true, help_heading = PROGRAM)]
    pub(super) program: Vec<OsString>,
}
