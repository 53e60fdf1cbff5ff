//! The event loop of a handler: feeds events to the core's [`Node`] and executes the node's outputs.
//!
//! Each handler has one such task. The task owns the node, the session, the watches and the requests in
//! flight, and ends with all of them when the handler is dropped.

mod report;
mod succession;

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{AbortHandle, Abortable, Aborted};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use rallypoint_core::kv::{Time, Txn, TxnResult};
use rallypoint_core::rendezvous::{
    CommandDone, FormedGroup, Node, NodeConfig, NodeInput, NodeOutput, Purpose, RequestId,
};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::bootstrap::Bootstrap;
use super::commands::{HandlerCommand, PendingReplies};
use super::errors::rendezvous_error;
use super::peer_liveness::PeerLiveness;
use super::probe::PeerEvent;
use super::request::{RUN_TTL, hold_run_lease, send};
use super::revoke::revoke_dead;
use super::server_search::{Doubt, SearchEvent, ServerSearch};
use super::session_events::{lost, open_session, renewed};
use super::wait_log::WaitLog;
use super::watches::{ActiveWatch, CoordinatorWatches};
use crate::client::{Client, ClientError};
use crate::events::EventRecorder;
use crate::log_target::RENDEZVOUS;
use crate::rendezvous::HandlerStatus;
use crate::session::{Loss, Session};
use crate::util::follow::AFTER_REFUSAL;
use crate::util::optional::ready;

/// The time limit for closing the session or the store, and for removing the note. The node's keys are deleted before.
const GOODBYE: Duration = Duration::from_secs(1);

pub(super) type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type RequestAnswer = (RequestId, Purpose, Txn, Result<TxnResult, ClientError>);

/// Drives a [`Node`]: one background task per handler.
pub(super) struct NodeDriver {
    client: Client,
    config: NodeConfig,
    /// The endpoints, for error messages.
    servers: String,
    run_id: String,
    node_id: String,
    lease_ttl: Duration,
    node: Node,
    commands: mpsc::UnboundedReceiver<HandlerCommand>,
    status: watch::Sender<HandlerStatus>,
    /// The fencing deadline: the time at which the workers must be gone if the lease is not renewed before.
    fence: watch::Sender<Option<Time>>,
    /// The port and the store of rank 0, while this node has rank 0.
    bootstrap: Bootstrap,
    /// The origin of the times that the node is given.
    origin: Instant,
    recorder: Option<EventRecorder>,
    /// Outputs of the node that are yet to be executed.
    outputs: VecDeque<NodeOutput>,
    session: Option<(Session, Boxed<Loss>)>,
    opening: Option<Boxed<Result<Session, ClientError>>>,
    /// Follows the renewals of the session.
    renewals: Option<watch::Receiver<Time>>,
    /// Why the last session was lost.
    loss: Option<Loss>,
    active: ActiveWatch,
    coordinator_watches: CoordinatorWatches,
    peer_liveness: PeerLiveness,
    requests: FuturesUnordered<Boxed<Result<RequestAnswer, Aborted>>>,
    under_way: BTreeMap<RequestId, AbortHandle>,
    replies: PendingReplies,
    /// The error of the last attempt to reach a server, cleared by an answer.
    last_error: Arc<Mutex<Option<ClientError>>>,
    renewal: Instant,
    wait_log: WaitLog,
    /// The search for a server, where hosts succeed each other as servers.
    search: ServerSearch,
}

/// What a [`NodeDriver`] is made of.
pub(super) struct DriverSetup {
    pub(super) client: Client,
    pub(super) config: NodeConfig,
    pub(super) origin: Instant,
    pub(super) recorder: Option<EventRecorder>,
    pub(super) servers: String,
    pub(super) run_id: String,
    pub(super) node_id: String,
    pub(super) lease_ttl: Duration,
    pub(super) node: Node,
    pub(super) commands: mpsc::UnboundedReceiver<HandlerCommand>,
    pub(super) status: watch::Sender<HandlerStatus>,
    pub(super) fence: watch::Sender<Option<Time>>,
    pub(super) bootstrap: Bootstrap,
    pub(super) search: ServerSearch,
}

