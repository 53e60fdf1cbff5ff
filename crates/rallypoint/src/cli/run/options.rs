//! The options of `rallypoint run`, as they are typed. What they come to together is [`super::plan`]'s.
//!
//! Names and meanings are torchrun's where torchrun has the option. The order is that of the help.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use super::template::PrefixTemplate;
use super::values::{
    Delay, LocalRanks, NoRestart, Nodes, Notice, NumaBinding, Patience, Selection, Signals,
    Workers, interval, name, seconds,
};

const NODES: &str = "Nodes and workers";
const MEETING: &str = "Rendezvous";
const STATIC: &str = "Rendezvous, torchrun's static form";
const SECURITY: &str = "Security";
const STOPPING: &str = "Restarts and stopping";
const PROGRAM: &str = "Program";
const OUTPUT: &str = "Output of the workers";

const AFTER_HELP: &str = "\
Every option may be written with dashes or underscores, and by any beginning that no other has.
It may also stand in the environment: PET_NNODES for --nnodes, and so on, with 0 or 1 for those
without a value. The command line wins. Slurm, Open MPI and the indexed jobs of Kubernetes are asked
for what is not given.

Examples:
  Four workers on this host, any program:
    rallypoint run --standalone --nproc-per-node 4 -- sh -c 'echo \"rank $RANK of $WORLD_SIZE\"'
  A Python script, one worker for each GPU, on two to four hosts; the same line on each of them:
    rallypoint run --nnodes 2:4 --nproc-per-node gpu --rdzv-endpoint head --rdzv-id job7 \\
        --max-restarts 3 train.py --epochs 10
  The same under Slurm, which knows the rest:
    srun --ntasks-per-node 1 rallypoint run --nproc-per-node gpu train.py
  On an etcd cluster, so that the job outlives any of its hosts:
    rallypoint run --nnodes 4 --rdzv-endpoint a:2379,b:2379,c:2379 --rdzv-id job7 ./train
  What would be run, and nothing else:
    rallypoint run --dry-run --nproc-per-node auto train.py

Exit codes:
  0        the workers of this node succeeded; or it was a spare; or the job was done without it
  1        the job failed, here or elsewhere; or this node could not go on
  2        the command line was wrong
  78       a worker said that a restart is no use (--no-restart-exit-code)
  128 + n  told to stop by signal n";

