//! The coordinator of a round: it alone sees the roster. It ends the joining, gives the ranks, waits for
//! each node to confirm, declares the group formed, and then tells it of late and lost nodes.
//!
//! A coordinator that is not of the group itself, because others had a better claim, hands the group over
//! to its rank 0 when it is formed. So a surplus node may come and go without the group noticing.
//!
//! Whatever it writes is guarded by the document it wrote before, so a coordinator that was thought dead
//! and comes back can change nothing.

mod membership;
pub mod window;

use std::collections::{BTreeMap, BTreeSet};

use self::membership::{RoundMembership, Term};
use self::window::{FreezeReason, JoinDecision, JoinWindow, WaitReason};
use super::documents::{
    Active, BootstrapStore, Earlier, NodeName, Ranked, RunHistory, Status, decode,
};
use super::messages::{NodeConfig, Purpose, RendezvousFailure};
use super::ranks;
use super::txn::{Own, RANKS_PER_TXN, Survey};
use crate::kv::{Event, Revision, Time, Txn, TxnResult, Watch};

/// So many names of lost nodes are told; the rest are counted.
const NAMES: usize = 16;

/// So often in a row the server may refuse to declare the group formed, each time with another look at who is
/// there, before the round is given up.
const MOST_REFUSALS: u32 = 3;

/// What the coordinator wants done next.
#[derive(Debug)]
pub(in crate::rendezvous) enum Step {
    /// These watches.
    Watch(Vec<Watch>),
    /// This request; if it succeeds, the document in force is the one beside it.
    Request(Purpose, Txn, Option<Box<Active>>),
    /// A new round, for this reason.
    Reopen(String),
    /// To end without a group: the shared documents make no sense, or more nodes disagree than agree.
    Fail(RendezvousFailure),
}

/// How well the coordinator sees.
#[derive(Debug)]
enum Sight {
    /// It has not asked for watches yet.
    None,
    /// The watches are being opened.
    Opening,
    /// They stand, and the survey may be made.
    Watching,
    /// The survey was asked for.
    Surveying,
    /// It sees all there is.
    Clear(Box<RoundMembership>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Gathering,
    /// So many requests with ranks are on their way.
    Ranking(usize),
    Freezing,
    /// Until then.
    Confirming(Time),
    /// As before, until then.
    Finishing(Time),
    /// The server refused to let it go on.
    Refused,
    /// The group runs.
    Keeping {
        /// A note is on its way.
        noting: bool,
    },
    /// There is nothing left to do but to make way for the next round.
    Over,
}

#[derive(Debug)]
pub(in crate::rendezvous) struct Coordinator {
    history: RunHistory,
    round: u64,
    previous: u64,
    outlived: u64,
    /// When the round was opened.
    began: Revision,
    /// How often the server refused to declare the group formed.
    refusals: u32,
    gate: JoinWindow,
    sight: Sight,
    /// Events that came before the answer to the survey.
    early: Vec<(usize, Event)>,
    stage: Stage,
    /// Earlier rounds were deleted, or are about to be.
    swept: bool,
    ranks: BTreeMap<String, u32>,
    /// Ranks yet to be asked for.
    unwritten: Vec<(String, Ranked)>,
    /// Nodes that did not confirm in the round before this; nobody waits for them.
    slow: BTreeSet<String>,
    why: Option<WaitReason>,
    cause: Option<FreezeReason>,
    /// What the roster's count was when the lost were last looked for.
    changes: Option<usize>,
}

impl Coordinator {
    pub(in crate::rendezvous) fn new(
        settings: &NodeConfig,
        (active, written): (&Active, Revision),
        slow: BTreeSet<String>,
    ) -> Self {
        // Of a group that was handed over, the keeping is all that is left to do.
        let handed_over = active.status == Status::Final;
        Self {
            began: if handed_over { active.began } else { written },
            history: active.history,
            round: active.round,
            previous: active.previous,
            outlived: active.outlived,
            refusals: 0,
            // Before the first round there is nothing.
            swept: active.round <= 1,
            gate: JoinWindow::new(settings.limits, settings.last_call).with_grace(settings.confirm),
            sight: Sight::None,
            early: Vec::new(),
            stage: if handed_over { Stage::Keeping { noting: false } } else { Stage::Gathering },
            ranks: BTreeMap::new(),
            unwritten: Vec::new(),
            slow,
            why: None,
            cause: None,
            changes: None,
        }
    }

    pub(in crate::rendezvous) fn round(&self) -> u64 {
        self.round
    }

