//! The failure report at the end of a job: torchrun's fields, and the last lines of the log.

mod clock;
mod tail;

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use rallypoint_core::agent::error_file::{ErrorFile, with_exit_code};
use rallypoint_core::agent::{Exit, NodeOutcome, RunResult, WorkerFailure};

use super::workers::ExitRecord;
use crate::launch::job::Program;

const WIDTH: usize = 60;

/// The report of a failed run.
pub(crate) struct FailureReport<'a> {
    program: String,
    result: &'a RunResult,
    /// The first is the root cause.
    failures: Vec<(&'a WorkerFailure, Option<Arc<ExitRecord>>)>,
}

impl<'a> FailureReport<'a> {
    /// The report, or `None` if the run did not fail. `record` gives the exit record of a worker of the last start.
    pub(crate) fn new(
        program: &Program,
        result: &'a RunResult,
        record: impl Fn(u32) -> Option<Arc<ExitRecord>>,
    ) -> Option<Self> {
        match result.outcome {
            NodeOutcome::Succeeded(_)
            | NodeOutcome::NotNeeded(_)
            | NodeOutcome::Evicted(_)
            | NodeOutcome::Signalled(_) => return None,
            NodeOutcome::WorkerFailed(_)
            | NodeOutcome::RunFailed(_)
            | NodeOutcome::NodeFailed(_) => {}
        }
        let failures = result.failures.iter();
        let failures = failures.map(|failure| (failure, record(failure.local_rank))).collect();
        Some(Self { program: name(program), result, failures })
    }

    /// The report, with the last lines of the root cause's log. Blocks on the disk.
    pub(crate) fn text(&self) -> String {
        let log = self.failures.first().map(|(_, record)| match record {
            Some(record) => LogTail::of(record),
            None => LogTail::NotKept,
        });
        self.format(log.as_ref())
    }

    /// Writes the error file for an outer launcher: that of the root cause, or one made from the report. Blocks on the
    /// disk.
    pub(crate) fn leave_error_file(&self, path: &Path) -> io::Result<()> {
        fs::write(path, self.error_file())
    }

    fn error_file(&self) -> String {
        let Some((failure, record)) = self.failures.first() else {
            let message = self.result.outcome.to_string();
            let text = ErrorFile { message, ..ErrorFile::default() }.format();
            return with_exit_code(&text, self.result.exit_code).unwrap_or(text);
        };
        let ended = record.as_ref().and_then(|record| record.ended());
        let made = || {
            let since = ended.and_then(|ended| ended.at.duration_since(UNIX_EPOCH).ok());
            let timestamp = since.map(|since| since.as_secs());
            ErrorFile { message: failure.to_string(), traceback: None, timestamp }.format()
        };
        let left = ended.and_then(|ended| ended.error.as_ref());
        let text = left.map_or_else(made, |error| error.text.clone());
        let exit_code = match failure.exit {
            Exit::Code(code) => code,
            // As Python counts them.
            Exit::Signal(signal) => -signal,
            Exit::Unknown(_) => self.result.exit_code,
        };
        // It was read as JSON before.
        with_exit_code(&text, exit_code).unwrap_or(text)
    }

    fn format(&self, log: Option<&LogTail>) -> String {
        let (thick, thin) = ("=".repeat(WIDTH), "-".repeat(WIDTH));
        let mut text = format!("{thick}\n{} FAILED\n", self.program);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", self.result.outcome);
        if let Some(((failure, record), others)) = self.failures.split_first() {
            let _ = writeln!(text, "{thin}\nRoot cause (the first failure seen on this node):");
            describe(&mut text, failure, record.as_deref());
            if !others.is_empty() {
                let _ = writeln!(text, "{thin}\nOther failures:");
            }
            for (number, (failure, record)) in (1..).zip(others) {
                let _ = writeln!(text, "[{number}]");
                describe(&mut text, failure, record.as_deref());
            }
        }
        if let Some(log) = log {
            let _ = writeln!(text, "{thin}");
            log.describe(&mut text);
        }
        let _ = writeln!(text, "{thick}");
        text
    }
}