/// Run the workers of a job on this node, and again when its nodes change
#[derive(Debug, Clone, Parser)]
#[command(name = "run", after_help = AFTER_HELP, override_usage = "rallypoint run [OPTIONS] [--] PROGRAM [ARGS]...")]
pub(crate) struct Options {
    /// How many nodes the job has: N, or MIN:MAX for an elastic one [default: 1]
    #[arg(long, value_name = "N|MIN:MAX", help_heading = NODES)]
    pub(super) nnodes: Option<Nodes>,
    /// How many workers this node has: a number, cpu, gpu, or auto for GPUs if there are any
    #[arg(long, value_name = "N|auto|cpu|gpu", default_value = "1", help_heading = NODES)]
    pub(super) nproc_per_node: Workers,
    /// One node, which needs nobody and is reached by nobody
    #[arg(long, help_heading = NODES)]
    pub(super) standalone: bool,
    /// The rank that this node would like to have
    #[arg(long, value_name = "RANK", help_heading = NODES)]
    pub(super) node_rank: Option<u32>,
    /// Where the other nodes reach this one, if it cannot find that out by itself
    #[arg(long, value_name = "HOST", value_parser = name, help_heading = NODES)]
    pub(super) local_addr: Option<String>,
    /// What the workers of this node do; those of one role are counted apart, besides
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = name, help_heading = NODES)]
    pub(super) role: String,

    /// Where the nodes meet. One host: it runs the server itself, at port 29400 unless given. Several,
    /// separated by commas: an etcd that is there already, at port 2379 unless given
    #[arg(long, value_name = "HOST[:PORT],...", help_heading = MEETING)]
    pub(super) rdzv_endpoint: Option<String>,
    /// The name of the job, the same on all of its nodes and for no other job
    #[arg(long, value_name = "NAME", value_parser = name, help_heading = MEETING)]
    pub(super) rdzv_id: Option<String>,
    /// Begin the job anew if one of its name is over, instead of refusing that
    #[arg(long, help_heading = MEETING)]
    pub(super) reopen: bool,
    /// How they meet: rallypoint, or etcd or etcd-v2 for servers that are there already
    #[arg(long, value_name = "NAME", default_value = "rallypoint", value_parser = name, help_heading = MEETING)]
    pub(super) rdzv_backend: String,
    /// Options of the backend, such as lease_ttl=5,last_call_timeout=10,timeout=600; is_host=true or false
    /// says whether this host runs the server; user=NAME,password_file=FILE for an etcd that asks for them, or the
    /// variable RALLYPOINT_PASSWORD for the password
    #[arg(long, value_name = "KEY=VALUE,...", default_value = "", hide_default_value = true, help_heading = MEETING)]
    pub(super) rdzv_conf: String,
    /// The host of the node with --node-rank 0, which runs the server
    #[arg(long, value_name = "HOST", value_parser = name, help_heading = STATIC)]
    pub(super) master_addr: Option<String>,
    /// The port of that server [default: 29500]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..), help_heading = STATIC)]
    pub(super) master_port: Option<u16>,

    /// File with a secret that the nodes of this job share; without it, the variable RALLYPOINT_SECRET.
    /// Who does not know it is not let in
    #[arg(long, value_name = "FILE", help_heading = SECURITY)]
    pub(super) secret_file: Option<PathBuf>,
    /// Authorities that vouch for the servers, PEM; turns TLS on
    #[arg(long, value_name = "FILE", help_heading = SECURITY)]
    pub(super) cacert: Option<String>,
    /// Certificate of this node, PEM; the host that runs the server needs one
    #[arg(long, value_name = "FILE", help_heading = SECURITY)]
    pub(super) cert: Option<String>,
    /// Private key of the certificate, PEM
    #[arg(long, value_name = "FILE", help_heading = SECURITY)]
    pub(super) key: Option<String>,

    /// How often the workers of the whole job may be restarted after a failure
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = STOPPING)]
    pub(super) max_restarts: u32,
    /// How long to pause before workers that fail again within a minute of their start are started anew: at first,
    /// and, as each pause is twice as long as the last, at most; one number is both. A first failure is not delayed
    #[arg(long, value_name = "SECONDS[:LONGEST]", default_value = "1:30", help_heading = STOPPING)]
    pub(super) restart_delay: Delay,
    /// By this exit code a worker says that a restart is no use; or none
    #[arg(long, value_name = "CODE", default_value = "78", help_heading = STOPPING)]
    pub(super) no_restart_exit_code: NoRestart,
    /// Tell the workers so long before they are stopped for a new node, or, on all nodes, since SIGTERM tells one
    /// node to go: in the file RALLYPOINT_NOTICE_FILE, and by SIGUSR1 or the signal after the colon if they handle it
    #[arg(long, value_name = "SECONDS[:SIGNAL]", help_heading = STOPPING)]
    pub(super) notice: Option<Notice>,
    /// How long workers may take to stop before they are killed, whatever the occasion
    /// [default: TORCH_ELASTIC_SHUTDOWN_TIMEOUT, or 30]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, help_heading = STOPPING)]
    pub(super) shutdown_timeout: Option<Duration>,
    /// How long a node whose workers are done waits for the others; or none, as long as they take
    /// [default: TORCH_ELASTIC_EXIT_BARRIER_TIMEOUT, or none]
    #[arg(long, value_name = "SECONDS", help_heading = STOPPING)]
    pub(super) exit_barrier_timeout: Option<Patience>,
    /// Signals that stop the workers and then this launcher. SIGUSR1 and SIGUSR2, if they are not among them, are
    /// passed on to the workers that handle them, and end nothing. What was ignored when the launcher began, as
    /// under nohup, stays ignored unless it is named here [default: SIGTERM,SIGINT,SIGHUP,SIGQUIT]
    #[arg(long, value_name = "NAME,...", help_heading = STOPPING)]
    pub(super) signals_to_handle: Option<Signals>,
    /// Has no effect, since nothing here polls; taken for the sake of torchrun's command lines
    #[arg(long, value_name = "SECONDS", default_value = "0.1", value_parser = interval, help_heading = STOPPING)]
    pub(super) monitor_interval: Duration,

    /// PROGRAM is a Python module, as for python3 -m
    #[arg(short, long, help_heading = PROGRAM)]
    pub(super) module: bool,
    /// Run PROGRAM itself, even if its name ends in .py
    #[arg(long, help_heading = PROGRAM)]
    pub(super) no_python: bool,
    /// Give each worker one visible GPU, and LOCAL_RANK=0
    #[arg(long, help_heading = PROGRAM)]
    pub(super) virtual_local_rank: bool,
    /// Bind each worker to processors near its GPU
    #[arg(long, value_name = "HOW", help_heading = PROGRAM)]
    pub(super) numa_binding: Option<NumaBinding>,

    /// Where log files go; /dev/null for nowhere [default: a new directory for temporary files]
    #[arg(long, value_name = "DIR", help_heading = OUTPUT)]
    pub(super) log_dir: Option<PathBuf>,
    /// Write to files instead of the console: 1 standard output, 2 standard error, 3 both; or by local
    /// rank, as in 0:3,11:1
    #[arg(short, long, value_name = "WHAT", default_value = "0", help_heading = OUTPUT)]
    pub(super) redirects: Selection,
    /// Write to files as well as to the console, with a prefix there
    #[arg(short, long, value_name = "WHAT", default_value = "0", help_heading = OUTPUT)]
    pub(super) tee: Selection,
    /// That prefix, with ${role_name}, ${local_rank}, ${rank} and ${hostname}
    /// [default: TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE, or [${role_name}${local_rank}]:]
    #[arg(long, value_name = "TEXT", help_heading = OUTPUT)]
    pub(super) log_line_prefix_template: Option<PrefixTemplate>,
    /// Give the worker of this local rank the standard input, as for breakpoint(); a worker that is alone on a
    /// terminal has it anyway, and all others have none
    #[arg(long, value_name = "LOCAL_RANK", help_heading = PROGRAM)]
    pub(super) stdin: Option<u32>,
    /// Show only these workers on the console; files have them all
    #[arg(long, value_name = "RANK,...", default_value = "", hide_default_value = true, help_heading = OUTPUT)]
    pub(super) local_ranks_filter: LocalRanks,

    /// Say what would be run, and do not run it
    #[arg(long)]
    pub(super) dry_run: bool,
    /// With --dry-run, say it as JSON
    #[arg(long)]
    pub(super) json: bool,

    /// What to run, and its arguments, which are passed on to the letter. *.py runs under python3 -u, or
    /// under the Python that this command is installed in (PYTHON_EXEC names another), everything else by itself
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true, help_heading = PROGRAM)]
    pub(super) program: Vec<OsString>,
}
