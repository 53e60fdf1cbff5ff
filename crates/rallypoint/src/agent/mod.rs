//! What the agent of another launcher, such as torchrun's, needs beside its rendezvous: evictions by operators, reports
//! of workers that hang, health and metrics over HTTP. The decisions are those of `rallypoint run`.

mod hangs;
mod pages;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rallypoint_core::agent::{
    AgentInput, AgentOutput, Exit, Exited, GroupChange, HangPolicy, NoGroup, NodeGroup,
    OperatorAction, RestartBudget, SIGTERM, Why, WorkerFailure, must_stop, num_nodes_waiting,
};
use rallypoint_core::kv::Time;
use rallypoint_core::rendezvous::documents::Address;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use self::hangs::HangLoop;
pub use self::pages::{AgentPages, PagesError};
use crate::config::ProgressSign;
use crate::launch::pages::WorkerProgress;
use crate::launch::restarts::RestartCounter;
use crate::launch::stacks::StackTargets;
use crate::launch::workers::ProgressSpec;
use crate::log_target::LAUNCH;
use crate::rendezvous::{
    EtcdRendezvousHandler, HandlerStatus, RendezvousError, RendezvousHandler as _, RendezvousInfo,
};
use crate::session::Loss;
use crate::util::blocking::blocking;
use crate::util::host::host_name;

/// A node whose workers another launcher starts and stops: its rendezvous, evictions by operators, with
/// [`HandlerOptions::hang`](crate::rendezvous::HandlerOptions::hang) the reports of hangs, and with [`AgentPages`] its
/// health and metrics over HTTP.
///
/// The agent calls [`next_rendezvous`](Self::next_rendezvous), starts its workers and tells
/// [`started`](Self::started), and asks [`nodes_waiting`](Self::nodes_waiting) whether to stop them.
pub struct ForeignAgent {
    handler: Arc<EtcdRendezvousHandler>,
    restarts: Arc<RestartCounter>,
    budget: watch::Receiver<RestartBudget>,
    hangs: Option<(HangPolicy, Arc<ProgressSpec>)>,
    pages: Option<AgentPages>,
    /// How many directories for beats were made: a start that fails needs another one.
    directories: AtomicU64,
    starts: AtomicU64,
    state: Mutex<AgentState>,
}

#[derive(Default)]
struct AgentState {
    group: Option<RendezvousInfo>,
    /// The directory of the beats of the next workers, or of those that run.
    beats: Option<PathBuf>,
    watching: Option<AbortOnDropHandle<()>>,
    /// Workers were started and are not being stopped.
    is_running: bool,
    /// Workers are being stopped, or have stopped since.
    is_stopping: bool,
    base_rank: u32,
    /// Why the workers had to stop.
    why: Option<Why>,
}

/// The time that torchrun gives workers to stop.
const STOP_TIME: Duration = Duration::from_secs(30);

/// Workers that a launcher has started.
#[derive(Debug, Clone)]
pub struct ForeignWorkers {
    /// The rank of the first worker.
    pub base_rank: u32,
    /// The process of each worker, in the order of their ranks.
    pub pids: Vec<u32>,
    /// The files that their output goes to, as far as it does.
    pub logs: Vec<PathBuf>,
    /// The program of the workers, beside which py-spy is looked for.
    pub program: OsString,
}

impl ForeignAgent {
    /// The agent of this node.
    ///
    /// # Errors
    /// If the directory for the workers' signs of progress cannot be created.
    pub async fn open(
        handler: Arc<EtcdRendezvousHandler>,
        mut pages: Option<AgentPages>,
    ) -> io::Result<Self> {
        let options = handler.options();
        let (hang, sign) = (options.hang, options.progress.clone());
        let hangs = match hang {
            Some(hang) => Some((hang, Arc::new(blocking(|| ProgressSpec::new(sign)).await?))),
            None => None,
        };
        // Other launchers have restarts of their own.
        let restarts = Arc::new(RestartCounter::new(handler.client(), handler.keys(), 0));
        let (budget, state) = (restarts.changes(), Mutex::default());
        let (directories, starts) = (AtomicU64::new(0), AtomicU64::new(0));
        if let Some(pages) = &mut pages {
            pages.follow(&handler);
        }
        Ok(Self { handler, restarts, budget, hangs, pages, directories, starts, state })
    }

    /// The rendezvous handler of the node.
    pub fn handler(&self) -> &Arc<EtcdRendezvousHandler> {
        &self.handler
    }

