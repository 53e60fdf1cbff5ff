//! What every start of the workers has in common.

use std::path::Path;
use std::sync::Arc;

use rallypoint_core::agent::environment::Job;
use rustix::thread::CpuSet;

use super::error::StartError;
use super::home::Home;
use super::numa;
use super::output::Output;
use super::streams::{Route, Wanted};
use crate::cli::run::plan::{Logs, Plan};
use crate::cli::run::program::Program;
use crate::cli::run::template::Speaker;
use crate::cli::run::values::Streams;
use crate::launch::console::{Console, Stream};
use crate::process::Input;

/// What every start of the workers has in common. Clones share the directory of their files, which goes with
/// the last of them unless it is to be kept.
#[derive(Clone)]
pub(crate) struct Outfit {
    /// What their environment is made from. It may change from one start to the next.
    pub(crate) job: Job,
    pub(super) program: Program,
    pub(super) host: String,
    pub(super) logs: Logs,
    pub(super) home: Arc<Home>,
    pub(super) console: Arc<Console>,
    /// Those who copy the workers' output, of all starts.
    pub(super) output: Arc<Output>,
    /// The processors of each worker, if they are bound to some.
    pub(super) processors: Vec<CpuSet>,
    /// Standard input, and the local rank of the worker that has it. The others have none.
    pub(super) input: Option<(u32, Arc<Input>)>,
}

impl Outfit {
    /// Prepares for a plan, and makes the directory of the workers' files. Blocks on the disk.
    ///
    /// # Errors
    /// [`StartError::Files`].
    pub(crate) fn new(
        plan: &Plan,
        job: Job,
        console: Arc<Console>,
        output: Arc<Output>,
    ) -> Result<Self, StartError> {
        let logs = plan.logs.clone();
        let any = |streams: Streams| streams.stdout || streams.stderr;
        let has_logs = (0..job.local_workers)
            .any(|rank| any(logs.redirects.of(rank)) || any(logs.tee.of(rank)));
        let host = &plan.agent.host;
        let home = Home::make(&logs.directory, (&job.run_id, host), has_logs)?;
        let visible = job.inherited.get("CUDA_VISIBLE_DEVICES").map(String::as_str);
        let binding = plan.numa_binding;
        let processors = numa::bindings(Path::new("/"), binding, job.local_workers, visible);
        Ok(Self {
            job,
            program: plan.program.clone(),
            host: host.clone(),
            logs,
            home: Arc::new(home),
            console,
            output,
            processors,
            input: input(plan)?,
        })
    }

    /// Standard input, if it is this worker's.
    pub(super) fn input(&self, local_rank: u32) -> Option<&Arc<Input>> {
        let (whose, input) = self.input.as_ref()?;
        (*whose == local_rank).then_some(input)
    }

    /// Where one of a worker's streams goes.
    pub(super) fn route(&self, stream: Stream, local_rank: u32) -> Route {
        let of = |streams: Streams| match stream {
            Stream::Stdout => streams.stdout,
            Stream::Stderr => streams.stderr,
        };
        let wanted = Wanted {
            redirected: of(self.logs.redirects.of(local_rank)),
            copied: of(self.logs.tee.of(local_rank)),
            shown: self.logs.console.has(local_rank),
        };
        Route::new(wanted, !matches!(*self.home, Home::Nowhere))
    }

    /// What the lines of a worker begin with on the console.
    pub(super) fn prefix(&self, stream: Stream, local_rank: u32, rank: u32) -> String {
        let speaker = Speaker { role_name: &self.job.role, local_rank, rank, hostname: &self.host };
        let prefix = self.logs.prefix.render(speaker);
        if prefix.is_empty() || !self.console.is_coloured(stream) {
            return prefix;
        }
        // From red to cyan, beginning with cyan; black and white may be the background.
        format!("\x1b[{}m{prefix}\x1b[0m", 36 - local_rank % 6)
    }
}

/// Who has the standard input of the launcher: who was named, or on a terminal the only one there is.
fn input(plan: &Plan) -> Result<Option<(u32, Arc<Input>)>, StartError> {
    if plan.stdin.is_none() && plan.agent.local_workers > 1 {
        return Ok(None);
    }
    let local_rank = plan.stdin.unwrap_or(0);
    let input = Input::inherited().map_err(|source| StartError::Process { local_rank, source })?;
    let has_it = plan.stdin.is_some() || input.is_terminal();
    Ok(has_it.then(|| (local_rank, Arc::new(input))))
}
