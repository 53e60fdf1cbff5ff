//! The `rallypoint` command.
//!
//! Data goes to standard output, everything else to standard error. Exit codes: 0 success, 1 failure,
//! 2 wrong command line; `rallypoint run` has [more](rallypoint_core::agent#exit-codes).

mod bench;
mod completions;
mod descriptors;
mod doctor;
mod man;
mod operate;
mod replay;
pub(crate) mod run;
mod serve;

use std::error::Error;
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;

use clap::error::ErrorKind;
use clap::{ArgMatches, Command, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

pub use self::descriptors::make_room;
use self::descriptors::raise_descriptor_limit;
use self::run::RunAction;
use self::run::error::RunError;
use self::run::host::HostFacts;
pub use self::run::surroundings::{FoundIn, SurroundingsError, master, node_rank};
use crate::doctor::descriptors::connections;
use crate::launch::job::Environment;
use crate::launch::{Console, launch};
use crate::log_target::CLI;

/// The error of a command, which is only ever printed.
type AnyError = Box<dyn Error + Send + Sync>;

/// Elastic rendezvous for distributed training
#[derive(Parser)]
#[command(name = "rallypoint", version, arg_required_else_help = true)]
struct Cli {
    /// Format of log lines on standard error
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Subcommand)]
enum CliCommand {
    /// Run the coordination server, which speaks etcd's v3 API
    #[command(after_help = serve::AFTER_HELP)]
    Serve(Box<serve::Serve>),
    /// Show the runs of a server, or the nodes of a run
    #[command(after_help = operate::status::AFTER_HELP)]
    Status(operate::status::StatusCommand),
    /// Explain in sentences what a run waits for, and what would help
    #[command(after_help = operate::explain::AFTER_HELP)]
    Explain(operate::explain::Explain),
    /// Show the runs of a server on a page, in a browser
    #[command(after_help = operate::ui::AFTER_HELP)]
    Ui(operate::ui::Ui),
    /// Close a run: all of its nodes stop
    #[command(after_help = operate::close::AFTER_HELP)]
    Close(operate::close::Close),
    /// Open a closed run again
    #[command(after_help = operate::reopen::AFTER_HELP)]
    Reopen(operate::reopen::Reopen),
    /// Make a node leave its run
    #[command(after_help = operate::evict::AFTER_HELP)]
    Evict(operate::evict::Evict),
    /// Check a file of events: the recorded inputs must lead to the recorded decisions
    #[command(after_help = replay::AFTER_HELP)]
    Replay(replay::ReplayCommand),
    /// Benchmark this host, its network and its servers
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Print the completions of a shell for this command
    #[command(after_help = completions::AFTER_HELP)]
    Completions(completions::Completions),
    /// Write the pages of the manual to a directory
    #[command(after_help = man::AFTER_HELP)]
    Man(man::Man),
}

#[derive(Clone, Copy, ValueEnum)]
enum LogFormat {
    /// Human-readable text
    Text,
    /// One JSON object per line
    Json,
}

/// Runs the command with these arguments, the first being the program's name.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    exit_code(arguments, None).into()
}

const DONE: u8 = 0;
const FAILED: u8 = 1;
const WRONG: u8 = 2;

/// Runs the command for a Python package, which needs the exit code as a number. Scripts run under `python`, if
/// it is given.
pub fn exit_code(arguments: impl IntoIterator<Item = OsString>, python: Option<String>) -> u8 {
    let environment = run::host::environment();
    let (done, format) = match parse(arguments, &environment) {
        Ok(Parsed::Run(matches, format)) => {
            return run_job(&matches, format, HostFacts::look(environment).under(python));
        }
        Ok(Parsed::Doctor(matches, format)) => {
            start_log(format, "error", std::io::stderr);
            return match doctor::run(&matches, HostFacts::look(environment)) {
                Ok(code) => code,
                Err(error) => refuse(&error),
            };
        }
        Ok(Parsed::Other(cli)) => {
            // A benchmark runs thousands of nodes, each of which logs.
            let usual = if matches!(cli.command, CliCommand::Serve(_)) { "info" } else { "warn" };
            start_log(cli.log_format, usual, std::io::stderr);
            let done = match cli.command {
                CliCommand::Serve(serve) => serve.run(),
                CliCommand::Status(status) => status.run(),
                CliCommand::Explain(explain) => explain.run(),
                CliCommand::Ui(ui) => ui.run(),
                CliCommand::Close(close) => close.run(),
                CliCommand::Reopen(reopen) => reopen.run(),
                CliCommand::Replay(replay) => replay.run(),
                CliCommand::Evict(evict) => evict.run(),
                CliCommand::Bench(bench) => bench.run(),
                CliCommand::Completions(completions) => completions.run(),
                CliCommand::Man(man) => man.run(),
            };
            (done, cli.log_format)
        }
        Err(error) => return refuse(&error),
    };
    match done {
        Ok(()) => DONE,
        Err(error) => {
            report(error.as_ref(), format);
            FAILED
        }
    }
}

