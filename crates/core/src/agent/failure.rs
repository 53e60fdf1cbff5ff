//! How a worker exited, and the description of a failed one.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::text::{LONGEST_REASON, bounded};

/// How a worker exited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// The worker exited with this code.
    Code(i32),
    /// This signal killed the worker.
    Signal(i32),
    /// The exit status could not be determined, for this reason.
    Unknown(String),
}

impl Exit {
    /// Whether the worker exited with 0.
    pub fn is_success(&self) -> bool {
        *self == Self::Code(0)
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => match signal_name(*signal) {
                Some(name) => write!(f, "signal {signal} ({name})"),
                None => write!(f, "signal {signal}"),
            },
            Self::Unknown(reason) => write!(f, "an unknown end ({reason})"),
        }
    }
}

/// A worker that failed.
///
/// ```
/// use rallypoint_core::agent::{Exit, WorkerFailure};
/// let failure = WorkerFailure {
///     host: "node7".into(),
///     local_rank: 1,
///     rank: 5,
///     exit: Exit::Signal(9),
///     message: None,
/// };
/// assert_eq!(failure.to_string(), "rank 5 (local rank 1 on node7) failed with signal 9 (SIGKILL)");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerFailure {
    /// The host of the worker.
    pub host: String,
    /// The worker's rank among the workers of its node.
    pub local_rank: u32,
    /// The worker's rank among all workers.
    pub rank: u32,
    /// How the worker exited.
    pub exit: Exit,
    /// The message in the worker's error file, if it wrote one.
    pub message: Option<String>,
}

impl fmt::Display for WorkerFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, local_rank, rank, exit, message } = self;
        write!(f, "rank {rank} (local rank {local_rank} on {host}) failed with {exit}")?;
        match message {
            Some(message) => write!(f, ": {message}"),
            None => Ok(()),
        }
    }
}

/// `rdzv/failure`: the last lines of the worker that failed, for operators. The node of the worker writes it, if it kept
/// the output.
///
/// ```
/// use rallypoint_core::agent::{Exit, FailureOutput, WorkerFailure};
/// let failure =
///     WorkerFailure { host: "a".into(), local_rank: 0, rank: 0, exit: Exit::Code(1), message: None };
/// let lines = (0..30).map(|number| format!("line {number}"));
/// let output = FailureOutput::new(3, &failure, lines.collect());
/// assert_eq!(output.lines.len(), FailureOutput::LINES);
/// assert_eq!(output.lines.last().unwrap(), "line 29");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureOutput {
    /// The round of the group.
    pub round: u64,
    /// The failure, in a sentence.
    pub failure: String,
    /// The last lines, in order.
    pub lines: Vec<String>,
}

impl FailureOutput {
    /// The largest number of lines.
    pub const LINES: usize = 20;

    /// The last lines of this worker, bounded: the document is read by all viewers of the run.
    pub fn new(round: u64, failure: &WorkerFailure, mut lines: Vec<String>) -> Self {
        let surplus = lines.len().saturating_sub(Self::LINES);
        lines.drain(..surplus);
        let lines = lines.into_iter().map(|line| bounded(line, LONGEST_REASON)).collect();
        Self { round, failure: bounded(failure.to_string(), LONGEST_REASON), lines }
    }
}

/// The name of a signal on Linux, if it is one that ends processes in practice.
pub fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        10 => "SIGUSR1",
        11 => "SIGSEGV",
        12 => "SIGUSR2",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return None,
    })
}
