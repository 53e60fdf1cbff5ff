//! The rendezvous handler for an etcd and for the embedded server.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use rallypoint_core::agent::{RestartBudget, Why, must_stop, num_nodes_waiting};
use rallypoint_core::kv::Time;
use rallypoint_core::rendezvous::documents::{
    LivenessAddress, NodeDocument, RankHints, RunOutcome,
};
use rallypoint_core::rendezvous::keys::Keys;
use rallypoint_core::rendezvous::{FormedGroup, Node};
use tokio::net::TcpSocket;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use super::bootstrap::{Bootstrap, BootstrapNode};
use super::commands::HandlerCommand;
use super::connect::wait_for_server;
use super::driver::{DriverSetup, NodeDriver};
use super::ending::Ending;
use super::errors::connection_error;
use super::server_search::ServerSearch;
use crate::client::{Client, ClientOptions};
use crate::config::Backend;
use crate::events::EventRecorder;
use crate::log_target::RUN;
use crate::rendezvous::address::address;
use crate::rendezvous::local::{self, HeldPort};
use crate::rendezvous::{
    CreateError, EtcdOptions, HandlerOptions, HandlerStatus, RendezvousError, RendezvousHandler,
    RendezvousInfo, RendezvousParameters, RendezvousStoreInfo, RunAccess, load_extra_data,
    store_extra_data,
};
use crate::session::Loss;
use crate::store::{EtcdStore, StoreError};
use crate::util::clock::display_time;
use crate::util::host::host_name;
use crate::util::random;

/// A rendezvous on etcd, or on Rallypoint's own server.
///
/// A background task belongs to the handler and ends with it. Dropping a handler without
/// [`shutdown`](RendezvousHandler::shutdown) or [`leave`](RendezvousHandler::leave) lets its lease expire, and the
/// other nodes learn of it then. They learn of the death of a process at once, if the group has a store
/// ([`HandlerOptions::use_agent_store`]).
pub struct EtcdRendezvousHandler {
    backend: String,
    client: Client,
    keys: Keys,
    node: String,
    servers: String,
    options: HandlerOptions,
    commands: mpsc::UnboundedSender<HandlerCommand>,
    status: watch::Receiver<HandlerStatus>,
    fence_at: watch::Receiver<Option<Time>>,
    port: HeldPort,
    _driver: AbortOnDropHandle<()>,
}

impl fmt::Debug for EtcdRendezvousHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdRendezvousHandler")
            .field("run_id", &self.options.run_id)
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

/// How long a handler that leaves tries to tell the servers.
const GOODBYE: Duration = Duration::from_secs(10);

