//! The rendezvous, with the server where this host is meant to run it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use rallypoint::Reminder;
use rallypoint::config::Backend;
use rallypoint::embedded::{
    EmbeddedServer, EmbeddedServerError, RendezvousConfig, SecretError, ThisHost, clients_gone,
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
use crate::errors::{OrRaise, Raise, fork_error, wrong_argument};
use crate::guard::Guard;
use crate::runtime::{Tied, wait};
use crate::store::Store;

/// Where the secret that the nodes share may stand.
const SECRET: &str = "RALLYPOINT_SECRET";

/// After how long a wait is said to be one; and then again and again after the last.
const SAID_AFTER: [Duration; 3] =
    [Duration::from_secs(3), Duration::from_secs(30), Duration::from_secs(60)];

/// A node's way into the group of its run.
///
/// The same call on every node. The host that ``endpoint`` names runs the server, in this process, and the
/// others wait for it if it is late. Several hosts in the endpoint are an etcd cluster that is there already.
///
/// Args:
///     endpoint: ``host:port``, port 29400 unless given; several hosts with commas in between are an etcd.
///         Empty for a node that is alone.
///     run_id: the name of the run, the same for all of its nodes and for no others.
///     min_nodes, max_nodes: how large a group may be.
///     backend: ``rallypoint``; or ``etcd``, also called ``etcd-v3``, for one that is there already, whatever
///         its host.
///     local_addr: where the other nodes reach this one, if it cannot find out itself.
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
    handler: Tied<Arc<EtcdRendezvousHandler>>,
    server: Mutex<Option<Tied<EmbeddedServer>>>,
    /// Tells the guard until when the workers may live.
    _fencing: Option<Tied<AbortOnDropHandle<()>>>,
    /// Its part is over.
    ended: CancellationToken,
}

/// Why there is no rendezvous.
enum OpenError {
    Host(EmbeddedServerError),
    Create(CreateError),
    Secret(SecretError),
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
        }
    }
}

/// What a rendezvous is made of.
struct Opened {
    handler: EtcdRendezvousHandler,
    server: Option<EmbeddedServer>,
    fencing: Option<AbortOnDropHandle<()>>,
}

