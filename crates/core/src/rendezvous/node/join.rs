//! What a node asks for next, given the document in force and what it has announced.

use bytes::Bytes;

use super::observed::InForce;
use super::{Asked, Late, Node, Order, Place};
use crate::kv::{Compare, LeaseId, Revision, Time};
use crate::rendezvous::documents::{
    Active, BootstrapStore, Extra, RunHistory, RunOutcome, Status, encode,
};
use crate::rendezvous::messages::{CommandDone, NodeOutput, Purpose, RendezvousFailure};
use crate::rendezvous::txn::{Documents, Guard, Whereabouts};

/// Of so many rounds a node takes its traces back when it leaves, so that one transaction holds them.
/// Those of earlier ones are swept by the next group, or go with the lease.
const TAKEN_BACK: usize = 32;

/// A node that may be dead, and the document to which that was reported.
#[derive(Debug, Clone)]
pub(in crate::rendezvous) struct Report {
    pub(in crate::rendezvous) node: String,
    pub(in crate::rendezvous) revision: Revision,
    /// The last round that had formed a group.
    pub(in crate::rendezvous) formed: u64,
    /// The node was its coordinator, and the group was running.
    pub(in crate::rendezvous) kept_it: bool,
}

impl Node {
    /// One step towards a group.
    pub(in crate::rendezvous) fn meet(&mut self, now: Time) {
        let in_force = match self.knowledge.in_force() {
            Ok(in_force) => in_force.cloned(),
            Err(error) => {
                let error = error.clone();
                return self.fail(RendezvousFailure::Unreadable(error));
            }
        };
        let disagrees = in_force
            .as_ref()
            .and_then(|now| Some((self.disagrees(&now.active)?, Self::may_object(&now.active))));
        if let Some((fault, false)) = disagrees {
            return self.fail(fault);
        }
        let Some(lease) = self.lease else {
            if !self.opening_session {
                self.opening_session = true;
                self.outputs.push_back(NodeOutput::OpenSession);
            }
            return;
        };
        let Some(in_force) = in_force else {
            let reason = match self.knowledge.rounds() {
                Some(rounds) => format!("round {} lost its coordinator", rounds.round),
                None if self.earlier.is_empty() => "the run begins".to_owned(),
                None => "the server has lost its memory, and the run begins anew".to_owned(),
            };
            return self.open(self.absent(), reason, lease);
        };
        if disagrees.is_some() {
            return self.object(now, &in_force, lease);
        }
        self.agrees();
        let round = in_force.active.round;
        let confirmed = matches!(self.place, Place::Confirmed(confirmed, _) if confirmed == round);
        if self.coordinator.is_none() && self.holds().is_some() && !confirmed {
            return self.find_own(&in_force, lease);
        }
        match (in_force.active.status, self.place) {
            (Status::Joinable, Place::Joined(joined)) if joined == round => {}
            (Status::Joinable, _) => self.join(&in_force, lease),
            (Status::Frozen, Place::Confirmed(confirmed, _)) if confirmed == round => {}
            // It asked to join. Whether that came in time, and whether it got in, its rank will say.
            (Status::Frozen, place)
                if self.joined_rounds.contains(&round) && place != Place::LeftOut(round) =>
            {
                self.confirm(&in_force, lease);
            }
            (Status::Final, Place::Confirmed(confirmed, ranked)) if confirmed == round => {
                self.formed(&in_force.active, ranked);
            }
            // It is back from this group, which therefore needs another round.
            (Status::Final, _) if self.sits_in(&in_force.active) => {
                let reason = self.why_again(&in_force.active);
                self.open(in_force.guard(), reason, lease);
            }
            (Status::Frozen | Status::Final, place) => {
                let late = if in_force.active.has_room() { Late::Waiting } else { Late::Spare };
                // Who waits says so in each round that it missed: those who do not are not waited for.
                let said = match place {
                    Place::Late(Late::Waiting, of) => late == Late::Waiting && of == round,
                    Place::Late(Late::Spare, _) => late == Late::Spare,
                    _ => false,
                };
                if !said {
                    self.register(&in_force, late, "".into(), lease);
                }
            }
            // No node agrees with a closed run: see `disagrees`.
            (Status::Closed, _) => {}
        }
    }

