//! The coordinator of a round. It alone reads the membership: it ends the joining, assigns the ranks, waits for each
//! node to confirm, declares the group formed, and then publishes late and lost nodes.
//!
//! A coordinator that is no member of its group, because other nodes had a better claim, hands the group over to rank 0
//! when the group forms, so a spare node may come and go. Each write of the coordinator is guarded by its last document,
//! which fences a coordinator that was replaced.
//!
//! - [`window`]: when a round stops taking nodes, and why.
//! - `membership`, `sync`: the coordinator's copy of the nodes of a round, kept up to date by watches.
//! - `lineage`: what the nodes that joined remember of earlier groups.
//! - `losses`: how the losses of a group are known.
//! - `progress`: when the nodes that joined are told what the round waits for.
//! - `publish`: what a running group is told of late and lost nodes.
//! - `growth`: when late nodes make a running group grow.

mod growth;
mod lineage;
mod losses;
mod membership;
mod progress;
mod publish;
mod sync;
mod watches;
pub mod window;

use std::collections::{BTreeMap, BTreeSet};

use self::growth::{Growth, spares};
use self::losses::OwnProofs;
pub(super) use self::losses::{MOST_NAMED, some_of};
use self::membership::{RoundContext, RoundMembership};
use self::progress::{Progress, details};
use self::sync::MembershipSync;
use self::window::{JoinDecision, JoinWindow, WaitReason};
use super::documents::{
    Active, BootstrapStore, Earlier, NodeName, Ranked, RunHistory, Status, decode,
};
use super::messages::{NodeConfig, Purpose, RendezvousFailure};
use super::ranks::{self, Candidate};
use super::sizes::Chosen;
use super::succession::claims::Cut;
use super::succession::quorum::Quorum;
use super::txn::{OwnedRound, RANKS_PER_TXN, Txns};
use crate::kv::{Event, Revision, Time, Txn, TxnResult, Watch};

/// How often in a row the server may refuse to declare the group formed. The membership is read again after each time.
const MOST_REFUSALS: u32 = 3;

/// The next action of the coordinator.
#[derive(Debug)]
pub(super) enum CoordinatorStep {
    /// Open these watches.
    Watch(Vec<Watch>),
    /// Send this request; if it succeeds, the document beside it is in force.
    Request(Purpose, Txn, Option<Box<Active>>),
    /// Abandon the round and open the next one, for this reason.
    NextRound(String),
    /// End without a group: a shared document cannot be read, or the objectors outnumber the nodes that joined.
    Fail(RendezvousFailure),
}

/// How far the coordinator is with its round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RoundStage {
    /// Nodes join.
    Joining,
    /// The ranks are assigned, and this many requests that write them are yet to be answered.
    AssigningRanks(usize),
    /// The freeze is in flight.
    Freezing,
    /// The nodes have until then to confirm.
    Confirming(Time),
    /// All nodes have confirmed, within the same time, and the declaration of the group is in flight.
    Finalizing(Time),
    /// The server refused a transition of the round.
    Refused,
    /// The group runs.
    Running {
        /// A report of late and lost nodes is in flight.
        publishing: bool,
    },
    /// The round is abandoned for the next one.
    Abandoned,
}

/// The coordinator of one round.
#[derive(Debug)]
pub(super) struct Coordinator {
    history: RunHistory,
    round: u64,
    previous: u64,
    outlived: u64,
    /// When the round was opened.
    began: Revision,
    /// How often the server refused to declare the group formed.
    refusals: u32,
    window: JoinWindow,
    sync: MembershipSync,
    stage: RoundStage,
    /// Earlier rounds were deleted, or are about to be.
    swept: bool,
    ranks: BTreeMap<String, u32>,
    /// Ranks that no request has written yet.
    unwritten: Vec<(String, Ranked)>,
    /// Nodes that did not confirm in the round before this one. The join window does not wait for them.
    slow: BTreeSet<String>,
    waits_for: Option<WaitReason>,
    progress: Progress,
    freeze_reason: Option<String>,
    growth: Growth,
    /// By then the workers of the last group are gone, which belongs to another server.
    outlives: Option<Time>,
    /// The version of the membership when its lost members were last determined.
    checked_version: Option<usize>,
    proofs: OwnProofs,
}