impl EtcdRendezvousHandler {
    /// Connects, and begins to follow the run. Retries until a server answers, at most as long as
    /// [`HandlerOptions::timeout`].
    ///
    /// # Errors
    /// [`RendezvousError::Connection`] if no server answered, or if the server refused this client;
    /// [`RendezvousError::Timeout`] if it is not known whether this host is one of those that may serve;
    /// [`RendezvousError::State`] if the options make no sense.
    pub async fn open(
        client_options: ClientOptions,
        options: HandlerOptions,
    ) -> Result<Self, RendezvousError> {
        options.validate().map_err(|error| RendezvousError::State {
            what: error.to_string(),
            source: Some(Box::new(error)),
        })?;
        let deadline = Instant::now() + options.timeout;
        let HandlerOptions { max_nodes, run_id, .. } = &options;
        let servers = client_options.endpoints.join(", ");
        let addresses =
            client_options.hosts().map_err(|error| connection_error(&servers, error))?;
        let client = Client::connect(client_options).await;
        let client = client.map_err(|error| connection_error(&servers, error))?;
        let keys = Keys::new(&options.prefix, run_id);
        let order = options.succession.clone();
        let mut search = ServerSearch::begin(order, &client, *max_nodes);
        let votes = search.votes(run_id, options.timeout, deadline).await?;
        let answered = wait_for_server(&client, &keys, deadline, &servers);
        search.during(answered, &servers).await?;

        let address = address(options.local_addr.as_deref(), &addresses, *max_nodes == 1).await;
        let address = address.map_err(|error| RendezvousError::State {
            what: error.to_string(),
            source: Some(Box::new(error)),
        })?;
        let host = host_name();
        let liveness = options.liveness.clone().map(|liveness| LivenessAddress {
            host: if liveness.host.is_empty() { address.clone() } else { liveness.host },
            ..liveness
        });
        let node = NodeDocument {
            id: local::node_id(&host),
            address: address.clone(),
            host,
            pid: std::process::id(),
            local_workers: options.local_workers,
            rank_hints: RankHints { hint: options.node_rank, topology: options.topology.clone() },
            liveness: liveness.clone(),
            started: Some(display_time()),
        };
        let origin = options.recorder.as_ref().map_or_else(Instant::now, EventRecorder::origin);
        let mut config = options.node_config(&keys);
        config.succession = search.part(votes);
        config.started = Some(display_time().minus(origin.elapsed()));
        let entropy = random::number();
        if let Some(recorder) = &options.recorder {
            recorder.node_began(run_id, &config, &node, entropy);
        }
        let (commands, receiver) = mpsc::unbounded_channel();
        let (sender, status) = watch::channel(HandlerStatus::default());
        let (fence, fence_at) = watch::channel(None);
        let id = node.id.clone();
        search.set_node(&id);
        let port = HeldPort::default();
        let own = BootstrapNode {
            node: id.clone(),
            address,
            liveness: liveness.clone(),
            max_nodes: options.max_nodes,
            ports: options.store_ports,
        };
        let driver = NodeDriver::new(DriverSetup {
            client: client.clone(),
            node: Node::new(config.clone(), node, entropy),
            config,
            origin,
            recorder: options.recorder.clone(),
            servers: servers.clone(),
            run_id: options.run_id.clone(),
            node_id: id.clone(),
            lease_ttl: options.lease_ttl,
            commands: receiver,
            status: sender,
            fence,
            bootstrap: Bootstrap::new(own, options.use_agent_store, port.clone()),
            search,
        });
        let driver = AbortOnDropHandle::new(tokio::spawn(driver.run()));
        let handler = Self {
            backend: Backend::Etcd.name().to_owned(),
            client,
            keys,
            node: id,
            servers,
            options,
            commands,
            status,
            fence_at,
            port,
            _driver: driver,
        };
        // Every later call on the handler then has an answer.
        if let Some(refused) = handler.refused_by(deadline).await {
            return Err(connection_error(&handler.servers, std::io::Error::other(refused)));
        }
        if handler.options.reopen && handler.status().view.closed.is_some() {
            handler.open_again(deadline).await?;
        }
        Ok(handler)
    }

    /// Waits until this node knows the run and has a lease. Returns the reason if it gets neither.
    async fn refused_by(&self, deadline: Instant) -> Option<String> {
        let ready = |status: &HandlerStatus| status.view.known && status.view.session;
        let settled = |status: &HandlerStatus| ready(status) || status.refused.is_some();
        let mut status = self.status.clone();
        match timeout_at(deadline, status.wait_for(settled)).await {
            Ok(Ok(status)) if ready(&status) => None,
            Ok(Ok(status)) => status.refused.clone(),
            Ok(Err(_)) | Err(_) => Some(format!("no answer within {:?}", self.options.timeout)),
        }
    }

    /// Reopens a closed run. Another node may do so first.
    async fn open_again(&self, deadline: Instant) -> Result<(), RendezvousError> {
        let reopened = self.reopen().await?;
        let run_id = &self.options.run_id;
        tracing::info!(target: RUN, run_id, reopened, "the run was closed, and is opened again");
        let mut status = self.status.clone();
        let is_open = |status: &HandlerStatus| status.view.closed.is_none();
        let open = timeout_at(deadline, status.wait_for(is_open)).await;
        open.map(drop).map_err(|_| self.unreachable())
    }

    /// Connects as the parameters say.
    ///
    /// # Errors
    /// [`CreateError::Parameter`] names the option that is wrong; otherwise as for [`open`](Self::open).
    pub async fn from_parameters(parameters: &RendezvousParameters) -> Result<Self, CreateError> {
        let EtcdOptions { connection, handler } = EtcdOptions::from_parameters(parameters)?;
        let opened = Self::open(connection.client_options(), handler).await?;
        Ok(Self { backend: parameters.backend.clone(), ..opened })
    }

    /// The id under which the other nodes know this one.
    pub fn node_id(&self) -> &str {
        &self.node
    }