    /// A round of our own that nobody coordinates: the answer to its opening never came, or came when
    /// we had given up.
    fn find_own(&mut self, in_force: &InForce, lease: LeaseId) {
        match in_force.active.status {
            Status::Joinable => {
                self.coordinate(in_force);
                self.join(in_force, lease);
            }
            _ => {
                let reason = format!("{} came back to its round", self.node.name());
                self.open(in_force.guard(), reason, lease);
            }
        }
    }

    /// Whether the last group that this node was in is the one of `active`.
    fn sits_in(&self, active: &Active) -> bool {
        self.seat.is_some_and(|seat| (seat.history, seat.round) == (active.history, active.round))
    }

    /// How many members the group has lost, and some of them by name. Nobody else can count the
    /// coordinator as lost while its lease lives, so whoever reported it does. That holds whatever the
    /// coordinator may still write: it may have died since; and if it lives, it finds the report and has
    /// the group meet again by itself.
    pub(in crate::rendezvous) fn lost(&self, group: &Active) -> (usize, Vec<String>) {
        let (mut lost, mut names) = (group.lost, group.lost_names.clone());
        if let Some((round, id)) = &self.doubted
            && (*round, id) == (group.round, &group.coordinator.id)
            && !names.contains(id)
        {
            lost += 1;
            names.push(id.clone());
        }
        // That this node was missed is old news if it has taken up its place again since.
        let written = self.knowledge.in_force().ok().flatten().map_or(0, |now| now.revision);
        let back = self.resuming.is_some() || self.resumed.is_some_and(|when| written < when);
        if back && names.contains(&self.node.id) {
            names.retain(|name| *name != self.node.id);
            lost -= 1;
        }
        (lost, names)
    }

    fn why_again(&self, active: &Active) -> String {
        let Active { round, waiting, .. } = active;
        let (lost, lost_names) = self.lost(active);
        match (lost, waiting) {
            (0, 0) => format!("{} came back from round {round}", self.node.name()),
            (0, waiting) => format!("round {round} has {waiting} late nodes"),
            (lost, _) => {
                let more = lost.saturating_sub(lost_names.len());
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                format!("round {round} lost {}{more}", lost_names.join(", "))
            }
        }
    }

    /// The node's own document, where it is not there yet, and no trace of having waited but for the
    /// one that it shall `keep`, nor of a group that it was in: its workers are gone. They count as gone only
    /// when that was answered.
    fn here(&self, keep: Option<Late>, lease: LeaseId) -> Whereabouts {
        let mut here = Whereabouts::default();
        if !self.listed {
            here = here.put(self.settings.keys.node(&self.node.id), encode(&self.node), lease);
        }
        for late in self.registered.iter().filter(|late| Some(**late) != keep) {
            here = here.delete(self.late_key(*late));
        }
        for round in &self.confirmed_rounds {
            here = here.delete(self.settings.keys.ready(*round, &self.node.id));
        }
        // Whoever was in a group may have been reported since.
        here.delete_if(self.seat.is_some(), || self.settings.keys.suspect(&self.node.id))
    }

    fn late_key(&self, late: Late) -> String {
        match late {
            Late::Waiting => self.settings.keys.waiting(&self.node.id),
            Late::Spare => self.settings.keys.spare(&self.node.id),
            Late::Objector => self.settings.keys.objector(&self.node.id),
        }
    }

    fn joins(&mut self, round: u64, lease: LeaseId) -> Whereabouts {
        let joined = self.settings.joined(&self.node, self.arrived, self.seat, self.earlier);
        let key = self.settings.keys.member(round, &self.node.id);
        self.joined_rounds.insert(round);
        if self.joined_rounds.len() > TAKEN_BACK {
            self.joined_rounds.pop_first();
        }
        self.here(None, lease).put(key, encode(&joined), lease)
    }

    fn open(&mut self, guard: Guard, reason: String, lease: LeaseId) {
        let last = self.knowledge.rounds().map_or(0, |rounds| rounds.round);
        // A server that lost its memory must not make us use a number twice.
        let round = last.max(self.earlier.round) + 1;
        let history = match guard {
            Guard::At(history, _) | Guard::Absent(history, _) | Guard::Nothing(history) => history,
            // Nobody opens a round over what nobody can read.
            Guard::Unreadable(_) => return,
        };
        let active = self.document(history, round, Status::Joinable, reason);
        let here = self.joins(active.round, lease);
        let rounds_extra = &self.knowledge.rounds_extra();
        let documents = Documents { active: &active, rounds_extra };
        let txn = self.settings.open(guard, documents, lease, (self.unmoved(), here));
        self.ask(Purpose::Open, txn, Asked::Open(Box::new(active)));
    }

