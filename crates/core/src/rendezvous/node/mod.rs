//! One node's part of the rendezvous, as a machine: inputs in, outputs out, the time as an argument.
//!
//! It is driven by what is so, not by what just happened: after each input it looks at the document in
//! force, at what the node has announced, and at what it wants, and decides what to ask for next. One
//! request is under way at a time, besides those of the coordinator. So an event that is lost, late or
//! doubled can delay a decision, but not change it.

mod answer;
mod deadlines;
mod history;
mod join;
pub(in crate::rendezvous) mod objection;
mod observed;
mod resume;
mod view;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use self::join::Report;
use self::observed::{InForce, Knowledge};
use self::resume::Resuming;
use super::coordinator::{Coordinator, Step};
use super::documents::{
    Active, BootstrapStore, Earlier, NodeDocument, Ranked, RunHistory, RunOutcome, Status,
};
use super::messages::{
    CommandDone, FenceCause, NodeConfig, NodeInput, NodeOutput, Purpose, RendezvousFailure,
    RequestId, WatchId,
};
use super::ranks::PreviousAssignment;
use super::txn::{Guard, Own, Unmoved, Whereabouts};
use crate::kv::{LeaseId, Revision, Time, Txn};

/// What the node has announced under its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::rendezvous) enum Place {
    Nowhere,
    /// It joined this round.
    Joined(u64),
    /// It joined this round, but others got in.
    LeftOut(u64),
    /// It has this rank in a round whose group has not formed yet.
    Confirmed(u64, Ranked),
    /// It waits for the round after this.
    Late(Late, u64),
    /// It is in the group of this round.
    Member(u64),
}

/// How a node waits that is not in the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::rendezvous) enum Late {
    /// There is room for it.
    Waiting,
    /// There is none.
    Spare,
    /// It disagrees with the round in progress: see [`objection`](objection).
    Objector,
}

/// The node's one request, and what it needs to know when it is answered.
#[derive(Debug, Clone)]
pub(in crate::rendezvous) enum Asked {
    Open(Box<Active>),
    Join(u64),
    Confirm(u64),
    Register(Late, u64),
    Resume(u64),
    Leave(Whereabouts),
    Disown,
    Close(Box<Active>),
    Reopen,
    Suspect(Report),
    Diagnose,
}

/// What the node was told to do besides meeting.
#[derive(Debug, Clone)]
pub(in crate::rendezvous) enum Order {
    Leave,
    Close(RunOutcome, String),
    Reopen,
    /// To report this node, while the group of this round is the last that has formed.
    Suspect(String, u64),
}

/// The node wants to be in a group.
#[derive(Debug, Clone, Copy)]
pub(in crate::rendezvous) struct Meeting {
    pub(in crate::rendezvous) since: Time,
    /// Never for a spare, which waits as long as the run lasts.
    pub(in crate::rendezvous) deadline: Option<Time>,
    /// It disagrees with the round in progress, and fails if that is still so then.
    pub(in crate::rendezvous) objects_until: Option<Time>,
}

