//! One worker: a program with an environment, in a process group of its own.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::sync::Arc;

use rallypoint_core::agent::Start;
use rallypoint_core::agent::environment::variables;

use super::error::StartError;
use super::home::Files;
use super::numa;
use super::outfit::Outfit;
use super::streams::{Copier, Source};
use super::trace::Trace;
use crate::cli::run::program::Program;
use crate::cli::run::secret;
use crate::launch::console::Stream;
use crate::process::{self, Group};

const ERROR_FILE: &str = "TORCHELASTIC_ERROR_FILE";

/// A worker that was started, and those who copy its output.
pub(super) struct Worker {
    pub(super) local_rank: u32,
    pub(super) group: Group,
    pub(super) copiers: Vec<Copier>,
    pub(super) trace: Arc<Trace>,
}

impl Worker {
    /// Starts one. Blocks on the disk.
    pub(super) fn start(
        outfit: &Outfit,
        start: &Start,
        local_rank: u32,
    ) -> Result<Self, StartError> {
        let files = outfit.home.files(start.attempt, local_rank);
        if let Some(Files { directory, .. }) = &files
            && let Err(source) = fs::create_dir_all(directory)
        {
            return Err(StartError::Files { path: directory.clone(), source });
        }
        let mut command = command(&outfit.program);
        command.envs(variables(&outfit.job, start, local_rank, ""));
        command.env_remove(secret::VARIABLE);
        let mut trace = Trace::default();
        if let Some(files) = &files {
            // As it is, even if it is no text.
            command.env(ERROR_FILE, &files.error);
            trace.error_file = Some(files.error.clone());
        }
        let mut copiers = Vec::new();
        for stream in [Stream::Stdout, Stream::Stderr] {
            let route = outfit.route(stream, local_rank);
            let file = files.as_ref().map(|files| match stream {
                Stream::Stdout => &files.stdout,
                Stream::Stderr => &files.stderr,
            });
            let file = file.filter(|_| route.has_file());
            let rank = start.placement.base_rank.saturating_add(local_rank);
            let prefix = outfit.prefix(stream, local_rank, rank);
            let source = Source { stream, route, file: file.map(AsRef::as_ref), prefix };
            let (end, copier) = source.open(&outfit.console).map_err(|source| match file {
                Some(file) => StartError::Files { path: file.clone(), source },
                None => StartError::Process { local_rank, source },
            })?;
            copiers.extend(copier);
            match stream {
                Stream::Stdout => (command.stdout(end), trace.stdout = file.cloned()),
                Stream::Stderr => (command.stderr(end), trace.stderr = file.cloned()),
            };
        }
        let processors = outfit.processors.get(local_rank as usize);
        let group = numa::on(processors, || Group::start_lasting(&mut command))
            .map_err(|source| StartError::Process { local_rank, source })?;
        trace.pid = group.id();
        Ok(Self { local_rank, group, copiers, trace: Arc::new(trace) })
    }
}

/// The program, which finds everything in its environment that we found in ours.
///
/// On the way there is a shell, and some of them drop variables whose names they could not write, such as the
/// functions that a cluster's `module` command is made of. Those are handed on past it.
fn command(program: &Program) -> Command {
    let dropped: Vec<OsString> = env::vars_os()
        .filter(|(name, _)| !is_shell_name(name))
        .map(|(name, value)| [name, value].join(OsStr::new("=")))
        .collect();
    let mut command = if dropped.is_empty() {
        process::command(&program.path)
    } else {
        let mut command = process::command("env");
        command.args(dropped).arg(&program.path);
        command
    };
    command.args(&program.arguments);
    command
}

fn is_shell_name(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
        && !bytes.first().is_none_or(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_shell_can_write() {
        for (name, expected) in
            [("A", true), ("_a1", true), ("", false), ("1a", false), ("a.b", false), ("f%%", false)]
        {
            assert_eq!(is_shell_name(name.as_ref()), expected, "{name}");
        }
    }
}
