//! `rallypoint doctor`: checks this host, and its way to the server and to the other nodes of a job.

use std::fmt::Write as _;
use std::io::Write as _;

use clap::{ArgMatches, Command};
use serde_json::json;

use super::run::error::RunError;
use super::run::host::HostFacts;
use super::run::{self, CheckedJob};
use super::{DONE, FAILED};
use crate::doctor::{CheckedNode, Finding, Verdict, run_checks};
use crate::launch::host_checks::node_of;
use crate::launch::job::Environment;

/// The name of the command.
pub(super) const NAME: &str = "doctor";

/// The version of the JSON output. Fields may be added to a version, and are never changed.
const FORMAT: u32 = 1;

/// The width at which text is wrapped.
const WIDTH: usize = 100;

/// The options of `rallypoint run` that change nothing here. They are accepted, so that the same command line works.
const NOT_SHOWN: [&str; 29] = [
    "role",
    "reopen",
    "max_restarts",
    "restart_delay",
    "no_restart_exit_code",
    "notice",
    "shutdown_timeout",
    "exit_barrier_timeout",
    "signals_to_handle",
    "monitor_interval",
    "module",
    "no_python",
    "preflight",
    "preflight_timeout",
    "hang_after",
    "on_hang",
    "progress",
    "http",
    "events",
    "virtual_local_rank",
    "numa_binding",
    "redirects",
    "tee",
    "log_line_prefix_template",
    "stdin",
    "local_ranks_filter",
    "dry_run",
    "program",
    "standalone",
];

const AFTER_HELP: &str = "\
The options are those of `rallypoint run`, all of which are accepted, and the program may
follow: put doctor in the place of run. PET_* variables, Slurm, Open MPI and Kubernetes are read
in the same way. Nothing is started and nothing is written, so it can run before a job, or
beside one that waits. It takes less than five seconds.

Checks:
  host_name    the name of this host, its addresses, and the name of its address
  endpoint     whether the name in --rdzv-endpoint resolves, and whether it is this host
  server       who answers there: a server, another program, a refusal, or no answer
  clock        this host's clock against the server's, by the date in an HTTP header
  peers        nodes of the run with the same --node-rank, and nodes that this host does not reach
  address      the address at which the other nodes would be told to reach this one
  dial_back    whether the server's host reaches this one there
  descriptors  the limit of open files, against what the job may need
  devices      the GPUs, as --nproc-per-node gpu counts them
  disk         the directories for log files and temporary files

Examples:
  On every host, before a job:
    rallypoint doctor --nnodes 2 --rdzv-endpoint head --rdzv-id job7
  The same under Slurm:
    srun --ntasks-per-node 1 rallypoint doctor --nproc-per-node gpu
  For a script:
    rallypoint doctor --json --nnodes 4 --rdzv-backend etcd --rdzv-endpoint a,b,c

Exit codes: 0 no check failed; 1 a check failed; 2 the command line is wrong.";

/// The command, with the options of `rallypoint run` and the environment's values as their defaults.
pub(super) fn command(environment: &Environment) -> Command {
    run::command(environment)
        .name(NAME)
        .about("Check this host, and its way to the server and to the other nodes of a job")
        .override_usage("rallypoint doctor [OPTIONS] [--] [PROGRAM [ARGS]...]")
        .after_help(AFTER_HELP)
        .mut_arg("program", |program| program.required(false))
        .mut_arg("json", |json| json.help("Print JSON"))
        .mut_args(|option| {
            let is_hidden = NOT_SHOWN.contains(&option.get_id().as_str());
            option.hide(is_hidden)
        })
}