/// One node's part of the rendezvous. See the [module](super) for how to drive it.
#[derive(Debug)]
pub struct Node {
    pub(in crate::rendezvous) settings: NodeConfig,
    pub(in crate::rendezvous) node: NodeDocument,
    pub(in crate::rendezvous) lease: Option<LeaseId>,
    /// A session was asked for and is not there yet.
    pub(in crate::rendezvous) opening_session: bool,
    pub(in crate::rendezvous) knowledge: Knowledge,
    pub(in crate::rendezvous) meeting: Option<Meeting>,
    pub(in crate::rendezvous) place: Place,
    /// The node's own document is there, under the present lease.
    pub(in crate::rendezvous) listed: bool,
    /// The rounds that it has asked to join, under the present lease.
    pub(in crate::rendezvous) joined_rounds: BTreeSet<u64>,
    /// How it has asked to be registered, under the present lease.
    pub(in crate::rendezvous) registered: BTreeSet<Late>,
    /// The rounds that it has asked to confirm, and has not entered another since: of the last of them it may have
    /// workers. Also under an earlier lease: a server that was away may keep that for longer than the node did.
    pub(in crate::rendezvous) confirmed_rounds: BTreeSet<u64>,
    /// The latest revision of an answer to this node.
    pub(in crate::rendezvous) heard: Revision,
    /// What was known when each request was decided on.
    pub(in crate::rendezvous) knew: BTreeMap<RequestId, Revision>,
    /// When the node first announced itself.
    pub(in crate::rendezvous) arrived: Option<Revision>,
    /// The place in the last group that it was in.
    pub(in crate::rendezvous) seat: Option<PreviousAssignment>,
    /// What it remembers of histories that the server has forgotten.
    pub(in crate::rendezvous) earlier: Earlier,
    /// The name of the next history that this node begins.
    pub(in crate::rendezvous) begins: u64,
    /// Since when it knows of the history that goes on.
    pub(in crate::rendezvous) history_since: Time,
    /// It lost its session, and tries to keep its place.
    pub(in crate::rendezvous) resuming: Option<Resuming>,
    /// When it last kept its place in that way.
    pub(in crate::rendezvous) resumed: Option<Revision>,
    /// The round for which it was asked to listen, and where it does.
    pub(in crate::rendezvous) hosting: Option<(u64, Option<BootstrapStore>)>,
    /// Who kept the group of this round and was reported by this node.
    pub(in crate::rendezvous) doubted: Option<(u64, String)>,
    pub(in crate::rendezvous) request: Option<(RequestId, Asked)>,
    pub(in crate::rendezvous) orders: VecDeque<Order>,
    /// It gave up, and has until then to find out why.
    pub(in crate::rendezvous) giving_up: Option<(Meeting, Time)>,
    pub(in crate::rendezvous) coordinator: Option<(Coordinator, WatchId)>,
    /// The coordinator's requests; if one succeeds, this document is in force.
    pub(in crate::rendezvous) duties: BTreeMap<RequestId, (Purpose, Option<Box<Active>>)>,
    /// The coordinator wants a new round, for this reason.
    pub(in crate::rendezvous) reopening: Option<String>,
    pub(in crate::rendezvous) outputs: VecDeque<NodeOutput>,
    ids: u64,
}

impl Node {
    /// A node that has announced nothing and knows nothing. `entropy` is a random number, from which it names the
    /// histories that it begins.
    pub fn new(settings: NodeConfig, node: NodeDocument, entropy: u64) -> Self {
        Self {
            knowledge: Knowledge::default(),
            settings,
            node,
            lease: None,
            opening_session: false,
            meeting: None,
            place: Place::Nowhere,
            listed: false,
            joined_rounds: BTreeSet::new(),
            registered: BTreeSet::new(),
            confirmed_rounds: BTreeSet::new(),
            heard: 0,
            knew: BTreeMap::new(),
            arrived: None,
            seat: None,
            earlier: Earlier::default(),
            begins: entropy,
            history_since: Time::ZERO,
            resuming: None,
            resumed: None,
            hosting: None,
            doubted: None,
            request: None,
            orders: VecDeque::new(),
            giving_up: None,
            coordinator: None,
            duties: BTreeMap::new(),
            reopening: None,
            outputs: VecDeque::new(),
            ids: 0,
        }
    }

    /// Takes in what happened. Fetch the outputs afterwards.
    pub fn handle(&mut self, now: Time, input: NodeInput) {
        let before = self.knowledge.history();
        match input {
            NodeInput::Enter => self.enter(now),
            NodeInput::Leave => {
                self.resuming = None;
                self.meeting = None;
                self.giving_up = None;
                self.orders.push_back(Order::Leave);
            }
            NodeInput::Close { outcome, reason } => {
                self.orders.push_back(Order::Close(outcome, reason));
            }
            NodeInput::Reopen => self.orders.push_back(Order::Reopen),
            NodeInput::Suspect { node } => {
                self.orders.push_back(Order::Suspect(node, self.formed_round()));
            }
            NodeInput::SessionOpened { lease } => {
                self.lease = Some(lease);
                self.opening_session = false;
            }
            NodeInput::SessionLost { slept } => self.session_lost(now, slept),
            NodeInput::Snapshot { found, another_server } => {
                self.looked(now, &found, another_server)
            }
            NodeInput::ActiveChanged { events } => {
                if !self.knowledge.follow(&events) {
                    self.forgot(now);
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
                    coordinator.saw(watch, events);
                }
            }
            NodeInput::WatchBroken { id } => {
                if let Some(coordinator) = self.coordinator_of(id) {
                    coordinator.blinded();
                }
            }
            NodeInput::BootstrapStoreReady { round, store } => {
                if self.hosting.as_ref().is_some_and(|(asked, _)| *asked == round) {
                    self.hosting = Some((round, Some(store)));
                }
            }
            NodeInput::BootstrapStoreFailed { round, reason } => {
                if self.hosting.take_if(|(asked, _)| *asked == round).is_some() {
                    self.fail(RendezvousFailure::CannotServeBootstrapStore { reason });
                }
            }
            NodeInput::Wake => {}
        }
        if before != self.knowledge.history() {
            self.history_since = now;
        }
        self.step(now);
    }

