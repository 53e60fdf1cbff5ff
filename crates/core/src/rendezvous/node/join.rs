//! How a node becomes a member of a group: open, join, confirm, register. Each request stands beside the reading of its
//! reply.

use bytes::Bytes;

use super::announced::{AnnouncedState, Registration};
use super::observed::InForce;
use super::{Node, PendingRequest};
use crate::kv::{LeaseId, Revision, Time, TxnResult};
use crate::rendezvous::coordinator::MOST_NAMED;
use crate::rendezvous::documents::{
    Active, BootstrapStore, DocumentError, Earlier, Proofs, Ranked, RunHistory, Status,
};
use crate::rendezvous::messages::{FormedGroup, NodeOutput, Purpose, RendezvousFailure};
use crate::rendezvous::succession::claims::{Claims, GroupClaim};
use crate::rendezvous::txn::{ConfirmReader, Confirmed, RoundDocuments, RoundGuard};

impl Node {
    /// Takes one step towards a group.
    pub(super) fn advance_join(&mut self, now: Time) {
        let in_force = match self.observed.in_force() {
            Ok(in_force) => in_force.cloned(),
            Err(error) => {
                let error = error.clone();
                return self.fail(RendezvousFailure::Unreadable(error));
            }
        };
        let disagrees = in_force
            .as_ref()
            .and_then(|now| Some((self.disagrees(&now.active)?, Self::may_object(&now.active))));
        if let Some((failure, false)) = disagrees {
            return self.fail(failure);
        }
        let Some(lease) = self.lease else { return self.open_session() };
        let Some(in_force) = in_force else {
            let reason = match self.observed.rounds() {
                Some(rounds) => format!("round {} lost its coordinator", rounds.round),
                None if self.earlier.is_empty() => "the run begins".to_owned(),
                None => "the server has lost its state, and the run begins again".to_owned(),
            };
            return self.open(self.no_active(), reason, lease);
        };
        if disagrees.is_some() {
            return self.object(now, &in_force, lease);
        }
        self.withdraw_objection();
        let active = &in_force.active;
        let round = active.round;
        let state = self.announced.state;
        let confirmed =
            matches!(state, AnnouncedState::Confirmed(confirmed, _) if confirmed == round);
        if self.coordinator.is_none() && self.held_round().is_some() && !confirmed {
            return self.take_up_own_round(&in_force, lease);
        }
        match (active.status, state) {
            // Where hosts succeed each other, the round may wait for what the node has learned since it joined.
            (Status::Joinable, AnnouncedState::Joined(joined))
                if joined == round && self.has_told(active.history) => {}
            (Status::Joinable, _) => self.join(&in_force, lease),
            (Status::Frozen, AnnouncedState::Confirmed(..)) if confirmed => {}
            // The node requested to join. The rank tells whether the request was in time, and granted a place.
            (Status::Frozen, state)
                if self.announced.asked_to_join(round)
                    && state != AnnouncedState::LeftOut(round) =>
            {
                self.confirm(&in_force, lease);
            }
            (Status::Final, AnnouncedState::Confirmed(_, ranked)) if confirmed => {
                self.formed(active, ranked);
            }
            // The node returns from this group, which therefore needs another round.
            (Status::Final, _) if self.announced.was_member_of(active.history, round) => {
                let reason = self.next_round_because(active);
                self.open(in_force.guard(), reason, lease);
            }
            (Status::Frozen | Status::Final, state) => {
                let next = active.next_size();
                let registration = match next.is_some_and(|next| next == active.world as usize + 1)
                {
                    true => Registration::Waiting,
                    false => Registration::Spare,
                };
                // Where the group may grow, a node registers in each round that it missed: the coordinator does not
                // count on nodes that do not.
                let is_registered = matches!(state, AnnouncedState::Registered(before, of)
                    if before == registration && (of == round || next.is_none()));
                if !is_registered {
                    self.register(&in_force, registration, "".into(), lease);
                }
            }
            // Every node disagrees with a closed run: see `disagrees`.
            (Status::Closed, _) => {}
        }
    }

    /// Takes up a round of this node that has no coordinator: the reply to its opening was lost, or came after the node
    /// had timed out.
    fn take_up_own_round(&mut self, in_force: &InForce, lease: LeaseId) {
        match in_force.active.status {
            Status::Joinable => {
                self.coordinate(in_force);
                self.join(in_force, lease);
            }
            _ => {
                let name = self.announced.document.name();
                let reason = format!("{name} came back to its round");
                self.open(in_force.guard(), reason, lease);
            }
        }
    }

