//! What must hold after every step. The inspector sees every write in order and believes nobody.

use std::collections::{BTreeMap, BTreeSet};

use rallypoint_core::kv::{Event, EventKind, LeaseId, Op, Revision, Txn};
use rallypoint_core::rendezvous::document::{Active, Address, Ranked, Status, decode};
use rallypoint_core::rendezvous::gate::Limits;
use rallypoint_core::rendezvous::{Formed, Purpose, Settings};

use crate::plan::{Millis, RUN_LEASE};
use crate::world::{Who, World};

/// Which promise was broken, and how.
#[derive(Debug, Clone)]
pub(crate) struct Violation {
    pub(crate) invariant: &'static str,
    pub(crate) what: String,
}

/// Nothing, or what should not have happened.
pub(crate) type Verdict = Result<(), Violation>;

pub(crate) fn violation(invariant: &'static str, what: impl Into<String>) -> Verdict {
    Err(Violation { invariant, what: what.into() })
}

/// The round that a key belongs to.
pub(crate) fn round_of(key: &str) -> Option<u64> {
    key.split("/v_").nth(1).and_then(|rest| rest.split('/').next())?.parse().ok()
}

/// What is known of a round.
#[derive(Debug, Default)]
pub(crate) struct Round {
    opener: String,
    /// Who has joined and is there, and since when.
    pub(crate) members: BTreeMap<String, Revision>,
    ranks: BTreeMap<String, Ranked>,
    /// Who said that it is there, on which lease.
    ready: BTreeMap<String, LeaseId>,
    status: Option<Status>,
    /// When it stopped taking nodes.
    frozen_at: Millis,
    group: Option<Group>,
}

/// A group that has formed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) ranks: BTreeMap<String, u32>,
    pub(crate) store: Option<Address>,
}

#[derive(Debug)]
pub(crate) struct Inspector {
    root: String,
    limits: Limits,
    rounds: BTreeMap<u64, Round>,
    pub(crate) active: Option<Active>,
    /// The run is closed.
    pub(crate) closed: bool,
    latest: u64,
    /// The last round that was swept.
    pub(crate) swept: Option<u64>,
    pub(crate) waiting: BTreeSet<String>,
    pub(crate) spares: BTreeSet<String>,
    pub(crate) now: Millis,
    /// When each node last gave its group a reason to meet again.
    upset: BTreeMap<String, Millis>,
    /// When something last gave every group a reason.
    all_upset: Option<Millis>,
}

impl Inspector {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            root: format!("{}rdzv/", settings.keys.root()),
            limits: settings.limits,
            rounds: BTreeMap::new(),
            active: None,
            closed: false,
            latest: 0,
            swept: None,
            waiting: BTreeSet::new(),
            spares: BTreeSet::new(),
            now: 0,
            upset: BTreeMap::new(),
            all_upset: None,
        }
    }

    /// From here on the group of this node has a reason to meet again.
    pub(crate) fn upset(&mut self, id: &str) {
        self.upset.insert(id.to_owned(), self.now);
    }

    /// From here on every group has.
    pub(crate) fn upset_all(&mut self) {
        self.all_upset = Some(self.now);
    }

    /// Whether the group of `round` was given a reason to meet again.
    fn has_reason(&self, round: u64) -> bool {
        let Some(round) = self.rounds.get(&round) else { return true };
        let since = |when: &Millis| *when >= round.frozen_at;
        self.all_upset.as_ref().is_some_and(since)
            || round.ranks.keys().any(|id| self.upset.get(id).is_some_and(since))
    }

    /// The group of a round, if it has formed.
    pub(crate) fn group(&self, round: u64) -> Option<&Group> {
        self.rounds.get(&round).and_then(|round| round.group.as_ref())
    }

    /// The rounds that a sweep was to delete must stay gone.
    pub(crate) fn swept(&mut self, sweep: &Txn) {
        for op in &sweep.success {
            let Op::Delete(delete) = op else { continue };
            let key = String::from_utf8_lossy(delete.range.start()).into_owned();
            self.swept = self.swept.max(round_of(&key));
        }
    }

    fn follow(&mut self, event: &Event) -> Verdict {
        let key = std::str::from_utf8(&event.kv.key).unwrap_or_default();
        let Some(path) = key.strip_prefix(&self.root) else {
            return violation("keys", format!("{key} is none of the run's keys"));
        };
        let put = event.kind == EventKind::Put;
        if put && event.kv.lease == 0 {
            return violation("keys", format!("{key} is on no lease"));
        }
        let mut parts = path.split('/');
        let first = parts.next().unwrap_or_default();
        let second = parts.next().unwrap_or_default();
        let list = match first {
            "waiting" => Some(&mut self.waiting),
            "spare" => Some(&mut self.spares),
            _ => None,
        };
        if let Some(list) = list {
            let room = self.active.as_ref().is_some_and(Active::has_room);
            if first == "waiting" && put && room {
                self.all_upset = Some(self.now);
            }
            match put {
                true => drop(list.insert(second.to_owned())),
                false => drop(list.remove(second)),
            }
            return Ok(());
        }
        let number = first.strip_prefix("v_").and_then(|number| number.parse::<u64>().ok());
        let (Some(number), Some(id)) = (number, parts.next()) else { return Ok(()) };
        let round = self.rounds.entry(number).or_default();
        match (second, put) {
            ("member", true) => {
                round.members.insert(id.to_owned(), event.kv.mod_revision);
            }
            ("member", false) => {
                round.members.remove(id);
                if number == self.latest {
                    self.upset.insert(id.to_owned(), self.now);
                }
            }
            ("rank", true) => match decode::<Ranked>(&event.kv.key, &event.kv.value) {
                Ok(ranked) => drop(round.ranks.insert(id.to_owned(), ranked)),
                Err(corrupt) => return violation("sound", corrupt.to_string()),
            },
            ("ready", true) => drop(round.ready.insert(id.to_owned(), event.kv.lease)),
            _ => {}
        }
        if round.group.is_some() && second == "rank" && put {
            return violation("R1", format!("a rank of round {number} changed after it was final"));
        }
        Ok(())
    }
}