    /// What is to be done, in order.
    pub fn poll_output(&mut self) -> Option<NodeOutput> {
        self.outputs.pop_front()
    }

    /// Whether the answer to a request still matters. If not, there is no point in repeating it.
    pub fn awaits(&self, id: RequestId) -> bool {
        self.request.as_ref().is_some_and(|(asked, _)| *asked == id)
            || self.duties.contains_key(&id)
    }

    /// Whether the node has a place in a group, and a lease to hold it with.
    pub fn holds_place(&self) -> bool {
        matches!(self.place, Place::Member(_)) && self.lease.is_some() && self.resuming.is_none()
    }

    fn enter(&mut self, now: Time) {
        if let Place::Member(_) = self.place {
            self.place = Place::Nowhere;
        }
        self.resuming = None;
        self.giving_up = None;
        let deadline = Some(now.saturating_add(self.settings.timeout));
        self.meeting = Some(Meeting { since: now, deadline, objects_until: None });
    }

    /// Whatever the node has announced may be gone, and with it its right to run.
    pub(in crate::rendezvous) fn fenced(&mut self, now: Time, cause: FenceCause) {
        self.lease = None;
        self.resuming = None;
        if let Place::Member(_) = self.place {
            self.outputs.push_back(NodeOutput::Fenced(cause));
        }
        // Also a spare, which had all the time there is, must find out in time that nobody answers.
        let timeout = self.settings.timeout;
        if let Some(meeting) = &mut self.meeting {
            meeting.deadline.get_or_insert_with(|| now.saturating_add(timeout));
        }
        self.opening_session = false;
        self.forget_whereabouts();
        // Its answer would be about a lease that is not ours any more.
        match &self.request {
            Some((_, Asked::Close(_) | Asked::Reopen | Asked::Diagnose)) => {}
            Some((_, Asked::Leave(_))) => {
                // With the lease goes all that the node wanted to take back.
                self.request = None;
                self.outputs.push_back(NodeOutput::Done(CommandDone::Left));
            }
            _ => self.request = None,
        }
        self.resign();
    }

    pub(in crate::rendezvous) fn forget_whereabouts(&mut self) {
        self.place = Place::Nowhere;
        self.listed = false;
        self.joined_rounds.clear();
        self.registered.clear();
        self.hosting = None;
    }

    pub(in crate::rendezvous) fn resign(&mut self) {
        self.duties.clear();
        self.reopening = None;
        if self.coordinator.take().is_some() {
            self.outputs.push_back(NodeOutput::Unwatch);
        }
    }

    /// The condition under which a round may be opened where none is in force.
    pub(in crate::rendezvous) fn absent(&self) -> Guard {
        self.knowledge.absent(self.begins())
    }

    /// The name of the history that this node begins, if it does.
    pub(in crate::rendezvous) fn begins(&self) -> RunHistory {
        RunHistory::new(self.begins)
    }

    /// The condition under which this node may say where it is.
    pub(in crate::rendezvous) fn unmoved(&self) -> Unmoved {
        let known = self.knowledge.revision().max(self.heard);
        Unmoved { node: self.settings.keys.node(&self.node.id), known }
    }

    fn coordinator_of(&mut self, id: WatchId) -> Option<&mut Coordinator> {
        self.coordinator.as_mut().filter(|(_, watch)| *watch == id).map(|(duty, _)| duty)
    }

    /// The document in force, if this node wrote it as the coordinator of its round and still holds it.
    pub(in crate::rendezvous) fn holds(&self) -> Option<&InForce> {
        let in_force = self.knowledge.in_force().ok().flatten()?;
        let InForce { active, lease, .. } = in_force;
        let own = active.coordinator.id == self.node.id
            && active.status != Status::Closed
            && Some(*lease) == self.lease;
        own.then_some(in_force)
    }

    /// The same, if it is of this round.
    pub(in crate::rendezvous) fn own(&self, round: u64) -> Option<&InForce> {
        self.holds().filter(|own| own.active.round == round)
    }