impl NodeDriver {
    pub(super) fn new(setup: DriverSetup) -> Self {
        let DriverSetup { client, config, servers, run_id, node_id, lease_ttl, .. } = setup;
        let active = ActiveWatch::new(client.clone(), &config);
        let wait_log = WaitLog::new(run_id.clone());
        Self {
            client,
            config,
            servers,
            run_id,
            node_id,
            lease_ttl,
            node: setup.node,
            commands: setup.commands,
            status: setup.status,
            fence: setup.fence,
            bootstrap: setup.bootstrap,
            origin: setup.origin,
            recorder: setup.recorder,
            outputs: VecDeque::new(),
            session: None,
            opening: None,
            renewals: None,
            loss: None,
            active,
            coordinator_watches: CoordinatorWatches::default(),
            peer_liveness: PeerLiveness::new(setup.search.is_on()),
            requests: FuturesUnordered::new(),
            under_way: BTreeMap::new(),
            replies: PendingReplies::default(),
            last_error: Arc::default(),
            renewal: Instant::now() + RUN_TTL / 4,
            wait_log,
            search: setup.search,
        }
    }

    /// Runs until the handler is gone.
    pub(super) async fn run(mut self) {
        // Before it is needed, so that the rendezvous need not wait for it.
        self.open_session();
        loop {
            let wake = self.node.next_wake().map(|wake| self.origin + wake);
            let wake = wake.unwrap_or(self.renewal).min(self.renewal);
            let wake = self.wait_log.next_wake().map_or(wake, |due| wake.min(due));
            let seeks = self.seeks();
            let input = tokio::select! {
                // The end of the session first: after a suspension the loss must be known before anything else.
                biased;
                loss = lost(&mut self.session) => Some(self.session_lost(loss)),
                command = self.commands.recv() => match command {
                    Some(command) => self.command(command),
                    None => return,
                },
                opened = ready(&mut self.opening) => self.session_opened(opened),
                event = self.bootstrap.next() => self.sensed(event),
                event = self.peer_liveness.next() => self.sensed(event),
                Some(answer) = self.requests.next(), if !self.requests.is_empty() => {
                    self.answered(answer)
                }
                input = self.active.next() => {
                    if matches!(input, Ok(None)) {
                        self.search.doubt(Doubt::Connection);
                    }
                    self.watched(input)
                }
                input = self.coordinator_watches.next() => self.watched(input.map(Some)),
                () = renewed(&mut self.renewals) => {
                    self.set_fence();
                    if self.node.holds_place()
                        && let Some(noting) = self.search.note_membership()
                    {
                        self.requests.push(Box::pin(noting.map(|()| Err(Aborted))));
                    }
                    None
                }
                event = self.search.next(seeks) => match event {
                    SearchEvent::Found(host) => self.go_to(host).await,
                    SearchEvent::ServerEnded => self.server_ended(),
                },
                () = sleep_until(wake) => {
                    self.renew_run();
                    Some(NodeInput::Wake)
                }
            };
            if let Some(input) = input {
                self.handle(input).await;
            }
        }
    }

    fn now(&self) -> Time {
        self.origin.elapsed()
    }

    async fn handle(&mut self, input: NodeInput) {
        self.give(input);
        // Before a caller gets its answer: the caller must find the fencing deadline and the status set.
        self.set_fence();
        self.publish();
        while let Some(output) = self.outputs.pop_front() {
            self.execute(output).await;
        }
        self.under_way.retain(|id, request| {
            let awaited = self.node.awaits(*id);
            if !awaited {
                request.abort();
            }
            awaited
        });
    }

    /// Gives the node an input, and takes its outputs.
    fn give(&mut self, input: NodeInput) {
        let now = self.now();
        if let Some(recorder) = &self.recorder {
            return self.outputs.extend(recorder.node_step(now, input, &mut self.node));
        }
        self.node.handle(now, input);
        self.outputs.extend(std::iter::from_fn(|| self.node.poll_output()));
    }

