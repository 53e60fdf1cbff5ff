//! One node's part in the rendezvous, as a state machine: inputs in, outputs out, the time as an argument.
//!
//! Decisions depend on state, not on events: after each input the node compares the documents in force, its own
//! announcement and its goal, and decides which request to send next. One request is in flight at a time, besides those
//! of the coordinator. So an event that is lost, late or duplicated can delay a decision, but not change it.
//!
//! - [`announced`]: what the node has announced under its lease.
//! - [`observed`]: what the node has observed of the shared documents; `state_lost` is the case that the server has
//!   lost them.
//! - [`join`]: open, join, confirm, register, each with the reading of its reply. `objection` is for nodes that
//!   disagree on what a group must agree on, and `resume` for a member that lost its lease.
//! - [`commands`]: leave, close, reopen, suspect, each with the reading of its reply.
//! - [`coordinating`]: the node as the coordinator of a round.
//! - [`timeout`]: deadlines, and what was missing when one passed.
//! - [`view`]: what the node knows, for callers.

mod announced;
mod commands;
mod coordinating;
mod join;
pub(super) mod objection;
mod observed;
mod resume;
mod state_lost;
mod timeout;
mod view;

use std::collections::{BTreeMap, VecDeque};

use self::announced::Announced;
pub use self::announced::{AnnouncedState, Registration};
use self::commands::{NodeCommand, SuspectReport};
use self::observed::{InForce, Observed};
use self::resume::Resuming;
pub(super) use self::view::run_closed;
use super::coordinator::Coordinator;
use super::documents::{Active, BootstrapStore, Earlier, NodeDocument, RunHistory};
use super::messages::{
    CommandDone, FenceCause, NodeConfig, NodeInput, NodeOutput, Purpose, RendezvousFailure,
    RequestId, WatchSetId,
};
use super::succession::claims::{Claims, Memory};
use super::txn::{
    AnnouncementOps, ConfirmReader, DiagnosisReader, LeaveReader, RoundGuard, StaleWriterGuard,
    Txns,
};
use crate::events::Stamp;
use crate::kv::{LeaseId, Revision, Time, Txn, TxnResult};

/// The node's request in flight, with what the reading of its reply needs.
#[derive(Debug, Clone)]
enum PendingRequest {
    /// Opens a round with this document.
    Open(Box<Active>),
    /// Joins this round.
    Join(u64),
    /// Confirms the node's rank in this round.
    Confirm(u64, ConfirmReader),
    /// Registers with this round.
    Register(Registration, u64),
    /// Restores the membership in the group of this round.
    Resume(u64),
    /// Withdraws these announcements.
    Leave(LeaveReader, AnnouncementOps),
    /// Deletes a round of this node that it neither coordinates nor needs.
    Disown,
    /// Closes the run with this document.
    Close(Box<Active>),
    /// Opens a closed run again.
    Reopen,
    /// Reports a node as suspect.
    Suspect(SuspectReport),
    /// Tells the coordinator whether the node is connected to rank 0's store.
    ReportUnreached,
    /// Reads which nodes are missing.
    Diagnose(DiagnosisReader),
}

/// The node's attempt to become a member of a group.
#[derive(Debug, Clone, Copy)]
struct JoinAttempt {
    since: Time,
    /// The end of the attempt. None for a spare, which waits as long as the run lasts.
    deadline: Option<Time>,
    /// Since when the node, which was a member of a group, has no server. Until one answers, another deadline counts.
    server_lost: Option<Time>,
    /// The node disagrees with the round in progress, and fails if it still does at this time.
    objects_until: Option<Time>,
}

