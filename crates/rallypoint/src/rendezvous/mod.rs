//! Rendezvous: nodes form a group, agree on its members and their ranks, and form another when the membership
//! changes.
//!
//! - [`RendezvousHandler`]: the interface of a node's agent to any backend.
//! - [`RendezvousError`]: the five errors of a rendezvous.
//! - [`RendezvousParameters`]: the settings of a node; [`EtcdOptions`] and [`DynamicOptions`] are the typed
//!   options of the backends.
//! - [`RendezvousHandlerRegistry`]: the backends by name.
//! - [`dynamic`]: the protocol over one shared document, for stores that have only compare-and-set.

pub(crate) mod address;
pub mod dynamic;
mod error;
mod etcd;
mod extra_data;
mod info;
mod local;
mod registry;

use async_trait::async_trait;
use rallypoint_core::kv::Time;
use rallypoint_core::rendezvous::RendezvousView;
pub use rallypoint_core::rendezvous::documents::RunOutcome;
use rallypoint_core::rendezvous::keys::Keys;
use tokio::sync::watch;

#[cfg(feature = "cli")]
pub(crate) use self::local::reserve_port;

pub use self::error::RendezvousError;
pub use self::etcd::{Ending, EtcdRendezvousHandler};
pub use self::extra_data::{load_extra_data, store_extra_data};
pub use self::info::{RendezvousInfo, RendezvousStoreInfo};
pub use self::registry::{
    CreateError, RegistryError, RendezvousHandlerCreator, RendezvousHandlerRegistry,
};
use crate::client::Client;
pub use crate::config::{
    ConfigError, ConnectionOptions, DynamicOptions, Endpoint, EtcdOptions, HandlerOptions,
    PASSWORD, PortRange, Protocol, RendezvousParameters, add_password, parse_config,
};
use crate::session::Loss;

/// What a handler knows at the moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct HandlerStatus {
    /// The run and the group, as the node's last read of the servers shows them.
    pub view: RendezvousView,
    /// Set when this node was in a group and lost its session: its workers must stop. Cleared when the
    /// node is in a group again.
    pub fenced: Option<Loss>,
    /// The server's words when it last refused a request; cleared when the server grants one again.
    pub refused: Option<String>,
}

/// What an agent that supervises workers uses of a handler besides the group: see
/// [`RendezvousHandler::run_access`].
#[derive(Clone)]
#[non_exhaustive]
pub struct RunAccess {
    /// The id under which the other nodes know this one.
    pub node_id: String,
    /// Follows the handler's status.
    pub status: watch::Receiver<HandlerStatus>,
    /// The fencing deadline: see [`EtcdRendezvousHandler::fence_at`].
    pub fence_at: watch::Receiver<Option<Time>>,
    /// The handler's client; its clones share the connection.
    pub client: Client,
    /// The keys of the run.
    pub keys: Keys,
}

impl std::fmt::Debug for RunAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunAccess").field("node_id", &self.node_id).finish_non_exhaustive()
    }
}

/// The rendezvous of one node: joins the groups of its run.
///
/// The methods may be called from any task. Dropping the future of
/// [`next_rendezvous`](Self::next_rendezvous) takes the node out of the round again.
#[async_trait]
pub trait RendezvousHandler: Send + Sync {
    /// The name of the backend, as it was registered.
    fn backend(&self) -> &str;

    /// The name of the run that the nodes of one job share.
    fn run_id(&self) -> &str;

    /// Waits until a group has formed that this node is in.
    ///
    /// # Errors
    /// [`RendezvousError`] if no group has formed.
    async fn next_rendezvous(&self) -> Result<RendezvousInfo, RendezvousError>;

    /// Whether the run is closed: no further group will form. Nodes learn of it with a delay, so this is no means
    /// of synchronisation.
    ///
    /// # Errors
    /// [`RendezvousError::Connection`] if the servers could not be reached.
    async fn is_closed(&self) -> Result<bool, RendezvousError>;

    /// Closes the run for all of its nodes. The first call decides the node, the outcome and the reason that the
    /// other nodes are given.
    ///
    /// # Errors
    /// [`RendezvousError::Connection`] if the servers could not be reached.
    async fn close(&self, outcome: RunOutcome, reason: &str) -> Result<(), RendezvousError>;

    /// Closes the run before the job is done: [`close`](Self::close) as [`RunOutcome::Failed`].
    ///
    /// # Errors
    /// [`RendezvousError::Connection`] if the servers could not be reached.
    async fn set_closed(&self, reason: &str) -> Result<(), RendezvousError> {
        self.close(RunOutcome::Failed, reason).await
    }

    /// The number of nodes that ask for a new round: late nodes that the group has room for, lost members, and
    /// members that have already left for the next round. Anything but 0 means: stop the workers and call
    /// [`next_rendezvous`](Self::next_rendezvous). Nodes beyond the largest size do not count. It is not 0 either if
    /// this node is no longer in its group, or if another node has closed the run as failed.
    ///
    /// # Errors
    /// [`RendezvousError::Connection`] if the number is not known.
    async fn num_nodes_waiting(&self) -> Result<usize, RendezvousError>;

    /// Whether the node that has rank 0 serves a store for the workers at the address in
    /// [`RendezvousInfo::bootstrap_store_info`], on the wire of PyTorch's `TCPStore`. Workers are then told
    /// `TORCHELASTIC_USE_AGENT_STORE=True`; otherwise the worker with rank 0 has to listen there.
    fn use_agent_store(&self) -> bool {
        false
    }

    /// The node's id, its live status, its fencing deadline, and the client and keys of the run: what an
    /// agent needs to supervise workers. `None` for a backend that only answers when it is asked;
    /// `rallypoint run` takes no such backend.
    fn run_access(&self) -> Option<RunAccess> {
        None
    }

    /// Brings the status in [`run_access`](Self::run_access) up to date with the clock: what a node waits
    /// for may say how long that still takes. Receivers of the status see it a moment later.
    fn refresh(&self) {}

    /// Leaves the group, or the round it waits for, without closing the run: for a node whose workers have failed,
    /// or that is asked to leave. The remaining nodes form a new group.
    async fn leave(&self);

    /// Leaves, and releases all resources. A member of the last group closes the run, since its part of the job
    /// is over; a node that only waited does not, nor one whose peers already form another group. True if all of that
    /// succeeded.
    async fn shutdown(&self) -> bool;
}
