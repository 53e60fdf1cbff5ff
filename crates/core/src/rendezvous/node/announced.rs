//! What a node has announced to the other nodes under its lease, and the operations that announce it.

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::kv::{LeaseId, Revision};
use crate::rendezvous::documents::{
    DisplayTime, Earlier, Joined, NodeDocument, Ranked, RunHistory, encode,
};
use crate::rendezvous::keys::Keys;
use crate::rendezvous::ranks::PreviousAssignment;
use crate::rendezvous::succession::claims::Claims;
use crate::rendezvous::txn::AnnouncementOps;

/// Rounds whose `member` keys a node deletes when it leaves, so that they fit into one transaction. The next group
/// sweeps those of earlier rounds, or they expire with the lease.
const MOST_JOINED_ROUNDS: usize = 32;

/// The node's announcement, as the server has acknowledged it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnnouncedState {
    /// The node takes part in no round.
    Nothing,
    /// The node joined this round.
    Joined(u64),
    /// The node joined this round, and the round gave it no rank.
    LeftOut(u64),
    /// The node has confirmed this rank in a round whose group has not formed yet.
    Confirmed(u64, Ranked),
    /// The node is registered for the round after this one.
    Registered(Registration, u64),
    /// The node is a member of the group of this round.
    Member(u64),
}

/// How a node is registered that is not a member of the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Registration {
    /// The group has room for the node.
    Waiting,
    /// The group is full.
    Spare,
    /// The node disagrees with the round in progress.
    Objector,
}

/// What a node has announced under its lease.
#[derive(Debug)]
pub(super) struct Announced {
    keys: Keys,
    pub(super) document: NodeDocument,
    pub(super) state: AnnouncedState,
    /// The node's own document exists on the present lease.
    listed: bool,
    /// Rounds that the node has requested to join on the present lease.
    joined_rounds: BTreeSet<u64>,
    /// Registrations that the node has requested on the present lease.
    registrations: BTreeSet<Registration>,
    /// Rounds that the node has requested to confirm, and has not announced another state since: the node may have
    /// workers of the last of them. Also on an earlier lease, since a server that was unreachable may keep that lease
    /// for longer than the node did.
    confirmed_rounds: BTreeSet<u64>,
    /// When the node first announced itself.
    arrived: Option<Revision>,
    /// The last round that the node requested to join, and the time of its first request.
    joined_at: Option<(u64, DisplayTime)>,
    /// The node's assignment in the last group that it was a member of.
    pub(super) previous: Option<PreviousAssignment>,
}

impl Announced {
    pub(super) fn new(keys: Keys, document: NodeDocument) -> Self {
        Self {
            keys,
            document,
            state: AnnouncedState::Nothing,
            listed: false,
            joined_rounds: BTreeSet::new(),
            registrations: BTreeSet::new(),
            confirmed_rounds: BTreeSet::new(),
            arrived: None,
            joined_at: None,
            previous: None,
        }
    }

    pub(super) fn id(&self) -> &str {
        &self.document.id
    }

    /// The key of the node's own document.
    pub(super) fn node_key(&self) -> String {
        self.keys.node(self.id())
    }

    /// The round of the group that the node is a member of.
    pub(super) fn member_of(&self) -> Option<u64> {
        match self.state {
            AnnouncedState::Member(round) => Some(round),
            _ => None,
        }
    }

    /// Whether the node has requested to join this round on its present lease.
    pub(super) fn asked_to_join(&self, round: u64) -> bool {
        self.joined_rounds.contains(&round)
    }

    /// Whether the node's own document exists on the present lease.
    pub(super) fn is_listed(&self) -> bool {
        self.listed
    }

    /// Whether the last group that the node was a member of is the one of this round.
    pub(super) fn was_member_of(&self, history: RunHistory, round: u64) -> bool {
        self.previous.is_some_and(|last| (last.history, last.round) == (history, round))
    }

    /// Puts the node's own document, if it does not exist yet, and deletes every registration but `keep`. Deletes the
    /// confirmations of earlier groups too: the node's workers of those have stopped, and count as stopped only when
    /// the server has acknowledged it.
    fn ops(&self, keep: Option<Registration>, lease: LeaseId) -> AnnouncementOps {
        let mut ops = AnnouncementOps::default();
        if !self.listed {
            ops = ops.put(self.node_key(), encode(&self.document), lease);
        }
        for registration in self.registrations.iter().filter(|one| Some(**one) != keep) {
            ops = ops.delete(self.registration_key(*registration));
        }
        for round in &self.confirmed_rounds {
            ops = ops.delete(self.keys.ready(*round, self.id()));
        }
        // A former member may have been reported as suspect since.
        ops.delete_if(self.previous.is_some(), || self.keys.suspect(self.id()))
    }

    fn registration_key(&self, registration: Registration) -> String {
        match registration {
            Registration::Waiting => self.keys.waiting(self.id()),
            Registration::Spare => self.keys.spare(self.id()),
            Registration::Objector => self.keys.objector(self.id()),
        }
    }

