//! The loop between the machine and the world: what happened goes in, what comes out is done.
//!
//! One task for each handler owns the machine, the session, the watches and the requests under way. It
//! ends when the handler is dropped, and all of these with it.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{AbortHandle, Abortable, Aborted};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use rallypoint_core::kv::{Time, Txn, TxnResult};
use rallypoint_core::rendezvous::documents::RunOutcome;
use rallypoint_core::rendezvous::{
    CommandDone, FormedGroup, Node, NodeConfig, NodeInput, NodeOutput, Purpose, RequestId,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::bond::Bond;
use super::duty::{ActiveWatch, DutyWatch};
use super::fault::{connection, fault};
use super::hosting::Hosting;
use super::probe::Event;
use super::request::{REFUSED, RUN_TTL, hold_run_lease, send};
use super::revoke::revoke_dead;
use super::session::{lost, open_session, ready, renewed};
use crate::client::{Client, ClientError};
use crate::rendezvous::{HandlerStatus, RendezvousError};
use crate::session::{Loss, Session};

/// What a handler may ask for.
pub(super) enum Command {
    /// A place in a group, wished for under this number.
    Enter(u64, oneshot::Sender<Result<FormedGroup, RendezvousError>>),
    /// The wish of this number is taken back. It may have been granted without anyone knowing.
    Abandon(u64),
    Leave(oneshot::Sender<()>),
    Close(RunOutcome, String, oneshot::Sender<Result<(), RendezvousError>>),
    Reopen(oneshot::Sender<Result<bool, RendezvousError>>),
    Suspect(String),
    /// What is known, as of this moment.
    Refresh,
}

/// What is waited for is said at most so often.
const SAY: Duration = Duration::from_secs(1);

/// How long the end of a session may take to tell. What it held was taken back before.
const GOODBYE: Duration = Duration::from_secs(1);

pub(super) type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type Answer = (RequestId, Purpose, Txn, Result<TxnResult, ClientError>);

pub(super) struct Driver {
    parts: Parts,
    origin: Instant,
    session: Option<(Session, Boxed<Loss>)>,
    opening: Option<Boxed<Result<Session, ClientError>>>,
    /// Tells of every renewal of the session.
    renewals: Option<watch::Receiver<Time>>,
    /// How the last session was lost.
    loss: Option<Loss>,
    active: ActiveWatch,
    duty: DutyWatch,
    bond: Bond,
    requests: FuturesUnordered<Boxed<Result<Answer, Aborted>>>,
    under_way: BTreeMap<RequestId, AbortHandle>,
    entering: Option<oneshot::Sender<Result<FormedGroup, RendezvousError>>>,
    /// The number of the last wish that was taken on.
    wish: u64,
    leaving: Vec<oneshot::Sender<()>>,
    closing: Vec<oneshot::Sender<Result<(), RendezvousError>>>,
    reopening: Vec<oneshot::Sender<Result<bool, RendezvousError>>>,
    /// How the last attempt failed to reach a server, if it did.
    trouble: Arc<Mutex<Option<ClientError>>>,
    renewal: Instant,
    /// What the node was last said to wait for, when, and whether it waits for something else by now.
    waits_for: Option<String>,
    said: Instant,
    unsaid: bool,
}

/// What a driver is made of.
pub(super) struct Parts {
    pub(super) client: Client,
    pub(super) settings: NodeConfig,
    pub(super) servers: String,
    pub(super) run_id: String,
    pub(super) node: String,
    pub(super) lease_ttl: Duration,
    pub(super) machine: Node,
    pub(super) commands: mpsc::UnboundedReceiver<Command>,
    pub(super) status: watch::Sender<HandlerStatus>,
    /// When the workers must be gone if the lease is not renewed again.
    pub(super) fence: watch::Sender<Option<Time>>,
    pub(super) hosting: Hosting,
}

impl Driver {
    pub(super) fn new(parts: Parts) -> Self {
        let active = ActiveWatch::new(parts.client.clone(), parts.settings.clone());
        Self {
            parts,
            origin: Instant::now(),
            session: None,
            opening: None,
            renewals: None,
            loss: None,
            active,
            duty: DutyWatch::default(),
            bond: Bond::default(),
            requests: FuturesUnordered::new(),
            under_way: BTreeMap::new(),
            entering: None,
            wish: 0,
            leaving: Vec::new(),
            closing: Vec::new(),
            reopening: Vec::new(),
            trouble: Arc::default(),
            renewal: Instant::now() + RUN_TTL / 4,
            waits_for: None,
            said: Instant::now(),
            unsaid: false,
        }
    }

    /// Runs until the handler is gone.
    pub(super) async fn run(mut self) {
        // Before it is needed, so that nobody has to wait for it then.
        self.open_session();
        loop {
            let wake = self.parts.machine.next_wake().map(|wake| self.origin + wake);
            let wake = wake.unwrap_or(self.renewal).min(self.renewal);
            let wake = if self.unsaid { wake.min(self.said + SAY) } else { wake };
            let input = tokio::select! {
                // The end of the session first: after a long stop it must be known before all else.
                biased;
                loss = lost(&mut self.session) => Some(self.session_lost(loss)),
                command = self.parts.commands.recv() => match command {
                    Some(command) => self.command(command),
                    None => return,
                },
                opened = ready(&mut self.opening) => self.session_opened(opened),
                event = self.parts.hosting.next() => self.sensed(event),
                event = self.bond.next() => self.sensed(event),
                Some(answer) = self.requests.next(), if !self.requests.is_empty() => {
                    self.answered(answer)
                }
                input = self.active.next() => self.watched(input),
                input = self.duty.next() => self.watched(input),
                () = renewed(&mut self.renewals) => {
                    self.set_fence();
                    None
                }
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
        self.parts.machine.handle(self.now(), input);
        // Before anyone gets an answer: whoever has it must find it confirmed.
        self.set_fence();
        self.publish();
        while let Some(output) = self.parts.machine.poll_output() {
            self.obey(output).await;
        }
        self.under_way.retain(|id, request| {
            let awaited = self.parts.machine.awaits(*id);
            if !awaited {
                request.abort();
            }
            awaited
        });
    }

    async fn obey(&mut self, output: NodeOutput) {
        match output {
            NodeOutput::Request { id, purpose, txn } => {
                self.request(id, purpose, txn, Duration::ZERO)
            }
            NodeOutput::Watch { id, watches } => self.duty.replace(&self.parts.client, id, watches),
            NodeOutput::Unwatch => self.duty.end(),
            NodeOutput::Resync => self.active.anew(Duration::ZERO),
            NodeOutput::OpenSession => self.open_session(),
            NodeOutput::EndSession => {
                let left = self.session.as_ref().map(|(session, _)| session.remaining());
                self.loss = Some(Loss::Forgotten { left: left.unwrap_or_default() });
                (self.session, self.opening) = (None, None);
            }
            NodeOutput::Fenced(_) => self.fenced(),
            NodeOutput::ServeBootstrapStore { round } => {
                let input = self.parts.hosting.begin(round);
                self.parts.machine.handle(self.now(), input);
            }
            NodeOutput::Formed(formed) => {
                let FormedGroup { round, rank, world, .. } = formed;
                tracing::info!(
                    run_id = self.parts.run_id,
                    round,
                    rank,
                    world,
                    "the group has formed"
                );
                self.bond.end();
                if rank != 0 {
                    self.parts.hosting.release();
                    if self.parts.hosting.has_store() {
                        let liveness = self.parts.hosting.liveness();
                        self.bond.begin(&formed, &self.parts.node, liveness);
                    }
                }
                self.parts.status.send_modify(|status| status.fenced = None);
                // If whoever asked has gone in this very moment, its wish is about to be taken back.
                if let Some(entering) = self.entering.take() {
                    let _ = entering.send(Ok(formed));
                }
            }
            NodeOutput::Failed(failed) => {
                let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner).take();
                let error = fault(failed, &self.parts.run_id, &self.parts.servers, trouble);
                if let Some(entering) = self.entering.take() {
                    let _ = entering.send(Err(error));
                }
            }
            NodeOutput::Done(CommandDone::Left) => {
                self.bond.end();
                let _ = timeout(GOODBYE, self.parts.hosting.close()).await;
                self.opening = None;
                if let Some((session, _)) = self.session.take() {
                    // If it cannot be told, the lease lapses by itself.
                    let _ = timeout(GOODBYE, session.close()).await;
                }
                self.parts.machine.handle(self.now(), NodeInput::SessionLost { slept: false });
                self.parts.fence.send_replace(None);
                self.publish();
                for leaving in self.leaving.drain(..) {
                    let _ = leaving.send(());
                }
            }
            NodeOutput::Done(CommandDone::Closed) => {
                for closing in self.closing.drain(..) {
                    let _ = closing.send(Ok(()));
                }
            }
            NodeOutput::Done(errand @ (CommandDone::Reopened | CommandDone::NotClosed)) => {
                for reopening in self.reopening.drain(..) {
                    let _ = reopening.send(Ok(errand == CommandDone::Reopened));
                }
            }
        }
    }

    fn open_session(&mut self) {
        if self.opening.is_none() {
            let (client, trouble) = (self.parts.client.clone(), self.trouble.clone());
            self.opening = Some(Box::pin(open_session(client, self.parts.lease_ttl, trouble)));
        }
    }

    fn request(&mut self, id: RequestId, purpose: Purpose, txn: Txn, after: Duration) {
        let (client, lease) = (self.parts.client.clone(), self.parts.settings.run_lease);
        let trouble = self.trouble.clone();
        let sending = async move {
            if !after.is_zero() {
                sleep(after).await;
            }
            let note =
                |error| *trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            let answer = send(client, txn.clone(), lease, note).await;
            (id, purpose, txn, answer)
        };
        let (abort, registration) = AbortHandle::new_pair();
        self.under_way.insert(id, abort);
        self.requests.push(Box::pin(Abortable::new(sending, registration)));
    }

    fn answered(&mut self, answer: Result<Answer, Aborted>) -> Option<NodeInput> {
        let (id, purpose, txn, answer) = answer.ok()?;
        tracing::trace!(node = self.parts.node, id, ?purpose, "answered");
        match answer {
            Ok(result) => {
                self.parts.status.send_if_modified(|status| status.refused.take().is_some());
                self.under_way.remove(&id);
                *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = None;
                Some(NodeInput::Answered { id, result })
            }
            Err(error) => {
                let input = self.refused(error);
                self.request(id, purpose, txn, REFUSED);
                input
            }
        }
    }

    fn watched(&mut self, input: Result<NodeInput, ClientError>) -> Option<NodeInput> {
        input.map_or_else(|error| self.refused(error), Some)
    }

    /// The server is there and does not want us. Whoever waits should know at once.
    fn refused(&mut self, error: ClientError) -> Option<NodeInput> {
        tracing::warn!(run_id = self.parts.run_id, %error, "the server refused a request");
        let entering = self.entering.take();
        let waits = entering.is_some();
        let text = error.to_string();
        self.parts.status.send_modify(|status| status.refused = Some(text.clone()));
        if let Some(entering) = entering {
            let _ = entering.send(Err(connection(&self.parts.servers, error)));
        }
        let again = || connection(&self.parts.servers, std::io::Error::other(text.clone()));
        for closing in self.closing.drain(..) {
            let _ = closing.send(Err(again()));
        }
        for reopening in self.reopening.drain(..) {
            let _ = reopening.send(Err(again()));
        }
        waits.then_some(NodeInput::Leave)
    }

    fn command(&mut self, command: Command) -> Option<NodeInput> {
        Some(match command {
            Command::Enter(wish, reply) => {
                if self.entering.is_some() {
                    let what =
                        "a rendezvous of this handler is already in progress; wait for it, or \
                                drop it first"
                            .to_owned();
                    let _ = reply.send(Err(RendezvousError::State { what, source: None }));
                    return None;
                }
                // Whoever enters has no workers any more.
                self.parts.fence.send_replace(None);
                // From here on nobody misses this node: those who matter must join, and confirm.
                self.bond.part();
                self.parts.hosting.part();
                self.entering = Some(reply);
                self.wish = wish;
                // Most often there is nothing to wait for.
                self.said = Instant::now();
                NodeInput::Enter
            }
            Command::Abandon(wish) if wish == self.wish => {
                self.entering = None;
                NodeInput::Leave
            }
            // That of a second rendezvous, which was refused.
            Command::Abandon(_) => return None,
            Command::Leave(reply) => {
                self.leaving.push(reply);
                if let Some(entering) = self.entering.take() {
                    let what = "the rendezvous was given up: this node left, or was shut down";
                    let what = what.to_owned();
                    let _ = entering.send(Err(RendezvousError::State { what, source: None }));
                }
                NodeInput::Leave
            }
            Command::Close(outcome, reason, reply) => {
                self.closing.push(reply);
                NodeInput::Close { outcome, reason }
            }
            Command::Reopen(reply) => {
                self.reopening.push(reply);
                NodeInput::Reopen
            }
            Command::Suspect(node) => NodeInput::Suspect { node },
            Command::Refresh => NodeInput::Wake,
        })
    }

    /// Another node seems dead, or is.
    fn sensed(&mut self, event: Event) -> Option<NodeInput> {
        match event {
            Event::Suspect { node } => Some(NodeInput::Suspect { node }),
            Event::Dead { node } => {
                let Parts { client, settings, .. } = &self.parts;
                let revoking = revoke_dead(client.clone(), settings.keys.clone(), node);
                self.requests.push(Box::pin(revoking.map(|()| Err(Aborted))));
                None
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
        self.session = None;
        let slept = matches!(loss, Loss::Expired { slept: Some(_), .. });
        self.loss = Some(loss);
        // A member may keep its place: whether it does, the machine says.
        if self.parts.status.borrow().view.member_of.is_none() {
            self.bond.end();
            self.parts.hosting.release();
        }
        NodeInput::SessionLost { slept }
    }

    /// The node was in a group and has lost its place.
    fn fenced(&mut self) {
        self.bond.end();
        self.parts.hosting.release();
        let loss = self.loss.take().unwrap_or(Loss::Closed);
        tracing::warn!(run_id = self.parts.run_id, %loss, "fenced: the workers of this node must stop");
        self.parts.status.send_modify(|status| status.fenced = Some(loss));
    }

    /// When the workers must be gone if the lease is not renewed again. It stays as it is while the node has no
    /// place in a group: workers that are being stopped have no more time than they had.
    fn set_fence(&mut self) {
        if !self.parts.machine.holds_place() || self.parts.settings.sole {
            return;
        }
        let Some((session, _)) = &self.session else { return };
        let at = Some(*session.fence_at().borrow());
        self.parts.fence.send_if_modified(|fence| std::mem::replace(fence, at) != at);
    }

    fn publish(&mut self) {
        let view = self.parts.machine.view(self.now());
        if view.waits_for != self.waits_for && self.said.elapsed() >= SAY {
            self.said = Instant::now();
            self.waits_for.clone_from(&view.waits_for);
            if let Some(waits_for) = &view.waits_for {
                tracing::info!(
                    run_id = self.parts.run_id,
                    round = view.round,
                    waits_for,
                    "waiting"
                );
            }
        }
        self.unsaid = view.waits_for != self.waits_for;
        self.parts.status.send_if_modified(|status| {
            let changed = status.view != view;
            status.view = view;
            changed
        });
    }

    /// Members keep the run's lease alive, in the background.
    fn renew_run(&mut self) {
        if Instant::now() < self.renewal {
            return;
        }
        self.renewal = Instant::now() + RUN_TTL / 4;
        if self.session.is_some() {
            let (client, lease) = (self.parts.client.clone(), self.parts.settings.run_lease);
            let renewing = async move {
                if let Err(error) = hold_run_lease(&client, lease).await {
                    tracing::warn!(%error, "the run's lease was not renewed");
                }
                Err(Aborted)
            };
            self.requests.push(Box::pin(renewing));
        }
    }
}