    /// Why the workers of this node must stop; `None` if they need not.
    pub fn must_stop(&self) -> Option<Why> {
        let HandlerStatus { view, fenced, .. } = self.handler.status();
        let fenced = fenced.as_ref().map(Loss::to_string);
        must_stop(&view, &self.budget.borrow(), fenced, self.handler.node_id())
    }

    /// The number of nodes that wait for a new round, as PyTorch's agents ask for it. It is not 0 if the workers of this
    /// node must stop, whatever the reason. A memory read.
    ///
    /// # Errors
    /// [`RendezvousError::Connection`] if the handler has ended.
    pub fn nodes_waiting(&self) -> Result<usize, RendezvousError> {
        let HandlerStatus { view, fenced, .. } = self.handler.live_status()?;
        let fenced = fenced.as_ref().map(Loss::to_string);
        Ok(num_nodes_waiting(&view, &self.budget.borrow(), fenced, self.handler.node_id()))
    }

    /// Waits for the next group. The workers of the last one have stopped. Dropping the future leaves the round.
    ///
    /// # Errors
    /// [`RendezvousError::Evicted`] if an operator evicted this node, which has then left; otherwise as for
    /// [`RendezvousHandler::next_rendezvous`](crate::rendezvous::RendezvousHandler::next_rendezvous).
    pub async fn next_rendezvous(&self) -> Result<RendezvousInfo, RendezvousError> {
        self.stopping();
        self.note_round();
        let info = tokio::select! {
            biased;
            action = self.eviction() => {
                self.record(&AgentInput::Evicted(action.clone()), &[]);
                // Its workers have stopped, so another node may take its place.
                self.handler.leave().await;
                let run_id = self.handler.run_id().to_owned();
                return Err(RendezvousError::Evicted { run_id, action });
            }
            formed = self.handler.next_rendezvous() => formed.inspect_err(|error| {
                self.record(&AgentInput::NotFormed(NoGroup::Failed(error.to_string())), &[]);
            })?,
        };
        self.record(&AgentInput::Formed(node_group(&info)), &[]);
        self.lock().group = Some(info.clone());
        Ok(info)
    }

    /// Records that the agent asks for a group, and why.
    fn note_round(&self) {
        let (why, has_stopped, had_group) = {
            let mut state = self.lock();
            (state.why.take(), std::mem::take(&mut state.is_stopping), state.group.is_some())
        };
        let attempt = self.starts.load(Ordering::Relaxed);
        if has_stopped {
            self.record(&AgentInput::Stopped { attempt }, &[]);
        }
        let why = why.unwrap_or_else(|| match had_group {
            true => Why::Changed(GroupChange::GoneAhead("its agent asks for a group".to_owned())),
            false => Why::Begin,
        });
        self.record(&AgentInput::Wake, &[AgentOutput::Rendezvous { why }]);
    }

    /// Waits until an operator evicts this node.
    async fn eviction(&self) -> OperatorAction {
        let id = self.handler.node_id();
        let mut budget = self.budget.clone();
        let found = budget.wait_for(|budget| budget.eviction_of(id).is_some()).await;
        match found.ok().and_then(|budget| budget.eviction_of(id).cloned()) {
            Some(action) => action,
            None => std::future::pending().await,
        }
    }

    /// The directory for the signs of progress of workers that are about to be started: the value of
    /// [`PROGRESS_DIRECTORY`](rallypoint_core::agent::environment::PROGRESS_DIRECTORY) in their environment. `None` if
    /// no signs are looked for. Blocks on the disk.
    ///
    /// # Errors
    /// If the directory cannot be created.
    pub fn starting(&self) -> io::Result<Option<PathBuf>> {
        let Some((_, progress)) = &self.hangs else { return Ok(None) };
        let beats = progress.beat_directory(self.directories.fetch_add(1, Ordering::Relaxed))?;
        self.lock().beats = Some(beats.clone());
        Ok(Some(beats))
    }