/// The command with all of its subcommands, and the environment's values as defaults of options.
fn command(environment: &Environment) -> Command {
    Cli::command()
        .subcommand(run::command(environment).display_order(0))
        .subcommand(doctor::command(environment).display_order(1))
}

/// A parsed command line.
enum Parsed {
    Run(ArgMatches, LogFormat),
    Doctor(ArgMatches, LogFormat),
    Other(Cli),
}

fn parse(
    arguments: impl IntoIterator<Item = OsString>,
    environment: &Environment,
) -> Result<Parsed, RunError> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let usage = |error| RunError::Usage(Box::new(error));
    let mut command = command(environment);
    let given = command.try_get_matches_from_mut(&arguments).map_err(|error| {
        let is_command = |word: &&OsString| command.find_subcommand(word).is_some();
        match arguments.iter().skip(1).find(is_command) {
            Some(word) if word == run::NAME || word == doctor::NAME => {
                run::explain(error, environment)
            }
            _ => usage(error),
        }
    })?;
    // Conflicts that depend on the value of another option, which clap cannot express.
    if let Some((name @ "serve", given)) = given.subcommand()
        && let Err(reason) = serve::check(given)
    {
        let command = command.find_subcommand_mut(name).expect("it was just found");
        return Err(usage(command.error(ErrorKind::ArgumentConflict, reason)));
    }
    let format = given.get_one("log_format").copied().unwrap_or(LogFormat::Text);
    match given.subcommand() {
        Some((run::NAME, matches)) => return Ok(Parsed::Run(matches.clone(), format)),
        Some((doctor::NAME, matches)) => return Ok(Parsed::Doctor(matches.clone(), format)),
        _ => {}
    }
    let cli = Cli::from_arg_matches(&given);
    cli.map(Parsed::Other).map_err(|error| usage(error.format(&mut command)))
}

/// Prints what is wrong with the command line, or the requested help, which is a success.
fn refuse(error: &RunError) -> u8 {
    let RunError::Usage(usage) = error else {
        report(error, LogFormat::Text);
        return WRONG;
    };
    let _ = usage.print();
    if usage.use_stderr() { WRONG } else { DONE }
}

/// `rallypoint run`. Lookups for the job block, so the job is resolved before there is a runtime.
fn run_job(matches: &ArgMatches, format: LogFormat, host: HostFacts) -> u8 {
    let job = match run::prepare(matches, &host) {
        Ok(RunAction::Launch(job)) => *job,
        Ok(RunAction::Show(text)) => {
            // The reader may be gone.
            let _ = std::io::stdout().write_all(text.as_bytes());
            return DONE;
        }
        Err(error) => return refuse(&error),
    };
    let console = match Console::new(matches!(format, LogFormat::Text)) {
        Ok(console) => Arc::new(console),
        Err(error) => {
            report(&error, LogFormat::Text);
            return FAILED;
        }
    };
    start_log(format, &run::default_log_filter(), console.clone());
    // This node may run the server, and may have rank 0.
    let nodes = job.rendezvous.parameters.max_nodes;
    raise_descriptor_limit(Some(connections(nodes, job.agent.local_workers)));
    let code = match launch(job, &console) {
        Ok(code) => u8::try_from(code).unwrap_or(FAILED),
        Err(error) => {
            match format {
                LogFormat::Text => console.say(&(told(&error) + "\n")),
                LogFormat::Json => tracing::error!(target: CLI, "{}", told(&error)),
            }
            FAILED
        }
    };
    console.flush();
    code
}

/// Prints an error: as a log line if a program reads the log.
fn report(error: &dyn Error, format: LogFormat) {
    match format {
        LogFormat::Text => {
            let _ = writeln!(std::io::stderr(), "{}", told(error));
        }
        LogFormat::Json => tracing::error!(target: CLI, "{}", told(error)),
    }
}

fn told(error: &dyn Error) -> String {
    format!("rallypoint: {}", crate::error_chain(error))
}

fn start_log<W>(format: LogFormat, usual: &str, writer: W)
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    // RUST_LOG overrides the default level.
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(usual));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(writer);
    // A program that calls `run` twice, or has a subscriber of its own, keeps its first one.
    let _ = match format {
        // Targets matter to developers alone.
        LogFormat::Text => builder.with_target(false).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
}