    async fn execute(&mut self, output: NodeOutput) {
        match output {
            NodeOutput::Request { id, purpose, txn } => {
                let is_confirmation = purpose == Purpose::Confirm;
                let noting = is_confirmation.then(|| self.search.note_confirmation()).flatten();
                self.request(id, purpose, txn, noting)
            }
            NodeOutput::Watch { id, watches } => {
                self.coordinator_watches.replace(&self.client, id, watches)
            }
            NodeOutput::Unwatch => self.coordinator_watches.end(),
            NodeOutput::Resync => self.active.reopen(),
            NodeOutput::OpenSession => self.open_session(),
            NodeOutput::EndSession => {
                let left = self.session.as_ref().map(|(session, _)| session.remaining());
                self.loss = Some(Loss::Forgotten { left: left.unwrap_or_default() });
                (self.session, self.opening) = (None, None);
            }
            NodeOutput::Fenced(_) => self.fenced(),
            NodeOutput::ServeBootstrapStore { round } => {
                let input = self.bootstrap.begin(round, self.search.serves());
                self.give(input);
            }
            NodeOutput::Formed(formed) => {
                let FormedGroup { round, rank, world, .. } = formed;
                tracing::info!(
                    target: RENDEZVOUS,
                    run_id = self.run_id, round, rank, world, "the group has formed"
                );
                self.peer_liveness.end();
                if rank != 0 {
                    self.bootstrap.release();
                    if self.bootstrap.has_store() {
                        let liveness = self.bootstrap.liveness();
                        self.peer_liveness.begin(&formed, &self.node_id, liveness);
                    }
                }
                self.status.send_modify(|status| status.fenced = None);
                self.search.formed(&formed);
                self.replies.entered(Ok(formed));
            }
            NodeOutput::Failed(failed) => {
                let last_error =
                    self.last_error.lock().unwrap_or_else(PoisonError::into_inner).take();
                let error = rendezvous_error(failed, &self.run_id, &self.servers, last_error);
                self.replies.entered(Err(error));
            }
            NodeOutput::Done(CommandDone::Left) => {
                self.peer_liveness.end();
                let _ = timeout(GOODBYE, self.bootstrap.close()).await;
                self.opening = None;
                if let Some((session, _)) = self.session.take() {
                    // If the server cannot be reached, the lease expires.
                    let _ = timeout(GOODBYE, session.close()).await;
                }
                self.give(NodeInput::SessionLost { slept: false, silent: Duration::ZERO });
                // If the note remains, a launcher that is started again only waits.
                let _ = timeout(GOODBYE, self.search.remove_note()).await;
                self.fence.send_replace(None);
                self.publish();
                self.replies.left();
            }
            NodeOutput::Done(CommandDone::Closed) => self.replies.closed(),
            NodeOutput::Done(CommandDone::Reopened) => self.replies.reopened(true),
            NodeOutput::Done(CommandDone::NotClosed) => self.replies.reopened(false),
        }
    }

    fn open_session(&mut self) {
        if self.opening.is_none() {
            let (client, last_error) = (self.client.clone(), self.last_error.clone());
            self.opening = Some(Box::pin(open_session(client, self.lease_ttl, last_error)));
        }
    }

    /// Sends a request, once `after` is over.
    fn request(&mut self, id: RequestId, purpose: Purpose, txn: Txn, after: Option<Boxed<()>>) {
        let (client, lease) = (self.client.clone(), self.config.run_lease);
        let last_error = self.last_error.clone();
        let sending = async move {
            if let Some(after) = after {
                after.await;
            }
            let note =
                |error| *last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            let answer = send(client, txn.clone(), lease, note).await;
            (id, purpose, txn, answer)
        };
        let (abort, registration) = AbortHandle::new_pair();
        self.under_way.insert(id, abort);
        self.requests.push(Box::pin(Abortable::new(sending, registration)));
    }

    fn answered(&mut self, answer: Result<RequestAnswer, Aborted>) -> Option<NodeInput> {
        let (id, purpose, txn, answer) = answer.ok()?;
        tracing::trace!(target: RENDEZVOUS, node = self.node_id, id, ?purpose, "answered");
        match answer {
            Ok(result) => {
                self.status.send_if_modified(|status| status.refused.take().is_some());
                self.under_way.remove(&id);
                *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = None;
                Some(NodeInput::Answered { id, result })
            }
            Err(error) => {
                let input = self.refused(error);
                self.request(id, purpose, txn, Some(Box::pin(sleep(AFTER_REFUSAL))));
                input
            }
        }
    }