impl World {
    /// Looks at what changed, in order; within one revision, at the document in force last.
    pub(crate) fn inspect(&mut self, mut events: Vec<Event>) -> Verdict {
        let active = self.plan.settings.keys.active();
        self.inspector.now = self.now;
        events.sort_by_key(|event| (event.kv.mod_revision, event.kv.key == active));
        for event in &events {
            if event.kv.key != active {
                self.inspector.follow(event)?;
                continue;
            }
            if event.kind == EventKind::Delete {
                let reopens = matches!(self.server.executing, Some((_, Purpose::Reopen)));
                if self.inspector.closed && !reopens {
                    return violation("R3", "the closing was deleted");
                }
                self.inspector.closed = false;
                self.inspector.active = None;
                continue;
            }
            match decode::<Active>(&event.kv.key, &event.kv.value) {
                Ok(document) => self.in_force(document, event.kv.lease)?,
                Err(corrupt) => return violation("sound", corrupt.to_string()),
            }
        }
        Ok(())
    }

    /// A new document is in force.
    fn in_force(&mut self, active: Active, lease: LeaseId) -> Verdict {
        let inspector = &mut self.inspector;
        let (number, status) = (active.round, active.status);
        if inspector.closed && status != Status::Closed {
            return violation("R3", format!("round {number} went on after the run was closed"));
        }
        if number < inspector.latest {
            let latest = inspector.latest;
            return violation("R2", format!("round {number} after round {latest}"));
        }
        inspector.latest = number;
        if status == Status::Closed {
            inspector.closed = true;
            inspector.active = Some(active);
            return Ok(());
        }
        let round = inspector.rounds.entry(number).or_default();
        if status == Status::Joinable {
            if !round.opener.is_empty() {
                let (first, second) = (&round.opener, &active.author.id);
                return violation(
                    "R2",
                    format!("round {number} was opened by {first} and {second}"),
                );
            }
            round.opener = active.author.id.clone();
        }
        // A coordinator that is not of the group hands it over to rank 0 when it is formed.
        let hands_over = round.status == Some(Status::Frozen)
            && status == Status::Final
            && !round.ranks.contains_key(&round.opener)
            && round.ranks.get(&active.author.id).is_some_and(|ranked| ranked.rank == 0);
        if hands_over {
            round.opener = active.author.id.clone();
        }
        if status == Status::Final && !round.ranks.contains_key(&active.author.id) {
            let what = format!("the group of round {number} is kept by {}", active.author);
            return violation("surplus", what);
        }
        if round.opener != active.author.id {
            return violation("R2", format!("{} changed another's round {number}", active.author));
        }
        let later = match round.status {
            None => status == Status::Joinable,
            Some(Status::Joinable) => status == Status::Frozen,
            Some(Status::Frozen) => status == Status::Final,
            _ => status == Status::Final,
        };
        if !later {
            return violation("R2", format!("round {number}: {:?} to {status:?}", round.status));
        }
        let first = round.status != Some(status);
        if first && status == Status::Frozen {
            round.frozen_at = inspector.now;
        }
        round.status = Some(status);
        let store = active.store.clone();
        let author = active.author.id.clone();
        inspector.active = Some(active);
        if self.server.owners.get(&lease).is_none_or(|who| self.nodes[*who].id != author)
            && lease != RUN_LEASE
        {
            return violation("keys", format!("round {number} is on another's lease {lease}"));
        }
        match status {
            Status::Frozen if first => self.check_precedence(number),
            Status::Final => self.check_final(number, store),
            _ => Ok(()),
        }
    }