/// One node's part in the rendezvous. The [module](super) describes how to drive it.
#[derive(Debug)]
pub struct Node {
    config: NodeConfig,
    txns: Txns,
    lease: Option<LeaseId>,
    /// A session was requested and has not opened yet.
    opening_session: bool,
    observed: Observed,
    announced: Announced,
    attempt: Option<JoinAttempt>,
    /// The latest revision of a reply to this node.
    replied_revision: Revision,
    /// The revision that the node had observed when it sent each request in flight.
    sent_after: BTreeMap<RequestId, Revision>,
    /// The rounds of histories that the server has lost.
    earlier: Earlier,
    /// What the node remembers of groups, for the succession of servers.
    memory: Memory,
    /// What it told of that when it joined last.
    told: Claims,
    /// The name of the next history that this node begins.
    next_history: u64,
    /// When the node first observed the present history.
    history_since: Time,
    /// The node lost its session, and tries to keep its membership.
    resuming: Option<Resuming>,
    /// When it last kept its membership in that way.
    resumed_at: Option<Revision>,
    /// The round for which this node serves the bootstrap store, and the store once it listens.
    bootstrap_store: Option<(u64, Option<BootstrapStore>)>,
    /// The coordinator of that round, which this node has reported as suspect. It counts as lost until another group
    /// forms.
    suspected_coordinator: Option<(u64, String)>,
    request: Option<(RequestId, PendingRequest)>,
    commands: VecDeque<NodeCommand>,
    /// The attempt timed out, and the node has until then to find out what was missing.
    timed_out: Option<(JoinAttempt, Time)>,
    coordinator: Option<(Coordinator, WatchSetId)>,
    /// The coordinator's requests in flight; if one succeeds, the document is in force.
    coordinator_requests: BTreeMap<RequestId, (Purpose, Option<Box<Active>>)>,
    /// The coordinator abandons its round for the next one, for this reason.
    next_round_reason: Option<String>,
    outputs: VecDeque<NodeOutput>,
    last_id: u64,
    /// The time of the last input.
    now: Time,
}

impl Node {
    /// A node that has announced nothing and observed nothing. `entropy` is a random number, from which the node names
    /// the histories that it begins.
    pub fn new(config: NodeConfig, document: NodeDocument, entropy: u64) -> Self {
        let memory = Memory::new(config.succession);
        Self {
            txns: Txns::new(&config),
            announced: Announced::new(config.keys.clone(), document),
            config,
            lease: None,
            opening_session: false,
            observed: Observed::default(),
            attempt: None,
            replied_revision: 0,
            sent_after: BTreeMap::new(),
            earlier: Earlier::default(),
            memory,
            told: Claims::default(),
            next_history: entropy,
            history_since: Time::ZERO,
            resuming: None,
            resumed_at: None,
            bootstrap_store: None,
            suspected_coordinator: None,
            request: None,
            commands: VecDeque::new(),
            timed_out: None,
            coordinator: None,
            coordinator_requests: BTreeMap::new(),
            next_round_reason: None,
            outputs: VecDeque::new(),
            last_id: 0,
            now: Time::ZERO,
        }
    }

    /// Handles one input. [`poll_output`](Self::poll_output) returns the outputs afterwards.
    pub fn handle(&mut self, now: Time, input: NodeInput) {
        let before = self.observed.history();
        let is_response = input.is_response();
        self.now = now;
        match input {
            NodeInput::Enter => self.enter(now),
            NodeInput::Leave => {
                self.resuming = None;
                self.attempt = None;
                self.timed_out = None;
                self.commands.push_back(NodeCommand::Leave);
            }
            NodeInput::Close { outcome, reason } => {
                self.commands.push_back(NodeCommand::Close(outcome, reason));
            }
            NodeInput::Reopen => self.commands.push_back(NodeCommand::Reopen),
            NodeInput::Suspect { node } => {
                self.commands.push_back(NodeCommand::Suspect(node, self.formed_round()));
            }
            NodeInput::Unreached { round, reason } => {
                self.commands.push_back(NodeCommand::ReportUnreached(round, reason));
            }
            NodeInput::SessionOpened { lease } => {
                self.lease = Some(lease);
                self.opening_session = false;
                // A successor may have too few nodes of the last group, which is as good as no server.
                if self.config.succession.is_none() {
                    self.server_answers(now);
                }
            }
            NodeInput::SessionLost { slept, silent } => {
                self.memory.hears(now.saturating_sub(silent));
                self.session_lost(now, slept);
            }
            NodeInput::Snapshot { found, another_server } => {
                self.snapshot_read(now, &found, another_server);
            }
            NodeInput::ActiveChanged { events } => {
                if !self.observed.follow(&events) {
                    self.server_state_lost(now);
                    self.outputs.push_back(NodeOutput::Resync);
                }
            }
            NodeInput::Answered { id, result } => self.answered(now, id, &result),
            NodeInput::Watching { id } => {
                if let Some(coordinator) = self.coordinator_of(id) {
                    coordinator.watching();
                }
            }
            NodeInput::Watched { id, watch, events } => {
                if let Some(coordinator) = self.coordinator_of(id) {
                    coordinator.watched(watch, events);
                }
            }
            NodeInput::WatchBroken { id } => {
                if let Some(coordinator) = self.coordinator_of(id) {
                    coordinator.unsync();
                }
            }
            NodeInput::BootstrapStoreReady { round, store } => {
                if self.bootstrap_store.as_ref().is_some_and(|(asked, _)| *asked == round) {
                    self.bootstrap_store = Some((round, Some(store)));
                }
            }
            NodeInput::BootstrapStoreFailed { round, reason } => {
                if self.bootstrap_store.take_if(|(asked, _)| *asked == round).is_some() {
                    self.fail(RendezvousFailure::CannotServeBootstrapStore { reason });
                }
            }
            NodeInput::ProvedDead { node, round } => self.memory.proves_dead(round, node),
            NodeInput::Wake => {}
        }
        if before != self.observed.history() {
            self.history_since = now;
        }
        if is_response {
            self.memory.hears(now);
        }
        self.remember();
        self.step(now);
    }