    /// A document of this node, as it is before there is a group.
    fn document(&self, history: RunHistory, round: u64, status: Status, reason: String) -> Active {
        Active {
            history,
            round,
            status,
            limits: self.settings.limits,
            rank_policy: self.settings.rank_policy.to_string(),
            coordinator: self.node.name(),
            reason,
            outcome: None,
            previous: self.knowledge.rounds().map_or(0, |rounds| rounds.formed),
            outlived: self.knowledge.rounds().map_or(0, |rounds| rounds.outlived),
            world: 0,
            rank0: String::new(),
            store: None,
            waiting: 0,
            lost: 0,
            lost_names: Vec::new(),
            frozen_because: String::new(),
            began: 0,
            extra: Extra::new(),
        }
    }

    /// The coordinator gives its round up for another.
    pub(in crate::rendezvous) fn open_again(&mut self) {
        let Some((duty, _)) = &self.coordinator else { return };
        let (round, remembered) = (duty.round(), duty.remembered());
        let guard = self.own(round).map(InForce::guard);
        if let (Some(guard), Some(reason), Some(lease)) = (guard, self.reopening.take(), self.lease)
        {
            self.earlier.round = self.earlier.round.max(remembered.round);
            self.open(guard, reason, lease);
        }
    }

    fn join(&mut self, in_force: &InForce, lease: LeaseId) {
        let here = self.joins(in_force.active.round, lease);
        let txn = self.settings.announce(in_force.guard(), self.unmoved(), here);
        self.ask(Purpose::Join, txn, Asked::Join(in_force.active.round));
    }

    fn confirm(&mut self, in_force: &InForce, lease: LeaseId) {
        let InForce { active, revision, .. } = in_force;
        let mut listens: Option<BootstrapStore> = None;
        if active.rank0 == self.node.id {
            match &self.hosting {
                Some((round, Some(store))) if *round == active.round => {
                    listens = Some(store.clone());
                }
                Some((round, None)) if *round == active.round => return,
                _ => {
                    self.hosting = Some((active.round, None));
                    return self
                        .outputs
                        .push_back(NodeOutput::ServeBootstrapStore { round: active.round });
                }
            }
        }
        let document = (active, *revision);
        let (unmoved, id) = (self.unmoved(), &self.node.id);
        let txn = self.settings.confirm(document, unmoved, id, lease, listens.as_ref());
        self.confirmed_rounds.insert(active.round);
        self.ask(Purpose::Confirm, txn, Asked::Confirm(active.round));
    }

    pub(in crate::rendezvous) fn register(
        &mut self,
        in_force: &InForce,
        late: Late,
        says: Bytes,
        lease: LeaseId,
    ) {
        let round = in_force.active.round;
        let id = &self.node.id;
        let member = self.settings.keys.member(round, id);
        let joined = self.joined_rounds.contains(&round);
        let here = self.here(Some(late), lease).delete_if(joined, || member);
        let here = here.put(self.late_key(late), says, lease);
        self.registered.insert(late);
        let txn = self.settings.announce(in_force.guard(), self.unmoved(), here);
        self.ask(Purpose::Register, txn, Asked::Register(late, round));
    }

    /// Does what the node was told to do besides meeting.
    pub(in crate::rendezvous) fn obey(&mut self, order: Order) {
        match order {
            Order::Leave => self.leave(),
            Order::Suspect(node, formed) => self.report(node, formed),
            Order::Close(outcome, reason) => self.close(outcome, reason),
            Order::Reopen => self.reopen(),
        }
    }

    /// A round that the node opened and no longer wants, as its opening was carried out when it had
    /// given up. It would keep the others waiting for as long as the lease lives.
    pub(in crate::rendezvous) fn disown(&mut self, guard: Guard) {
        let txn = self.settings.remove(guard);
        self.ask(Purpose::Leave, txn, Asked::Disown);
    }

