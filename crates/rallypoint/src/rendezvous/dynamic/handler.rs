//! The rendezvous handler of a node, over any backend.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use rallypoint_core::rendezvous::documents::RunOutcome;
use rallypoint_core::rendezvous::dynamic::{
    DynamicSettings, Intent, InvalidSetting, Observer, SharedState,
};
use rallypoint_core::rendezvous::keys;
use tokio::net::TcpSocket;
use tokio::sync::{Mutex as AsyncMutex, mpsc, oneshot, watch};
use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::EtcdRendezvousBackend;
use super::backend::{FencingToken, RendezvousBackend};
use super::driver::{
    DynamicCommand, DynamicDriver, DynamicGroup, DynamicStatus, conflict_backoff, decode,
};
use crate::client::Client;
use crate::log_target::RENDEZVOUS;
use crate::rendezvous::address::address;
use crate::rendezvous::local::{self, HeldPort, reserve_port};
use crate::rendezvous::{
    ConfigError, CreateError, DynamicOptions, RendezvousError, RendezvousHandler, RendezvousInfo,
    RendezvousParameters, RendezvousStoreInfo,
};
use crate::store::{EtcdStore, Store, StoreError};

/// Makes the store of a round. Each round needs a store of its own, or its nodes would read keys of an
/// earlier group: put all keys below [`keys::dynamic_store_prefix`], on
/// [the state's lease](super::EtcdRendezvousBackend::lease).
pub type StoreFactory = Arc<dyn Fn(u64) -> Arc<dyn Store> + Send + Sync>;

/// The options of a [`DynamicRendezvousHandler`].
#[derive(Clone)]
pub struct DynamicHandlerOptions {
    /// The id of the run, the same on all nodes of the job.
    pub run_id: String,
    /// This host's name or address, at which other nodes reach it.
    pub local_addr: String,
    /// The sizes of groups, and all timeouts.
    pub settings: DynamicSettings,
    /// Makes the store of each round.
    pub store: StoreFactory,
}

/// The rendezvous handler of a node, over any backend.
///
/// Dropping the handler stops its heartbeats, and other nodes detect that after
/// [`DynamicSettings::silence`]; [`shutdown`](RendezvousHandler::shutdown) removes the node at once.
///
/// ```no_run
/// use std::sync::Arc;
/// use rallypoint::core::rendezvous::documents::Limits;
/// use rallypoint::rendezvous::RendezvousHandler;
/// use rallypoint::rendezvous::dynamic::*;
///
/// # async fn example(
/// #     backend: EtcdRendezvousBackend,
/// #     store: StoreFactory,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// let handler = DynamicRendezvousHandler::start(
///     Arc::new(backend),
///     DynamicHandlerOptions {
///         run_id: "job-7".into(),
///         local_addr: "10.0.0.3".into(),
///         settings: DynamicSettings::new(Limits { min: 2, max: 4 }),
///         store,
///     },
/// )?;
/// let group = handler.next_rendezvous().await?;
/// println!("rank {} of {}", group.rank, group.world_size);
/// handler.shutdown().await;
/// # Ok(())
/// # }
/// ```
pub struct DynamicRendezvousHandler {
    backend: Arc<dyn RendezvousBackend>,
    options: DynamicHandlerOptions,
    node: String,
    commands: mpsc::UnboundedSender<DynamicCommand>,
    view: watch::Receiver<DynamicStatus>,
    driver: Mutex<Option<AbortOnDropHandle<bool>>>,
    /// Allows one call of `next_rendezvous` at a time.
    turn: AsyncMutex<()>,
    /// The port that rank 0 has published, reserved for as long as the round lasts.
    port: HeldPort,
}

impl std::fmt::Debug for DynamicRendezvousHandler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DynamicRendezvousHandler")
            .field("run_id", &self.options.run_id)
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

/// Makes the node leave if the future of `next_rendezvous` is dropped.
struct LeaveOnDrop<'a>(Option<&'a mpsc::UnboundedSender<DynamicCommand>>);

impl Drop for LeaveOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(commands) = self.0 {
            // A driver that has ended has left the run.
            let _ = commands.send(DynamicCommand::Leave);
        }
    }
}

