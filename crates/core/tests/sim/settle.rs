//! Liveness: after the last fault, the run must become stable in bounded time, and stay so.

use rallypoint_core::kv::{KeyRange, Range};
use rallypoint_core::rendezvous::documents::Status;

use crate::top::Agent;
use crate::world::events::{Who, World, tell};
use crate::world::inspector::round_of;
use crate::world::invariants::{Verdict, Violation, violation};
use crate::world::plan::{Death, Millis, RUN_LEASE};

/// The time within which the run must become stable after the last fault, if workers stop at once. To it comes the time
/// of a few stops.
const PATIENCE: Millis = 60_000;

/// How long the run must stay stable.
const STEADY: Millis = 1_000;

/// How long after the expiry of a lease the survivors may be told.
const A_LITTLE: Millis = 500;

impl World {
    /// Runs until the run is stable, and for a while more.
    pub(crate) fn settle(&mut self) -> Verdict {
        self.settle_unless(PATIENCE, |_| false)
    }

    /// Runs until the run is stable, and for a while more. In the end it may be `excused` if it is not.
    pub(crate) fn settle_unless(
        &mut self,
        patience: Millis,
        excused: impl FnOnce(&Self) -> bool,
    ) -> Verdict {
        let end = self.now + patience + 4 * self.plan.slowest();
        let mut since = None;
        loop {
            match self.is_stable() {
                Ok(()) => {
                    let since = *since.get_or_insert(self.now);
                    if self.now >= since + STEADY {
                        return Ok(());
                    }
                }
                Err(what) => {
                    since = None;
                    if self.now >= end {
                        return if excused(self) { Ok(()) } else { violation("liveness", what) };
                    }
                }
            }
            self.run_until(self.now + 250)?;
        }
    }

    pub(crate) fn living(&self) -> Vec<Who> {
        (0..self.nodes.len()).filter(|who| self.nodes[*who].alive).collect()
    }

    /// Whether the run is stable; if not, why.
    fn is_stable(&self) -> Result<(), String> {
        let living = self.living();
        let time = self.time();
        let home = if self.has_succession() { self.head() } else { Some(0) };
        let Some(home) = home else { return Err("no host serves".to_owned()) };
        let inspector = &self.inspector.stores[home];
        let agent = |who: &Who| self.nodes[*who].top.agent;
        if inspector.closed {
            let restless = |who: &&Who| !matches!(agent(who), Agent::Running(_));
            return match living.iter().find(restless) {
                None => Ok(()),
                Some(who) => Err(format!("n{who} is {:?} in a closed run", agent(who))),
            };
        }
        let member_of = |who: &Who| self.nodes[*who].rendezvous.view(time).member_of;
        let expected = self.plan.config.sizes.size(self.plan.config.limits, living.len()).size;
        if expected == 0 {
            return match living.iter().find(|who| member_of(who).is_some()) {
                None => Ok(()),
                Some(who) => Err(format!("n{who} is in a group that is too small")),
            };
        }
        let Some(active) = inspector.active.as_ref().filter(|a| a.status == Status::Final) else {
            return Err(format!("no group has formed: {:?}", inspector.active));
        };
        let Some(group) = inspector.group_of(active.round) else { return Err("no group".into()) };
        let group = self.inspector.group(group);
        let (round, world) = (active.round, group.ranks.len());
        if world != expected || active.waiting + active.lost > 0 {
            return Err(format!("{} nodes live, the group is {active:?}", living.len()));
        }
        let mut members = 0;
        for who in living {
            let node = &self.nodes[who];
            let view = node.rendezvous.view(time);
            if group.ranks.contains_key(&node.id) {
                members += 1;
                if node.top.agent != Agent::Running(round) || view.nodes_waiting > 0 {
                    return Err(format!("{} is {:?} with {view:?}", node.id, node.top.agent));
                }
            } else if node.top.agent != Agent::Meeting || !inspector.spares.contains(&node.id) {
                return Err(format!("{} is no spare: {:?} with {view:?}", node.id, node.top.agent));
            }
        }
        if members != world || !inspector.waiting.is_empty() {
            let waiting = &inspector.waiting;
            return Err(format!("{members} of {world} live, {waiting:?} wait"));
        }
        Ok(())
    }

