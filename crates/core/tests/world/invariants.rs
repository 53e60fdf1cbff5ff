//! The invariants, which must hold after every step.

use std::collections::{BTreeMap, BTreeSet};

use rallypoint_core::kv::{Event, EventKind, LeaseId};
use rallypoint_core::rendezvous::documents::{Active, Address, Status, decode};
use rallypoint_core::rendezvous::{FormedGroup, Purpose};

use super::events::{At, Who, World};
use super::inspector::{Group, GroupId};
use super::plan::RUN_LEASE;

/// The invariant that was violated, and how.
#[derive(Debug, Clone)]
pub(crate) struct Violation {
    pub(crate) invariant: &'static str,
    pub(crate) what: String,
}

/// Nothing, or a violation.
pub(crate) type Verdict = Result<(), Violation>;

pub(crate) fn violation(invariant: &'static str, what: impl Into<String>) -> Verdict {
    Err(Violation { invariant, what: what.into() })
}

impl World {
    /// Checks changes in order; within one revision, the document in force last.
    pub(crate) fn inspect(&mut self, at: At, mut events: Vec<Event>) -> Verdict {
        let active = self.plan.config.keys.active();
        self.inspector.now = self.now;
        events.sort_by_key(|event| (event.kv.mod_revision, event.kv.key == active));
        for event in &events {
            if event.kv.key != active {
                self.inspector.follow(at, event)?;
                continue;
            }
            if event.kind == EventKind::Delete {
                let reopens = matches!(self.servers[at].executing, Some((_, Purpose::Reopen)));
                let store = &mut self.inspector.stores[at];
                if store.closed && !reopens {
                    return violation("R3", "the closing was deleted");
                }
                store.closed = false;
                store.active = None;
                continue;
            }
            match decode::<Active>(&event.kv.key, &event.kv.value) {
                Ok(document) => self.in_force(at, document, event.kv.lease)?,
                Err(corrupt) => return violation("sound", corrupt.to_string()),
            }
        }
        Ok(())
    }

    /// Checks a new document in force.
    fn in_force(&mut self, at: At, active: Active, lease: LeaseId) -> Verdict {
        let now = self.inspector.now;
        let inspector = &mut self.inspector.stores[at];
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
        // While a round takes nodes, its coordinator changes nothing but what it says that it waits for, and the
        // proofs of deaths with their event.
        let silent = |active: &Active| Active {
            waits_for: String::new(),
            lacks_quorum: None,
            proved_dead: Vec::new(),
            events: 0,
            ..active.clone()
        };
        let is_told = status == Status::Joinable
            && inspector.active.as_ref().is_some_and(|before| silent(before) == silent(&active));
        let round = inspector.rounds.entry(number).or_default();
        if status == Status::Joinable && !is_told {
            if !round.opener.is_empty() {
                let (first, second) = (&round.opener, &active.coordinator.id);
                return violation(
                    "R2",
                    format!("round {number} was opened by {first} and {second}"),
                );
            }
            round.opener = active.coordinator.id.clone();
        }
        // A coordinator that is no member of the group hands it over to rank 0 when the group forms.
        let hands_over = round.status == Some(Status::Frozen)
            && status == Status::Final
            && !round.ranks.contains_key(&round.opener)
            && round.ranks.get(&active.coordinator.id).is_some_and(|ranked| ranked.rank == 0);
        if hands_over {
            round.opener = active.coordinator.id.clone();
        }
        if status == Status::Final && !round.ranks.contains_key(&active.coordinator.id) {
            let what =
                format!("the group of round {number} is coordinated by {}", active.coordinator);
            return violation("surplus", what);
        }
        if round.opener != active.coordinator.id {
            return violation(
                "R2",
                format!("{} changed another's round {number}", active.coordinator),
            );
        }
        let later = match round.status {
            None => status == Status::Joinable,
            Some(Status::Joinable) => is_told || status == Status::Frozen,
            Some(Status::Frozen) => status == Status::Final,
            _ => status == Status::Final,
        };
        if !later {
            return violation("R2", format!("round {number}: {:?} to {status:?}", round.status));
        }
        let first = round.status != Some(status);
        if first && status == Status::Frozen {
            round.frozen_at = now;
        }
        round.status = Some(status);
        let store = active.store.clone().map(|store| store.address);
        let coordinator = active.coordinator.id.clone();
        inspector.active = Some(active);
        if self.servers[at].owner(lease).is_none_or(|who| self.nodes[who].id != coordinator)
            && lease != RUN_LEASE
        {
            return violation("keys", format!("round {number} is on another's lease {lease}"));
        }
        match status {
            Status::Frozen if first => self.check_precedence(at, number),
            Status::Final => self.check_final(at, number, store),
            _ => Ok(()),
        }
    }