async fn open(mut config: RendezvousConfig) -> Result<Opened, OpenError> {
    for warning in &config.warnings {
        tracing::warn!(target: RENDEZVOUS, "{warning}");
    }
    let server = EmbeddedServer::start(&mut config).await.map_err(OpenError::Host)?;
    let handler = EtcdRendezvousHandler::from_parameters(&config.parameters).await;
    let handler = handler.map_err(|error| OpenError::new(error, &config))?;
    let fence = config.parameters.liveness.is_some().then(|| handler.fence_at());
    let fencing = fence.map(|fence| AbortOnDropHandle::new(tokio::spawn(follow_fence(fence))));
    Ok(Opened { handler, server, fencing })
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
        // Less than nothing is as wrong as nothing.
        let [low, high] = [min_nodes, max_nodes].map(|nodes| nodes.try_into().unwrap_or_default());
        let parameters = RendezvousParameters::new(backend, endpoint, run_id, low, high);
        let mut parameters = parameters.or_raise(py)?;
        parameters.config = config;
        parameters.local_addr = local_addr;
        parameters.liveness = guard.map(Guard::liveness);
        let secret = std::env::var(SECRET).ok().filter(|secret| !secret.is_empty());
        // A name may have to be looked up.
        let rendezvous = py.detach(|| {
            RendezvousConfig::from_parameters(parameters, &ThisHost::look(), secret.as_deref())
        });
        let opened = wait(py, open(rendezvous.or_raise(py)?))?;
        let Opened { handler, server, fencing } = opened.map_err(|error| error.raise(py))?;
        Ok(Self {
            backend: backend.to_owned(),
            handler: Tied::new(Arc::new(handler)),
            server: Mutex::new(server.map(Tied::new)),
            _fencing: fencing.map(Tied::new),
            ended: CancellationToken::new(),
        })
    }

    /// Waits until a group has formed that this node is in. Ctrl-C takes the node out of the round again.
    fn next_rendezvous(&self, py: Python<'_>) -> PyResult<RendezvousInfo> {
        let handler = self.handler.get(py)?;
        let info = wait(py, saying_why(handler, handler.next_rendezvous()))?.or_raise(py)?;
        Ok(RendezvousInfo {
            rank: info.rank,
            world_size: info.world_size,
            round: info.round,
            master_addr: info.bootstrap_store_info.master_addr,
            master_port: info.bootstrap_store_info.master_port,
            store: Py::new(py, Store::new(info.store))?,
        })
    }

    /// How many nodes would like a new round: late ones that there is room for, and members that the group
    /// has lost. Anything but 0 means: stop the workers and call ``next_rendezvous``. That is so too if this
    /// node is no longer in its group, or if another has closed the run without being done. A memory read.
    fn num_nodes_waiting(&self, py: Python<'_>) -> PyResult<usize> {
        self.handler.get(py)?.nodes_waiting().or_raise(py)
    }

    /// Why ``num_nodes_waiting()`` is not 0, in a sentence; ``None`` if it is.
    #[getter]
    fn disturbance(&self, py: Python<'_>) -> PyResult<Option<String>> {
        Ok(self.handler.get(py)?.must_stop().map(|why| why.to_string()))
    }

    /// Waits until this node was in a group and can no longer be sure of its place, since the servers do not
    /// hear from it, and says why; or until ``shutdown``, and returns ``None``. Its workers must be gone when an
    /// eighth of ``lease_ttl`` has passed, for then another node may take its place.
    fn fenced(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let handler = self.handler.get(py)?;
        wait(py, async {
            tokio::select! {
                biased;
                () = self.ended.cancelled() => None,
                loss = handler.fenced() => Some(loss.to_string()),
            }
        })
    }

    /// Whether this node was in a group, is no longer sure of its place, and is in no other group yet. Not after
    /// ``shutdown``.
    #[getter]
    fn is_fenced(&self, py: Python<'_>) -> PyResult<bool> {
        let handler = self.handler.get(py)?;
        Ok(!self.ended.is_cancelled() && handler.status().fenced.is_some())
    }

    /// Whether the run is closed: no further group will form.
    fn is_closed(&self, py: Python<'_>) -> PyResult<bool> {
        let handler = self.handler.get(py)?;
        Ok(handler.live_status().or_raise(py)?.view.closed.is_some())
    }

    /// Closes the run for all of its nodes, for good. The others are told the reason.
    #[pyo3(signature = (reason = "it was closed by its user"))]
    fn set_closed(&self, py: Python<'_>, reason: &str) -> PyResult<()> {
        let handler = self.handler.get(py)?;
        wait(py, handler.set_closed(reason))?.or_raise(py)
    }

    /// Leaves the group without closing the run. The others meet again without this node, which may come back.
    fn leave(&self, py: Python<'_>) -> PyResult<()> {
        let handler = self.handler.get(py)?;
        wait(py, handler.leave())
    }

    /// Ends it. A member of the group closes the run with it, since the job is done; unless not ``success``:
    /// then it only leaves, and the others meet again without it. With a ``reason`` why nobody can go on, it
    /// closes the run nevertheless, and the others are to stop; unless the group has lost another member, or has
    /// within a second, for then it was probably that which failed here. True if that came about.
    ///
    /// If this process runs the server, it stays until the others have ended, also those of the same process: end
    /// them first, or in other threads. Ctrl-C ends it at once.
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
        let handler = self.handler.get(py)?;
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.ended.cancel();
        wait(py, end(handler, server.and_then(Tied::take), ending))
    }

    /// The name of the run.
    #[getter]
    fn run_id(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.handler.get(py)?.run_id().to_owned())
    }

    /// The name by which the others know this node.
    #[getter]
    fn node_id(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.handler.get(py)?.node_id().to_owned())
    }

    /// The backend that was asked for.
    #[getter]
    fn backend(&self) -> &str {
        &self.backend
    }

    /// Whether rank 0's node serves a store for the workers at ``master_addr:master_port``, on the wire of
    /// PyTorch's ``TCPStore``.
    #[getter]
    fn use_agent_store(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.handler.get(py)?.use_agent_store())
    }

    /// How long this node may be silent before it counts as dead.
    #[getter]
    fn lease_ttl(&self, py: Python<'_>) -> PyResult<Duration> {
        Ok(self.handler.get(py)?.options().lease_ttl)
    }

    /// Whether it is this process that runs the server.
    #[getter]
    fn serves(&self, py: Python<'_>) -> PyResult<bool> {
        let serves = match &*self.server.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(server) => server.here().map(EmbeddedServer::serves),
            None => Some(false),
        };
        serves.ok_or_else(|| fork_error(py))
    }

    fn __enter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    /// A block that ends well closes the run; one that raises leaves it to the others.
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
        let handler = self.handler.get(py)?;
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
            && let Err(error) = clients_gone(handler.client(), handler.keys()).await
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

/// Waits for `future`, and reports what the rendezvous waits for if that takes long.
async fn saying_why<T>(handler: &EtcdRendezvousHandler, future: impl Future<Output = T>) -> T {
    let report = || {
        if let Some(what) = handler.status().view.waits_for {
            tracing::info!(target: WAITING, "waiting: {what}");
        }
        // For the next report.
        handler.refresh();
    };
    Reminder::after(&SAID_AFTER).during(future, report).await
}

/// A group, as seen by one of its nodes.
#[pyclass(module = "rallypoint", frozen, get_all)]
pub(crate) struct RendezvousInfo {
    /// This node's rank in the group: 0 to ``world_size - 1``.
    rank: u32,
    /// How many nodes the group has.
    world_size: u32,
    /// Which round it is. Rounds only grow.
    round: u64,
    /// Where the workers find rank 0: its address.
    master_addr: String,
    /// Where the workers find rank 0: its port.
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