    /// The options that the handler was opened with.
    pub fn options(&self) -> &HandlerOptions {
        &self.options
    }

    /// The client that the handler uses; its clones share the connection.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The keys of the run.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// The socket of the port that this node published as rank 0, for the worker that will listen there. The
    /// handler keeps the port until it is taken or the round ends. `None` if a store is served there
    /// ([`HandlerOptions::use_agent_store`]).
    pub fn take_port(&self) -> Option<TcpSocket> {
        self.port.take()
    }

    /// What the handler knows at the moment: a memory read.
    pub fn status(&self) -> HandlerStatus {
        self.status.borrow().clone()
    }

    /// What the handler knows at the moment, if its background task still runs: a memory read. A status
    /// without the task would be out of date.
    ///
    /// # Errors
    /// [`RendezvousError::Connection`] if the task has ended.
    pub fn live_status(&self) -> Result<HandlerStatus, RendezvousError> {
        self.status.has_changed().map_err(|_| self.unreachable())?;
        Ok(self.status())
    }

    /// Why the workers of this node must stop, by [`status`](Self::status); `None` if they need not. The handler does
    /// not know evictions: a [`ForeignAgent`](crate::agent::ForeignAgent) does.
    pub fn must_stop(&self) -> Option<Why> {
        let status = self.status.borrow();
        let fenced = status.fenced.as_ref().map(Loss::to_string);
        must_stop(&status.view, &RestartBudget::default(), fenced, &self.node)
    }

    /// [`num_nodes_waiting`](RendezvousHandler::num_nodes_waiting), as a memory read.
    ///
    /// # Errors
    /// [`RendezvousError::Connection`] if the background task has ended.
    pub fn nodes_waiting(&self) -> Result<usize, RendezvousError> {
        let status = self.live_status()?;
        let fenced = status.fenced.as_ref().map(Loss::to_string);
        Ok(num_nodes_waiting(&status.view, &RestartBudget::default(), fenced, &self.node))
    }

    /// Follows every change to [`status`](Self::status).
    pub fn changes(&self) -> watch::Receiver<HandlerStatus> {
        self.status.clone()
    }

    /// The fencing deadline: the time at which the workers of this node must be dead, unless the lease is renewed
    /// before, on the clock of [`Session::fence_at`](crate::session::Session::fence_at). `None` while the node has no
    /// workers, or if no other node can take its place. For a guard that kills the workers even if this process is
    /// suspended.
    pub fn fence_at(&self) -> watch::Receiver<Option<Time>> {
        self.fence_at.clone()
    }

    /// Waits until this node has lost its session while it was in a group. Its workers must then stop:
    /// an eighth of [`HandlerOptions::lease_ttl`] later another node may take its place.
    pub async fn fenced(&self) -> Loss {
        let mut status = self.status.clone();
        match status.wait_for(|status| status.fenced.is_some()).await {
            Ok(status) => status.fenced.clone().unwrap_or(Loss::Closed),
            Err(_) => Loss::Closed,
        }
    }

    /// Reports a node that seems dead although its lease still lives, for example because a connection
    /// to it broke. The group meets again without waiting for it; if it lives, it simply joins.
    pub fn suspect(&self, node_id: impl Into<String>) {
        let _ = self.commands.send(HandlerCommand::Suspect(node_id.into()));
    }

    /// Opens a closed run again. False if it was not closed.
    ///
    /// # Errors
    /// [`RendezvousError::Connection`] if the servers do not answer.
    pub async fn reopen(&self) -> Result<bool, RendezvousError> {
        let (reply, reopened) = oneshot::channel();
        self.ask(HandlerCommand::Reopen(reply), reopened).await
    }

    /// Stores `value` under `name` for the other nodes of `round`.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`], or [`StoreError::Client`] if the server could not be asked.
    pub async fn store_extra_data(
        &self,
        round: u64,
        name: &str,
        value: impl Into<Bytes>,
    ) -> Result<(), StoreError> {
        let lease = self.keys.run_lease();
        store_extra_data(&self.client, &self.keys, lease, round, name, value).await
    }

    /// Loads the value that a node stored under `name` for `round`. Waits at most `timeout` for it.
    ///
    /// # Errors
    /// [`StoreError::Timeout`] names the round and the name if no node has stored a value.
    pub async fn load_extra_data(
        &self,
        round: u64,
        name: &str,
        timeout: Duration,
    ) -> Result<Bytes, StoreError> {
        load_extra_data(&self.client, &self.keys, round, name, timeout).await
    }