    fn joined(&self, round: u64, (earlier, claims): (Earlier, Claims)) -> Bytes {
        encode(&Joined {
            arrived: self.arrived,
            joined: self.joined_at.filter(|(joined, _)| *joined == round).map(|(_, at)| at),
            rank_hints: self.document.rank_hints.clone(),
            previous_assignment: self.previous,
            earlier,
            claims,
        })
    }

    /// Joins a round; `now` is for display.
    pub(super) fn join_ops(
        &mut self,
        round: u64,
        remembered: (Earlier, Claims),
        now: Option<DisplayTime>,
        lease: LeaseId,
    ) -> AnnouncementOps {
        // A node that joins once more has more to tell, and does not come anew.
        if self.joined_at.is_none_or(|(joined, _)| joined != round) {
            self.joined_at = now.map(|now| (round, now));
        }
        self.joined_rounds.insert(round);
        if self.joined_rounds.len() > MOST_JOINED_ROUNDS {
            self.joined_rounds.pop_first();
        }
        let key = self.keys.member(round, self.id());
        self.ops(None, lease).put(key, self.joined(round, remembered), lease)
    }

    /// Registers with a round, and withdraws from joining it.
    pub(super) fn register_ops(
        &mut self,
        round: u64,
        registration: Registration,
        value: Bytes,
        lease: LeaseId,
    ) -> AnnouncementOps {
        let joined = self.asked_to_join(round);
        let member = || self.keys.member(round, self.id());
        let ops = self.ops(Some(registration), lease).delete_if(joined, member);
        let ops = ops.put(self.registration_key(registration), value, lease);
        self.registrations.insert(registration);
        ops
    }

    /// Repeats the announcement of a member on a new lease.
    pub(super) fn resume_ops(
        &mut self,
        round: u64,
        remembered: (Earlier, Claims),
        lease: LeaseId,
    ) -> AnnouncementOps {
        let ops = AnnouncementOps::default()
            .put(self.node_key(), encode(&self.document), lease)
            .put(self.keys.member(round, self.id()), self.joined(round, remembered), lease)
            .put(self.keys.ready(round, self.id()), "", lease)
            .delete(self.keys.suspect(self.id()));
        self.joined_rounds.insert(round);
        self.confirmed_rounds.insert(round);
        ops
    }

    /// Withdraws everything but the node's own document.
    pub(super) fn leave_ops(&self) -> AnnouncementOps {
        let id = self.id();
        let members = self.joined_rounds.iter().map(|round| self.keys.member(*round, id));
        let ready = self.confirmed_rounds.iter().map(|round| self.keys.ready(*round, id));
        let registered = self.registrations.iter().map(|one| self.registration_key(*one));
        members
            .chain(ready)
            .chain(registered)
            .fold(AnnouncementOps::default(), |ops, key| ops.delete(key))
    }

    /// The node requests to confirm its rank in this round.
    pub(super) fn confirms(&mut self, round: u64) {
        self.confirmed_rounds.insert(round);
    }

    /// The server acknowledged an announcement at this revision. The same transaction deleted every other registration
    /// and every earlier confirmation.
    pub(super) fn acknowledged(&mut self, state: AnnouncedState, revision: Revision) {
        self.state = state;
        self.listed = true;
        self.confirmed_rounds.clear();
        self.registrations
            .retain(|one| matches!(state, AnnouncedState::Registered(kept, _) if kept == *one));
        if let AnnouncedState::Registered(_, round) = state {
            self.joined_rounds.remove(&round);
        }
        self.arrived.get_or_insert(revision);
    }

    /// The server acknowledged that the node is a member of this round again, on a new lease.
    pub(super) fn resumed(&mut self, round: u64) {
        self.listed = true;
        self.state = AnnouncedState::Member(round);
    }

    /// The server refused an announcement whose first attempt it may have executed, and which then deleted the node's
    /// registration. The node registers again.
    pub(super) fn doubt_registration(&mut self) {
        if let AnnouncedState::Registered(..) = self.state {
            self.state = AnnouncedState::Nothing;
        }
    }

    /// The group has formed, with this node as a member.
    pub(super) fn formed(
        &mut self,
        history: RunHistory,
        round: u64,
        Ranked { rank, world }: Ranked,
    ) {
        self.state = AnnouncedState::Member(round);
        self.previous = Some(PreviousAssignment { history, round, rank, world, held: false });
        self.joined_rounds.retain(|joined| *joined == round);
    }

    /// The lease is lost, and everything on it.
    pub(super) fn lease_lost(&mut self) {
        self.state = AnnouncedState::Nothing;
        self.listed = false;
        self.joined_rounds.clear();
        self.registrations.clear();
    }

    /// The node leaves the run.
    pub(super) fn left(&mut self) {
        self.lease_lost();
        self.joined_at = None;
        self.confirmed_rounds.clear();
    }

    /// The server has lost the history that the announcement belongs to. `held` says that the node was a member on a
    /// live lease until then.
    pub(super) fn server_state_lost(&mut self, held: bool) {
        if let Some(previous) = &mut self.previous {
            previous.held = held;
        }
        self.arrived = None;
    }
}