impl Coordinator {
    pub(super) fn new(
        config: &NodeConfig,
        (active, written): (&Active, Revision),
        slow: BTreeSet<String>,
    ) -> Self {
        // A group that was handed over is running already.
        let handed_over = active.status == Status::Final;
        Self {
            began: if handed_over { active.began } else { written },
            history: active.history,
            round: active.round,
            previous: active.previous,
            outlived: active.outlived,
            refusals: 0,
            // There is no round before the first one.
            swept: active.round <= 1,
            window: JoinWindow::new(config.limits, config.last_call)
                .with_grace(config.confirm)
                .with_sizes(config.sizes.clone()),
            growth: Growth::default(),
            sync: MembershipSync::first(),
            stage: match handed_over {
                true => RoundStage::Running { publishing: false },
                false => RoundStage::Joining,
            },
            ranks: BTreeMap::new(),
            unwritten: Vec::new(),
            slow,
            waits_for: None,
            progress: Progress::default(),
            freeze_reason: None,
            outlives: None,
            checked_version: None,
            proofs: OwnProofs::default(),
        }
    }

    pub(super) fn round(&self) -> u64 {
        self.round
    }

    /// When the last call of the round began.
    pub(super) fn last_call_since(&self) -> Option<Time> {
        self.window.last_call_since()
    }

    /// The round of the group of which too few nodes have come, if the round waits for that.
    pub(super) fn lacks_quorum(&self) -> Option<u64> {
        match (self.stage, self.waits_for) {
            (RoundStage::Joining, Some(WaitReason::ForQuorum { lack, .. })) => Some(lack.round),
            _ => None,
        }
    }

    /// What the round waits for, in a sentence.
    pub(super) fn waits_for(&self, now: Time, config: &NodeConfig) -> Option<String> {
        match (self.stage, self.membership()) {
            (RoundStage::Joining, Some(membership)) => self
                .waits_for
                .map(|reason| reason.describe(now) + &details(reason, config, membership)),
            (RoundStage::Joining, None) => Some("reading the membership".to_owned()),
            (RoundStage::Confirming(_), Some(membership)) => {
                let (confirmed, world) = (membership.confirmed(), self.ranks.len());
                Some(format!("{confirmed} of {world} nodes confirmed"))
            }
            (RoundStage::Running { .. } | RoundStage::Abandoned, _) => None,
            _ => Some("assigning the ranks".to_owned()),
        }
    }

    /// When to decide again if nothing else happens before. None while unsynced: there would be nothing to decide on,
    /// and the coordinator would wake again at once.
    pub(super) fn next_wake(&self) -> Option<Time> {
        match (self.stage, self.membership()) {
            // Nothing is decided while the document changes.
            (RoundStage::Joining, _) if self.progress.is_being_published() => None,
            (RoundStage::Joining, Some(_)) => {
                let window = self.window.next_wake().into_iter();
                window.chain(self.progress.next_wake()).chain(self.outlives).min()
            }
            (RoundStage::Confirming(until), Some(_)) => Some(until),
            (RoundStage::Running { publishing: false }, Some(_)) => self.growth.next_wake(),
            _ => None,
        }
    }

    /// The watches are open.
    pub(super) fn watching(&mut self) {
        self.sync.watching();
    }

    /// The watches missed events, or the copy of the membership is out of date: sync again.
    pub(super) fn unsync(&mut self) {
        self.sync = MembershipSync::default();
        self.checked_version = None;
    }