    /// R1 and R4, whenever the document of a group is written.
    fn check_final(&mut self, at: At, number: u64, store: Option<Address>) -> Verdict {
        let era = self.servers[at].era;
        let content = &mut self.inspector.stores[at];
        let Some(active) = &content.active else { return Ok(()) };
        let (world, waiting) = (active.world, active.waiting);
        let (limits, sizes) = (self.inspector.limits, self.inspector.sizes.clone());
        let Some(round) = content.rounds.get_mut(&number) else { return Ok(()) };
        let ranks: BTreeMap<String, u32> =
            round.ranks.iter().map(|(id, ranked)| (id.clone(), ranked.rank)).collect();
        let distinct: BTreeSet<u32> = ranks.values().copied().collect();
        let whole = distinct.iter().copied().eq(0..world) && ranks.len() == world as usize;
        if !whole || round.ranks.values().any(|ranked| ranked.world != world) {
            return violation("R1", format!("round {number} of {world}: {ranks:?}"));
        }
        if sizes.size(limits, world as usize).size != world as usize {
            let sizes = sizes.listed(limits);
            return violation(
                "R1",
                format!("round {number} has {world} nodes, not {limits}{sizes}"),
            );
        }
        let group = Group { at, era, round: number, ranks, store };
        for id in group.ranks.keys() {
            let owner = round.ready.get(id).and_then(|lease| self.servers[at].owner(*lease));
            if owner.is_none_or(|who| self.nodes[who].id != *id) {
                return violation(
                    "R4",
                    format!("round {number} is final, but {id} did not confirm"),
                );
            }
        }
        let groups = &mut self.inspector.groups;
        let id = *round.group.get_or_insert(groups.len());
        match groups.get(id) {
            None => {
                round.formed_at = self.inspector.now;
                groups.push(group);
            }
            Some(before) if *before != group => {
                return violation("R1", format!("round {number}: {before:?}, then {group:?}"));
            }
            Some(_) => {}
        }
        if sizes.next(limits, world as usize).is_none() && waiting > 0 {
            let what = format!("round {number} is full and is told of {waiting} waiting nodes");
            return violation("surplus", what);
        }
        let formed_for = self.inspector.now - round.formed_at;
        if waiting > 0 && formed_for < sizes.scale_up_after_ms {
            let what = format!("round {number} is to grow {formed_for} ms after it has formed");
            return violation("surplus", what);
        }
        Ok(())
    }

    /// No new node replaces a member of the last group that had joined in time to be observed.
    fn check_precedence(&self, at: At, number: u64) -> Verdict {
        let store = &self.inspector.stores[at];
        let Some(active) = &store.active else { return Ok(()) };
        let Some(round) = store.rounds.get(&number) else { return Ok(()) };
        if active.previous == 0 {
            return Ok(());
        }
        let previous = store.group_of(active.previous);
        // Only a node that was told of its membership can announce it.
        let was_member = |id: &String| {
            let told = |node: &super::node::SimNode| node.last_group == previous;
            previous.is_some() && self.nodes.iter().any(|node| node.id == *id && told(node))
        };
        let coordinator = self.nodes.iter().find(|node| node.id == active.coordinator.id);
        let Some(seen) = coordinator.and_then(|node| node.decided_on) else { return Ok(()) };
        let others = round.ranks.keys().any(|id| !was_member(id));
        let left_out = round.members.iter().find(|(id, since)| {
            !round.ranks.contains_key(*id) && **since <= seen && was_member(id)
        });
        match left_out {
            Some((id, _)) if others => {
                violation("precedence", format!("round {number} left {id} out for a newcomer"))
            }
            _ => Ok(()),
        }
    }

    /// R1 and R2 from the view of a member, over all servers. Returns its group.
    pub(crate) fn check_formed(
        &self,
        who: Who,
        formed: &FormedGroup,
    ) -> Result<GroupId, Violation> {
        let node = &self.nodes[who];
        let (id, round) = (&node.id, formed.round);
        let wrong = |invariant, what| Err(Violation { invariant, what });
        let Some(group) = self.inspector.group_at(&formed.store) else {
            return wrong("R1", format!("{id} formed round {round}, which is not final"));
        };
        let found = self.inspector.group(group);
        let agrees = found.ranks.get(id) == Some(&formed.rank)
            && found.ranks.len() == formed.world as usize
            && found.round == round;
        if !agrees {
            return wrong("R1", format!("{id} believes {formed:?}, the store has {found:?}"));
        }
        if node.last_group.is_some() && round <= node.last_formed {
            let last = node.last_formed;
            return wrong("R2", format!("{id} formed round {round} after {last}"));
        }
        if node.session.is_none() {
            return wrong("fence", format!("{id} formed round {round} without a session"));
        }
        Ok(group)
    }

    /// No group is told to meet again unless a member was disturbed, or a node waits that the group has room for.
    pub(crate) fn check_reason(&self, who: Who, round: u64) -> Verdict {
        if self.nodes[who].at.is_none_or(|at| self.inspector.has_reason(at, round)) {
            return Ok(());
        }
        let id = &self.nodes[who].id;
        violation(
            "surplus",
            format!("{id} is told to meet again after round {round} for no reason"),
        )
    }

    /// No running node relies on a lease that has expired.
    pub(crate) fn check_fences(&self, at: At) -> Verdict {
        for node in self.nodes.iter().filter(|node| node.alive && !node.stands_still()) {
            let Some(session) = &node.session else { continue };
            if self.servers[at].granted(session.lease)
                && self.servers[at].store.lease_status(self.clock(at), session.lease).is_none()
            {
                let what =
                    format!("{} believes in lease {}, which is over", node.id, session.lease);
                return violation("fence", what);
            }
        }
        Ok(())
    }
}