    /// The next output to act on, in order.
    pub fn poll_output(&mut self) -> Option<NodeOutput> {
        self.outputs.pop_front()
    }

    /// Whether the reply to a request still matters. If not, the request need not be retried.
    pub fn awaits(&self, id: RequestId) -> bool {
        self.request.as_ref().is_some_and(|(asked, _)| *asked == id)
            || self.coordinator_requests.contains_key(&id)
    }

    /// Whether the node is a member of a group, on a live lease.
    pub fn holds_place(&self) -> bool {
        self.announced.member_of().is_some() && self.lease.is_some() && self.resuming.is_none()
    }

    fn enter(&mut self, now: Time) {
        if self.announced.member_of().is_some() {
            self.announced.state = AnnouncedState::Nothing;
        }
        self.resuming = None;
        self.timed_out = None;
        let deadline = Some(now.saturating_add(self.config.timeout));
        let server_lost = self.lacks_server().then_some(now);
        self.attempt = Some(JoinAttempt { since: now, deadline, server_lost, objects_until: None });
    }

    /// The node's announcement may have expired, and with it the right to run workers.
    fn fenced(&mut self, now: Time, cause: FenceCause) {
        self.lease = None;
        self.resuming = None;
        if self.announced.member_of().is_some() {
            self.outputs.push_back(NodeOutput::Fenced(cause));
        }
        // A spare has no deadline while it is registered. Without a session it needs one, to find out that no server
        // replies.
        let timeout = self.config.timeout;
        let lacks_server = self.lacks_server();
        if let Some(attempt) = &mut self.attempt {
            attempt.deadline.get_or_insert_with(|| now.saturating_add(timeout));
            attempt.server_lost = attempt.server_lost.or_else(|| lacks_server.then_some(now));
        }
        self.opening_session = false;
        self.announced.lease_lost();
        self.bootstrap_store = None;
        // The reply would be about the lost lease.
        match &self.request {
            Some((
                _,
                PendingRequest::Close(_) | PendingRequest::Reopen | PendingRequest::Diagnose(_),
            )) => {}
            Some((_, PendingRequest::Leave(..))) => {
                // Everything that the node wanted to withdraw expires with the lease.
                self.request = None;
                self.outputs.push_back(NodeOutput::Done(CommandDone::Left));
            }
            _ => self.request = None,
        }
        self.resign();
    }

    /// Remembers which rounds of the present history have formed a group.
    fn remember(&mut self) {
        if let Some((history, rounds)) = self.observed.history().zip(self.observed.rounds()) {
            self.memory.sees(history, rounds);
        }
    }

    /// Requests a session, unless one is being opened.
    fn open_session(&mut self) {
        if !self.opening_session {
            self.opening_session = true;
            self.outputs.push_back(NodeOutput::OpenSession);
        }
    }

    /// The guard of a transaction that opens a round where none is in force.
    fn no_active(&self) -> RoundGuard {
        self.observed.no_active(self.next_history())
    }

    /// The history that begins with the next transaction of this node, if the run has none.
    fn next_history(&self) -> RunHistory {
        RunHistory::new(self.next_history)
    }

    /// The latest revision that the node has observed.
    fn observed_revision(&self) -> Revision {
        self.observed.revision().max(self.replied_revision)
    }

    /// The guard of every announcement of this node.
    fn stale_writer_guard(&self) -> StaleWriterGuard {
        let node_key = self.announced.node_key();
        StaleWriterGuard { node_key, observed: self.observed_revision() }
    }

    /// Ends the attempt without a group, and withdraws what was announced for it.
    fn fail(&mut self, failure: RendezvousFailure) {
        if self.attempt.take().is_some() || self.timed_out.take().is_some() {
            self.timed_out = None;
            self.outputs.push_back(NodeOutput::Failed(failure));
            self.commands.push_back(NodeCommand::Leave);
        }
    }

