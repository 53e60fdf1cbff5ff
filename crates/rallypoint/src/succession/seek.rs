//! A node's search for its server: it asks the hosts of the order from time to time, unless it is a member of a group.

use std::pin::Pin;
use std::time::Duration;

use rallypoint_core::rendezvous::succession::order::{Course, HostAnswer, choose};
use tokio::time::{Instant, sleep_until};

use super::order::{HostOrder, PATIENCE};
use crate::client::{Client, ClientError};
use crate::log_target::EMBEDDED;

/// How long the first host waits for the answers of the remaining ones before it serves, if it knows of no group.
const FIRST_PATIENCE: Duration = Duration::from_millis(300);

/// When a node that starts asks for the first time, if its host is none of the order. The first host usually serves, and
/// a thousand nodes that ask all hosts would only delay it.
const FIRST_QUESTION: Duration = Duration::from_millis(500);

/// The pause between two questions of a node without a session, and of a node that waits for its group at a server.
const PAUSE: Duration = Duration::from_millis(200);
const PAUSE_AT_SERVER: Duration = Duration::from_secs(1);

/// How much longer the pauses are for each node of the job, since all nodes may ask at the same time.
const PAUSE_PER_NODE: Duration = Duration::from_micros(500);

type Answers = Pin<Box<dyn Future<Output = Vec<HostAnswer>> + Send>>;

/// The search of one node. The node's client uses the server that was found.
pub(crate) struct Seeker {
    order: HostOrder,
    client: Client,
    max_nodes: usize,
    /// The host whose server the node uses.
    at: usize,
    next: Instant,
    asking: Option<Answers>,
    /// The node whose process serves, as far as it is known.
    head: Option<String>,
    /// Whether there may be connections to the hosts that were asked.
    has_asked: bool,
}

impl Seeker {
    /// A search that begins at the first host.
    pub(crate) fn new(order: HostOrder, client: Client, max_nodes: usize) -> Self {
        client.pin_to(0);
        let first = if order.own().is_some() { Duration::ZERO } else { FIRST_QUESTION };
        let next = Instant::now() + first;
        let has_asked = false;
        Self { order, client, max_nodes, at: 0, next, asking: None, head: None, has_asked }
    }

    /// The name of the host whose server the node uses.
    pub(crate) fn host(&self) -> String {
        self.order.name(self.at)
    }

    /// Waits for the next answers, and opens or closes the server of this host accordingly. Returns the host whose server
    /// the node is to use, if it is another one than before. `remembers` is the latest group that the node knows of.
    /// Cancel-safe.
    pub(crate) async fn next(&mut self, remembers: u64, has_session: bool) -> Option<usize> {
        if self.asking.is_none() {
            sleep_until(self.next).await;
        }
        let own = self.order.own();
        let first = remembers == 0 && own.is_some_and(|(position, _)| position == 0);
        if let Some((_, own)) = own.filter(|_| !has_session) {
            own.give_up_lost_right();
        }
        let order = self.order.clone();
        self.has_asked = true;
        let asking = self.asking.get_or_insert_with(|| {
            let patience = if first { FIRST_PATIENCE } else { PATIENCE };
            Box::pin(async move { order.ask(remembers, patience).await })
        });
        let answers = asking.await;
        self.asking = None;
        self.next = Instant::now() + self.pause(has_session);
        self.decide(&answers)
    }

    /// The node has its server: the connections to all other hosts are closed.
    pub(crate) fn rest(&mut self) {
        self.asking = None;
        if std::mem::take(&mut self.has_asked) {
            self.order.disconnect();
        }
    }

    /// Asks at once.
    pub(crate) fn hurry(&mut self) {
        self.next = Instant::now();
    }

    fn pause(&self, has_session: bool) -> Duration {
        let least = if has_session { PAUSE_AT_SERVER } else { PAUSE };
        let nodes = u32::try_from(self.max_nodes).unwrap_or(u32::MAX);
        (least + PAUSE_PER_NODE * nodes).mul_f64(0.75 + fastrand::f64() / 2.0)
    }

    fn decide(&self, answers: &[HostAnswer]) -> Option<usize> {
        let own = self.order.own();
        let uses = match choose(own.map(|(position, _)| position), answers) {
            Course::Use(host) => host,
            Course::WaitFor(_) => return None,
            Course::Open => match own {
                Some((position, host)) => {
                    host.open();
                    position
                }
                None => return None,
            },
        };
        if let Some((_, host)) = own.filter(|(position, _)| *position != uses) {
            host.close();
        }
        (uses != self.at).then_some(uses)
    }

    /// The refusal of this node by a host, if there was one since the last call.
    pub(crate) fn take_refusal(&self) -> Option<ClientError> {
        self.order.take_refusal()
    }

    /// Uses the server of this host from now on.
    pub(crate) fn go_to(&mut self, host: usize) {
        tracing::info!(
            target: EMBEDDED,
            from = self.order.name(self.at), to = self.order.name(host), "this node uses the server of another host"
        );
        self.at = host;
        self.head = None;
        self.client.pin_to(host);
    }

    /// Asks the host of the node's server whether it still serves.
    pub(crate) fn still_serves(&mut self) -> impl Future<Output = HostAnswer> + Send + 'static {
        let (order, at) = (self.order.clone(), self.at);
        self.has_asked = true;
        async move { order.ask_one(at, 0, PATIENCE).await }
    }

    /// Finds out which node runs the server, over the node's own connection to it.
    pub(crate) fn find_head(&self) -> impl Future<Output = Option<String>> + Send + 'static {
        let (order, client) = (self.order.clone(), self.client.with_timeout(PATIENCE));
        async move {
            match client.ask_host(&order.setup().run_id, 0).await.ok()?? {
                (HostAnswer::Serves { .. }, node) => Some(node),
                _ => None,
            }
        }
    }

    /// The node that runs the server.
    pub(crate) fn set_head(&mut self, head: Option<String>) {
        self.head = head;
    }

    /// Whether this node runs the server, as far as it is known.
    pub(crate) fn is_head(&self, node: &str) -> bool {
        self.head.as_deref() == Some(node)
    }
}