impl DynamicRendezvousHandler {
    /// Makes a handler and starts its task. The handler writes nothing before the first rendezvous. Must
    /// be called inside a tokio runtime.
    ///
    /// # Errors
    /// [`InvalidSetting`] names the first invalid option and a remedy.
    pub fn start(
        backend: Arc<dyn RendezvousBackend>,
        options: DynamicHandlerOptions,
    ) -> Result<Self, InvalidSetting> {
        let needed = [
            ("run_id", &options.run_id, "give the name that all nodes of the job share"),
            ("local_addr", &options.local_addr, "give a name or address of this host"),
        ];
        for (what, value, fix) in needed {
            if value.trim().is_empty() {
                return Err(InvalidSetting { what, value: format!("{value:?}"), fix: fix.into() });
            }
        }
        options.settings.validate()?;
        let node = local::node_id(&options.local_addr);
        let now = Instant::now();
        let (commands, receiver) = mpsc::unbounded_channel();
        let (sender, view) = watch::channel(DynamicStatus {
            waiting: 0,
            whole: None,
            member: false,
            closed: false,
            contact: now,
            trouble: None,
        });
        let driver = DynamicDriver {
            run_id: options.run_id.clone(),
            backend: backend.clone(),
            observer: Observer::new(node.clone(), options.settings.clone()),
            commands: receiver,
            view: sender,
            origin: now,
            known: None,
            intent: Intent::Rest,
            reply: None,
            since: now,
            met: 0,
            stopping: false,
            said: None,
            failing: None,
        };
        let driver = Mutex::new(Some(AbortOnDropHandle::new(tokio::spawn(driver.run()))));
        let (turn, port) = (AsyncMutex::default(), HeldPort::default());
        Ok(Self { backend, options, node, commands, view, driver, turn, port })
    }

    /// Connects to etcd as the parameters say: the backend `dynamic`, which is PyTorch's `etcd-v2` on etcd's v3 API.
    ///
    /// # Errors
    /// [`CreateError::Parameter`] names the invalid option.
    pub async fn from_parameters(parameters: &RendezvousParameters) -> Result<Self, CreateError> {
        let DynamicOptions { connection, settings } = DynamicOptions::from_parameters(parameters)?;
        let options = connection.client_options();
        let unusable = |error: crate::client::ClientError| RendezvousError::Connection {
            context: format!("the rendezvous servers ({}) cannot be used", parameters.endpoint),
            source: error.into(),
        };
        let servers = options.hosts().map_err(unusable)?;
        let client = Client::connect(options).await.map_err(unusable)?;
        let invalid = |InvalidSetting { what, value, fix }| ConfigError::invalid(what, value, fix);
        let run_id = parameters.run_id.clone();
        let backend = EtcdRendezvousBackend::create(client.clone(), &run_id).map_err(invalid)?;
        let (lease, patience) = (backend.lease(), settings.join);
        let named = run_id.clone();
        let store: StoreFactory = Arc::new(move |round| {
            let prefix = keys::dynamic_store_prefix(&named, round);
            Arc::new(EtcdStore::new(client.clone(), prefix, lease, patience))
        });
        let local_addr =
            address(parameters.local_addr.as_deref(), &servers, settings.limits.max == 1).await?;
        let options = DynamicHandlerOptions { run_id, local_addr, settings, store };
        Ok(Self::start(Arc::new(backend), options).map_err(invalid)?)
    }

    /// The id of this node: its address, its process id and a random part, since processes in containers
    /// often have the same ids.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Takes the socket whose port this node has published as rank 0, for the process that will listen on
    /// it. The handler holds the socket until it is taken or the round ends.
    pub fn take_port(&self) -> Option<TcpSocket> {
        self.port.take()
    }

    async fn join(&self) -> Result<DynamicGroup, RendezvousError> {
        let (reply, answer) = oneshot::channel();
        let sent = self.commands.send(DynamicCommand::Join(reply));
        let ended = || RendezvousError::Closed {
            run_id: self.options.run_id.clone(),
            by: self.node.clone(),
            outcome: RunOutcome::Succeeded,
            reason: "this node's handler was shut down".to_owned(),
        };
        sent.map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }

    /// Makes the round's store and learns the address of rank 0.
    async fn prepare(
        &self,
        met: DynamicGroup,
        left: Duration,
    ) -> Result<RendezvousInfo, RendezvousError> {
        let DynamicGroup { round, rank, world_size } = met;
        let address = &self.options.local_addr;
        let mut port = None;
        if rank == 0 {
            let reserved = reserve_port(address, 0);
            let (socket, number) = reserved.map_err(|source| RendezvousError::Connection {
                context: format!("cannot keep a port at local_addr {address:?}"),
                source: source.into(),
            })?;
            self.port.hold(socket);
            port = Some(number);
        }
        let store = (self.options.store)(round);
        let listens = port.map(|port| (address.as_str(), port));
        let built = RendezvousStoreInfo::build(rank, &*store, listens, left).await;
        let bootstrap_store_info = built.map_err(|error| match error {
            StoreError::Timeout { waited, .. } => RendezvousError::Timeout {
                run_id: self.options.run_id.clone(),
                waited,
                missing: format!("rank 0 of round {round} did not say where it listens: {error}"),
            },
            error => RendezvousError::Connection {
                context: format!("cannot learn where rank 0 of round {round} listens"),
                source: error.into(),
            },
        })?;
        Ok(RendezvousInfo { store, rank, world_size, round, bootstrap_store_info })
    }