    /// Takes in the reply to the read of the membership; false if it belongs to another history.
    pub(super) fn membership_read(&mut self, reply: &TxnResult) -> bool {
        let Some(snapshot) = self.sync.read(reply) else { return true };
        if snapshot.history != Some(self.history) {
            return false;
        }
        let Self { history, began, previous, outlived, .. } = *self;
        let context = RoundContext { history, began, previous, outlived };
        if matches!(self.stage, RoundStage::Running { .. }) {
            self.ranks = membership::ranks(&snapshot);
        }
        self.sync.complete(RoundMembership::new(&snapshot, context, &self.slow));
        true
    }

    /// Takes in the events of one watch.
    pub(super) fn watched(&mut self, watch: usize, events: Vec<Event>) {
        self.sync.watched(watch, events);
    }

    /// A request of `purpose` was executed.
    pub(super) fn succeeded(&mut self, now: Time, purpose: Purpose, config: &NodeConfig) {
        self.progress.replied(purpose);
        self.stage = match (purpose, self.stage) {
            (Purpose::AssignRanks, RoundStage::AssigningRanks(left)) => {
                RoundStage::AssigningRanks(left.saturating_sub(1))
            }
            (Purpose::Freeze, RoundStage::Freezing) => {
                RoundStage::Confirming(now.saturating_add(config.confirm))
            }
            (Purpose::Finalize, RoundStage::Finalizing(_))
            | (Purpose::PublishChanges, RoundStage::Running { .. }) => {
                RoundStage::Running { publishing: false }
            }
            (_, stage) => stage,
        }
    }

    /// A request of `purpose` was refused, although this is still the coordinator: a node was lost, or came back, and
    /// the watches have not told it yet.
    pub(super) fn refused(&mut self, purpose: Purpose) {
        self.progress.replied(purpose);
        match (purpose, self.stage) {
            // Ranks may have been written, and must not be assigned again.
            (Purpose::Freeze, RoundStage::Freezing) => self.stage = RoundStage::Refused,
            (Purpose::Finalize, RoundStage::Finalizing(until)) => {
                self.refusals += 1;
                self.stage = match self.refusals {
                    ..=MOST_REFUSALS => RoundStage::Confirming(until),
                    _ => RoundStage::Refused,
                };
                // The next attempt must come after another read of the membership.
                self.unsync();
            }
            _ => {}
        }
    }

    /// The next action, if there is one. `own` is the document in force, which is this coordinator's, and
    /// `history_since` is when its history was first observed.
    pub(super) fn advance(
        &mut self,
        now: Time,
        (config, txns): (&NodeConfig, &Txns),
        own: OwnedRound<'_>,
        history_since: Time,
    ) -> Option<CoordinatorStep> {
        let (rounds, began) = ((self.round, self.previous), self.began);
        if let Some(step) = self.sync.advance((config, txns), rounds, began) {
            return Some(step);
        }
        if self.stage == RoundStage::Refused {
            let reason = format!("the server refused to let round {} go on", self.round);
            return Some(self.next_round(reason));
        }
        // A coordinator that took its round up again does not know which ranks it had assigned before.
        let begins = matches!(self.stage, RoundStage::Joining | RoundStage::AssigningRanks(_));
        if begins && own.active.status != Status::Joinable && self.membership().is_some() {
            return Some(self.next_round(format!("round {} lost its membership", self.round)));
        }
        if self.stage == RoundStage::Joining {
            if let Some(error) = self.membership().and_then(RoundMembership::unreadable) {
                return Some(CoordinatorStep::Fail(RendezvousFailure::Unreadable(error.clone())));
            }
            let outvoted = self.membership().and_then(RoundMembership::outvoted);
            if let Some(failure) = outvoted.and_then(|by| config.differs_from(by)) {
                return Some(CoordinatorStep::Fail(failure));
            }
            // The next round is guarded by the document, which changes with the reply.
            if self.progress.is_being_published() {
                return None;
            }
            let remembered = self.remembered().round;
            if remembered >= self.round {
                let reason =
                    format!("a node remembers round {remembered}, and rounds go on from there");
                return Some(self.next_round(reason));
            }
            self.join(now, config, history_since);
        }
        match self.stage {
            RoundStage::Joining => self.publish_progress(now, (config, txns), own),
            RoundStage::AssigningRanks(left) => self.assign_ranks(left, txns, own),
            RoundStage::Confirming(until) => self.confirm((now, until), config, txns, own),
            RoundStage::Running { publishing: false } => self.publish(now, (config, txns), own),
            _ => None,
        }
    }