    fn watched(&mut self, input: Result<Option<NodeInput>, ClientError>) -> Option<NodeInput> {
        input.unwrap_or_else(|error| self.refused(error))
    }

    /// Reports to all callers at once that the server refuses the request.
    fn refused(&mut self, error: ClientError) -> Option<NodeInput> {
        tracing::warn!(
            target: RENDEZVOUS,
            run_id = self.run_id, %error, "the server refused a request"
        );
        let text = error.to_string();
        self.status.send_modify(|status| status.refused = Some(text));
        self.replies.refused(&self.servers, error).then_some(NodeInput::Leave)
    }

    fn command(&mut self, command: HandlerCommand) -> Option<NodeInput> {
        let input = self.replies.accept(command)?;
        if matches!(input, NodeInput::Enter) {
            // A node that joins has no workers left to fence.
            self.fence.send_replace(None);
            // From here on the old group does not miss this node: members of the new one join and confirm.
            self.peer_liveness.part();
            self.bootstrap.part();
            self.wait_log.begin();
        }
        Some(input)
    }

    /// Suspects a node, or revokes the lease of one that is proved dead.
    fn sensed(&mut self, event: PeerEvent) -> Option<NodeInput> {
        match event {
            PeerEvent::Suspect { node } => Some(NodeInput::Suspect { node }),
            PeerEvent::Unreached { round, reason } => Some(NodeInput::Unreached { round, reason }),
            PeerEvent::Parted => {
                self.search.doubt(Doubt::Rank0Parted);
                None
            }
            PeerEvent::Dead { node, round } => {
                if self.search.is_head(&node) {
                    // Its server has ended with it, and cannot tell of the lease.
                    self.end_session();
                    self.search.hurry();
                    return Some(NodeInput::ProvedDead { node, round });
                }
                let (client, keys) = (self.client.clone(), self.config.keys.clone());
                let revoking = revoke_dead(client, keys, node.clone());
                self.requests.push(Box::pin(revoking.map(|()| Err(Aborted))));
                Some(NodeInput::ProvedDead { node, round })
            }
        }
    }

    fn session_opened(&mut self, opened: Result<Session, ClientError>) -> Option<NodeInput> {
        self.opening = None;
        match opened {
            Ok(session) => {
                let lease = session.lease();
                self.renewals = Some(session.fence_at());
                let lost = Box::pin(session.lost());
                self.session = Some((session, lost));
                Some(NodeInput::SessionOpened { lease })
            }
            Err(error) => self.refused(error),
        }
    }

    fn session_lost(&mut self, loss: Loss) -> NodeInput {
        let silent = self.session.take().map_or(Duration::ZERO, |(session, _)| session.silent());
        let slept = matches!(loss, Loss::Expired { slept: Some(_), .. });
        self.loss = Some(loss);
        // A member may keep its place: the node decides that.
        if self.status.borrow().view.member_of.is_none() {
            self.give_up_peers();
        }
        NodeInput::SessionLost { slept, silent }
    }

    /// Gives up the connections of the last group. A successor of the server waits for the proof that rank 0 is dead.
    fn give_up_peers(&mut self) {
        match self.search.is_on() {
            true => self.peer_liveness.part(),
            false => self.peer_liveness.end(),
        }
        self.bootstrap.release();
    }

    /// Reports that the node has lost its place in its group.
    fn fenced(&mut self) {
        self.give_up_peers();
        let loss = self.loss.take().unwrap_or(Loss::Closed);
        tracing::warn!(
            target: RENDEZVOUS,
            run_id = self.run_id, %loss, "fenced: the workers of this node must stop"
        );
        self.status.send_modify(|status| status.fenced = Some(loss));
    }

    /// Renews the run's lease in the background, while this node has a session.
    fn renew_run(&mut self) {
        if Instant::now() < self.renewal {
            return;
        }
        self.renewal = Instant::now() + RUN_TTL / 4;
        if self.session.is_some() {
            let (client, lease) = (self.client.clone(), self.config.run_lease);
            let renewing = async move {
                if let Err(error) = hold_run_lease(&client, lease).await {
                    tracing::warn!(target: RENDEZVOUS, %error, "the run's lease was not renewed");
                }
                Err(Aborted)
            };
            self.requests.push(Box::pin(renewing));
        }
    }
}
