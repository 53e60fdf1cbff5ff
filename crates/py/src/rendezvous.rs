//! The rendezvous of a node, and the embedded server on the host that the endpoint names.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use rallypoint::Reminder;
use rallypoint::agent::{AgentPages, ForeignAgent, ForeignWorkers, PagesError};
use rallypoint::config::Backend;
use rallypoint::embedded::{
    EmbeddedServer, EmbeddedServerError, RendezvousConfig, SecretError, ThisHost,
};
use rallypoint::log_target::{RENDEZVOUS, WAITING};
use rallypoint::process::follow_fence;
use rallypoint::rendezvous::{
    CreateError, Ending, EtcdRendezvousHandler, PASSWORD, RendezvousHandler as _,
    RendezvousParameters, add_password,
};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::arguments;
use crate::errors::{OrRaise, Raise, fork_error, system_error, wrong_argument};
use crate::guard::Guard;
use crate::runtime::{ProcessBound, wait};
use crate::store::Store;

/// The environment variable with the secret of the run.
const SECRET: &str = "RALLYPOINT_SECRET";

/// The times after which a wait is reported; the last one repeats.
const SAID_AFTER: [Duration; 3] =
    [Duration::from_secs(3), Duration::from_secs(30), Duration::from_secs(60)];

/// The rendezvous of a node.
///
/// All nodes make the same call. The host that ``endpoint`` names runs the server in this process, and the other
/// hosts wait for it. Of several hosts the first one runs the server, and the others may succeed it when it is lost.
///
/// Args:
///     endpoint: ``host:port``, by default port 29400; several hosts with commas in between succeed each other, or are
///         a running etcd cluster if ``backend`` is ``etcd``. Empty for a single node.
///     run_id: the id of the run, the same on all of its nodes.
///     min_nodes, max_nodes: the smallest and largest size of a group.
///     backend: ``rallypoint``; or ``etcd``, also called ``etcd-v3``, for a running etcd on any host.
///     local_addr: the address at which other nodes reach this one, if it cannot be found out.
///     guard: the guard of this node's workers, for agents that have one.
///     options: as in ``--rdzv-conf``, with their defaults:
#[doc = include_str!("rendezvous/options.txt")]
///
/// >>> with rallypoint.Rendezvous("", "job-7", 1, 1) as rendezvous:
/// ...     group = rendezvous.next_rendezvous()
/// ...     group.rank, group.world_size, group.round
/// (0, 1, 1)
///
/// In ``asyncio``, within such a block: ``group = await asyncio.to_thread(rendezvous.next_rendezvous)``. The end
/// of the block, or ``leave()``, also ends a call that waits in another thread, which Ctrl-C alone does not.
#[pyclass(module = "rallypoint", subclass, frozen)]
pub(crate) struct Rendezvous {
    backend: String,
    agent: ProcessBound<ForeignAgent>,
    server: Mutex<Option<ProcessBound<EmbeddedServer>>>,
    /// The task that sends the fence to the guard.
    _fencing: Option<ProcessBound<AbortOnDropHandle<()>>>,
    /// Set by ``shutdown``.
    ended: CancellationToken,
}

/// Why a rendezvous could not be opened.
enum OpenError {
    Host(EmbeddedServerError),
    Create(CreateError),
    Secret(SecretError),
    Progress(std::io::Error),
    Pages(PagesError),
}

impl OpenError {
    fn new(error: CreateError, config: &RendezvousConfig) -> Self {
        let secret = match &error {
            CreateError::Rendezvous(error) => config.secret_error(error),
            _ => None,
        };
        secret.map_or(Self::Create(error), Self::Secret)
    }

    fn raise(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Host(error) => error.raise(py),
            Self::Create(error) => error.raise(py),
            Self::Secret(error) => error.raise(py),
            Self::Pages(error) => wrong_argument(py, rallypoint::error_chain(&error)),
            Self::Progress(error) => {
                system_error(py, "create a directory for the workers' signs of progress", &error)
            }
        }
    }
}

/// The parts of an opened rendezvous.
struct Opened {
    agent: ForeignAgent,
    server: Option<EmbeddedServer>,
    fencing: Option<AbortOnDropHandle<()>>,
}

