//! The task behind a handler: it alone writes its node's joins, leaves and heartbeats.
//!
//! It reads the document, asks the core for a decision, executes the decision, and waits for the next
//! change. It decides nothing itself.

use std::sync::Arc;
use std::time::Duration;

use rallypoint_core::kv::Time;
use rallypoint_core::rendezvous::documents::RunOutcome;
use rallypoint_core::rendezvous::dynamic::{
    Action, DynamicClosure, DynamicFailure, Intent, Observer, Reason, SharedState, decide,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::backend::{FencingToken, RendezvousBackend};
use crate::log_target::RENDEZVOUS;
use crate::rendezvous::RendezvousError;
use crate::util::backoff::Backoff;
use crate::util::reminder::Reminder;

/// The pause after a failed request, so that a store that refuses everything is not flooded with requests.
const AFTER_FAILURE: Duration = Duration::from_millis(500);

/// The log repeats that requests fail after this time, and then each time after twice as long.
const REPORTED_AGAIN: Duration = Duration::from_secs(1);

/// What a handler asks of its driver.
pub(super) enum DynamicCommand {
    /// Join a round, and answer when its group has formed.
    Join(oneshot::Sender<Result<DynamicGroup, RendezvousError>>),
    /// Leave the run: the caller of the rendezvous has cancelled it, or the handler was told to leave.
    Leave,
    /// Leave the run, and end the task.
    Stop,
}

/// A formed group, as this node sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DynamicGroup {
    pub(super) round: u64,
    pub(super) rank: u32,
    pub(super) world_size: u32,
}

/// The state of the run that the handler reads without a request to the store.
#[derive(Debug, Clone)]
pub(super) struct DynamicStatus {
    /// The number of nodes that wait for a new round.
    pub(super) waiting: usize,
    /// The round of the node's group, while no member is lost and no node waits.
    pub(super) whole: Option<u64>,
    /// Whether the node is a member of the present round's group.
    pub(super) member: bool,
    pub(super) closed: bool,
    /// When the store last answered.
    pub(super) contact: Instant,
    /// The last failure since the store last answered.
    pub(super) trouble: Option<String>,
}

pub(super) struct DynamicDriver {
    pub(super) run_id: String,
    pub(super) backend: Arc<dyn RendezvousBackend>,
    pub(super) observer: Observer,
    pub(super) commands: mpsc::UnboundedReceiver<DynamicCommand>,
    pub(super) view: watch::Sender<DynamicStatus>,
    /// The origin of the core's times.
    pub(super) origin: Instant,
    pub(super) known: Option<(SharedState, FencingToken)>,
    pub(super) intent: Intent,
    pub(super) reply: Option<oneshot::Sender<Result<DynamicGroup, RendezvousError>>>,
    /// When the present rendezvous began.
    pub(super) since: Instant,
    /// The last round whose group had the node as a member.
    pub(super) met: u64,
    pub(super) stopping: bool,
    pub(super) said: Option<Reason>,
    /// When the log reports a failure, while requests fail.
    pub(super) failing: Option<Reminder>,
}

impl DynamicDriver {
    /// Runs until it is told to stop; returns whether the node has left the run by then.
    pub(super) async fn run(mut self) -> bool {
        let mut conflicts = conflict_backoff(self.observer.settings().cas_backoff_max);
        loop {
            let now = self.now();
            let state = self.known.as_ref().map(|(state, _)| state);
            let (action, reason) = decide(now, state, &mut self.observer, self.intent);
            self.say(now, reason);
            match action {
                Action::Write(state) => match self.write(*state).await {
                    Ok(true) => conflicts.reset(),
                    Ok(false) => conflicts.wait().await,
                    Err(error) => {
                        self.trouble(error);
                        if self.stopping {
                            return false;
                        }
                        self.pause().await;
                    }
                },
                Action::Wait(until) => self.wait(until).await,
                Action::Meet { round, rank, world_size } => {
                    self.met = round;
                    self.intent = Intent::Rest;
                    self.show();
                    self.answer(Ok(DynamicGroup { round, rank, world_size }));
                }
                Action::Gone => {
                    self.intent = Intent::Rest;
                    self.show();
                    if self.stopping {
                        return true;
                    }
                }
                Action::Fail(failure) => {
                    let error = self.error(failure);
                    self.intent = Intent::Leave;
                    self.answer(Err(error));
                }
            }
        }
    }

    fn now(&self) -> Time {
        self.origin.elapsed()
    }

