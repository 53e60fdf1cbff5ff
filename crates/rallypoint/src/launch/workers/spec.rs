//! The worker spec: what all starts of the workers share.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use rallypoint_core::agent::environment::JobEnvironment;
use rustix::thread::CpuSet;

use super::copiers::OutputCopiers;
use super::error::StartError;
use super::log_dir::LogDir;
use super::numa;
use super::progress::ProgressSpec;
use super::streams::{Route, Wanted};
use crate::launch::console::{Console, OutputStream};
use crate::launch::job::{JobSpec, LineSource, Logs, Program, Streams};
use crate::process::StandardInput;

/// What all starts of the workers share. Clones share the log directory, which is removed with the last of them unless
/// it is kept.
#[derive(Clone)]
pub(crate) struct WorkerSpec {
    /// The values of the workers' environment. They may change from one start to the next.
    pub(crate) environment: JobEnvironment,
    pub(super) program: Program,
    pub(super) host: String,
    pub(super) logs: Logs,
    pub(super) log_dir: Arc<LogDir>,
    pub(super) console: Arc<Console>,
    /// The copiers of the output of all starts.
    pub(super) output: Arc<OutputCopiers>,
    /// Where signs of progress are, if the launcher looks for them.
    pub(super) progress: Option<Arc<ProgressSpec>>,
    /// The processors of each worker, if workers are bound.
    pub(super) processors: Vec<CpuSet>,
    /// Standard input, and the local rank of the worker that has it.
    pub(super) input: Option<(u32, Arc<StandardInput>)>,
}

impl WorkerSpec {
    /// The spec of a job's workers. Creates the log directory. Blocks on the disk.
    ///
    /// # Errors
    /// [`StartError::Files`].
    pub(crate) fn new(
        job: &JobSpec,
        environment: JobEnvironment,
        console: Arc<Console>,
        output: Arc<OutputCopiers>,
    ) -> Result<Self, StartError> {
        let logs = job.logs.clone();
        let any = |streams: Streams| streams.stdout || streams.stderr;
        let has_logs = (0..environment.local_workers)
            .any(|rank| any(logs.redirects.of(rank)) || any(logs.tee.of(rank)));
        let host = &job.agent.host;
        let log_dir = LogDir::make(&logs.directory, (&environment.run_id, host), has_logs)?;
        let visible = environment.inherited.get("CUDA_VISIBLE_DEVICES").map(String::as_str);
        let binding = job.numa_binding;
        let processors =
            numa::bindings(Path::new("/"), binding, environment.local_workers, visible);
        let failed = |source| StartError::Files { path: std::env::temp_dir(), source };
        let progress = job.agent.hang.map(|_| ProgressSpec::new(job.progress.clone()));
        let progress = progress.transpose().map_err(failed)?.map(Arc::new);
        Ok(Self {
            environment,
            program: job.program.clone(),
            host: host.clone(),
            logs,
            log_dir: Arc::new(log_dir),
            console,
            output,
            progress,
            processors,
            input: input(job)?,
        })
    }

    /// The name of this host.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// The program of the workers.
    pub(crate) fn program_path(&self) -> &OsStr {
        &self.program.path
    }

    /// Standard input, if this worker has it.
    pub(super) fn input(&self, local_rank: u32) -> Option<&Arc<StandardInput>> {
        let (whose, input) = self.input.as_ref()?;
        (*whose == local_rank).then_some(input)
    }

    /// The destination of one of a worker's streams.
    pub(super) fn route(&self, stream: OutputStream, local_rank: u32) -> Route {
        let of = |streams: Streams| match stream {
            OutputStream::Stdout => streams.stdout,
            OutputStream::Stderr => streams.stderr,
        };
        let wanted = Wanted {
            redirected: of(self.logs.redirects.of(local_rank)),
            copied: self.is_copied(stream, local_rank),
            shown: self.logs.console.has(local_rank),
        };
        let route = Route::new(wanted, !matches!(*self.log_dir, LogDir::Nowhere));
        // A worker with the launcher's standard input may have a prompt, and keeps the terminal.
        let is_seen = self.progress.as_ref().is_some_and(|progress| progress.is_output());
        if is_seen && self.input(local_rank).is_none() { route.seen() } else { route }
    }

    /// Whether the user wants a stream of a worker copied, and not only the launcher to see progress.
    pub(super) fn is_copied(&self, stream: OutputStream, local_rank: u32) -> bool {
        let tee = self.logs.tee.of(local_rank);
        match stream {
            OutputStream::Stdout => tee.stdout,
            OutputStream::Stderr => tee.stderr,
        }
    }

    /// The prefix of a worker's lines on the console.
    pub(super) fn prefix(&self, stream: OutputStream, local_rank: u32, rank: u32) -> String {
        let source = LineSource {
            role_name: &self.environment.role,
            local_rank,
            rank,
            hostname: &self.host,
        };
        let prefix = self.logs.prefix.render(source);
        if prefix.is_empty() || !self.console.is_coloured(stream) {
            return prefix;
        }
        // Colours 36 down to 31: cyan to red, since black and white may be the background.
        format!("\x1b[{}m{prefix}\x1b[0m", 36 - local_rank % 6)
    }
}

/// The worker with the launcher's standard input: the one that the user named, or on a terminal a single worker.
fn input(job: &JobSpec) -> Result<Option<(u32, Arc<StandardInput>)>, StartError> {
    if job.stdin.is_none() && job.agent.local_workers > 1 {
        return Ok(None);
    }
    let local_rank = job.stdin.unwrap_or(0);
    let input =
        StandardInput::inherited().map_err(|source| StartError::Process { local_rank, source })?;
    let has_it = job.stdin.is_some() || input.is_terminal();
    Ok(has_it.then(|| (local_rank, Arc::new(input))))
}
