//! The `rallypoint` command: what was typed, and what to do about it.
//!
//! Data goes to standard output, everything else to standard error. Exit codes: 0 done, 1 failed,
//! 2 the command line was wrong.

mod bench;
#[cfg_attr(
    not(test),
    expect(dead_code, unused_imports, reason = "the launcher, which comes next, is what calls it")
)]
pub(crate) mod run;
mod serve;

use std::error::Error;
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use tracing_subscriber::EnvFilter;

/// Whatever a command failed with: it is only ever printed.
type AnyError = Box<dyn Error + Send + Sync>;

/// Elastic rendezvous for distributed training
#[derive(Parser)]
#[command(name = "rallypoint", version, arg_required_else_help = true)]
struct Cli {
    /// How log lines look, on standard error
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the coordination server, which speaks etcd's v3 API
    #[command(after_help = serve::AFTER_HELP)]
    Serve(Box<serve::Serve>),
    /// Measure this machine, its network and its servers
    #[command(subcommand)]
    Bench(bench::Bench),
}

#[derive(Clone, Copy, ValueEnum)]
enum LogFormat {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}

/// Runs the command with these arguments, the first being the program's name.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match parse(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Asked-for help goes to standard output and is no failure.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS };
        }
    };
    // A benchmark plays thousands of nodes, each with something to say.
    let usual = if matches!(cli.command, Command::Bench(_)) { "warn" } else { "info" };
    start_log(cli.log_format, usual);
    let done = match cli.command {
        Command::Serve(serve) => serve.run(),
        Command::Bench(bench) => bench.run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(error.as_ref());
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let mut command = Cli::command();
    let given = command.try_get_matches_from_mut(arguments)?;
    // What depends on the value of another option, which the parser has no words for.
    if let Some((name @ "serve", given)) = given.subcommand()
        && let Err(reason) = serve::check(given)
    {
        let command = command.find_subcommand_mut(name).expect("it was just found");
        return Err(command.error(ErrorKind::ArgumentConflict, reason));
    }
    Cli::from_arg_matches(&given).map_err(|error| error.format(&mut command))
}

/// The error and everything that led to it, on one line.
fn report(error: &dyn Error) {
    let mut line = format!("rallypoint: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        // Some errors say what caused them themselves.
        let text = cause.to_string();
        if !line.contains(&text) {
            line.push_str(&format!(": {text}"));
        }
        source = cause.source();
    }
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn start_log(format: LogFormat, usual: &str) {
    // RUST_LOG as everywhere; without it, what an operator wants to know and no more.
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(usual));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    // A program that calls `run` twice, or has a log of its own, keeps the one it has.
    let _ = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
}
