//! The hosts that may serve, in their order, and the question which of them does.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use rallypoint_core::rendezvous::keys::Keys;
use rallypoint_core::rendezvous::succession::order::HostAnswer;
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::Code;

use super::host::OwnHost;
use crate::client::{Client, ClientError, ClientOptions};
use crate::config::Endpoint;
use crate::log_target::EMBEDDED;

/// How long a host may take to answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// How often a host whose node has left asks whether another one stands by.
const ASKED_AGAIN: Duration = Duration::from_secs(1);

/// What an order is made of.
#[derive(Debug, Clone)]
pub(crate) struct OrderSetup {
    pub(crate) run_id: String,
    pub(crate) keys: Keys,
    pub(crate) lease_ttl: Duration,
    pub(crate) endpoints: Vec<Endpoint>,
    /// The options of a client, whatever its endpoints are.
    pub(crate) client: ClientOptions,
}

/// The hosts that may serve a job, in their order. Clones share it.
#[derive(Clone)]
pub(crate) struct HostOrder(Arc<OrderShared>);

struct OrderShared {
    setup: OrderSetup,
    /// A client for each host.
    clients: Vec<Client>,
    /// This host, if it is one of the order, and its position.
    own: OnceLock<(usize, Arc<OwnHost>)>,
    /// The id of the node of this process.
    node: OnceLock<String>,
    /// Whether it is known if this host is one of the order.
    decided: watch::Sender<bool>,
    /// Whether the node of this process looks for its server.
    looks: AtomicBool,
    /// Why it is not known yet whether this node counts for the first group.
    vote_obstacle: Mutex<String>,
    /// The last refusal: of this node's credentials, or by a server that is none of the job's.
    refusal: Mutex<Option<ClientError>>,
}

impl fmt::Debug for HostOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<String> = self.0.setup.endpoints.iter().map(ToString::to_string).collect();
        f.debug_tuple("HostOrder").field(&hosts).finish()
    }
}

impl PartialEq for HostOrder {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for HostOrder {}

impl HostOrder {
    /// The order of these hosts. No connection is opened yet.
    ///
    /// # Errors
    /// As for [`Client::connect`].
    pub(crate) async fn new(setup: OrderSetup) -> Result<Self, ClientError> {
        let mut clients = Vec::with_capacity(setup.endpoints.len());
        for endpoint in &setup.endpoints {
            let options = ClientOptions { endpoints: vec![endpoint.url()], ..setup.client.clone() };
            clients.push(Client::connect(options).await?);
        }
        let decided = watch::Sender::new(false);
        Ok(Self(Arc::new(OrderShared {
            setup,
            clients,
            own: OnceLock::new(),
            node: OnceLock::new(),
            decided,
            looks: AtomicBool::new(false),
            vote_obstacle: Mutex::default(),
            refusal: Mutex::default(),
        })))
    }

    /// The number of hosts.
    pub(crate) fn len(&self) -> usize {
        self.0.clients.len()
    }

    /// The name of a host.
    pub(super) fn name(&self, host: usize) -> String {
        self.0.setup.endpoints.get(host).map(ToString::to_string).unwrap_or_default()
    }

    /// The names of all hosts.
    pub(super) fn names(&self) -> String {
        (0..self.len()).map(|host| self.name(host)).collect::<Vec<_>>().join(",")
    }

    pub(super) fn setup(&self) -> &OrderSetup {
        &self.0.setup
    }

    /// This host is the one of this position. Returns its state, or nothing if it has another position already.
    pub(crate) fn is_own(&self, position: usize) -> Option<Arc<OwnHost>> {
        let OrderSetup { run_id, keys, lease_ttl, .. } = &self.0.setup;
        let host = Arc::new(OwnHost::new(run_id, keys.clone(), *lease_ttl));
        let is_first = self.0.own.set((position, host.clone())).is_ok();
        // The node may have begun before it was known.
        if let Some(id) = self.0.node.get() {
            host.set_node(id);
        }
        if self.0.looks.load(Ordering::Relaxed) {
            host.looks();
        }
        self.decide();
        is_first.then_some(host)
    }

    /// It is known whether this host is one of the order: all names resolve, or one of them means this host.
    pub(crate) fn decide(&self) {
        self.0.decided.send_replace(true);
    }

    /// Whether it is known if this host is one of the order.
    pub(crate) fn is_decided(&self) -> bool {
        *self.0.decided.borrow()
    }