async fn open(mut config: RendezvousConfig) -> Result<Opened, OpenError> {
    for warning in &config.warnings {
        tracing::warn!(target: RENDEZVOUS, "{warning}");
    }
    // Probes are answered from the start.
    let pages = AgentPages::open(&mut config).await.map_err(OpenError::Pages)?;
    let server = EmbeddedServer::start(&mut config).await.map_err(OpenError::Host)?;
    if let (Some(pages), Some(server)) = (&pages, &server) {
        pages.embeds(server);
    }
    let handler = EtcdRendezvousHandler::from_parameters(&config.parameters).await;
    let handler = handler.map_err(|error| OpenError::new(error, &config))?;
    let fence = config.parameters.liveness.is_some().then(|| handler.fence_at());
    let fencing = fence.map(|fence| AbortOnDropHandle::new(tokio::spawn(follow_fence(fence))));
    let agent = ForeignAgent::open(Arc::new(handler), pages).await.map_err(OpenError::Progress)?;
    Ok(Opened { agent, server, fencing })
}

#[pymethods]
impl Rendezvous {
    #[new]
    #[pyo3(
        signature = (endpoint, run_id, min_nodes, max_nodes, *, backend = Backend::Rallypoint.name(), local_addr = None,
                     guard = None, **options),
        text_signature = "(endpoint, run_id, min_nodes, max_nodes, *, backend='rallypoint', local_addr=None, \
                          guard=None, **options)"
    )]
    #[allow(clippy::too_many_arguments, reason = "Python's are by keyword")]
    fn create(
        py: Python<'_>,
        endpoint: &str,
        run_id: &str,
        min_nodes: i64,
        max_nodes: i64,
        backend: &str,
        local_addr: Option<String>,
        guard: Option<&Guard>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        if !Backend::own_names().any(|name| name == backend) {
            let names: Vec<_> = Backend::own_names().collect();
            let fix = format!("give one of {}", names.join(", "));
            return Err(wrong_argument(py, format!("backend {backend:?}: {fix}")));
        }
        let mut config = arguments::options(options)?;
        add_password(&mut config, std::env::var(PASSWORD).ok());
        // Negative numbers are as invalid as zero.
        let [low, high] = [min_nodes, max_nodes].map(|nodes| nodes.try_into().unwrap_or_default());
        let parameters = RendezvousParameters::new(backend, endpoint, run_id, low, high);
        let mut parameters = parameters.or_raise(py)?;
        parameters.config = config;
        parameters.local_addr = local_addr;
        parameters.liveness = guard.map(Guard::liveness);
        let secret = std::env::var(SECRET).ok().filter(|secret| !secret.is_empty());
        // A host name may have to be resolved.
        let rendezvous = py.detach(|| {
            RendezvousConfig::from_parameters(parameters, &ThisHost::look(), secret.as_deref())
        });
        let opened = wait(py, open(rendezvous.or_raise(py)?))?;
        let Opened { agent, server, fencing } = opened.map_err(|error| error.raise(py))?;
        Ok(Self {
            backend: backend.to_owned(),
            agent: ProcessBound::new(agent),
            server: Mutex::new(server.map(ProcessBound::new)),
            _fencing: fencing.map(ProcessBound::new),
            ended: CancellationToken::new(),
        })
    }

    /// Waits until a group has formed with this node as a member. Ctrl-C takes the node out of the round again. If an
    /// operator evicts this node (``rallypoint evict``), it leaves, and ``RendezvousGracefulExitError`` says who did.
    fn next_rendezvous(&self, py: Python<'_>) -> PyResult<RendezvousInfo> {
        let agent = self.agent.get(py)?;
        let info = wait(py, saying_why(agent.handler(), agent.next_rendezvous()))?.or_raise(py)?;
        Ok(RendezvousInfo {
            rank: info.rank,
            world_size: info.world_size,
            round: info.round,
            master_addr: info.bootstrap_store_info.master_addr,
            master_port: info.bootstrap_store_info.master_port,
            store: Py::new(py, Store::new(info.store))?,
        })
    }

    /// The number of nodes that wait for a new round: late nodes for which there is room, and lost members of the
    /// group. If it is not 0, stop the workers and call ``next_rendezvous``. It is not 0 either if this node is no
    /// longer a member of its group, if an operator has evicted this node, or if another node has closed the run after a
    /// failure. Reads memory only.
    fn num_nodes_waiting(&self, py: Python<'_>) -> PyResult<usize> {
        self.agent.get(py)?.nodes_waiting().or_raise(py)
    }

    /// The reason why ``num_nodes_waiting()`` is not 0, as a sentence; ``None`` if it is 0.
    #[getter]
    fn stop_reason(&self, py: Python<'_>) -> PyResult<Option<String>> {
        Ok(self.agent.get(py)?.must_stop().map(|why| why.to_string()))
    }

    /// Workers are about to be started. With ``hang_after``, returns the directory for their signs of progress: the
    /// value of ``RALLYPOINT_PROGRESS_DIR`` in their environment. Otherwise returns ``None``.
    fn workers_starting(&self, py: Python<'_>) -> PyResult<Option<OsString>> {
        let agent = self.agent.get(py)?;
        let beats = py.detach(|| agent.starting());
        let what = "create a directory for the workers' signs of progress";
        let beats = beats.map_err(|error| system_error(py, what, &error))?;
        Ok(beats.map(PathBuf::into_os_string))
    }

    /// Workers were started. With ``hang_after``, they are watched until ``workers_stopping`` or ``next_rendezvous``.
    ///
    /// Args:
    ///     base_rank: the rank of the first worker.
    ///     pids: the process of each worker, in the order of their ranks.
    ///     logs: the files that their output goes to, if it does.
    ///     program: the program of the workers, beside which py-spy is looked for.
    fn workers_started(
        &self,
        py: Python<'_>,
        base_rank: u32,
        pids: Vec<u32>,
        logs: Vec<PathBuf>,
        program: OsString,
    ) -> PyResult<()> {
        let agent = self.agent.get(py)?;
        let workers = ForeignWorkers { base_rank, pids, logs, program };
        wait(py, async { agent.started(workers) })
    }

    /// Workers have failed: their local ranks and exit codes, negative for signals.
    fn workers_failed(&self, py: Python<'_>, exits: Vec<(u32, i32)>) -> PyResult<()> {
        self.agent.get(py)?.failed(&exits);
        Ok(())
    }

    /// The workers are to stop, and are no longer watched.
    fn workers_stopping(&self, py: Python<'_>) -> PyResult<()> {
        self.agent.get(py)?.stopping();
        Ok(())
    }

    /// Waits until this node, as a member of a group, loses its session, and returns the reason; or until ``shutdown``,
    /// and returns ``None``. Its workers must have ended within an eighth of ``lease_ttl``, since another node may take
    /// its place after that.
    fn fenced(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let handler = self.agent.get(py)?.handler();
        wait(py, async {
            tokio::select! {
                biased;
                () = self.ended.cancelled() => None,
                loss = handler.fenced() => Some(loss.to_string()),
            }
        })
    }

    /// Whether this node has lost its session as a member of a group, and is in no other group yet. False after
    /// ``shutdown``.
    #[getter]
    fn is_fenced(&self, py: Python<'_>) -> PyResult<bool> {
        let handler = self.agent.get(py)?.handler();
        Ok(!self.ended.is_cancelled() && handler.status().fenced.is_some())
    }

    /// Whether the run is closed, so that no further group forms.
    fn is_closed(&self, py: Python<'_>) -> PyResult<bool> {
        let handler = self.agent.get(py)?.handler();
        Ok(handler.live_status().or_raise(py)?.view.closed.is_some())
    }

    /// Closes the run for all of its nodes. The other nodes see the reason.
    #[pyo3(signature = (reason = "it was closed by its user"))]
    fn set_closed(&self, py: Python<'_>, reason: &str) -> PyResult<()> {
        let handler = self.agent.get(py)?.handler();
        wait(py, handler.set_closed(reason))?.or_raise(py)
    }

    /// Leaves the group without closing the run. The other nodes form a group without this node, which may join again.
    fn leave(&self, py: Python<'_>) -> PyResult<()> {
        let handler = self.agent.get(py)?.handler();
        wait(py, handler.leave())
    }

    /// Ends this node's part. With ``success``, a member of the group also closes the run, since the job is done.
    /// Without it, the node only leaves, and the other nodes form a group without it. With a ``reason`` too, the node
    /// closes the run as failed, and the other nodes stop; unless the group has lost another member, or loses one
    /// within a second, since the failure here is then probably its consequence. Returns whether all of that succeeded.
    ///
    /// If this process runs the server, the call returns when all other nodes have ended, also those of the same
    /// process: end them first, or in other threads. Ctrl-C ends the wait.
    #[pyo3(signature = (success = true, reason = None))]
    fn shutdown(&self, py: Python<'_>, success: bool, reason: Option<String>) -> PyResult<bool> {
        let ending = match (success, reason) {
            (true, None) => Ending::Done,
            (false, None) => Ending::Leaves,
            (false, Some(reason)) => Ending::Failed(reason),
            (true, Some(reason)) => {
                let fix = "a success has none; give success=False too";
                return Err(wrong_argument(py, format!("reason {reason:?}: {fix}")));
            }
        };
        let agent = self.agent.get(py)?;
        agent.stopping();
        let handler = agent.handler();
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.ended.cancel();
        wait(py, end(handler, server.and_then(ProcessBound::take), ending))
    }

    /// The id of the run.
    #[getter]
    fn run_id(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.agent.get(py)?.handler().run_id().to_owned())
    }

    /// The id of this node.
    #[getter]
    fn node_id(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.agent.get(py)?.handler().node_id().to_owned())
    }

    /// The name of the backend, as it was given.
    #[getter]
    fn backend(&self) -> &str {
        &self.backend
    }

    /// Whether rank 0's node serves a store for the workers at ``master_addr:master_port``, on the wire of
    /// PyTorch's ``TCPStore``.
    #[getter]
    fn use_agent_store(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.agent.get(py)?.handler().use_agent_store())
    }

    /// The time to live of this node's lease.
    #[getter]
    fn lease_ttl(&self, py: Python<'_>) -> PyResult<Duration> {
        Ok(self.agent.get(py)?.handler().options().lease_ttl)
    }

    /// Whether this process runs the server.
    #[getter]
    fn serves(&self, py: Python<'_>) -> PyResult<bool> {
        let serves = match &*self.server.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(server) => server.get_unless_forked().map(EmbeddedServer::serves),
            None => Some(false),
        };
        serves.ok_or_else(|| fork_error(py))
    }

    fn __enter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    /// A block that ends without an exception closes the run; one that raises leaves the run open.
    fn __exit__(
        &self,
        py: Python<'_>,
        class: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.shutdown(py, class.is_none(), None).map(drop)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let handler = self.agent.get(py)?.handler();
        Ok(format!("<Rendezvous of run {:?}, node {}>", handler.run_id(), handler.node_id()))
    }
}