/// The last lines of a worker: of its log, or else of the traceback in its error file. Blocks on the disk.
pub(super) fn last_lines(record: &ExitRecord) -> Vec<String> {
    if let LogTail::Kept { lines, .. } = LogTail::of(record)
        && !lines.is_empty()
    {
        return lines;
    }
    let error = record.ended().and_then(|ended| ended.error.as_ref());
    let traceback = error.and_then(|error| error.said.traceback.as_ref());
    traceback.map(|text| text.lines().map(str::to_owned).collect()).unwrap_or_default()
}

/// One failure, with torchrun's fields in torchrun's order.
fn describe(text: &mut String, failure: &WorkerFailure, record: Option<&ExitRecord>) {
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "  {name:<10} : {value}");
    };
    let ended = record.and_then(ExitRecord::ended);
    let pid = record.map_or_else(String::new, |record| format!(" (pid: {})", record.pid));
    if let Some(ended) = ended {
        line("time", &clock::utc(ended.at));
    }
    line("host", &failure.host);
    line("rank", &format!("{} (local_rank: {})", failure.rank, failure.local_rank));
    match &failure.exit {
        Exit::Code(code) => line("exitcode", &format!("{code}{pid}")),
        other => line("exitcode", &format!("{other}{pid}")),
    }
    let error = ended.and_then(|ended| ended.error.as_ref());
    let file = record.and_then(|record| record.error_file.as_ref()).filter(|_| error.is_some());
    line("error_file", &file.map_or_else(|| "none".to_owned(), |path| path.display().to_string()));
    if let Some(message) = &failure.message {
        line("message", &indented(message));
    }
    if let Some(traceback) = error.and_then(|error| error.said.traceback.as_ref()) {
        line("traceback", &format!("\n    {}", indented(traceback)));
    }
}

fn indented(text: &str) -> String {
    text.trim_end().replace('\n', "\n    ")
}

/// The end of a worker's log.
enum LogTail {
    Kept { path: String, lines: Vec<String> },
    Unreadable { path: String, reason: String },
    NotKept,
}

impl LogTail {
    /// The end of standard error, or of standard output if standard error is empty.
    fn of(record: &ExitRecord) -> Self {
        let mut found = Self::NotKept;
        for path in record.stderr.iter().chain(&record.stdout) {
            let name = path.display().to_string();
            match tail::last_lines(path) {
                Ok(lines) if !lines.is_empty() => return Self::Kept { path: name, lines },
                Ok(lines) if matches!(found, Self::NotKept) => {
                    found = Self::Kept { path: name, lines };
                }
                Ok(_) => {}
                Err(error) => found = Self::Unreadable { path: name, reason: error.to_string() },
            }
        }
        found
    }

    fn describe(&self, text: &mut String) {
        let _ = match self {
            Self::Kept { path, lines } if lines.is_empty() => writeln!(text, "{path} is empty"),
            Self::Kept { path, lines } => {
                writeln!(text, "The end of {path}:\n  {}", lines.join("\n  "))
            }
            Self::Unreadable { path, reason } => writeln!(text, "{path} cannot be read: {reason}"),
            Self::NotKept => writeln!(
                text,
                "Its output was not kept; --tee 3 keeps it in files, and still shows it."
            ),
        };
    }
}

/// The program's name for the report: under Python, the script or module.
fn name(program: &Program) -> String {
    let stem = Path::new(&program.path).file_name().unwrap_or(&program.path);
    let is_python = stem.to_string_lossy().starts_with("python");
    let script = program.arguments.iter().find(|word| !word.to_string_lossy().starts_with('-'));
    let name = script.filter(|_| is_python).unwrap_or(&program.path);
    name.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