/// Runs all checks and prints their findings. Returns the exit code.
pub(super) fn run(matches: &ArgMatches, host: HostFacts) -> Result<u8, RunError> {
    let host = host.within_time();
    let job = run::checked_job(matches, &host)?;
    let json = job.json;
    let node = checked_node(job);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let findings = match runtime {
        Ok(runtime) => {
            let findings = runtime.block_on(run_checks(&node));
            // A lookup that hangs need not end.
            runtime.shutdown_background();
            findings
        }
        Err(error) => {
            let message = format!("No check could be run: {error}.");
            vec![Finding::fail(
                "descriptors",
                message,
                "Allow this user more processes and descriptors",
            )]
        }
    };
    let text = match json {
        true => as_json(&node, &findings),
        false => as_text(&findings),
    };
    // The reader may be gone.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(if worst(&findings) == Verdict::Fail { FAILED } else { DONE })
}

fn checked_node(job: CheckedJob) -> CheckedNode {
    let CheckedJob { job, devices, has_run_id, host, .. } = job;
    CheckedNode { has_run_id, devices: Some(devices), ..node_of(&job, host) }
}

fn worst(findings: &[Finding]) -> Verdict {
    findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Ok)
}

/// The findings for people: one line for each, wrapped, and the remedy below it.
fn as_text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for Finding { check, verdict, message, remedy } in findings {
        let head = format!("{:<5} {check:<12} ", verdict.word());
        let remedy = remedy.as_ref().map(|remedy| format!("Remedy: {remedy}."));
        let sentences =
            wrapped(message).into_iter().chain(remedy.iter().flat_map(|remedy| wrapped(remedy)));
        for (number, line) in sentences.enumerate() {
            let margin = if number == 0 { head.as_str() } else { "" };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{margin:<19}{line}");
        }
    }
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    let (failed, warned) = (count(Verdict::Fail), count(Verdict::Warn));
    let _ = writeln!(text, "{} checks: {failed} failed, {warned} with a warning", findings.len());
    text
}

/// The words of a text in lines of a readable length.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        // Servers, name servers and nodes are quoted, and none of them may write to a terminal.
        let word: String = word.chars().flat_map(printable).collect();
        match lines.last_mut() {
            Some(line) if line.len() + word.len() < WIDTH - 19 => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

/// A character as a terminal may get it.
fn printable(c: char) -> Vec<char> {
    if c.is_control() { c.escape_debug().collect() } else { vec![c] }
}

/// The findings for a program.
fn as_json(node: &CheckedNode, findings: &[Finding]) -> String {
    let check = |finding: &Finding| {
        let Finding { check, verdict, message, remedy } = finding;
        json!({"check": check, "result": verdict.word(), "message": message, "remedy": remedy})
    };
    let result = if worst(findings) == Verdict::Fail { "fail" } else { "ok" };
    let endpoint = Some(&node.rendezvous.parameters.endpoint).filter(|text| !text.is_empty());
    let report = json!({
        "format": FORMAT,
        "host": node.host.name,
        "endpoint": endpoint,
        "result": result,
        "checks": findings.iter().map(check).collect::<Vec<_>>(),
    });
    format!("{report:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_cannot_write_to_the_terminal() {
        let text = as_text(&[Finding::ok("server", "It is \u{1b}[2Jnginx\u{7}.")]);
        assert!(text.contains("It is \\u{1b}[2Jnginx\\u{7}."), "{text:?}");
    }

    #[test]
    fn findings_are_lines_with_their_remedies_below() {
        let findings = [
            Finding::ok("endpoint", "head is 10.0.0.1. This host is it."),
            Finding::fail("server", "Refused: nothing listens there.", "Start it"),
        ];
        let expected = "\
ok    endpoint     head is 10.0.0.1. This host is it.
fail  server       Refused: nothing listens there.
                   Remedy: Start it.
2 checks: 1 failed, 0 with a warning
";
        assert_eq!(as_text(&findings), expected);
        assert_eq!(wrapped(&"word ".repeat(30)).len(), 2);
    }

    #[test]
    fn options_that_are_not_shown_exist() {
        let command = command(&Environment::new());
        for id in NOT_SHOWN {
            assert!(command.get_arguments().any(|option| option.get_id() == id), "{id}");
        }
    }
}
