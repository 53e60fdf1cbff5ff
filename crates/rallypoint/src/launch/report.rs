//! What is said of a failure at the end: what torchrun says, and the last lines of the log.

mod clock;
mod tail;

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use rallypoint_core::agent::error_file::{ErrorFile, with_exit_code};
use rallypoint_core::agent::{Ending, Exit, Failure, Outcome};

use super::workers::Trace;
use crate::cli::run::program::Program;

const WIDTH: usize = 60;

/// Everything that is known of a run that failed.
pub(crate) struct Report<'a> {
    program: String,
    outcome: &'a Outcome,
    /// The first is the root cause.
    failures: Vec<(&'a Failure, Option<Arc<Trace>>)>,
}

impl<'a> Report<'a> {
    /// Nothing, if the run did not fail. `trace` is what is known of the workers of the last start.
    pub(crate) fn new(
        program: &Program,
        outcome: &'a Outcome,
        trace: impl Fn(u32) -> Option<Arc<Trace>>,
    ) -> Option<Self> {
        match outcome.ending {
            Ending::Succeeded(_) | Ending::NotNeeded(_) | Ending::Signalled(_) => return None,
            Ending::WorkerFailed(_) | Ending::RunFailed(_) | Ending::NodeFailed(_) => {}
        }
        let failures = outcome.failures.iter();
        let failures = failures.map(|failure| (failure, trace(failure.local_rank))).collect();
        Some(Self { program: name(program), outcome, failures })
    }

    /// The report, with the last lines of the root cause's log. Blocks on the disk.
    pub(crate) fn text(&self) -> String {
        let log = self.failures.first().map(|(_, trace)| match trace {
            Some(trace) => Log::of(trace),
            None => Log::NotKept,
        });
        self.format(log.as_ref())
    }

    /// Leaves an error file where a launcher above this one will look for it: that of the root cause, or if
    /// it has none, one that says the same. Blocks on the disk.
    pub(crate) fn leave_error_file(&self, path: &Path) -> io::Result<()> {
        fs::write(path, self.error_file())
    }

    fn error_file(&self) -> String {
        let Some((failure, trace)) = self.failures.first() else {
            let message = self.outcome.ending.to_string();
            let text = ErrorFile { message, ..ErrorFile::default() }.format();
            return with_exit_code(&text, self.outcome.exit_code).unwrap_or(text);
        };
        let ended = trace.as_ref().and_then(|trace| trace.ended());
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
            Exit::Unknown(_) => self.outcome.exit_code,
        };
        // It was read as JSON before.
        with_exit_code(&text, exit_code).unwrap_or(text)
    }

    fn format(&self, log: Option<&Log>) -> String {
        let (thick, thin) = ("=".repeat(WIDTH), "-".repeat(WIDTH));
        let mut text = format!("{thick}\n{} FAILED\n", self.program);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", self.outcome.ending);
        if let Some(((failure, trace), others)) = self.failures.split_first() {
            let _ = writeln!(text, "{thin}\nRoot cause (the first failure seen on this node):");
            describe(&mut text, failure, trace.as_deref());
            if !others.is_empty() {
                let _ = writeln!(text, "{thin}\nOther failures:");
            }
            for (number, (failure, trace)) in (1..).zip(others) {
                let _ = writeln!(text, "[{number}]");
                describe(&mut text, failure, trace.as_deref());
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

/// One failure, in torchrun's words and order.
fn describe(text: &mut String, failure: &Failure, trace: Option<&Trace>) {
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "  {name:<10} : {value}");
    };
    let ended = trace.and_then(Trace::ended);
    let pid = trace.map_or_else(String::new, |trace| format!(" (pid: {})", trace.pid));
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
    let file = trace.and_then(|trace| trace.error_file.as_ref()).filter(|_| error.is_some());
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

/// What is left of a worker's output.
enum Log {
    Kept { path: String, lines: Vec<String> },
    Unreadable { path: String, reason: String },
    NotKept,
}

impl Log {
    /// What it complained of comes first. If there is nothing, what it said.
    fn of(trace: &Trace) -> Self {
        let mut found = Self::NotKept;
        for path in trace.stderr.iter().chain(&trace.stdout) {
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

/// What the user calls the program: of Python, the script or module.
fn name(program: &Program) -> String {
    let stem = Path::new(&program.path).file_name().unwrap_or(&program.path);
    let is_python = stem.to_string_lossy().starts_with("python");
    let script = program.arguments.iter().find(|word| !word.to_string_lossy().starts_with('-'));
    let name = script.filter(|_| is_python).unwrap_or(&program.path);
    name.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
