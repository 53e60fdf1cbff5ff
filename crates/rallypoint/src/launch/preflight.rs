//! The preflight command: it must succeed before this node joins the rendezvous.
//!
//! It runs at the start, before the node registers, and again before each rendezvous that a failure of this node's
//! own workers caused: their failure may be this host's. A change of the group, such as a lost peer, is no reason.

use std::collections::VecDeque;
use std::io::{self, PipeReader, Read};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rallypoint_core::agent::Exit;
use thiserror::Error;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::console::{Console, OutputStream};
use super::job::{HIDDEN, JobSpec, PreflightCommand};
use super::wait_reporter::{Detail, WaitReporter};
use super::workers::exit;
use super::workers::lines::Lines;
use crate::log_target::LAUNCH;
use crate::process::{self, ProcessGroup};
use crate::util::blocking::blocking;

/// The prefix of the command's lines on the console.
const PREFIX: &str = "[preflight]:";

/// The number of lines that an error quotes.
const QUOTED: usize = 10;

/// The time for the last output after the command has ended. A process that left its group may hold the pipe open.
const LAST_OUTPUT: Duration = Duration::from_secs(1);

/// Why the preflight command failed.
#[derive(Debug, Error)]
pub(super) enum PreflightError {
    /// The command cannot be started.
    #[error("{command:?} cannot be started: {source}")]
    Start { command: String, source: io::Error },
    /// The command ended in another way than with exit code 0.
    #[error("{command:?} ended with {exit} after {after:.1?}{}", quoted(.lines))]
    Failed { command: String, exit: Exit, after: Duration, lines: Vec<String> },
    /// The command did not end in time, and was killed.
    #[error(
        "{command:?} did not end within {limit:?} (--preflight-timeout), and was killed{}",
        quoted(.lines)
    )]
    TimedOut { command: String, limit: Duration, lines: Vec<String> },
}

/// The last lines of the output, each on a line of its own.
fn quoted(lines: &[String]) -> String {
    let lines: String = lines.iter().map(|line| format!("\n  {line}")).collect();
    if lines.is_empty() { "; it wrote nothing".to_owned() } else { format!("; it wrote:{lines}") }
}

/// What the launcher waits for while the command runs.
pub(super) fn detail() -> Detail {
    Detail { waits_for: "the preflight command to end (--preflight)".to_owned(), patience: None }
}