    /// The highest rounds of earlier histories that the nodes which joined remember.
    pub(super) fn remembered(&self) -> Earlier {
        self.membership().map(RoundMembership::remembered).unwrap_or_default()
    }

    fn membership(&self) -> Option<&RoundMembership> {
        self.sync.membership()
    }

    /// Decides whether the round takes more nodes; if not, selects the members and assigns the ranks.
    fn join(&mut self, now: Time, config: &NodeConfig, history_since: Time) {
        let Some(membership) = self.sync.membership() else { return };
        // By then no node has workers that were started before the server lost its state.
        let forgotten_for = membership.forgotten_for(config.lease_ttl);
        let forgotten_until = forgotten_for.map(|time| history_since.saturating_add(time));
        let counts = membership.counts();
        let decision = self.window.decide(now, counts, forgotten_until);
        if let Some(lineage) = self.sync.lineage() {
            lineage.read(now);
        }
        self.outlives = None;
        match decision {
            JoinDecision::Wait(reason) => return self.waits_for = Some(reason),
            JoinDecision::Freeze(reason) => {
                let chosen = config.sizes.size(config.limits, counts.joined);
                self.freeze_reason = Some(format!("{reason}{}", spares(counts.joined, chosen)));
            }
        }
        let Some(chosen) = self.choose(now, config) else { return };
        let world = u32::try_from(chosen.len()).unwrap_or(u32::MAX);
        self.ranks = ranks::assign(config.rank_policy, &chosen);
        let ranked = |(id, rank): (&String, &u32)| (id.clone(), Ranked { rank: *rank, world });
        self.unwritten = self.ranks.iter().map(ranked).collect();
        // The freeze of a small group writes the ranks too.
        let small = self.unwritten.len() <= RANKS_PER_TXN;
        let requests = if small { 0 } else { self.unwritten.len().div_ceil(RANKS_PER_TXN) };
        self.stage = RoundStage::AssigningRanks(requests);
    }

    /// Selects the members; none if the round has to wait for nodes of the last group, or for its workers to be gone.
    fn choose(&mut self, now: Time, config: &NodeConfig) -> Option<Vec<Candidate>> {
        let membership = self.sync.membership()?;
        let candidates = membership.candidates();
        let joined = candidates.len();
        let Chosen { size, .. } = config.sizes.size(config.limits, joined);
        let last = (self.history, self.previous, membership.remembered().formed);
        let Some(lineage) = membership.lineage() else {
            return Some(ranks::select(candidates, size));
        };
        if lineage.awaits_reports(&candidates) {
            return None;
        }
        let (chosen, Quorum { lack, overruled, until }) =
            lineage.choose(candidates, size, last, config.lease_ttl);
        let overruled = overruled.zip(lineage.overruled_by());
        let overruled = overruled.map(|(lack, by)| format!("; {lack}: overruled by {by}"));
        self.outlives = until.filter(|until| now < *until);
        let reason = match (lack, self.outlives) {
            (None, None) => {
                let because = self.freeze_reason.take().unwrap_or_default();
                self.freeze_reason = Some(because + &overruled.unwrap_or_default());
                return Some(chosen);
            }
            (Some(lack), _) => WaitReason::ForQuorum { joined, lack },
            (None, Some(until)) => WaitReason::ForForgottenGroup { joined, until },
        };
        self.waits_for = Some(reason);
        None
    }