    /// A member dies without leaving: the survivors are told as soon as its lease expires, or at once if a connection
    /// broke.
    pub(crate) fn funeral(&mut self) -> Verdict {
        let round = match &self.inspector.stores[0].active {
            Some(active) if active.status == Status::Final => active.round,
            _ => return Ok(()),
        };
        let running = |who: &Who| self.nodes[*who].top.agent == Agent::Running(round);
        let members: Vec<Who> = self.living().into_iter().filter(running).collect();
        if members.len() < 2 {
            return Ok(());
        }
        let dead = members[self.random.below(members.len())];
        tell!(self, "--- {} dies", self.nodes[dead].id);
        let haunted = self.is_haunted();
        self.dies(dead, Death::Killed)?;
        let noticed = match self.plan.connected {
            // If the coordinator is dead, who noticed it stops its own workers and then tells the other nodes.
            true => self.plan.slowest(),
            false => self.plan.ttl_millis(),
        };
        self.run_until(self.now + noticed + A_LITTLE)?;
        if self.inspector.stores[0].closed {
            // No group forms in a closed run.
            return Ok(());
        }
        let unaware = |who: &&Who| {
            let node = &self.nodes[**who];
            node.alive && node.top.agent == Agent::Running(round)
        };
        if let Some(who) = members.iter().find(unaware) {
            return violation("told", format!("n{who} was not told that n{dead} is dead"));
        }
        let config = &self.plan.config;
        let enough = config.sizes.size(config.limits, self.living().len()).size > 0;
        if self.plan.connected && enough && !haunted {
            return self.meets_at_once(round);
        }
        Ok(())
    }

    /// Whether a dead node has a live lease, and no peer had a connection to it.
    fn is_haunted(&self) -> bool {
        let nodes = self.servers[0].store.range(&Range::new(self.plan.config.keys.nodes()));
        nodes.is_ok_and(|nodes| nodes.kvs.len() != self.living().len())
    }

    /// No round waits for a node whose death was proved, and for other dead nodes no longer than their leases live.
    fn meets_at_once(&mut self, after: u64) -> Verdict {
        let lease = if self.proofs() { 0 } else { self.plan.ttl_millis() };
        self.run_until(self.now + self.plan.slowest() + lease + A_LITTLE)?;
        let active = self.inspector.stores[0].active.as_ref();
        match active.filter(|active| active.round > after && active.status == Status::Final) {
            Some(_) => Ok(()),
            None => violation("at once", format!("who is waited for? {active:?}")),
        }
    }

    /// Every node leaves. Only keys of the run itself remain, of the last group.
    pub(crate) fn farewell(&mut self) -> Verdict {
        tell!(self, "--- everybody leaves");
        for who in self.living() {
            if self.nodes[who].alive {
                self.leaves(who, false)?;
            }
        }
        self.run_until(self.now + self.plan.ttl_millis() + 2_000)?;
        if let Some(who) = self.living().first() {
            return violation("liveness", format!("n{who} cannot leave"));
        }
        let run = KeyRange::prefix(self.plan.config.keys.root().to_owned());
        let left = self.servers[0].store.range(&Range::new(run));
        let left =
            left.map_err(|error| Violation { invariant: "sound", what: error.to_string() })?;
        let swept = self.inspector.stores[0].swept;
        for kv in left.kvs {
            let key = String::from_utf8_lossy(&kv.key).into_owned();
            if kv.lease != RUN_LEASE {
                return violation("keys", format!("{key} outlives its node"));
            }
            let personal = [
                "/node/",
                "/waiting/",
                "/spare/",
                "/objector/",
                "/suspect/",
                "/member/",
                "/ready/",
            ];
            if personal.iter().any(|part| key.contains(part)) {
                return violation("keys", format!("{key} is the run's, but was a node's"));
            }
            let round = round_of(&key);
            if round.is_some() && round <= swept {
                return violation("keys", format!("{key} was swept and is there"));
            }
        }
        Ok(())
    }
}
