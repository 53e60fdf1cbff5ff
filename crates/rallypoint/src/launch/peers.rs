//! The other nodes of the job: the rendezvous, rank assignment, and the exit barrier.

use std::sync::Arc;
use std::time::Duration;

use rallypoint_core::agent::placement::{
    Placement, RoleInfo, assign, assigned_ranks_key, role_info_key,
};
use rallypoint_core::agent::{
    AgentInput, CloseReason, NoGroup, NodeExit, NodeGroup, RunClosure, placement::PlacementError,
};
use rallypoint_core::kv::{Put, Time};
use rallypoint_core::rendezvous::documents::{Address, encode};
use rallypoint_core::rendezvous::keys::Keys;
use rallypoint_core::rendezvous::keys::agent::{exit_barrier_all_done, exit_barrier_done};
use thiserror::Error;
use tokio::time::timeout;

use super::events::MembershipEvents;
use super::ports::{PortsError, PortsSpec, RoundPorts};
use super::restarts::RestartCounter;
use crate::client::Client;
use crate::log_target::LAUNCH;
use crate::rendezvous::{
    RegistryError, RendezvousError, RendezvousHandler, RendezvousHandlerRegistry, RendezvousInfo,
    RendezvousParameters, RunAccess,
};
use crate::store::{Store, StoreError};
use crate::util::backoff::Backoff;
use crate::util::clock::{boot_time, display_time};
use crate::util::retry::retry_forever;

/// The time limit for closing the run, and for leaving it.
const GOODBYE: Duration = Duration::from_secs(10);

/// A year: the agent has its own time limit.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// The backoff between attempts at the exit barrier.
const BARRIER_BACKOFF: Backoff =
    Backoff::new(Duration::from_millis(50), Duration::from_secs(2)).without_jitter();