    async fn wait(&mut self, until: Option<Time>) {
        let until = until.and_then(|until| self.origin.checked_add(until));
        let backend = self.backend.clone();
        let token = self.known.as_ref().map(|(_, token)| token.clone());
        tokio::select! {
            command = self.commands.recv() => self.take(command).await,
            () = backend.changed(token.as_ref()) => self.read().await,
            () = sleep_or_never(until) => {}
        }
    }

    /// Waits after a failed request, until the pause is over or a command arrives.
    async fn pause(&mut self) {
        tokio::select! {
            command = self.commands.recv() => self.take(command).await,
            () = sleep(AFTER_FAILURE) => self.read().await,
        }
    }

    async fn take(&mut self, command: Option<DynamicCommand>) {
        match command {
            Some(DynamicCommand::Join(reply)) => {
                self.since = Instant::now();
                self.observer.begin_waiting(self.now());
                self.intent = Intent::Join { not_before: self.met + 1 };
                self.reply = Some(reply);
                self.read().await;
            }
            Some(DynamicCommand::Leave) => {
                let what = "the rendezvous was given up: this node left".to_owned();
                self.answer(Err(RendezvousError::State { what, source: None }));
                self.leave();
            }
            // A closed channel means that the handler was dropped.
            Some(DynamicCommand::Stop) | None => {
                self.stopping = true;
                let (by, run_id) = (self.observer.me().to_owned(), self.run_id.clone());
                let reason = "this node's handler was shut down".to_owned();
                self.answer(Err(RendezvousError::Closed {
                    run_id,
                    by,
                    outcome: RunOutcome::Succeeded,
                    reason,
                }));
                self.leave();
            }
        }
    }

    fn leave(&mut self) {
        self.intent = Intent::Leave;
        // A group that formed in the meantime is left as well, and must not count as a new group when the
        // node joins again.
        if let Some((state, _)) = &self.known
            && state.complete
            && state.participants.contains_key(self.observer.me())
        {
            self.met = self.met.max(state.round);
        }
    }

    /// The timeout of one request, for which commands wait. A node that joins waits longer, so that its
    /// caller gets the client's own error instead of a mere timeout.
    fn patience(&self) -> Duration {
        let settings = self.observer.settings();
        match self.intent {
            Intent::Join { .. } => settings.heartbeat.max(settings.close),
            Intent::Rest | Intent::Leave => settings.heartbeat,
        }
    }

    async fn read(&mut self) {
        let limit = self.patience();
        let read = match timeout(limit, self.backend.get_state()).await {
            Ok(read) => read,
            Err(elapsed) => Err(self.too_slow("read", limit, elapsed)),
        };
        match read.and_then(|found| self.keep(found)) {
            Ok(()) => {}
            Err(error) => {
                self.trouble(error);
                sleep(AFTER_FAILURE).await;
            }
        }
    }

    /// Writes the state by compare-and-set. Returns false if another write came first; its state is then
    /// known.
    async fn write(&mut self, state: SharedState) -> Result<bool, RendezvousError> {
        let limit = self.patience();
        let token = self.known.as_ref().map(|(_, token)| token);
        let bytes = state.to_json().into();
        let written = match timeout(limit, self.backend.set_state(bytes, token)).await {
            Ok(written) => written?,
            Err(elapsed) => return Err(self.too_slow("write", limit, elapsed)),
        };
        match written {
            Some((_, token, true)) => {
                self.note(Some((state, token)));
                Ok(true)
            }
            Some((bytes, token, false)) => self.keep(Some((bytes, token))).map(|()| false),
            None => self.keep(None).map(|()| false),
        }
    }

    fn keep(&mut self, found: Option<(bytes::Bytes, FencingToken)>) -> Result<(), RendezvousError> {
        let read = |(bytes, token): (bytes::Bytes, FencingToken)| {
            Ok((decode(&*self.backend, &bytes)?, token))
        };
        let known = found.map(read).transpose()?;
        self.note(known);
        Ok(())
    }

    /// Records the newest state of the store.
    fn note(&mut self, known: Option<(SharedState, FencingToken)>) {
        let now = self.now();
        if let Some((state, _)) = &known {
            self.observer.look(now, state);
        }
        self.known = known;
        self.failing = None;
        self.view.send_modify(|view| (view.contact, view.trouble) = (Instant::now(), None));
        self.show();
    }