    /// Waits until it is known whether this host is one of the order.
    pub(crate) async fn decided(&self) {
        let _ = self.0.decided.subscribe().wait_for(|decided| *decided).await;
    }

    /// This host, if it is one of the order, and its position.
    pub(super) fn own(&self) -> Option<(usize, &OwnHost)> {
        self.0.own.get().map(|(position, host)| (*position, host.as_ref()))
    }

    /// Sets the node of this process, which others learn of when they ask.
    pub(crate) fn set_node(&self, id: &str) {
        let _ = self.0.node.set(id.to_owned());
        if let Some((_, own)) = self.own() {
            own.set_node(id);
        }
    }

    /// The node of this process looks for its server from now on, so its host may serve.
    pub(super) fn looks(&self) {
        self.0.looks.store(true, Ordering::Relaxed);
        if let Some((_, own)) = self.own() {
            own.looks();
        }
    }

    /// Why it is not known yet whether this node counts for the first group. The log has it when it changes.
    pub(super) fn set_vote_obstacle(&self, why: String) {
        let mut last = self.0.vote_obstacle.lock().unwrap_or_else(PoisonError::into_inner);
        if *last != why {
            tracing::warn!(target: EMBEDDED, "{why}");
            *last = why;
        }
    }

    pub(super) fn last_vote_obstacle(&self) -> String {
        self.0.vote_obstacle.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks all hosts, and tells them which group the node remembers. A host that does not answer within `patience` is
    /// silent.
    pub(super) async fn ask(&self, remembers: u64, patience: Duration) -> Vec<HostAnswer> {
        join_all((0..self.len()).map(|host| self.ask_one(host, remembers, patience))).await
    }

    /// The node of this host, which serves, has left. Waits until the other nodes go on at another host: the server has
    /// ended then.
    pub(crate) async fn succeeded(&self) {
        loop {
            let Some(right) = self.own().and_then(|(_, own)| own.right()) else { return };
            let answers = self.ask(right.formed(), PATIENCE).await;
            let stands_by = |answer: &HostAnswer| matches!(answer, HostAnswer::StandsBy { .. });
            let Some(ended) = right.retires(answers.iter().any(stands_by)) else { return };
            if timeout(ASKED_AGAIN, ended.cancelled()).await.is_ok() {
                return;
            }
        }
    }

    /// Asks one host.
    pub(super) async fn ask_one(
        &self,
        host: usize,
        remembers: u64,
        patience: Duration,
    ) -> HostAnswer {
        if let Some((_, own)) = self.own().filter(|(position, _)| *position == host) {
            return own.answer(remembers);
        }
        let Ok(asked) = timeout(patience, self.ask_other(host, remembers, patience)).await else {
            // An attempt to connect to a host that was cut off goes on in ever longer intervals.
            self.0.clients[host].disconnect();
            return HostAnswer::Silent;
        };
        asked.map_or(HostAnswer::Silent, |(answer, _)| answer)
    }

    /// Asks another host, and once more over a new connection if the first one has ended.
    async fn ask_other(
        &self,
        host: usize,
        remembers: u64,
        patience: Duration,
    ) -> Option<(HostAnswer, String)> {
        let client = self.0.clients[host].with_timeout(patience);
        let run_id = &self.0.setup.run_id;
        match client.ask_host(run_id, remembers).await {
            Ok(answer) => answer,
            Err(error) if error.is_unauthenticated() => self.refused(error),
            Err(ClientError::Refused { source, .. }) if source.code() == Code::Unimplemented => {
                let fix = "a server that is no host of this job answers there, such as an etcd; give --rdzv-backend etcd \
                           to use it, or name hosts of this job";
                self.refused(ClientError::invalid("endpoint", self.name(host), fix))
            }
            Err(_) => client.ask_host(run_id, remembers).await.ok().flatten(),
        }
    }

    fn refused<T>(&self, error: ClientError) -> Option<T> {
        *self.0.refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        None
    }

    /// The refusal of this node by a host, if there was one since the last call.
    pub(super) fn take_refusal(&self) -> Option<ClientError> {
        self.0.refusal.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Closes the connections to the hosts. They are opened again by the next question.
    pub(super) fn disconnect(&self) {
        self.0.clients.iter().for_each(Client::disconnect);
    }
}