    /// Tells of a node that may be dead: a group which runs, so that it meets again, or a round which takes
    /// nodes, so that it does not wait. In between, those who matter must confirm anyway.
    fn report(&mut self, node: String, formed: u64) {
        let in_force = self.knowledge.in_force().ok().flatten();
        // A host that dies is missed by everyone at once; one report is enough. When another group has
        // formed, it is old.
        let news = |InForce { active, .. }: &&InForce| {
            active.formed() == formed && !active.lost_names.contains(&node)
        };
        let (Some(lease), Some(in_force)) = (self.lease, in_force.filter(news)) else { return };
        let InForce { active, revision, .. } = in_force;
        let here = Whereabouts::default().put(self.settings.keys.suspect(&node), "", lease);
        let mut txn = self.settings.announce(in_force.guard(), self.unmoved(), here);
        // Only members of the group are watched over.
        txn.compares.push(Compare::exists(self.settings.keys.rank(formed, &node)));
        match active.status {
            Status::Final => {}
            // Whoever joined is alive, and a late report of it would cost the round its number.
            Status::Joinable => {
                let joined = self.settings.keys.member(active.round, &node);
                txn.compares.push(Compare::absent(joined));
            }
            Status::Frozen | Status::Closed => return,
        }
        let kept_it = active.status == Status::Final && active.coordinator.id == node;
        let report = Report { node, revision: *revision, formed, kept_it };
        self.ask(Purpose::Suspect, txn, Asked::Suspect(report));
    }

    /// The report was refused. Others report too, and the next round may have begun meanwhile, whose
    /// coordinator should know whom not to wait for; unless the node has joined that round.
    pub(in crate::rendezvous) fn report_again(&mut self, report: Report) {
        // Refused although the document is the same: the node has joined, or is no member of the group.
        let unchanged = |now: &InForce| now.revision == report.revision;
        let is_over = self.knowledge.in_force().ok().flatten().is_none_or(unchanged);
        if !is_over {
            self.orders.push_back(Order::Suspect(report.node, report.formed));
        }
    }

    fn leave(&mut self) {
        let keys = &self.settings.keys;
        let id = &self.node.id;
        let mut here = Whereabouts::default();
        for round in &self.joined_rounds {
            here = here.delete(keys.member(*round, id));
        }
        for round in &self.confirmed_rounds {
            here = here.delete(keys.ready(*round, id));
        }
        for late in &self.registered {
            here = here.delete(self.late_key(*late));
        }
        let nothing = here.is_empty() && !self.listed && self.holds().is_none();
        let lease = self.lease.filter(|_| !nothing);
        self.forget_whereabouts();
        self.confirmed_rounds.clear();
        self.resign();
        let Some(lease) = lease else {
            return self.outputs.push_back(NodeOutput::Done(CommandDone::Left));
        };
        self.take_back(lease, here);
    }

    pub(in crate::rendezvous) fn take_back(&mut self, lease: LeaseId, here: Whereabouts) {
        let history = self.knowledge.history();
        let txn = self.settings.leave(history, self.unmoved(), lease, here.clone());
        self.ask(Purpose::Leave, txn, Asked::Leave(here));
    }

    fn close(&mut self, outcome: RunOutcome, reason: String) {
        let in_force = self.knowledge.in_force().ok().flatten();
        let guard = match in_force {
            Some(InForce { active, .. }) if active.status == Status::Closed => {
                return self.outputs.push_back(NodeOutput::Done(CommandDone::Closed));
            }
            Some(in_force) => in_force.guard(),
            // A document that nobody can read may as well be closed.
            None => match self.knowledge.unreadable_since() {
                Some(revision) if revision > 0 => Guard::Unreadable(revision),
                _ => self.absent(),
            },
        };
        let history = match guard {
            Guard::At(history, _) | Guard::Absent(history, _) | Guard::Nothing(history) => history,
            Guard::Unreadable(_) => self.knowledge.history().unwrap_or_else(|| self.begins()),
        };
        let round = self.knowledge.rounds().map_or(0, |rounds| rounds.round);
        let closed = self.document(history, round, Status::Closed, reason);
        let closed = Active { outcome: Some(outcome), ..closed };
        let rounds_extra = &self.knowledge.rounds_extra();
        let txn = self.settings.close(guard, Documents { active: &closed, rounds_extra });
        self.ask(Purpose::Close, txn, Asked::Close(Box::new(closed)));
    }

    fn reopen(&mut self) {
        match self.knowledge.in_force().ok().flatten() {
            Some(in_force) if in_force.active.status == Status::Closed => {
                let txn = self.settings.remove(in_force.guard());
                self.ask(Purpose::Reopen, txn, Asked::Reopen);
            }
            _ => self.outputs.push_back(NodeOutput::Done(CommandDone::NotClosed)),
        }
    }
}