    /// The stamp of the events that this node writes for the run.
    fn stamp(&self) -> Stamp<'_> {
        let Self { now, announced, config, .. } = self;
        Stamp { node_id: announced.id(), now: *now, started: config.started }
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    fn send(&mut self, purpose: Purpose, txn: Txn) -> RequestId {
        let id = self.next_id();
        self.sent_after.insert(id, self.observed_revision());
        self.outputs.push_back(NodeOutput::Request { id, purpose, txn });
        id
    }

    /// Sends the node's one request.
    fn send_request(&mut self, purpose: Purpose, txn: Txn, pending: PendingRequest) {
        let id = self.send(purpose, txn);
        self.request = Some((id, pending));
    }

    /// Reads the reply to a request.
    ///
    /// A request may have been executed although its reply was lost, and then been refused when it was retried. So a
    /// refusal is read as well: if the requested state is in force, the request was granted.
    fn answered(&mut self, now: Time, id: RequestId, reply: &TxnResult) {
        // The reply to a request that no longer matters may be older than the server's loss of its state.
        let Some(sent_after) = self.sent_after.remove(&id) else { return };
        // A server that has its state replies at a revision which is no older than those observed before.
        if reply.revision < sent_after {
            self.server_state_lost(now);
            return self.outputs.push_back(NodeOutput::Resync);
        }
        self.replied_revision = self.replied_revision.max(reply.revision);
        if let Some(request) = self.coordinator_requests.remove(&id) {
            return self.coordinator_answered(now, request, reply);
        }
        let Some((_, pending)) = self.request.take_if(|(asked, _)| *asked == id) else { return };
        // Every refusal tells which documents are in force.
        if !reply.succeeded && self.observe(now, reply) {
            return self.history_ended(pending);
        }
        match pending {
            PendingRequest::Open(active) => self.opened(now, *active, reply),
            PendingRequest::Join(round) => {
                self.announcement_answered(now, AnnouncedState::Joined(round), reply);
            }
            PendingRequest::Confirm(round, reader) => self.confirmed(round, &reader, reply),
            PendingRequest::Register(registration, round) => {
                self.announcement_answered(
                    now,
                    AnnouncedState::Registered(registration, round),
                    reply,
                );
            }
            PendingRequest::Resume(round) => self.resumed(round, reply),
            PendingRequest::Leave(reader, ops) => self.left(&reader, ops, reply),
            PendingRequest::Disown => self.disowned(reply),
            // Refused only if the node is no longer a member of that group.
            PendingRequest::ReportUnreached => {}
            PendingRequest::Close(closed) => self.closed(*closed, reply),
            PendingRequest::Reopen => self.reopened(reply),
            PendingRequest::Suspect(report) => self.suspect_reported(report, reply),
            PendingRequest::Diagnose(reader) => self.diagnosed(now, &reader, reply),
        }
    }

    /// A request was decided on a history that has ended: of that history nothing is left to withdraw.
    fn history_ended(&mut self, pending: PendingRequest) {
        match pending {
            PendingRequest::Leave(..) => {
                self.outputs.push_back(NodeOutput::Done(CommandDone::Left));
            }
            PendingRequest::Close(closed) => self.close_again(*closed),
            PendingRequest::Reopen => self.commands.push_front(NodeCommand::Reopen),
            _ => {}
        }
    }

    /// Decides what to do next.
    fn step(&mut self, now: Time) {
        let (request, coordinator_requests) = (&self.request, &self.coordinator_requests);
        let asked = |id: &RequestId| request.as_ref().is_some_and(|(asked, _)| asked == id);
        self.sent_after.retain(|id, _| asked(id) || coordinator_requests.contains_key(id));
        self.check_deadlines(now);
        self.run_coordinator(now);
        while self.request.is_none() {
            if self.resuming.is_some() {
                return self.resume();
            }
            if let Some(command) = self.next_command() {
                self.execute(command);
            } else if self.next_round_reason.is_some() {
                self.open_next_round();
            } else if let Some((attempt, _)) = self.timed_out {
                self.diagnose(now, attempt);
            } else if let Some(guard) = self.unwanted_round() {
                self.disown(guard);
            } else if self.attempt.is_some() && self.observed.is_known() {
                self.advance_join(now);
                if self.commands.is_empty() {
                    // The node may have become the coordinator of the group that it is now a member of.
                    return self.run_coordinator(now);
                }
            } else {
                return;
            }
        }
    }

    /// The round in force, if it is on this node's lease, and the node neither coordinates nor needs it.
    fn unwanted_round(&self) -> Option<RoundGuard> {
        let idle = self.attempt.is_none() && self.timed_out.is_none() && self.coordinator.is_none();
        if idle { self.held_round().map(InForce::guard) } else { None }
    }
}
