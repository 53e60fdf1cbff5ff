//! What a node asks for next, given the document in force and what it has announced.

use super::document::{Active, Address, Rounds, Status, encode};
use super::interface::{Errand, Fault, Output, Purpose};
use super::knowledge::InForce;
use super::machine::{Asked, Late, Machine, Order, Place};
use super::request::{Guard, Whereabouts};
use crate::kv::{Compare, LeaseId, Revision};

/// Of so many rounds a node takes its traces back when it leaves, so that one transaction holds them.
/// Those of earlier ones are swept by the next group, or go with the lease.
const TAKEN_BACK: usize = 32;

/// A node that may be dead, and the document to which that was reported.
#[derive(Debug, Clone)]
pub(super) struct Report {
    pub(super) node: String,
    pub(super) revision: Revision,
    /// The last round that had formed a group.
    pub(super) formed: u64,
    /// The node was its coordinator, and the group was running.
    pub(super) kept_it: bool,
}

impl Machine {
    /// One step towards a group.
    pub(super) fn meet(&mut self) {
        let in_force = match self.knowledge.in_force() {
            Ok(in_force) => in_force.cloned(),
            Err(corrupt) => {
                let corrupt = corrupt.clone();
                return self.fail(Fault::Corrupt(corrupt));
            }
        };
        let objection = in_force.as_ref().and_then(|in_force| self.objection(&in_force.active));
        if let Some(fault) = objection {
            return self.fail(fault);
        }
        let Some(lease) = self.lease else {
            if !self.opening_session {
                self.opening_session = true;
                self.outputs.push_back(Output::OpenSession);
            }
            return;
        };
        let Some(in_force) = in_force else {
            let rounds = self.knowledge.rounds();
            let reason = match rounds {
                Some(rounds) => format!("round {} lost its coordinator", rounds.round),
                None => "the run begins".to_owned(),
            };
            return self.open(Guard::Absent(rounds), reason, lease);
        };
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
            (Status::Final, _) if self.seat.is_some_and(|seat| seat.round == round) => {
                let reason = self.why_again(&in_force.active);
                self.open(Guard::At(in_force.revision), reason, lease);
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
                    self.register(&in_force, late, lease);
                }
            }
            // An objection was made above.
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
                let reason = format!("{} came back to its round", self.node.author());
                self.open(Guard::At(in_force.revision), reason, lease);
            }
        }
    }

    /// Why this node cannot be in any group of the run.
    fn objection(&self, active: &Active) -> Option<Fault> {
        let by = active.author.clone();
        if active.status == Status::Closed {
            let reason = active.reason.clone();
            return Some(match self.place {
                Place::Late(Late::Spare, _) => Fault::NotNeeded { by, reason },
                _ => Fault::Closed { by, reason },
            });
        }
        let differ = |what, ours: String, theirs: String| {
            (ours != theirs).then(|| Fault::Mismatch { what, ours, theirs, other: by.clone() })
        };
        let (limits, policy) = (self.settings.limits, self.settings.rank_policy);
        differ("min:max nodes", limits.to_string(), active.limits.to_string())
            .or_else(|| differ("rank_policy", policy.to_string(), active.rank_policy.clone()))
    }

    /// How many members the group has lost, and some of them by name. Nobody else can count the
    /// coordinator as lost while its lease lives, so whoever reported it does. That holds whatever the
    /// coordinator may still write: it may have died since; and if it lives, it finds the report and has
    /// the group meet again by itself.
    pub(super) fn lost(&self, group: &Active) -> (usize, Vec<String>) {
        let (mut lost, mut names) = (group.lost, group.lost_names.clone());
        if let Some((round, id)) = &self.doubted
            && (*round, id) == (group.round, &group.author.id)
            && !names.contains(id)
        {
            lost += 1;
            names.push(id.clone());
        }
        (lost, names)
    }

    fn why_again(&self, active: &Active) -> String {
        let Active { round, waiting, .. } = active;
        let (lost, lost_names) = self.lost(active);
        match (lost, waiting) {
            (0, 0) => format!("{} came back from round {round}", self.node.author()),
            (0, waiting) => format!("round {round} has {waiting} late nodes"),
            (lost, _) => {
                let more = lost.saturating_sub(lost_names.len());
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                format!("round {round} lost {}{more}", lost_names.join(", "))
            }
        }
    }

    /// The node's own document, where it is not there yet, and no trace of having waited but for the
    /// one that it shall `keep`. They count as gone only when that was answered.
    fn here(&self, keep: Option<Late>, lease: LeaseId) -> Whereabouts {
        let mut here = Whereabouts::default();
        if !self.listed {
            here = here.put(self.settings.keys.node(&self.node.id), encode(&self.node), lease);
        }
        for late in self.registered.iter().filter(|late| Some(**late) != keep) {
            here = here.delete(self.late_key(*late));
        }
        // Whoever was in a group may have been reported since.
        here.delete_if(self.seat.is_some(), || self.settings.keys.suspect(&self.node.id))
    }

    fn late_key(&self, late: Late) -> String {
        match late {
            Late::Waiting => self.settings.keys.waiting(&self.node.id),
            Late::Spare => self.settings.keys.spare(&self.node.id),
        }
    }

    fn joins(&mut self, round: u64, lease: LeaseId) -> Whereabouts {
        let joined = self.settings.joined(&self.node, self.arrived, self.seat);
        let key = self.settings.keys.member(round, &self.node.id);
        self.joined_rounds.insert(round);
        if self.joined_rounds.len() > TAKEN_BACK {
            self.joined_rounds.pop_first();
        }
        self.here(None, lease).put(key, encode(&joined), lease)
    }

    fn open(&mut self, guard: Guard, reason: String, lease: LeaseId) {
        let rounds = self.knowledge.rounds();
        let last = rounds.map_or(0, |rounds| rounds.round);
        // A server that lost its memory must not make us use a number twice.
        let round = last.max(self.seat.map_or(0, |seat| seat.round)) + 1;
        let active = self.document(round, Status::Joinable, rounds, reason);
        let here = self.joins(active.round, lease);
        let txn = self.settings.open(guard, &active, lease, (self.unmoved(), here));
        self.ask(Purpose::Open, txn, Asked::Open(Box::new(active)));
    }

    /// A document of this node, as it is before there is a group.
    fn document(
        &self,
        round: u64,
        status: Status,
        rounds: Option<Rounds>,
        reason: String,
    ) -> Active {
        Active {
            round,
            status,
            limits: self.settings.limits,
            rank_policy: self.settings.rank_policy.to_string(),
            author: self.node.author(),
            reason,
            previous: rounds.map_or(0, |rounds| rounds.formed),
            world: 0,
            leader: String::new(),
            store: None,
            waiting: 0,
            lost: 0,
            lost_names: Vec::new(),
            frozen_because: String::new(),
            began: 0,
        }
    }

    /// The coordinator gives its round up for another.
    pub(super) fn open_again(&mut self) {
        let round = self.coordinator.as_ref().map(|(duty, _)| duty.round());
        let revision = round.and_then(|round| self.own(round)).map(|own| own.revision);
        if let (Some(revision), Some(reason), Some(lease)) =
            (revision, self.reopening.take(), self.lease)
        {
            self.open(Guard::At(revision), reason, lease);
        }
    }

    fn join(&mut self, in_force: &InForce, lease: LeaseId) {
        let here = self.joins(in_force.active.round, lease);
        let txn = self.settings.announce(in_force.revision, self.unmoved(), here);
        self.ask(Purpose::Join, txn, Asked::Join(in_force.active.round));
    }

    fn confirm(&mut self, in_force: &InForce, lease: LeaseId) {
        let InForce { active, revision, .. } = in_force;
        let mut listens: Option<Address> = None;
        if active.leader == self.node.id {
            match &self.hosting {
                Some((round, Some(address))) if *round == active.round => {
                    listens = Some(address.clone());
                }
                Some((round, None)) if *round == active.round => return,
                _ => {
                    self.hosting = Some((active.round, None));
                    return self.outputs.push_back(Output::Host { round: active.round });
                }
            }
        }
        let document = (active, *revision);
        let (unmoved, id) = (self.unmoved(), &self.node.id);
        let txn = self.settings.confirm(document, unmoved, id, lease, listens.as_ref());
        self.ask(Purpose::Confirm, txn, Asked::Confirm(active.round));
    }

    fn register(&mut self, in_force: &InForce, late: Late, lease: LeaseId) {
        let round = in_force.active.round;
        let id = &self.node.id;
        let (member, ready) =
            (self.settings.keys.member(round, id), self.settings.keys.ready(round, id));
        let joined = self.joined_rounds.contains(&round);
        let here = self.here(Some(late), lease);
        let here = here.delete_if(joined, || member).delete_if(joined, || ready);
        let here = here.put(self.late_key(late), "", lease);
        self.registered.insert(late);
        let txn = self.settings.announce(in_force.revision, self.unmoved(), here);
        self.ask(Purpose::Register, txn, Asked::Register(late, round));
    }

    /// Does what the node was told to do besides meeting.
    pub(super) fn obey(&mut self, order: Order) {
        match order {
            Order::Leave => self.leave(),
            Order::Suspect(node, formed) => self.report(node, formed),
            Order::Close(reason) => self.close(reason),
            Order::Reopen => self.reopen(),
        }
    }

    /// A round that the node opened and no longer wants, as its opening was carried out when it had
    /// given up. It would keep the others waiting for as long as the lease lives.
    pub(super) fn disown(&mut self, revision: Revision) {
        let txn = self.settings.reopen(revision);
        self.ask(Purpose::Leave, txn, Asked::Disown);
    }

    /// Tells of a node that may be dead: a group which runs, so that it meets again, or a round which takes
    /// nodes, so that it does not wait. In between, those who matter must confirm anyway.
    fn report(&mut self, node: String, formed: u64) {
        let in_force = self.knowledge.in_force().ok().flatten();
        // A host that dies is missed by everyone at once; one report is enough. When another group has
        // formed, it is old.
        let news = |InForce { active, .. }: &&InForce| {
            active.rounds().formed == formed && !active.lost_names.contains(&node)
        };
        let (Some(lease), Some(InForce { active, revision, .. })) =
            (self.lease, in_force.filter(news))
        else {
            return;
        };
        let here = Whereabouts::default().put(self.settings.keys.suspect(&node), "", lease);
        let mut txn = self.settings.announce(*revision, self.unmoved(), here);
        match active.status {
            Status::Final => {}
            // Whoever joined is alive, and a late report of it would cost the round its number.
            Status::Joinable => {
                let joined = self.settings.keys.member(active.round, &node);
                txn.compares.push(Compare::absent(joined));
            }
            Status::Frozen | Status::Closed => return,
        }
        let kept_it = active.status == Status::Final && active.author.id == node;
        let report = Report { node, revision: *revision, formed, kept_it };
        self.ask(Purpose::Suspect, txn, Asked::Suspect(report));
    }

    /// The report was refused. Others report too, and the next round may have begun meanwhile, whose
    /// coordinator should know whom not to wait for; unless the node has joined that round.
    pub(super) fn report_again(&mut self, report: Report) {
        let joined = self.knowledge.in_force().ok().flatten().is_none_or(|now| {
            now.active.status == Status::Joinable && now.revision == report.revision
        });
        if !joined {
            self.orders.push_back(Order::Suspect(report.node, report.formed));
        }
    }

    fn leave(&mut self) {
        let keys = &self.settings.keys;
        let id = &self.node.id;
        let mut here = Whereabouts::default();
        for round in &self.joined_rounds {
            here = here.delete(keys.member(*round, id)).delete(keys.ready(*round, id));
        }
        for late in &self.registered {
            here = here.delete(self.late_key(*late));
        }
        let nothing = here.is_empty() && !self.listed && self.holds().is_none();
        let lease = self.lease.filter(|_| !nothing);
        self.forget_whereabouts();
        self.resign();
        let Some(lease) = lease else {
            return self.outputs.push_back(Output::Done(Errand::Left));
        };
        self.take_back(lease, here);
    }

    pub(super) fn take_back(&mut self, lease: LeaseId, here: Whereabouts) {
        let txn = self.settings.leave(self.unmoved(), lease, here.clone());
        self.ask(Purpose::Leave, txn, Asked::Leave(here));
    }

    fn close(&mut self, reason: String) {
        let in_force = self.knowledge.in_force().ok().flatten();
        let (guard, rounds) = match in_force {
            Some(InForce { active, .. }) if active.status == Status::Closed => {
                return self.outputs.push_back(Output::Done(Errand::Closed));
            }
            Some(InForce { active, revision, .. }) => (Guard::At(*revision), Some(active.rounds())),
            None => {
                let rounds = self.knowledge.rounds();
                // A document that nobody can read may as well be closed.
                let guard = self.knowledge.unreadable_since().map(Guard::At);
                (guard.unwrap_or(Guard::Absent(rounds)), rounds)
            }
        };
        let round = rounds.map_or(0, |rounds| rounds.round);
        let closed = self.document(round, Status::Closed, rounds, reason);
        let txn = self.settings.close(guard, &closed);
        self.ask(Purpose::Close, txn, Asked::Close(Box::new(closed)));
    }

    fn reopen(&mut self) {
        match self.knowledge.in_force().ok().flatten() {
            Some(InForce { active, revision, .. }) if active.status == Status::Closed => {
                let txn = self.settings.reopen(*revision);
                self.ask(Purpose::Reopen, txn, Asked::Reopen);
            }
            _ => self.outputs.push_back(Output::Done(Errand::NotClosed)),
        }
    }
}