    /// Ends the meeting without a group, and takes back what was announced for it.
    pub(in crate::rendezvous) fn fail(&mut self, fault: RendezvousFailure) {
        if self.meeting.take().is_some() || self.giving_up.take().is_some() {
            self.giving_up = None;
            self.outputs.push_back(NodeOutput::Failed(fault));
            self.orders.push_back(Order::Leave);
        }
    }

    fn next_id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    pub(in crate::rendezvous) fn ask(&mut self, purpose: Purpose, txn: Txn, asked: Asked) {
        let id = self.next_id();
        self.knew.insert(id, self.knowledge.revision().max(self.heard));
        self.request = Some((id, asked));
        self.outputs.push_back(NodeOutput::Request { id, purpose, txn });
    }

    pub(in crate::rendezvous) fn ask_on_duty(
        &mut self,
        purpose: Purpose,
        txn: Txn,
        active: Option<Box<Active>>,
    ) {
        let id = self.next_id();
        self.knew.insert(id, self.knowledge.revision().max(self.heard));
        self.duties.insert(id, (purpose, active));
        self.outputs.push_back(NodeOutput::Request { id, purpose, txn });
    }

    /// Decides what to do next.
    fn step(&mut self, now: Time) {
        let (request, duties) = (&self.request, &self.duties);
        let asked = |id: &RequestId| request.as_ref().is_some_and(|(asked, _)| asked == id);
        self.knew.retain(|id, _| asked(id) || duties.contains_key(id));
        self.check_deadlines(now);
        self.do_duty(now);
        while self.request.is_none() {
            if self.resuming.is_some() {
                return self.resume();
            }
            if let Some(order) = self.next_order() {
                self.obey(order);
            } else if self.reopening.is_some() {
                self.open_again();
            } else if let Some((meeting, _)) = self.giving_up {
                if !self.may_ask_who_is_missing() {
                    let waited = now.saturating_sub(meeting.since);
                    let missing = Some(format!("it waited for {}", self.waits_for(now)));
                    self.fail(RendezvousFailure::TimedOut { waited, missing });
                    continue;
                }
                let round = self.knowledge.active().map_or(0, |active| active.round);
                let txn = self.settings.diagnose(round);
                self.ask(Purpose::Diagnose, txn, Asked::Diagnose);
            } else if let Some(guard) = self.unwanted() {
                self.disown(guard);
            } else if self.meeting.is_some() && self.knowledge.is_known() {
                self.meet(now);
                if self.orders.is_empty() {
                    // It may have been handed the group that it is in now.
                    return self.do_duty(now);
                }
            } else {
                return;
            }
        }
    }

    /// The round in progress, if it is one of this node that it neither coordinates nor needs.
    fn unwanted(&self) -> Option<Guard> {
        let idle = self.meeting.is_none() && self.giving_up.is_none() && self.coordinator.is_none();
        if idle { self.holds().map(InForce::guard) } else { None }
    }

    /// To close or to reopen, one must know what is so.
    fn next_order(&mut self) -> Option<Order> {
        let blind = !self.knowledge.is_known();
        let blocked = |order: &Order| blind && matches!(order, Order::Close(..) | Order::Reopen);
        if self.orders.front().is_some_and(blocked) { None } else { self.orders.pop_front() }
    }

    /// Does what the coordinator of a round must, if this node is.
    fn do_duty(&mut self, now: Time) {
        loop {
            let Some((coordinator, _)) = &self.coordinator else { return };
            let round = coordinator.round();
            let Some((in_force, lease)) = self.own(round).cloned().zip(self.lease) else {
                return self.resign();
            };
            let extra = self.knowledge.rounds_extra();
            let Some((coordinator, _)) = &mut self.coordinator else { return };
            let InForce { active, revision, .. } = &in_force;
            let own = Own { active, revision: *revision, lease, rounds_extra: &extra };
            match coordinator.advance(now, &self.settings, own, self.history_since) {
                None => return,
                Some(Step::Watch(watches)) => {
                    let id = self.next_id();
                    if let Some((_, watch)) = &mut self.coordinator {
                        *watch = id;
                    }
                    self.outputs.push_back(NodeOutput::Watch { id, watches });
                }
                Some(Step::Request(purpose, txn, active)) => self.ask_on_duty(purpose, txn, active),
                Some(Step::Reopen(reason)) => self.reopening = Some(reason),
                Some(Step::Fail(fault)) => return self.fail(fault),
            }
        }
    }
}
