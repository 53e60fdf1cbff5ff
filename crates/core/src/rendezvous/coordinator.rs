//! The coordinator of a round: it alone sees the roster. It ends the joining, gives the ranks, waits for
//! each node to confirm, declares the group formed, and then tells it of late and lost nodes.
//!
//! A coordinator that is not of the group itself, because others had a better claim, hands the group over
//! to its rank 0 when it is formed. So a surplus node may come and go without the group noticing.
//!
//! Whatever it writes is guarded by the document it wrote before, so a coordinator that was thought dead
//! and comes back can change nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::document::{Active, Address, Author, Corrupt, Ranked, Status, decode};
use super::gate::{Cause, Gate, Verdict, Waiting};
use super::interface::{Purpose, Settings};
use super::ranks;
use super::request::OPS_PER_TXN;
use super::roster::{self, Roster};
use crate::kv::{Event, LeaseId, Revision, Time, Txn, TxnResult, Watch};

/// So many names of lost nodes are told; the rest are counted.
const NAMES: usize = 16;

/// What the coordinator wants done next.
#[derive(Debug)]
pub(super) enum Step {
    /// These watches.
    Watch(Vec<Watch>),
    /// This request; if it succeeds, the document in force is the one beside it.
    Request(Purpose, Txn, Option<Box<Active>>),
    /// A new round, for this reason.
    Reopen(String),
    /// The shared documents make no sense.
    Corrupt(Corrupt),
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
    Clear(Box<Roster>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Gathering,
    /// So many requests with ranks are on their way.
    Ranking(usize),
    Freezing,
    /// Until then.
    Confirming(Time),
    Finishing,
    /// The group runs.
    Keeping {
        /// A note is on its way.
        noting: bool,
    },
    /// There is nothing left to do but to make way for the next round.
    Over,
}

#[derive(Debug)]
pub(super) struct Coordinator {
    round: u64,
    previous: u64,
    /// When the round was opened.
    began: Revision,
    gate: Gate,
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
    why: Option<Waiting>,
    cause: Option<Cause>,
    /// What the roster's count was when the lost were last looked for.
    changes: Option<usize>,
}

impl Coordinator {
    pub(super) fn new(
        settings: &Settings,
        (active, written): (&Active, Revision),
        slow: BTreeSet<String>,
    ) -> Self {
        // Of a group that was handed over, the keeping is all that is left to do.
        let handed_over = active.status == Status::Final;
        Self {
            began: if handed_over { active.began } else { written },
            round: active.round,
            previous: active.previous,
            // Before the first round there is nothing.
            swept: active.round <= 1,
            gate: Gate::new(settings.limits, settings.last_call).courteous(settings.confirm),
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

    pub(super) fn round(&self) -> u64 {
        self.round
    }

    /// What the round waits for.
    pub(super) fn why(&self, now: Time) -> Option<String> {
        match (self.stage, &self.sight) {
            (Stage::Gathering, Sight::Clear(roster)) => {
                self.why.map(|why| format!("{}{}", why.describe(now), roster.names()))
            }
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
    pub(super) fn next_wake(&self) -> Option<Time> {
        match (self.stage, &self.sight) {
            (Stage::Gathering, Sight::Clear(_)) => self.gate.next_wake(),
            (Stage::Confirming(until), Sight::Clear(_)) => Some(until),
            _ => None,
        }
    }

    pub(super) fn watching(&mut self) {
        if matches!(self.sight, Sight::Opening) {
            self.sight = Sight::Watching;
        }
    }

    /// The watches missed something: look again.
    pub(super) fn blinded(&mut self) {
        self.sight = Sight::None;
        self.early.clear();
        self.changes = None;
    }

    pub(super) fn surveyed(&mut self, survey: &TxnResult) {
        if !matches!(self.sight, Sight::Surveying) {
            return;
        }
        let mut roster = Roster::new(survey, self.began, self.previous, &self.slow);
        if matches!(self.stage, Stage::Keeping { .. }) {
            self.ranks = roster::ranks(survey);
        }
        for (watch, event) in self.early.drain(..) {
            roster.apply(watch, &event);
        }
        self.sight = Sight::Clear(Box::new(roster));
    }

    pub(super) fn saw(&mut self, watch: usize, events: Vec<Event>) {
        match &mut self.sight {
            Sight::Clear(roster) => events.iter().for_each(|event| roster.apply(watch, event)),
            _ => self.early.extend(events.into_iter().map(|event| (watch, event))),
        }
    }

    /// A request of `purpose` was executed.
    pub(super) fn succeeded(&mut self, now: Time, purpose: Purpose, settings: &Settings) {
        self.stage = match (purpose, self.stage) {
            (Purpose::Rank, Stage::Ranking(left)) => Stage::Ranking(left.saturating_sub(1)),
            (Purpose::Freeze, Stage::Freezing) => {
                Stage::Confirming(now.saturating_add(settings.confirm))
            }
            (Purpose::Finish, Stage::Finishing) => Stage::Keeping { noting: false },
            (Purpose::Note, Stage::Keeping { .. }) => Stage::Keeping { noting: false },
            (_, stage) => stage,
        }
    }

    /// A request of `purpose` was refused, although this is still the coordinator.
    pub(super) fn refused(&mut self, now: Time, purpose: Purpose) {
        if (purpose, self.stage) == (Purpose::Finish, Stage::Finishing) {
            // Who was to keep the group is gone, and its end will be seen.
            self.stage = Stage::Confirming(now);
        }
    }

    /// What to do next, as long as there is something. `active` is the document in force, which is
    /// this coordinator's.
    pub(super) fn advance(
        &mut self,
        now: Time,
        settings: &Settings,
        active: (&Active, Revision),
        lease: LeaseId,
    ) -> Option<Step> {
        if let Some(step) = self.look(settings) {
            return Some(step);
        }
        // A coordinator that took its round up again does not know whom it had ranked before.
        let begins = matches!(self.stage, Stage::Gathering | Stage::Ranking(_));
        if begins && active.0.status != Status::Joinable && self.roster().is_some() {
            return Some(self.reopen(format!("round {} lost its roster", self.round)));
        }
        if self.stage == Stage::Gathering {
            if let Some(corrupt) = self.roster().and_then(Roster::corrupt) {
                return Some(Step::Corrupt(corrupt.clone()));
            }
            self.gather(now, settings);
        }
        match self.stage {
            Stage::Ranking(left) => self.rank(left, settings, active, lease),
            Stage::Confirming(until) => self.confirm(now, until, settings, active, lease),
            Stage::Keeping { noting: false } => self.keep(settings, active, lease),
            _ => None,
        }
    }

    fn roster(&self) -> Option<&Roster> {
        match &self.sight {
            Sight::Clear(roster) => Some(roster),
            _ => None,
        }
    }

    /// Decides whether to take more nodes; if not, who is in and who has which rank.
    fn gather(&mut self, now: Time, settings: &Settings) {
        let Sight::Clear(roster) = &self.sight else { return };
        match self.gate.decide(now, roster.roll()) {
            Verdict::Wait(why) => return self.why = Some(why),
            Verdict::Close(cause) => self.cause = Some(cause),
        }
        let chosen = ranks::select(roster.candidates(), settings.limits.max);
        let world = u32::try_from(chosen.len()).unwrap_or(u32::MAX);
        self.ranks = ranks::assign(settings.rank_policy, &chosen);
        let ranked = |(id, rank): (&String, &u32)| (id.clone(), Ranked { rank: *rank, world });
        self.unwritten = self.ranks.iter().map(ranked).collect();
        // A small group is ranked and frozen in one step.
        let small = self.unwritten.len() < OPS_PER_TXN;
        let requests = if small { 0 } else { self.unwritten.len().div_ceil(OPS_PER_TXN) };
        self.stage = Stage::Ranking(requests);
    }

    /// Writes the ranks, and when they are written, that there are no others.
    fn rank(
        &mut self,
        left: usize,
        settings: &Settings,
        (active, revision): (&Active, Revision),
        lease: LeaseId,
    ) -> Option<Step> {
        if left > 0 {
            if self.unwritten.is_empty() {
                return None;
            }
            let rest = self.unwritten.split_off(self.unwritten.len().min(OPS_PER_TXN));
            let some = std::mem::replace(&mut self.unwritten, rest);
            let txn = settings.rank(revision, self.round, &some);
            return Some(Step::Request(Purpose::Rank, txn, None));
        }
        self.stage = Stage::Freezing;
        let leader = self.ranks.iter().find(|(_, rank)| **rank == 0);
        let frozen = Active {
            status: Status::Frozen,
            world: u32::try_from(self.ranks.len()).unwrap_or(u32::MAX),
            frozen_because: self.cause.map(|cause| cause.to_string()).unwrap_or_default(),
            began: self.began,
            leader: leader.map(|(id, _)| id.clone()).unwrap_or_default(),
            ..active.clone()
        };
        let few = std::mem::take(&mut self.unwritten);
        let txn = settings.freeze(revision, &frozen, lease, &few);
        Some(Step::Request(Purpose::Freeze, txn, Some(Box::new(frozen))))
    }

    /// Waits for everyone to confirm, and then declares the group formed.
    fn confirm(
        &mut self,
        now: Time,
        until: Time,
        settings: &Settings,
        (active, revision): (&Active, Revision),
        lease: LeaseId,
    ) -> Option<Step> {
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
            let said = roster.said(&active.leader)?;
            let store: Address = match decode(active.leader.as_bytes(), &said.what) {
                Ok(store) => store,
                Err(corrupt) => return Some(Step::Corrupt(corrupt)),
            };
            let (author, keeper) = if self.ranks.contains_key(&active.author.id) {
                (active.author.clone(), lease)
            } else {
                let (id, address) = (active.leader.clone(), store.host.clone());
                (Author { id, address }, said.lease)
            };
            self.stage = Stage::Finishing;
            let formed =
                Active { status: Status::Final, store: Some(store), author, ..active.clone() };
            let txn = settings.finish(revision, &formed, keeper);
            return Some(Step::Request(Purpose::Finish, txn, Some(Box::new(formed))));
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
    fn keep(
        &mut self,
        settings: &Settings,
        (active, revision): (&Active, Revision),
        lease: LeaseId,
    ) -> Option<Step> {
        let roster = self.roster()?;
        if !self.swept {
            let sweep = settings.sweep(self.round, roster.buried());
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
        let txn = settings.replace(revision, &note, lease);
        Some(Step::Request(Purpose::Note, txn, Some(Box::new(note))))
    }

    /// Sees to it that there are watches and a survey.
    fn look(&mut self, settings: &Settings) -> Option<Step> {
        match self.sight {
            Sight::None => {
                self.sight = Sight::Opening;
                Some(Step::Watch(roster::watches(&settings.keys, self.round)))
            }
            Sight::Watching => {
                self.sight = Sight::Surveying;
                let survey = settings.survey(self.round, self.previous);
                Some(Step::Request(Purpose::Survey, survey, None))
            }
            Sight::Opening | Sight::Surveying | Sight::Clear(_) => None,
        }
    }

    fn lost(&self, roster: &Roster) -> Vec<String> {
        self.ranks.keys().filter(|id| roster.is_lost(id)).cloned().collect()
    }

    fn reopen(&mut self, reason: String) -> Step {
        self.stage = Stage::Over;
        Step::Reopen(reason)
    }

    /// Who need not be waited for in the round after this.
    pub(super) fn slow(&self) -> BTreeSet<String> {
        self.slow.clone()
    }
}

/// Names, but not more than fit into a sentence.
pub(super) fn some_of(names: &[String]) -> String {
    let some = names.iter().take(NAMES).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMES) {
        0 => some,
        more => format!("{some} and {more} more"),
    }
}