    /// The number of members that the group has lost, and some of their names.
    ///
    /// The coordinator's document cannot count the coordinator itself as lost while its lease lives, so a node that
    /// reported it does, also when the coordinator writes the document again: it may have died since. A coordinator
    /// that is alive finds the report, and makes the group meet again.
    pub(super) fn lost(&self, group: &Active) -> (usize, Vec<String>) {
        let (mut lost, mut names) = (group.lost, group.lost_names.clone());
        if let Some((round, id)) = &self.suspected_coordinator
            && (*round, id) == (group.round, &group.coordinator.id)
            && !names.contains(id)
        {
            lost += 1;
            names.push(id.clone());
        }
        // The loss of this node is obsolete if the node has restored its membership since.
        let written = self.observed.in_force().ok().flatten().map_or(0, |now| now.revision);
        let back = self.resuming.is_some() || self.resumed_at.is_some_and(|when| written < when);
        if back && names.iter().any(|name| name == self.announced.id()) {
            names.retain(|name| name != self.announced.id());
            lost -= 1;
        }
        (lost, names)
    }

    fn next_round_because(&self, active: &Active) -> String {
        let Active { round, waiting, .. } = active;
        let (lost, lost_names) = self.lost(active);
        match (lost, waiting) {
            (0, 0) => format!("{} came back from round {round}", self.announced.document.name()),
            (0, waiting) => format!("round {round} has {waiting} late nodes"),
            (lost, _) => {
                let more = lost.saturating_sub(lost_names.len());
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                format!("round {round} lost {}{more}", lost_names.join(", "))
            }
        }
    }

    /// A document of this node, for a round without a group.
    pub(super) fn new_document(
        &self,
        history: RunHistory,
        round: u64,
        status: Status,
        reason: String,
    ) -> Active {
        Active {
            limits: self.config.limits,
            sizes: self.config.sizes.clone(),
            rank_policy: self.config.rank_policy.to_string(),
            since: self.config.display_time(self.now),
            reason,
            previous: self.observed.rounds().map_or(0, |rounds| rounds.formed),
            outlived: self.observed.rounds().map_or(0, |rounds| rounds.outlived),
            ..Active::new(history, round, status, self.announced.document.name())
        }
        .numbered(self.observed.active(), self.observed.rounds().map_or(0, |rounds| rounds.events))
    }

    /// Opens the next round, with this node as its coordinator and first member.
    pub(super) fn open(&mut self, guard: RoundGuard, reason: String, lease: LeaseId) {
        // A document that cannot be read is never replaced by a round.
        let Some(history) = guard.history() else { return };
        let last = self.observed.rounds().map_or(0, |rounds| rounds.round);
        // A server that has lost its state must not make a round number be used twice.
        let round = last.max(self.earlier.round) + 1;
        let active = self.new_document(history, round, Status::Joinable, reason);
        let (remembered, at) = (self.remembered(Some(history)), self.config.display_time(self.now));
        let ops = self.announced.join_ops(round, remembered, at, lease);
        let rounds_extra = &self.observed.rounds_extra();
        let (before, stamp) = (self.observed.active(), self.stamp());
        let documents = RoundDocuments { before, active: &active, stamp, rounds_extra };
        let txn = self.txns.open(guard, documents, lease, (self.stale_writer_guard(), ops));
        self.send_request(Purpose::Open, txn, PendingRequest::Open(Box::new(active)));
    }

    pub(super) fn opened(&mut self, now: Time, active: Active, reply: &TxnResult) {
        let round = active.round;
        if let Some(lease) = self.lease.filter(|_| reply.succeeded) {
            self.observed.wrote(active, reply.revision, lease);
        }
        // Opened by this attempt, or by one whose reply was lost.
        let Some(own) = self.own(round) else { return self.announced.doubt_registration() };
        let own = own.clone();
        self.coordinate(&own);
        self.acknowledged(now, AnnouncedState::Joined(round), own.revision);
    }

    fn join(&mut self, in_force: &InForce, lease: LeaseId) {
        let Active { round, history, .. } = in_force.active;
        let remembered = self.remembered(Some(history));
        self.told = remembered.1.clone();
        let at = self.config.display_time(self.now);
        let ops = self.announced.join_ops(round, remembered, at, lease);
        let txn = self.txns.announce(in_force.guard(), self.stale_writer_guard(), ops);
        self.send_request(Purpose::Join, txn, PendingRequest::Join(round));
    }

    pub(super) fn register(
        &mut self,
        in_force: &InForce,
        registration: Registration,
        value: Bytes,
        lease: LeaseId,
    ) {
        let round = in_force.active.round;
        let ops = self.announced.register_ops(round, registration, value, lease);
        let txn = self.txns.announce(in_force.guard(), self.stale_writer_guard(), ops);
        let pending = PendingRequest::Register(registration, round);
        self.send_request(Purpose::Register, txn, pending);
    }

    /// Reads the reply to a join or a registration.
    pub(super) fn announcement_answered(
        &mut self,
        now: Time,
        state: AnnouncedState,
        reply: &TxnResult,
    ) {
        match reply.succeeded {
            true => self.acknowledged(now, state, reply.revision),
            false => self.announced.doubt_registration(),
        }
    }