/// Why the workers got no ranks.
#[derive(Debug, Error)]
enum NoRanks {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Placement(#[from] PlacementError),
    #[error(transparent)]
    Ports(#[from] PortsError),
}

/// The rendezvous of the job, and its restart counter.
pub(super) struct Peers {
    handler: Arc<dyn RendezvousHandler>,
    run: RunAccess,
    pub(super) restarts: RestartCounter,
}

impl Peers {
    /// Opens the rendezvous. Waits for a server that is not up yet.
    pub(super) async fn open(
        parameters: RendezvousParameters,
        max_restarts: u32,
    ) -> Result<Self, RegistryError> {
        let handler = RendezvousHandlerRegistry::with_builtin().create_handler(parameters).await?;
        let Some(run) = handler.run_access() else {
            let backend = handler.backend();
            let what = format!("backend {backend:?} reports no status; use rallypoint or etcd");
            return Err(RendezvousError::State { what, source: None }.into());
        };
        let restarts = RestartCounter::new(&run.client, &run.keys, max_restarts);
        Ok(Self { handler, run, restarts })
    }

    /// The id of this node in the run.
    pub(super) fn node_id(&self) -> &str {
        &self.run.node_id
    }

    pub(super) fn use_agent_store(&self) -> bool {
        self.handler.use_agent_store()
    }

    /// The run's status, fencing deadline, client and keys.
    pub(super) fn run(&self) -> &RunAccess {
        &self.run
    }

    /// Refreshes the description of the wait, which may contain a time.
    pub(super) fn refresh(&self) {
        self.handler.refresh();
    }

    /// The number of nodes that are no members of the group, and wait to be; 0 if the server does not say.
    pub(super) async fn spares(&self) -> u32 {
        let RunAccess { client, keys, .. } = &self.run;
        let (spares, waiting) =
            tokio::join!(client.range(keys.spares()), client.range(keys.all_waiting()));
        let found: usize =
            [spares, waiting].into_iter().flatten().map(|found| found.kvs.len()).sum();
        u32::try_from(found).unwrap_or(u32::MAX)
    }

    /// Records how this node's part in the run ended, for operators who look for it.
    pub(super) async fn record_exit(&self, exit: NodeExit) {
        record_exit(&self.run.client, &self.run.keys, exit).await;
    }

    /// The membership events of this node.
    pub(super) fn events(&self) -> MembershipEvents {
        let node = self.run.node_id.clone();
        MembershipEvents::new(node, self.run.status.clone(), self.restarts.changes())
    }

    /// Waits for the next group. Dropping the future leaves the round.
    pub(super) async fn next_rendezvous(&self) -> Result<(NodeGroup, RendezvousInfo), NoGroup> {
        let info = self.handler.next_rendezvous().await.map_err(no_group)?;
        let RendezvousInfo { rank, world_size, round, .. } = info;
        let restarts = self.restarts.used_before(round, rank == 0).await;
        let store = info.bootstrap_store_info.clone();
        let store = Address { host: store.master_addr, port: store.master_port };
        Ok((NodeGroup { round, rank, nodes: world_size, restarts, store }, info))
    }

    /// Whether the fence has passed without a renewal of the lease: then the guard has killed the
    /// workers, or is about to.
    pub(super) fn is_overdue(&self) -> bool {
        let fence = *self.run.fence_at.borrow();
        fence.is_some_and(|fence| fence <= boot_time())
    }

    /// Waits until the fence is in the future. If the session is lost, another event says so, and the agent drops this
    /// wait.
    pub(super) async fn is_sure_of_its_place(&self) {
        let mut fence = self.run.fence_at.clone();
        let is_ahead = |fence: &Option<Time>| fence.is_none_or(|fence| fence > boot_time());
        let _ = fence.wait_for(is_ahead).await;
    }

    /// The closure of the run, if it was closed before this node joined.
    pub(super) fn closed(&self) -> Option<RunClosure> {
        self.run.status.borrow().view.closed.as_ref().map(RunClosure::from)
    }

    /// Closes the run, within a time limit.
    pub(super) async fn close(&self, closing: &CloseReason) {
        let closing = self.handler.close(closing.outcome(), closing.message());
        match timeout(GOODBYE, closing).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(
                    target: LAUNCH,
                    %error, "the run could not be closed"
                )
            }
            Err(_) => {
                tracing::warn!(
                    target: LAUNCH,
                    "the run could not be closed in time"
                )
            }
        }
    }

    /// Leaves the rendezvous, within a time limit.
    pub(super) async fn leave(&self) {
        let _ = timeout(GOODBYE, self.handler.leave()).await;
    }
}

/// Records how a node's part in a run ended. Best effort.
pub(super) async fn record_exit(client: &Client, keys: &Keys, exit: NodeExit) {
    let exit = NodeExit { at: Some(display_time()), ..exit };
    let put = Put::new(keys.exit(&exit.name()), encode(&exit)).on_lease(keys.run_lease());
    if let Err(error) = client.put(put).await {
        tracing::debug!(target: LAUNCH, %error, "the exit of this node could not be recorded");
    }
}

fn no_group(error: RendezvousError) -> NoGroup {
    match error {
        RendezvousError::Closed { by, outcome, reason, .. } => {
            NoGroup::Closed(RunClosure { by, reason: CloseReason::new(outcome, &reason) })
        }
        RendezvousError::GracefulExit { reason, .. } => NoGroup::NotNeeded(reason),
        error @ RendezvousError::ServerLost { .. } => NoGroup::ServerLost(error.to_string()),
        error => NoGroup::Failed(error.to_string()),
    }
}

/// What a node says of its workers before they get ranks and ports.
pub(super) struct WantedPlace {
    pub(super) role: String,
    pub(super) local_workers: u32,
    /// Every node is known to have the same number of workers and the same role, and the store is not used for ranks.
    pub(super) identical: bool,
    pub(super) ports: PortsSpec,
}

