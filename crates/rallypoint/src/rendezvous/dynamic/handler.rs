//! A node's way into its group, over any backend.

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
use super::backend::{RendezvousBackend, Token};
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

/// Makes the store of a round. Each round must get another, or its nodes would read what an earlier
/// group left: put everything below
/// [`keys::dynamic_store_prefix`], on
/// [the state's lease](super::EtcdRendezvousBackend::lease).
pub type StoreFactory = Arc<dyn Fn(u64) -> Arc<dyn Store> + Send + Sync>;

/// What a [`DynamicRendezvousHandler`] is made from.
#[derive(Clone)]
pub struct DynamicHandlerOptions {
    /// The name of the run that all nodes of the job share.
    pub run_id: String,
    /// This host's name or address, at which the others reach it.
    pub local_addr: String,
    /// How large a group may be, and how long everything may take.
    pub settings: DynamicSettings,
    /// The store of each round.
    pub store: StoreFactory,
}

/// A node's way into its group, over any backend.
///
/// Dropping it stops the heartbeats without a word, and the others notice after a while;
/// [`shutdown`](RendezvousHandler::shutdown) tells them.
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
    /// One meeting at a time.
    turn: AsyncMutex<()>,
    /// What rank 0 has published, held for as long as the round lasts.
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

/// Takes the node out again if nobody waits for its group any more.
struct LeaveOnDrop<'a>(Option<&'a mpsc::UnboundedSender<DynamicCommand>>);

impl Drop for LeaveOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(commands) = self.0 {
            // A driver that has ended has left.
            let _ = commands.send(DynamicCommand::Leave);
        }
    }
}

impl DynamicRendezvousHandler {
    /// Makes a handler, and the task that works for it. Nothing is written before the first
    /// meeting. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// [`InvalidSetting`] names the first option that is wrong and what would be right.
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
    /// [`CreateError::Parameter`] names the option that is wrong.
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

    /// The name of this node: its address, its process, and something random, since processes in
    /// containers have small numbers.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// The port that this node, having rank 0, has published, for whoever will listen there. Until it is
    /// taken it is kept as long as the round lasts.
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

    /// Gets what the group needs to begin.
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

    /// Waits until the group of `round` has lost somebody, or somebody wants another round.
    async fn broken(&self, round: u64) {
        let mut view = self.view.clone();
        if view.wait_for(|view| view.whole != Some(round)).await.is_err() {
            // No driver, so nothing more will be known.
            std::future::pending().await
        }
    }

    async fn state(&self) -> Result<Option<(SharedState, Token)>, RendezvousError> {
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
        // Dropped before the turn is given up, so that leaving comes before the next joining.
        let mut leave = LeaveOnDrop(Some(&self.commands));
        loop {
            self.port.release();
            let met = self.join().await?;
            tokio::select! {
                // A group that is broken before it has begun is no group: rank 0 may never answer.
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
        // By now the others take this node for dead, and may have met without it.
        if let Some(trouble) = &view.trouble
            && silent >= self.options.settings.silence()
        {
            return Err(RendezvousError::Connection {
                context: format!(
                    "nothing was heard of run {:?} for {silent:.1?}, so the others take this node for \
                     dead",
                    self.options.run_id
                ),
                source: trouble.as_str().into(),
            });
        }
        Ok(view.waiting)
    }

    async fn leave(&self) {
        self.port.release();
        // A driver that has ended has left.
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