/// The preflight command of this node.
pub(super) struct Preflight {
    command: PreflightCommand,
    /// Variables for the command, besides what it inherits.
    variables: [(&'static str, String); 2],
    console: Arc<Console>,
    running: AtomicBool,
}

impl Preflight {
    /// The command of the job, if it has one.
    pub(super) fn of(job: &JobSpec, console: &Arc<Console>) -> Option<Self> {
        let command = job.preflight.clone()?;
        let variables = [
            ("LOCAL_WORLD_SIZE", job.agent.local_workers.to_string()),
            ("TORCHELASTIC_RUN_ID", job.rendezvous.parameters.run_id.clone()),
        ];
        Some(Self { command, variables, console: console.clone(), running: AtomicBool::new(false) })
    }

    /// Whether the command runs at the moment.
    pub(super) fn is_running(&self) -> bool {
        self.running.load(Ordering::Relaxed)
    }

    /// Runs the command, and reports the wait for it.
    pub(super) async fn pass(&self, waiting: &mut WaitReporter) -> Result<(), PreflightError> {
        let mut running = pin!(self.run());
        loop {
            waiting.show(Some("the preflight command"), Some(detail()));
            tokio::select! {
                passed = &mut running => return passed,
                () = waiting.tick() => {}
            }
        }
    }

    /// Runs the command once, and shows its output. Dropping the future kills the command.
    ///
    /// # Errors
    /// [`PreflightError`], if the command did not end with exit code 0 in time.
    pub(super) async fn run(&self) -> Result<(), PreflightError> {
        let _running = RunningMark::new(&self.running);
        let PreflightCommand { command, timeout: limit } = self.command.clone();
        tracing::info!(target: LAUNCH, command, "running the preflight command");
        let begun = Instant::now();
        let (words, variables) = (command.clone(), self.variables.clone());
        let started = blocking(move || start(&words, variables)).await;
        let (group, reader) =
            started.map_err(|source| PreflightError::Start { command: command.clone(), source })?;
        let output = Output::follow(reader, self.console.clone());
        let ended = timeout(limit, group.exited()).await;
        let after = begun.elapsed();
        // Kills what is left of it.
        blocking(move || drop(group)).await;
        let lines = output.last_lines().await;
        match ended.map(exit) {
            Ok(Exit::Code(0)) => {
                tracing::info!(target: LAUNCH, seconds = after.as_secs_f64(), "the preflight command succeeded");
                Ok(())
            }
            Ok(exit) => Err(PreflightError::Failed { command, exit, after, lines }),
            Err(_) => Err(PreflightError::TimedOut { command, limit, lines }),
        }
    }
}

/// Starts the command with its output in a pipe. Blocks until the guard knows it.
fn start(
    command: &str,
    variables: [(&'static str, String); 2],
) -> io::Result<(ProcessGroup, PipeReader)> {
    let mut shell = process::command("sh")?;
    shell.args(["-c", command]).envs(variables);
    for hidden in HIDDEN {
        shell.env_remove(hidden);
    }
    let (reader, writer) = io::pipe()?;
    shell.stdout(writer.try_clone()?).stderr(writer);
    Ok((ProcessGroup::start(&mut shell)?, reader))
}

/// Sets the flag until it is dropped.
struct RunningMark<'a>(&'a AtomicBool);

impl<'a> RunningMark<'a> {
    fn new(flag: &'a AtomicBool) -> Self {
        flag.store(true, Ordering::Relaxed);
        Self(flag)
    }
}

impl Drop for RunningMark<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// The output of the command: shown line by line, and its last lines.
struct Output {
    lines: Arc<Mutex<VecDeque<String>>>,
    ended: oneshot::Receiver<()>,
}

impl Output {
    /// Shows the output from a thread of its own, which a slow console blocks. The thread ends with the pipe.
    fn follow(mut reader: PipeReader, console: Arc<Console>) -> Self {
        let (sender, ended) = oneshot::channel();
        let lines = Arc::new(Mutex::new(VecDeque::new()));
        let kept = lines.clone();
        let thread = std::thread::Builder::new().name("preflight-output".to_owned());
        // Without a thread the output is lost, and the exit code still counts.
        let _ = thread.spawn(move || {
            let _ended = sender;
            let mut text = Lines::new(PREFIX.to_owned());
            let mut buffer = vec![0; 8 << 10];
            loop {
                let shown = match reader.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(length) => text.feed(&buffer[..length]),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(_) => break,
                };
                show(&console, &kept, &shown);
            }
            show(&console, &kept, &text.finish());
        });
        Self { lines, ended }
    }

    async fn last_lines(self) -> Vec<String> {
        let _ = timeout(LAST_OUTPUT, self.ended).await;
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().cloned().collect()
    }
}

fn show(console: &Console, kept: &Mutex<VecDeque<String>>, shown: &str) {
    if shown.is_empty() {
        return;
    }
    {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(shown.lines().map(|line| line.trim_start_matches(PREFIX).to_owned()));
        let surplus = kept.len().saturating_sub(QUOTED);
        kept.drain(..surplus);
    }
    console.write(OutputStream::Stderr, shown.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_the_command_the_end_and_the_last_lines() {
        let command = || "check".to_owned();
        let lines = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        let after = Duration::from_millis(1200);
        for (error, expected) in [
            (
                PreflightError::Failed {
                    command: command(),
                    exit: Exit::Code(3),
                    after,
                    lines: lines(&["GPU 2", "is gone"]),
                },
                "\"check\" ended with exit code 3 after 1.2s; it wrote:\n  GPU 2\n  is gone",
            ),
            (
                PreflightError::TimedOut { command: command(), limit: after, lines: lines(&[]) },
                "\"check\" did not end within 1.2s (--preflight-timeout), and was killed; it wrote nothing",
            ),
        ] {
            assert_eq!(error.to_string(), expected);
        }
    }
}