    /// What the round waits for.
    pub(in crate::rendezvous) fn why(&self, now: Time) -> Option<String> {
        match (self.stage, &self.sight) {
            (Stage::Gathering, Sight::Clear(roster)) => self.why.map(|why| {
                let names = match why {
                    WaitReason::ForLastGroup { .. } => roster.names_of_unresolved(),
                    WaitReason::ForEnough { min, .. } => roster.names(min),
                    // The group is large enough, but a gap in the node ranks is worth naming.
                    WaitReason::LastCall { .. } | WaitReason::ForForgottenGroup { .. } => {
                        roster.names(0)
                    }
                };
                format!("{}{names}", why.describe(now))
            }),
            (Stage::Gathering, _) => Some("looking who is there".to_owned()),
            (Stage::Confirming(_), Sight::Clear(roster)) => {
                let (confirmed, world) = (roster.confirmed(), self.ranks.len());
                Some(format!("{confirmed} of {world} nodes confirmed"))
            }
            (Stage::Keeping { .. } | Stage::Over, _) => None,
            _ => Some("giving the ranks".to_owned()),
        }
    }

    /// Nothing while it cannot see: it would wake, find nothing to decide on, and wake again.
    pub(in crate::rendezvous) fn next_wake(&self) -> Option<Time> {
        match (self.stage, &self.sight) {
            (Stage::Gathering, Sight::Clear(_)) => self.gate.next_wake(),
            (Stage::Confirming(until), Sight::Clear(_)) => Some(until),
            _ => None,
        }
    }

    pub(in crate::rendezvous) fn watching(&mut self) {
        if matches!(self.sight, Sight::Opening) {
            self.sight = Sight::Watching;
        }
    }

    /// The watches missed something: look again.
    pub(in crate::rendezvous) fn blinded(&mut self) {
        self.sight = Sight::None;
        self.early.clear();
        self.changes = None;
    }

    /// Takes in the answer to the survey; false if it is of another history.
    pub(in crate::rendezvous) fn surveyed(&mut self, result: &TxnResult) -> bool {
        if !matches!(self.sight, Sight::Surveying) {
            return true;
        }
        let survey = Survey::read(result);
        if survey.history != Some(self.history) {
            return false;
        }
        let Self { history, began, previous, outlived, .. } = *self;
        let term = Term { history, began, previous, outlived };
        let mut roster = RoundMembership::new(&survey, term, &self.slow);
        if matches!(self.stage, Stage::Keeping { .. }) {
            self.ranks = membership::ranks(&survey);
        }
        for (watch, event) in self.early.drain(..) {
            roster.apply(watch, &event);
        }
        self.sight = Sight::Clear(Box::new(roster));
        true
    }

    pub(in crate::rendezvous) fn saw(&mut self, watch: usize, events: Vec<Event>) {
        match &mut self.sight {
            Sight::Clear(roster) => events.iter().for_each(|event| roster.apply(watch, event)),
            _ => self.early.extend(events.into_iter().map(|event| (watch, event))),
        }
    }

    /// A request of `purpose` was executed.
    pub(in crate::rendezvous) fn succeeded(
        &mut self,
        now: Time,
        purpose: Purpose,
        settings: &NodeConfig,
    ) {
        self.stage = match (purpose, self.stage) {
            (Purpose::AssignRanks, Stage::Ranking(left)) => Stage::Ranking(left.saturating_sub(1)),
            (Purpose::Freeze, Stage::Freezing) => {
                Stage::Confirming(now.saturating_add(settings.confirm))
            }
            (Purpose::Finalize, Stage::Finishing(_)) => Stage::Keeping { noting: false },
            (Purpose::PublishChanges, Stage::Keeping { .. }) => Stage::Keeping { noting: false },
            (_, stage) => stage,
        }
    }

    /// A request of `purpose` was refused, although this is still the coordinator: somebody is gone, or there
    /// again, which the watches have not told yet.
    pub(in crate::rendezvous) fn refused(&mut self, purpose: Purpose) {
        match (purpose, self.stage) {
            // Ranks may have been written, which must not be given again.
            (Purpose::Freeze, Stage::Freezing) => self.stage = Stage::Refused,
            (Purpose::Finalize, Stage::Finishing(until)) => {
                self.refusals += 1;
                self.stage = match self.refusals {
                    ..=MOST_REFUSALS => Stage::Confirming(until),
                    _ => Stage::Refused,
                };
                // So that nothing is asked again before it has looked who is there.
                self.blinded();
            }
            _ => {}
        }
    }