    /// Writes the ranks, and when all are written, freezes the round.
    fn assign_ranks(
        &mut self,
        left: usize,
        txns: &Txns,
        own: OwnedRound<'_>,
    ) -> Option<CoordinatorStep> {
        if left > 0 {
            if self.unwritten.is_empty() {
                return None;
            }
            let rest = self.unwritten.split_off(self.unwritten.len().min(RANKS_PER_TXN));
            let some = std::mem::replace(&mut self.unwritten, rest);
            let txn = txns.assign_ranks(own, &some);
            return Some(CoordinatorStep::Request(Purpose::AssignRanks, txn, None));
        }
        self.stage = RoundStage::Freezing;
        let rank0 = self.ranks.iter().find(|(_, rank)| **rank == 0);
        let frozen = Active {
            status: Status::Frozen,
            world: u32::try_from(self.ranks.len()).unwrap_or(u32::MAX),
            frozen_because: self.freeze_reason.clone().unwrap_or_default(),
            began: self.began,
            cut: self
                .membership()
                .and_then(RoundMembership::lineage)
                .map_or_else(Cut::default, |lineage| lineage.cut(&self.ranks)),
            outlived: own.active.outlived.max(self.remembered().formed),
            rank0: rank0.map(|(id, _)| id.clone()).unwrap_or_default(),
            waits_for: String::new(),
            lacks_quorum: None,
            proved_dead: self.proved_dead(own.active),
            ..own.active.clone()
        };
        let frozen = own.followed_by(frozen);
        let few = std::mem::take(&mut self.unwritten);
        let txn = txns.freeze(own, &frozen, &few);
        Some(CoordinatorStep::Request(Purpose::Freeze, txn, Some(Box::new(frozen))))
    }

    /// Waits for every node to confirm, and then declares the group formed.
    fn confirm(
        &mut self,
        (now, until): (Time, Time),
        config: &NodeConfig,
        txns: &Txns,
        own: OwnedRound<'_>,
    ) -> Option<CoordinatorStep> {
        let active = own.active;
        let membership = self.membership()?;
        let version = membership.version();
        if Some(version) != self.checked_version {
            let lost = self.lost(membership);
            self.checked_version = Some(version);
            if !lost.is_empty() {
                let reason = format!("lost before the group formed: {}", some_of(&lost));
                return Some(self.next_round(reason));
            }
        }
        let membership = self.membership()?;
        let confirmed = |id: &String| membership.confirmation(id).is_some();
        if membership.confirmed() >= self.ranks.len() && self.ranks.keys().all(confirmed) {
            let confirmation = membership.confirmation(&active.rank0)?;
            let store: BootstrapStore = match decode(active.rank0.as_bytes(), &confirmation.value) {
                Ok(store) => store,
                Err(error) => {
                    return Some(CoordinatorStep::Fail(RendezvousFailure::Unreadable(error)));
                }
            };
            let (coordinator, lease) = if self.ranks.contains_key(&active.coordinator.id) {
                (active.coordinator.clone(), own.lease)
            } else {
                let (id, address) = (active.rank0.clone(), store.address.host.clone());
                (NodeName { id, address }, confirmation.lease)
            };
            self.stage = RoundStage::Finalizing(until);
            let (status, store, since) = (Status::Final, Some(store), config.display_time(now));
            let (cut, proved_dead) = (Cut::default(), self.proved_dead(active));
            let formed =
                Active { status, store, coordinator, since, cut, proved_dead, ..active.clone() };
            let formed = own.followed_by(formed);
            let txn = txns.finalize(own, &formed, lease);
            let formed = Some(Box::new(formed));
            return Some(CoordinatorStep::Request(Purpose::Finalize, txn, formed));
        }
        if now < until {
            return None;
        }
        let silent: Vec<String> = self.ranks.keys().filter(|id| !confirmed(id)).cloned().collect();
        self.slow = silent.iter().cloned().collect();
        let within = config.confirm;
        Some(self.next_round(format!("not confirmed within {within:?} by {}", some_of(&silent))))
    }

    fn next_round(&mut self, reason: String) -> CoordinatorStep {
        self.stage = RoundStage::Abandoned;
        CoordinatorStep::NextRound(reason)
    }

    /// Nodes that the next round need not wait for.
    pub(super) fn slow(&self) -> BTreeSet<String> {
        self.slow.clone()
    }
}