    async fn ask<T>(
        &self,
        command: HandlerCommand,
        answer: oneshot::Receiver<Result<T, RendezvousError>>,
    ) -> Result<T, RendezvousError> {
        if self.commands.send(command).is_err() {
            return Err(self.unreachable());
        }
        match timeout(self.options.timeout, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => Err(self.unreachable()),
        }
    }

    fn unreachable(&self) -> RendezvousError {
        let waited = format!("no answer within {:?}", self.options.timeout);
        connection_error(&self.servers, std::io::Error::new(std::io::ErrorKind::TimedOut, waited))
    }

    fn info(&self, formed: FormedGroup) -> RendezvousInfo {
        let FormedGroup { round, rank, world, store, .. } = formed;
        let prefix = self.keys.store(round);
        let kv = EtcdStore::new(
            self.client.clone(),
            prefix,
            self.keys.run_lease(),
            self.options.timeout,
        );
        RendezvousInfo {
            store: Arc::new(kv),
            rank,
            world_size: world,
            round,
            bootstrap_store_info: RendezvousStoreInfo {
                master_addr: store.host,
                master_port: store.port,
            },
        }
    }
}

/// A call of [`next_rendezvous`](RendezvousHandler::next_rendezvous) without an answer yet. Dropping it makes the
/// node leave, through the same channel, so that another call can follow at once.
struct PendingEntry<'a> {
    number: u64,
    commands: &'a mpsc::UnboundedSender<HandlerCommand>,
    answered: bool,
}

impl<'a> PendingEntry<'a> {
    fn new(commands: &'a mpsc::UnboundedSender<HandlerCommand>) -> Self {
        static ENTRIES: AtomicU64 = AtomicU64::new(1);
        Self { number: ENTRIES.fetch_add(1, Ordering::Relaxed), commands, answered: false }
    }

    fn settle(mut self) {
        self.answered = true;
    }
}

impl Drop for PendingEntry<'_> {
    fn drop(&mut self) {
        if !self.answered {
            let _ = self.commands.send(HandlerCommand::Abandon(self.number));
        }
    }
}

#[async_trait]
impl RendezvousHandler for EtcdRendezvousHandler {
    fn backend(&self) -> &str {
        &self.backend
    }

    fn run_id(&self) -> &str {
        &self.options.run_id
    }

    async fn next_rendezvous(&self) -> Result<RendezvousInfo, RendezvousError> {
        let (reply, formed) = oneshot::channel();
        let entry = PendingEntry::new(&self.commands);
        if self.commands.send(HandlerCommand::Enter(entry.number, reply)).is_err() {
            return Err(self.unreachable());
        }
        // The core keeps the time limit, and a spare has none.
        let formed = formed.await;
        entry.settle();
        match formed {
            Ok(formed) => Ok(self.info(formed?)),
            Err(_) => Err(self.unreachable()),
        }
    }

    async fn is_closed(&self) -> Result<bool, RendezvousError> {
        Ok(self.live_status()?.view.closed.is_some())
    }

    async fn close(&self, outcome: RunOutcome, reason: &str) -> Result<(), RendezvousError> {
        let (reply, closed) = oneshot::channel();
        self.ask(HandlerCommand::Close(outcome, reason.to_owned(), reply), closed).await
    }

    async fn num_nodes_waiting(&self) -> Result<usize, RendezvousError> {
        self.nodes_waiting()
    }

    fn use_agent_store(&self) -> bool {
        self.options.use_agent_store
    }

    fn run_access(&self) -> Option<RunAccess> {
        Some(RunAccess {
            node_id: self.node.clone(),
            status: self.status.clone(),
            fence_at: self.fence_at.clone(),
            client: self.client.clone(),
            keys: self.keys.clone(),
        })
    }

    fn refresh(&self) {
        let _ = self.commands.send(HandlerCommand::Refresh);
    }

    async fn leave(&self) {
        let (reply, left) = oneshot::channel();
        if self.commands.send(HandlerCommand::Leave(reply)).is_ok() {
            let _ = timeout(GOODBYE, left).await;
        }
    }

    async fn shutdown(&self) -> bool {
        self.end(Ending::Done).await
    }
}