    /// What to do next, as long as there is something. `own` is the document in force, which is this
    /// coordinator's, and `history_since` when its history was first heard of.
    pub(in crate::rendezvous) fn advance(
        &mut self,
        now: Time,
        settings: &NodeConfig,
        own: Own<'_>,
        history_since: Time,
    ) -> Option<Step> {
        if let Some(step) = self.look(settings) {
            return Some(step);
        }
        if self.stage == Stage::Refused {
            let why = format!("the server refused to let round {} go on", self.round);
            return Some(self.reopen(why));
        }
        // A coordinator that took its round up again does not know whom it had ranked before.
        let begins = matches!(self.stage, Stage::Gathering | Stage::Ranking(_));
        if begins && own.active.status != Status::Joinable && self.roster().is_some() {
            return Some(self.reopen(format!("round {} lost its roster", self.round)));
        }
        if self.stage == Stage::Gathering {
            if let Some(error) = self.roster().and_then(RoundMembership::unreadable) {
                return Some(Step::Fail(RendezvousFailure::Unreadable(error.clone())));
            }
            let outvoted = self.roster().and_then(RoundMembership::outvoted);
            if let Some(fault) = outvoted.and_then(|by| settings.differ_from(by)) {
                return Some(Step::Fail(fault));
            }
            let remembered = self.remembered().round;
            if remembered >= self.round {
                let why =
                    format!("a node remembers round {remembered}, and rounds go on from there");
                return Some(self.reopen(why));
            }
            self.gather(now, settings, history_since);
        }
        match self.stage {
            Stage::Ranking(left) => self.rank(left, settings, own),
            Stage::Confirming(until) => self.confirm(now, until, settings, own),
            Stage::Keeping { noting: false } => self.keep(settings, own),
            _ => None,
        }
    }

    /// The highest rounds that anybody who joined remembers of histories before this one.
    pub(in crate::rendezvous) fn remembered(&self) -> Earlier {
        self.roster().map(RoundMembership::remembered).unwrap_or_default()
    }

    fn roster(&self) -> Option<&RoundMembership> {
        match &self.sight {
            Sight::Clear(roster) => Some(roster),
            _ => None,
        }
    }

    /// Decides whether to take more nodes; if not, who is in and who has which rank.
    fn gather(&mut self, now: Time, settings: &NodeConfig, history_since: Time) {
        let Sight::Clear(roster) = &self.sight else { return };
        // By then no node has workers that were started before the server lost its memory.
        let forgotten_for = roster.forgotten_for(settings.lease_ttl);
        let forgotten_until = forgotten_for.map(|time| history_since.saturating_add(time));
        match self.gate.decide(now, roster.roll(), forgotten_until) {
            JoinDecision::Wait(why) => return self.why = Some(why),
            JoinDecision::Close(cause) => self.cause = Some(cause),
        }
        let chosen = ranks::select(roster.candidates(), settings.limits.max);
        let world = u32::try_from(chosen.len()).unwrap_or(u32::MAX);
        self.ranks = ranks::assign(settings.rank_policy, &chosen);
        let ranked = |(id, rank): (&String, &u32)| (id.clone(), Ranked { rank: *rank, world });
        self.unwritten = self.ranks.iter().map(ranked).collect();
        // A small group is ranked and frozen in one step.
        let small = self.unwritten.len() <= RANKS_PER_TXN;
        let requests = if small { 0 } else { self.unwritten.len().div_ceil(RANKS_PER_TXN) };
        self.stage = Stage::Ranking(requests);
    }

    /// Writes the ranks, and when they are written, that there are no others.
    fn rank(&mut self, left: usize, settings: &NodeConfig, own: Own<'_>) -> Option<Step> {
        if left > 0 {
            if self.unwritten.is_empty() {
                return None;
            }
            let rest = self.unwritten.split_off(self.unwritten.len().min(RANKS_PER_TXN));
            let some = std::mem::replace(&mut self.unwritten, rest);
            let txn = settings.rank(own, &some);
            return Some(Step::Request(Purpose::AssignRanks, txn, None));
        }
        self.stage = Stage::Freezing;
        let rank0 = self.ranks.iter().find(|(_, rank)| **rank == 0);
        let frozen = Active {
            status: Status::Frozen,
            world: u32::try_from(self.ranks.len()).unwrap_or(u32::MAX),
            frozen_because: self.cause.map(|cause| cause.to_string()).unwrap_or_default(),
            began: self.began,
            outlived: own.active.outlived.max(self.remembered().formed),
            rank0: rank0.map(|(id, _)| id.clone()).unwrap_or_default(),
            ..own.active.clone()
        };
        let few = std::mem::take(&mut self.unwritten);
        let txn = settings.freeze(own, &frozen, &few);
        Some(Step::Request(Purpose::Freeze, txn, Some(Box::new(frozen))))
    }