/// Ends the node's part. A server of this process stays until no node needs it.
async fn end(
    handler: &EtcdRendezvousHandler,
    server: Option<EmbeddedServer>,
    ending: Ending,
) -> bool {
    let closed = handler.end(ending).await;
    if let Some(server) = server {
        if server.serves()
            && let Err(error) = server.not_needed(handler.client(), handler.keys()).await
        {
            tracing::debug!(
                target: RENDEZVOUS,
                %error, "cannot determine which nodes still need the server"
            );
        }
        server.stop().await;
    }
    closed
}

/// Waits for `future`, and logs what the rendezvous waits for if that takes long.
async fn saying_why<T>(handler: &EtcdRendezvousHandler, future: impl Future<Output = T>) -> T {
    let report = || {
        if let Some(what) = handler.status().view.waits_for {
            tracing::info!(target: WAITING, "waiting: {what}");
        }
        // The delay of the next report.
        handler.refresh();
    };
    Reminder::after(&SAID_AFTER).during(future, report).await
}

/// A group, as one of its members sees it.
#[pyclass(module = "rallypoint", frozen, get_all)]
pub(crate) struct RendezvousInfo {
    /// This node's rank in the group: 0 to ``world_size - 1``.
    rank: u32,
    /// The number of nodes in the group.
    world_size: u32,
    /// The round of the group. Round numbers only grow.
    round: u64,
    /// The address of rank 0, for workers.
    master_addr: String,
    /// The port of rank 0, for workers.
    master_port: u16,
    /// A store that the group shares, new for each round.
    store: Py<Store>,
}

#[pymethods]
impl RendezvousInfo {
    fn __repr__(&self) -> String {
        let Self { rank, world_size, round, master_addr, master_port, .. } = self;
        format!(
            "<RendezvousInfo of round {round}: rank {rank} of {world_size}, master {master_addr}:{master_port}>"
        )
    }
}
