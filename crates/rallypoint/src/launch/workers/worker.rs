//! One worker: a process with its environment, in a process group of its own.

use std::sync::Arc;

use rallypoint_core::agent::Start;
use rallypoint_core::agent::environment::{
    NOTICE_FILE, PORT_PREFIX, PROGRESS_DIRECTORY, PROGRESS_FILE, variables,
};

use super::error::StartError;
use super::exit_record::ExitRecord;
use super::log_dir::Files;
use super::numa;
use super::progress::{LastOutput, WorkerSigns};
use super::spec::WorkerSpec;
use super::streams::StreamSource;
use crate::launch::console::OutputStream;
use crate::launch::job::HIDDEN;
use crate::process::{self, ProcessGroup, StandardInput};

const ERROR_FILE: &str = "TORCHELASTIC_ERROR_FILE";

/// A started worker.
pub(super) struct Worker {
    pub(super) local_rank: u32,
    pub(super) group: ProcessGroup,
    pub(super) record: Arc<ExitRecord>,
    pub(super) files: Option<Files>,
    /// The launcher's standard input, if this worker has it.
    pub(super) input: Option<Arc<StandardInput>>,
    /// Its signs of progress, until the group of the start has them.
    pub(super) signs: Option<WorkerSigns>,
}

impl Worker {
    /// Starts a worker. Blocks on the disk.
    pub(super) fn start(
        spec: &WorkerSpec,
        start: &Start,
        local_rank: u32,
    ) -> Result<Self, StartError> {
        let rank = start.placement.base_rank.saturating_add(local_rank);
        let files = spec.log_dir.claim(start.group.round, rank)?;
        let mut command = process::command(&spec.program.path)
            .map_err(|source| StartError::Process { local_rank, source })?;
        let variables = variables(&spec.environment, start, local_rank, "");
        command.args(spec.program.arguments_of(&variables));
        // Those of an outer launcher are not for this worker.
        let inherited = spec.environment.inherited.keys();
        for hidden in HIDDEN
            .into_iter()
            .chain(inherited.map(String::as_str).filter(|name| name.starts_with(PORT_PREFIX)))
        {
            command.env_remove(hidden);
        }
        command.envs(variables);
        let mut record = ExitRecord::default();
        if let Some(files) = &files {
            // Not through `variables`: a path need not be valid UTF-8.
            command.env(ERROR_FILE, &files.error);
            command.env(NOTICE_FILE, &files.notice);
            record.error_file = Some(files.error.clone());
        }
        let last_output = Arc::new(LastOutput::new());
        let beat = spec.progress.as_ref().map(|it| it.beat_file(start.attempt, local_rank));
        match &beat {
            Some(beat) => command.env(PROGRESS_FILE, beat),
            // That of an outer launcher is not for this worker.
            None => command.env_remove(PROGRESS_FILE),
        };
        command.env_remove(PROGRESS_DIRECTORY);
        for stream in [OutputStream::Stdout, OutputStream::Stderr] {
            let route = spec.route(stream, local_rank);
            let file = files.as_ref().map(|files| match stream {
                OutputStream::Stdout => &files.stdout,
                OutputStream::Stderr => &files.stderr,
            });
            let file = file.filter(|_| route.has_file());
            let prefix = match spec.is_copied(stream, local_rank) {
                true => spec.prefix(stream, local_rank, rank),
                false => String::new(),
            };
            let file_path = file.map(AsRef::as_ref);
            let last_output = last_output.clone();
            let source =
                StreamSource { stream, local_rank, route, file: file_path, prefix, last_output };
            let end = source.open(&spec.console, &spec.output).map_err(|source| match file {
                Some(file) => StartError::Files { path: file.clone(), source },
                None => StartError::Process { local_rank, source },
            })?;
            match stream {
                OutputStream::Stdout => (command.stdout(end), record.stdout = file.cloned()),
                OutputStream::Stderr => (command.stderr(end), record.stderr = file.cloned()),
            };
        }
        let signs = beat.map(|beat| {
            let logs = record.stdout.iter().chain(&record.stderr).cloned();
            WorkerSigns::new(last_output, logs, &beat)
        });
        let processors = spec.processors.get(local_rank as usize);
        let input = spec.input(local_rank).cloned();
        let start = || match &input {
            Some(input) => ProcessGroup::start_with_input(&mut command, input),
            None => ProcessGroup::start_lasting(&mut command),
        };
        let group = numa::on(processors, start)
            .map_err(|source| StartError::Process { local_rank, source })?;
        record.pid = group.id();
        Ok(Self { local_rank, group, record: Arc::new(record), files, input, signs })
    }
}
