//! One worker: a program with an environment, in a process group of its own.

use std::sync::Arc;

use rallypoint_core::agent::Start;
use rallypoint_core::agent::environment::{NOTICE_FILE, variables};

use super::error::StartError;
use super::home::Files;
use super::numa;
use super::outfit::Outfit;
use super::streams::Source;
use super::trace::Trace;
use crate::cli::run::secret;
use crate::launch::console::Stream;
use crate::process::{self, Group, Input};

const ERROR_FILE: &str = "TORCHELASTIC_ERROR_FILE";

/// A worker that was started.
pub(super) struct Worker {
    pub(super) local_rank: u32,
    pub(super) group: Group,
    pub(super) trace: Arc<Trace>,
    pub(super) files: Option<Files>,
    /// It has the standard input of the launcher.
    pub(super) input: Option<Arc<Input>>,
}

impl Worker {
    /// Starts one. Blocks on the disk.
    pub(super) fn start(
        outfit: &Outfit,
        start: &Start,
        local_rank: u32,
    ) -> Result<Self, StartError> {
        let rank = start.placement.base_rank.saturating_add(local_rank);
        let files = outfit.home.claim(start.group.round, rank)?;
        let mut command = process::command(&outfit.program.path)
            .map_err(|source| StartError::Process { local_rank, source })?;
        command.args(&outfit.program.arguments);
        command.envs(variables(&outfit.job, start, local_rank, ""));
        for hidden in secret::HIDDEN {
            command.env_remove(hidden);
        }
        let mut trace = Trace::default();
        if let Some(files) = &files {
            // As it is, even if it is no text.
            command.env(ERROR_FILE, &files.error);
            command.env(NOTICE_FILE, &files.notice);
            trace.error_file = Some(files.error.clone());
        }
        for stream in [Stream::Stdout, Stream::Stderr] {
            let route = outfit.route(stream, local_rank);
            let file = files.as_ref().map(|files| match stream {
                Stream::Stdout => &files.stdout,
                Stream::Stderr => &files.stderr,
            });
            let file = file.filter(|_| route.has_file());
            let prefix = outfit.prefix(stream, local_rank, rank);
            let file_path = file.map(AsRef::as_ref);
            let source = Source { stream, local_rank, route, file: file_path, prefix };
            let end =
                source.open(&outfit.console, &outfit.output).map_err(|source| match file {
                    Some(file) => StartError::Files { path: file.clone(), source },
                    None => StartError::Process { local_rank, source },
                })?;
            match stream {
                Stream::Stdout => (command.stdout(end), trace.stdout = file.cloned()),
                Stream::Stderr => (command.stderr(end), trace.stderr = file.cloned()),
            };
        }
        let processors = outfit.processors.get(local_rank as usize);
        let input = outfit.input(local_rank).cloned();
        let start = || match &input {
            Some(input) => Group::start_with_input(&mut command, input),
            None => Group::start_lasting(&mut command),
        };
        let group = numa::on(processors, start)
            .map_err(|source| StartError::Process { local_rank, source })?;
        trace.pid = group.id();
        Ok(Self { local_rank, group, trace: Arc::new(trace), files, input })
    }
}