    /// R1 and R4, whenever the document of a group is written.
    fn check_final(&mut self, number: u64, store: Option<Address>) -> Verdict {
        let Some(active) = &self.inspector.active else { return Ok(()) };
        let (world, waiting) = (active.world, active.waiting);
        let limits = self.inspector.limits;
        let Some(round) = self.inspector.rounds.get_mut(&number) else { return Ok(()) };
        let ranks: BTreeMap<String, u32> =
            round.ranks.iter().map(|(id, ranked)| (id.clone(), ranked.rank)).collect();
        let distinct: BTreeSet<u32> = ranks.values().copied().collect();
        let whole = distinct.iter().copied().eq(0..world) && ranks.len() == world as usize;
        if !whole || round.ranks.values().any(|ranked| ranked.world != world) {
            return violation("R1", format!("round {number} of {world}: {ranks:?}"));
        }
        if (world as usize) < limits.min || world as usize > limits.max {
            return violation("R1", format!("round {number} has {world} nodes, not {limits}"));
        }
        let group = Group { ranks, store };
        if let Some(before) = &round.group
            && *before != group
        {
            return violation("R1", format!("round {number}: {before:?}, then {group:?}"));
        }
        for id in group.ranks.keys() {
            let owner = round.ready.get(id).and_then(|lease| self.server.owners.get(lease));
            if owner.is_none_or(|who| self.nodes[*who].id != *id) {
                return violation(
                    "R4",
                    format!("round {number} is final, but {id} did not confirm"),
                );
            }
        }
        round.group = Some(group);
        if world as usize == limits.max && waiting > 0 {
            let what = format!("round {number} is full and is told of {waiting} waiting nodes");
            return violation("surplus", what);
        }
        Ok(())
    }

    /// Nobody takes the place of a member of the last group that had come in time to be seen.
    fn check_precedence(&self, number: u64) -> Verdict {
        let Some(active) = &self.inspector.active else { return Ok(()) };
        let Some(round) = self.inspector.rounds.get(&number) else { return Ok(()) };
        if active.previous == 0 {
            return Ok(());
        }
        // Only who was told that it is in the group can say so.
        let sat = |id: &String| {
            self.nodes.iter().any(|node| node.id == *id && node.last_formed == active.previous)
        };
        let author = self.nodes.iter().find(|node| node.id == active.author.id);
        let Some(seen) = author.and_then(|node| node.decided_on) else { return Ok(()) };
        let others = round.ranks.keys().any(|id| !sat(id));
        let left_out = round
            .members
            .iter()
            .find(|(id, since)| !round.ranks.contains_key(*id) && **since <= seen && sat(id));
        match left_out {
            Some((id, _)) if others => {
                violation("precedence", format!("round {number} left {id} out for a newcomer"))
            }
            _ => Ok(()),
        }
    }

    /// R1 and R2, as a member sees them.
    pub(crate) fn check_formed(&self, who: Who, formed: &Formed) -> Verdict {
        let node = &self.nodes[who];
        let (id, round) = (&node.id, formed.round);
        if round <= node.last_formed {
            let last = node.last_formed;
            return violation("R2", format!("{id} formed round {round} after {last}"));
        }
        let Some(group) = self.inspector.group(round) else {
            return violation("R1", format!("{id} formed round {round}, which is not final"));
        };
        let agrees = group.ranks.get(id) == Some(&formed.rank)
            && group.ranks.len() == formed.world as usize
            && group.store.as_ref() == Some(&formed.store);
        if !agrees {
            return violation("R1", format!("{id} believes {formed:?}, the store has {group:?}"));
        }
        if node.session.is_none() {
            return violation("fence", format!("{id} formed round {round} without a session"));
        }
        Ok(())
    }

    /// Nobody is told to meet again unless something happened to the group, or somebody waits for whom
    /// there is room.
    pub(crate) fn check_reason(&self, who: Who, round: u64) -> Verdict {
        if self.inspector.has_reason(round) {
            return Ok(());
        }
        let id = &self.nodes[who].id;
        violation(
            "surplus",
            format!("{id} is told to meet again after round {round} for no reason"),
        )
    }

    /// When the store has ended leases, nobody who can act still believes in one of them.
    pub(crate) fn check_fences(&self) -> Verdict {
        for node in self.nodes.iter().filter(|node| node.alive && !node.paused) {
            let Some(session) = &node.session else { continue };
            if self.server.store.lease_status(self.time(), session.lease).is_none() {
                let what =
                    format!("{} believes in lease {}, which is over", node.id, session.lease);
                return violation("fence", what);
            }
        }
        Ok(())
    }
}