    /// Publishes the status that the handler reads.
    fn show(&self) {
        let (me, met) = (self.observer.me(), self.met);
        let living = self.known.as_ref().map(|(state, _)| self.observer.without_dead(state));
        self.view.send_if_modified(|view| {
            let before = view.clone();
            match &living {
                Some(state) => {
                    let current = state.complete && state.round == met;
                    view.closed = state.closed.is_some();
                    view.member = current && state.takes_part(me);
                    let whole =
                        view.member && state.live_participants() == state.participants.len();
                    view.whole = whole.then_some(met);
                    view.waiting = match met {
                        0 if state.complete => state.waiting(state.round),
                        0 => 0,
                        met => state.waiting(met),
                    };
                }
                // The document is lost, so the members must form another group.
                None => {
                    (view.closed, view.member, view.whole) = (false, false, None);
                    view.waiting = usize::from(met > 0);
                }
            }
            (before.waiting, before.whole, before.member, before.closed)
                != (view.waiting, view.whole, view.member, view.closed)
        });
    }

    fn trouble(&mut self, error: RendezvousError) {
        let reminder = || Reminder::doubling(REPORTED_AGAIN).at_once();
        if self.failing.get_or_insert_with(reminder).is_due() {
            let (run_id, node) = (&self.run_id, self.observer.me());
            tracing::warn!(
                target: RENDEZVOUS,
                run_id, node, %error, "the rendezvous state is out of reach"
            );
        }
        let text = error.to_string();
        self.view.send_modify(|view| view.trouble = Some(text));
        // The caller decides how to react to the error. The node leaves as soon as the store answers.
        if matches!(self.intent, Intent::Join { .. }) {
            self.intent = Intent::Leave;
            self.answer(Err(error));
        }
    }

    fn answer(&mut self, answer: Result<DynamicGroup, RendezvousError>) {
        if let Some(reply) = self.reply.take() {
            // A dropped receiver means that a command to leave follows.
            let _ = reply.send(answer);
        }
    }

    fn say(&mut self, now: Time, reason: Reason) {
        // A heartbeat changes nothing, so the line before it is still true.
        if reason == Reason::Heartbeat || self.said.as_ref() == Some(&reason) {
            return;
        }
        let round = self.known.as_ref().map_or(0, |(state, _)| state.round);
        let (run_id, node) = (&self.run_id, self.observer.me());
        tracing::info!(target: RENDEZVOUS, run_id, round, node, "{}", reason.describe(now));
        self.said = Some(reason);
    }

    fn too_slow(
        &self,
        what: &str,
        limit: Duration,
        elapsed: tokio::time::error::Elapsed,
    ) -> RendezvousError {
        let place = self.backend.place();
        let context = format!("cannot {what} the rendezvous state at {place} within {limit:?}");
        RendezvousError::Connection { context, source: elapsed.into() }
    }

    fn error(&self, failure: DynamicFailure) -> RendezvousError {
        let run_id = self.run_id.clone();
        match failure {
            DynamicFailure::Closed(DynamicClosure { by, outcome, reason }) => {
                RendezvousError::Closed { run_id, by, outcome, reason }
            }
            DynamicFailure::NotNeeded(DynamicClosure { by, outcome, reason }) => {
                let reason = format!("it was closed by {by}: {outcome}: {reason}");
                RendezvousError::GracefulExit { run_id, reason }
            }
            DynamicFailure::Timeout { missing } => {
                RendezvousError::Timeout { run_id, waited: self.since.elapsed(), missing }
            }
            DynamicFailure::Limits { theirs, ours } => RendezvousError::State {
                what: format!(
                    "nodes of run {run_id:?} disagree on min_nodes:max_nodes: {ours} here, {theirs} on \
                     other nodes; give the same on all nodes, or start this one {:?} after they ended",
                    self.observer.settings().silence()
                ),
                source: None,
            },
        }
    }
}

/// Reads a state; the error of an invalid one names where it is stored.
pub(super) fn decode(
    backend: &dyn RendezvousBackend,
    bytes: &[u8],
) -> Result<SharedState, RendezvousError> {
    SharedState::from_json(bytes).map_err(|source| RendezvousError::State {
        what: format!("the rendezvous state at {} is unusable: {source}", backend.place()),
        source: Some(source.into()),
    })
}

/// The backoff after writes that lost against another node's, with delays of up to `longest`.
pub(super) fn conflict_backoff(longest: Duration) -> Backoff {
    Backoff::new(Duration::from_millis(4), longest).with_full_jitter()
}

async fn sleep_or_never(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}