    /// Watches workers that were just started in the group of the last rendezvous, until they are to stop. Needs a tokio
    /// runtime.
    pub fn started(&self, workers: ForeignWorkers) {
        let attempt = self.starts.fetch_add(1, Ordering::Relaxed) + 1;
        self.record(&AgentInput::Started { attempt }, &[]);
        let mut state = self.lock();
        (state.is_running, state.base_rank) = (true, workers.base_rank);
        let Some((policy, progress)) = self.hangs.clone() else { return };
        let (Some(info), Some(beats)) = (state.group.clone(), state.beats.clone()) else { return };
        if workers.logs.is_empty() {
            say_hidden(&progress);
        }
        let ForeignWorkers { base_rank, pids, logs, program } = workers;
        let count = u32::try_from(pids.len()).unwrap_or(u32::MAX);
        let ranks = base_rank..base_rank.saturating_add(count);
        let group = node_group(&info);
        let groups = pids.iter().copied().map(Some).collect();
        let (host, node) = (host_name(), self.handler.node_id().to_owned());
        let debug_ports = BTreeMap::new();
        let targets = StackTargets { host, node, base_rank, groups, program, debug_ports };
        let (restarts, store) = (self.restarts.clone(), info.store);
        let run = (self.handler.client().clone(), self.handler.keys().clone());
        let run = (run, self.handler.run_id().to_owned());
        let pages = self.pages.as_ref().map(AgentPages::node);
        state.watching = Some(AbortOnDropHandle::new(tokio::spawn(async move {
            let signs = blocking(move || progress.signs().of_foreign(&beats, ranks, &logs)).await;
            if let Some(pages) = pages {
                let progress = WorkerProgress::new(signs.clone(), group.rank == 0, policy);
                pages.follow_progress(Some(progress));
            }
            HangLoop::new(policy, signs, targets, pids, (group, store), run, restarts).run().await;
        })));
    }

    /// Workers have failed: by local rank, with exit codes as Python has them, negative for signals.
    pub fn failed(&self, exits: &[(u32, i32)]) {
        let attempt = self.starts.load(Ordering::Relaxed);
        for (local_rank, code) in exits.iter().copied() {
            let exit = if code < 0 { Exit::Signal(-code) } else { Exit::Code(code) };
            {
                let mut state = self.lock();
                let rank = state.base_rank.saturating_add(local_rank);
                let (host, exit) = (host_name(), exit.clone());
                let failure = WorkerFailure { host, local_rank, rank, exit, message: None };
                state.why.get_or_insert(Why::WorkerFailed(failure));
            }
            let exited = Exited { attempt, local_rank, exit, message: None };
            self.record(&AgentInput::Exited(exited), &[]);
        }
    }

    /// The workers are to stop, or have stopped: they are no longer watched.
    pub fn stopping(&self) {
        let must = self.must_stop();
        let (why, round) = {
            let mut state = self.lock();
            state.watching = None;
            if !std::mem::take(&mut state.is_running) {
                return;
            }
            state.is_stopping = true;
            state.why = state.why.take().or(must);
            (state.why.clone(), state.group.as_ref().map_or(0, |group| group.round))
        };
        if let Some(Why::Changed(change)) = &why {
            self.record(&AgentInput::Changed { round, change: change.clone() }, &[]);
        }
        let (attempt, kill_at) = (self.starts.load(Ordering::Relaxed), self.now() + STOP_TIME);
        let why = why.unwrap_or(Why::Signal(SIGTERM));
        let stop = AgentOutput::StopWorkers { attempt, signal: SIGTERM, kill_at, why };
        self.record(&AgentInput::Wake, &[stop]);
    }

    fn record(&self, input: &AgentInput, outputs: &[AgentOutput]) {
        if let Some(pages) = &self.pages {
            pages.record(input, outputs);
        }
    }

    /// The time by the clock of the recorded events.
    fn now(&self) -> Time {
        self.pages.as_ref().map(AgentPages::now).unwrap_or_default()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, AgentState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn node_group(info: &RendezvousInfo) -> NodeGroup {
    let store = info.bootstrap_store_info.clone();
    NodeGroup {
        round: info.round,
        rank: info.rank,
        nodes: info.world_size,
        restarts: 0,
        store: Address { host: store.master_addr, port: store.master_port },
    }
}

/// Says that the output of the workers is no sign of progress.
fn say_hidden(progress: &ProgressSpec) {
    match progress.sign() {
        ProgressSign::Output => tracing::warn!(
            target: LAUNCH,
            "progress=output has no effect: the output of the workers does not go to files; give torchrun --redirects \
             or --tee and --log-dir, or let the workers call rallypoint.beat()"
        ),
        ProgressSign::Auto => tracing::info!(
            target: LAUNCH,
            "hangs are reported once a worker of a node has called rallypoint.beat(): the output of the workers does \
             not go to files, so it is no sign of progress"
        ),
        _ => {}
    }
}