    /// What the node remembers of earlier histories and groups, for its join in this history.
    pub(super) fn remembered(&self, history: Option<RunHistory>) -> (Earlier, Claims) {
        let claims = self.config.succession.map(|_| self.memory.claims(self.now, history));
        (self.earlier, claims.unwrap_or_default())
    }

    /// Whether the node has told all that it remembers of groups.
    fn has_told(&self, history: RunHistory) -> bool {
        self.remembered(Some(history)).1.tells_no_more_than(&self.told)
    }

    fn acknowledged(&mut self, now: Time, state: AnnouncedState, revision: Revision) {
        self.announced.acknowledged(state, revision);
        if let AnnouncedState::Joined(round) = state {
            self.memory.joins(round, revision);
            self.remember();
        }
        if let Some(attempt) = &mut self.attempt {
            attempt.deadline = match state {
                AnnouncedState::Registered(Registration::Spare, _) => None,
                // The group has the right to run for so long without the node.
                AnnouncedState::Registered(Registration::Waiting, _) => {
                    let after = self.config.sizes.scale_up_after();
                    let later = (!after.is_zero())
                        .then(|| now.saturating_add(after).saturating_add(self.config.timeout));
                    attempt.deadline.max(later)
                }
                // The time of a former spare begins when the group may have a place for it.
                _ => attempt.deadline.or_else(|| Some(now.saturating_add(self.config.timeout))),
            };
        }
    }

    /// Confirms the node's rank in a frozen round. Rank 0 serves the bootstrap store first.
    fn confirm(&mut self, in_force: &InForce, lease: LeaseId) {
        let InForce { active, revision, .. } = in_force;
        let round = active.round;
        if !self.memory.may_confirm() {
            return;
        }
        let mut store: Option<BootstrapStore> = None;
        if active.rank0 == self.announced.id() {
            match &self.bootstrap_store {
                Some((of, Some(ready))) if *of == round => store = Some(ready.clone()),
                Some((of, None)) if *of == round => return,
                _ => {
                    self.bootstrap_store = Some((round, None));
                    return self.outputs.push_back(NodeOutput::ServeBootstrapStore { round });
                }
            }
        }
        let (stale, id) = (self.stale_writer_guard(), self.announced.id());
        let last = self.memory.member_in(Some(active.history)).filter(|_| active.previous > 0);
        let dead = last.filter(|last| *last == active.previous).map(|_| self.memory.dead());
        // In a large group each node would tell of a thousand others.
        let proved_dead = dead.into_iter().flatten().take(MOST_NAMED).cloned().collect();
        let confirmation = (store.as_ref(), Proofs { proved_dead });
        let (txn, reader) = self.txns.confirm((active, *revision), stale, id, lease, confirmation);
        self.announced.confirms(round);
        self.memory.confirms(self.announced.id(), active);
        self.send_request(Purpose::Confirm, txn, PendingRequest::Confirm(round, reader));
    }

    pub(super) fn confirmed(&mut self, round: u64, reader: &ConfirmReader, reply: &TxnResult) {
        let Confirmed { ranked, is_ready } = reader.read(reply, self.lease);
        if let Some(history) = self.observed.history() {
            self.memory.is_ranked(round, history, ranked.is_some());
        }
        match ranked {
            Some(Ok(ranked)) if is_ready => {
                self.announced.state = AnnouncedState::Confirmed(round, ranked);
            }
            Some(Err(error)) => self.fail(RendezvousFailure::Unreadable(error)),
            // The join came after the freeze, or the places went to nodes with a better claim.
            None => self.announced.state = AnnouncedState::LeftOut(round),
            Some(Ok(_)) => {}
        }
    }

    /// The group of `active` has formed, with this node as a member.
    fn formed(&mut self, active: &Active, ranked: Ranked) {
        let Active { history, round, store, world, .. } = active;
        let Some(BootstrapStore { address, token, liveness, runs_server }) = store.clone() else {
            let key = self.config.keys.active();
            let reason = "no store is named".to_owned();
            let error = DocumentError::Corrupt { key, reason };
            return self.fail(RendezvousFailure::Unreadable(error));
        };
        self.announced.formed(*history, *round, ranked);
        self.memory.forms(GroupClaim { round: *round, history: *history, world: *world });
        self.attempt = None;
        self.outputs.push_back(NodeOutput::Formed(FormedGroup {
            round: *round,
            rank: ranked.rank,
            world: ranked.world,
            store: address,
            token,
            rank0_liveness: liveness,
            head: runs_server.then(|| active.rank0.clone()),
        }));
        // The coordinator of the round may have handed the group over to this node.
        if self.coordinator.is_none()
            && let Some(own) = self.own(*round).cloned()
        {
            self.coordinate(&own);
        }
    }
}