    /// Waits for everyone to confirm, and then declares the group formed.
    fn confirm(
        &mut self,
        now: Time,
        until: Time,
        settings: &NodeConfig,
        own: Own<'_>,
    ) -> Option<Step> {
        let active = own.active;
        let roster = self.roster()?;
        let changes = roster.changes();
        if Some(changes) != self.changes {
            let lost = self.lost(roster);
            self.changes = Some(changes);
            if !lost.is_empty() {
                return Some(
                    self.reopen(format!("lost before the group formed: {}", some_of(&lost))),
                );
            }
        }
        let roster = self.roster()?;
        let confirmed = |id: &String| roster.said(id).is_some();
        if roster.confirmed() >= self.ranks.len() && self.ranks.keys().all(confirmed) {
            let said = roster.said(&active.rank0)?;
            let store: BootstrapStore = match decode(active.rank0.as_bytes(), &said.what) {
                Ok(store) => store,
                Err(error) => return Some(Step::Fail(RendezvousFailure::Unreadable(error))),
            };
            let (coordinator, keeper) = if self.ranks.contains_key(&active.coordinator.id) {
                (active.coordinator.clone(), own.lease)
            } else {
                let (id, address) = (active.rank0.clone(), store.address.host.clone());
                (NodeName { id, address }, said.lease)
            };
            self.stage = Stage::Finishing(until);
            let formed =
                Active { status: Status::Final, store: Some(store), coordinator, ..active.clone() };
            let txn = settings.finish(own, &formed, keeper);
            return Some(Step::Request(Purpose::Finalize, txn, Some(Box::new(formed))));
        }
        if now < until {
            return None;
        }
        let silent: Vec<String> = self.ranks.keys().filter(|id| !confirmed(id)).cloned().collect();
        self.slow = silent.iter().cloned().collect();
        let within = settings.confirm;
        Some(self.reopen(format!("not confirmed within {within:?} by {}", some_of(&silent))))
    }

    /// Tells the group of late and lost nodes.
    fn keep(&mut self, settings: &NodeConfig, own: Own<'_>) -> Option<Step> {
        let active = own.active;
        let roster = self.roster()?;
        if !self.swept {
            let sweep = settings.sweep(self.history, self.round, roster.buried());
            self.swept = true;
            return Some(Step::Request(Purpose::Sweep, sweep, None));
        }
        let (waiting, changes) = (roster.waiting(), roster.changes());
        let mut noted = (active.lost, active.lost_names.clone());
        if Some(changes) != self.changes {
            let lost = self.lost(roster);
            self.changes = Some(changes);
            noted = (lost.len(), lost.into_iter().take(NAMES).collect());
        }
        if (waiting, noted.0) == (active.waiting, active.lost) {
            return None;
        }
        self.stage = Stage::Keeping { noting: true };
        let (lost, lost_names) = noted;
        let note = Active { waiting, lost, lost_names, ..active.clone() };
        let txn = settings.replace(own, &note);
        Some(Step::Request(Purpose::PublishChanges, txn, Some(Box::new(note))))
    }

    /// Sees to it that there are watches and a survey.
    fn look(&mut self, settings: &NodeConfig) -> Option<Step> {
        match self.sight {
            Sight::None => {
                self.sight = Sight::Opening;
                Some(Step::Watch(membership::watches(&settings.keys, self.round, self.previous)))
            }
            Sight::Watching => {
                self.sight = Sight::Surveying;
                let survey = settings.survey(self.round, self.previous);
                Some(Step::Request(Purpose::ReadMembership, survey, None))
            }
            Sight::Opening | Sight::Surveying | Sight::Clear(_) => None,
        }
    }

    fn lost(&self, roster: &RoundMembership) -> Vec<String> {
        self.ranks.keys().filter(|id| roster.is_lost(id)).cloned().collect()
    }

    fn reopen(&mut self, reason: String) -> Step {
        self.stage = Stage::Over;
        Step::Reopen(reason)
    }

    /// Who need not be waited for in the round after this.
    pub(in crate::rendezvous) fn slow(&self) -> BTreeSet<String> {
        self.slow.clone()
    }
}

/// Names, but not more than fit into a sentence.
pub(in crate::rendezvous) fn some_of(names: &[String]) -> String {
    let some = names.iter().take(NAMES).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMES) {
        0 => some,
        more => format!("{some} and {more} more"),
    }
}