/// Agrees on the ranks of the workers, as torchrun's agents do, and on the ports of the round.
pub(super) async fn ranks(
    store: &dyn Store,
    group: &NodeGroup,
    wanted: WantedPlace,
) -> (AgentInput, RoundPorts) {
    let round = group.round;
    match place(store, group, wanted).await {
        Ok((placement, ports)) => (AgentInput::Placed { round, placement }, ports),
        Err(error) => {
            (AgentInput::NotPlaced { round, reason: error.to_string() }, RoundPorts::default())
        }
    }
}

async fn place(
    store: &dyn Store,
    group: &NodeGroup,
    wanted: WantedPlace,
) -> Result<(Placement, RoundPorts), NoRanks> {
    let NodeGroup { rank, nodes, .. } = *group;
    let WantedPlace { role, local_workers, identical, ports } = wanted;
    let placement = if identical {
        Placement::identical(rank, nodes, local_workers)
    } else {
        let count = u32::try_from(ports.count).unwrap_or(u32::MAX);
        let own = RoleInfo { role, rank, local_world_size: local_workers, ports: count };
        agree(store, own, nodes).await?
    };
    let ports = match (ports.count, rank) {
        (0, _) => RoundPorts::default(),
        (_, 0) => {
            let ports = RoundPorts::reserve(ports)?;
            if nodes > 1 {
                ports.publish(store).await?;
            }
            ports
        }
        (count, _) => RoundPorts::published(store, count).await?,
    };
    Ok((placement, ports))
}

async fn agree(store: &dyn Store, own: RoleInfo, nodes: u32) -> Result<Placement, NoRanks> {
    let rank = own.rank;
    if rank > 0 {
        store.set(role_info_key(rank).as_bytes(), own.encode().into()).await?;
        let found = store.get(assigned_ranks_key(rank).as_bytes()).await?;
        return Ok(Placement::decode(rank, &found)?);
    }
    let keys: Vec<String> = (1..nodes).map(role_info_key).collect();
    let keys: Vec<&[u8]> = keys.iter().map(String::as_bytes).collect();
    let others = if keys.is_empty() { Vec::new() } else { store.multi_get(&keys).await? };
    let mut all = vec![own];
    for (rank, value) in (1..).zip(&others) {
        all.push(RoleInfo::decode(rank, value)?);
    }
    let placements = assign(&all)?;
    let keys: Vec<String> = (1..nodes).map(assigned_ranks_key).collect();
    let values = placements[1..].iter().map(|placement| placement.encode().into());
    let pairs: Vec<_> = keys.iter().map(String::as_bytes).zip(values).collect();
    if !pairs.is_empty() {
        store.multi_set(&pairs).await?;
    }
    Ok(placements[0])
}

/// Waits until the workers of all nodes have finished, with retries: giving up would
/// disturb nodes whose workers still run.
pub(super) async fn exit_barrier(store: &dyn Store, group: &NodeGroup) -> AgentInput {
    let failed = |error: StoreError| {
        tracing::debug!(target: LAUNCH, %error, "the exit barrier is tried again");
    };
    retry_forever(BARRIER_BACKOFF, || all_done(store, group), failed).await;
    AgentInput::BarrierPassed { round: group.round }
}

/// One attempt at the exit barrier. Not the barrier of a store, whose counter is not idempotent: an increment without an
/// answer may or may not have happened. Here each node sets a key, and rank 0 waits for all of them and sets another;
/// both writes are idempotent.
async fn all_done(store: &dyn Store, group: &NodeGroup) -> Result<(), StoreError> {
    let NodeGroup { rank, nodes, .. } = *group;
    let done = exit_barrier_done;
    let all_done = exit_barrier_all_done();
    if rank > 0 {
        store.set(done(rank).as_bytes(), "1".into()).await?;
        return store.wait(&[all_done.as_bytes()], FOR_EVER).await;
    }
    let others: Vec<String> = (1..nodes).map(done).collect();
    let others: Vec<&[u8]> = others.iter().map(String::as_bytes).collect();
    if !others.is_empty() {
        store.wait(&others, FOR_EVER).await?;
        store.set(all_done.as_bytes(), "1".into()).await?;
    }
    Ok(())
}