    /// Waits until the group of `round` has lost a member, or a node waits for another round.
    async fn broken(&self, round: u64) {
        let mut view = self.view.clone();
        if view.wait_for(|view| view.whole != Some(round)).await.is_err() {
            // The driver has ended, so no more changes will be known.
            std::future::pending().await
        }
    }

    async fn state(&self) -> Result<Option<(SharedState, FencingToken)>, RendezvousError> {
        let Some((bytes, token)) = self.backend.get_state().await? else { return Ok(None) };
        Ok(Some((decode(&*self.backend, &bytes)?, token)))
    }

    async fn close_as(&self, outcome: RunOutcome, reason: &str) -> Result<(), RendezvousError> {
        let mut known = self.state().await?;
        let mut conflicts = conflict_backoff(self.options.settings.cas_backoff_max);
        loop {
            let fresh = || SharedState::fresh(self.options.settings.limits, 1);
            let mut state = known.as_ref().map_or_else(fresh, |(state, _)| state.clone());
            if state.closed.is_some() {
                return Ok(());
            }
            state.close(&self.node, outcome, reason);
            state.sign(&self.node);
            let token = known.as_ref().map(|(_, token)| token);
            known = match self.backend.set_state(state.to_json().into(), token).await? {
                Some((_, _, true)) => return Ok(()),
                Some((bytes, token, false)) => Some((decode(&*self.backend, &bytes)?, token)),
                None => None,
            };
            conflicts.wait().await;
        }
    }

    async fn in_time<T>(
        &self,
        what: &str,
        work: impl Future<Output = Result<T, RendezvousError>>,
    ) -> Result<T, RendezvousError> {
        let limit = self.options.settings.close;
        match timeout(limit, work).await {
            Ok(done) => done,
            Err(elapsed) => Err(RendezvousError::Connection {
                context: format!(
                    "cannot {what} run {:?} at {} within {limit:?} (close_timeout)",
                    self.options.run_id,
                    self.backend.place()
                ),
                source: elapsed.into(),
            }),
        }
    }
}

#[async_trait]
impl RendezvousHandler for DynamicRendezvousHandler {
    fn backend(&self) -> &str {
        self.backend.name()
    }

    fn run_id(&self) -> &str {
        &self.options.run_id
    }

    async fn next_rendezvous(&self) -> Result<RendezvousInfo, RendezvousError> {
        let _turn = self.turn.lock().await;
        // Dropped before the lock is released, so that this call's leave precedes the next call's join.
        let mut leave = LeaveOnDrop(Some(&self.commands));
        loop {
            self.port.release();
            let met = self.join().await?;
            tokio::select! {
                // A group that lost a member before it started is abandoned: rank 0 may never answer.
                () = self.broken(met.round) => continue,
                info = self.prepare(met, self.options.settings.join) => {
                    let info = info?;
                    leave.0 = None;
                    return Ok(info);
                }
            }
        }
    }

    async fn is_closed(&self) -> Result<bool, RendezvousError> {
        let state = self.in_time("ask about", self.state()).await?;
        Ok(state.is_some_and(|(state, _)| state.closed.is_some()))
    }

    async fn close(&self, outcome: RunOutcome, reason: &str) -> Result<(), RendezvousError> {
        self.in_time("close", self.close_as(outcome, reason)).await
    }

    async fn num_nodes_waiting(&self) -> Result<usize, RendezvousError> {
        let view = self.view.borrow();
        let silent = view.contact.elapsed();
        // By now the other nodes consider this node dead, and may have formed a group without it.
        if let Some(trouble) = &view.trouble
            && silent >= self.options.settings.silence()
        {
            return Err(RendezvousError::Connection {
                context: format!(
                    "the store of run {:?} has not answered for {silent:.1?}, so the other nodes consider \
                     this node dead",
                    self.options.run_id
                ),
                source: trouble.as_str().into(),
            });
        }
        Ok(view.waiting)
    }

    async fn leave(&self) {
        self.port.release();
        // A driver that has ended has left the run.
        let _ = self.commands.send(DynamicCommand::Leave);
    }

    async fn shutdown(&self) -> bool {
        let (member, closed) = {
            let view = self.view.borrow();
            (view.member, view.closed)
        };
        let mut well = true;
        if member && !closed {
            let reason = "a member of the group has finished its part";
            if let Err(error) = self.close(RunOutcome::Succeeded, reason).await {
                tracing::warn!(
                    target: RENDEZVOUS,
                    run_id = self.options.run_id, %error, "the run was not closed"
                );
                well = false;
            }
        }
        self.port.release();
        let driver = self.driver.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(driver) = driver {
            let _ = self.commands.send(DynamicCommand::Stop);
            let left = timeout(self.options.settings.close, driver).await;
            well &= matches!(left, Ok(Ok(true)));
        }
        well
    }
}
