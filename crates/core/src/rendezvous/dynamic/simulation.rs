//! Several nodes over one cell that can compare and set, in virtual time, with crashes, pauses and
//! delays. Each run is a function of its seed, which a failure prints: alone in [`SEEDS`], it repeats it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::kv::Time;
use crate::rendezvous::documents::Limits;

/// The seeds that every run tries.
const SEEDS: std::ops::Range<u64> = 0..300;

/// Trouble ends here; what lives must have met by [`END`].
const HEALED: Time = Time::from_secs(400);
const END: Time = Time::from_secs(700);

/// SplitMix64: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn milliseconds(&mut self, bound: u64) -> Duration {
        Duration::from_millis(self.below(bound))
    }
}

struct Actor {
    observer: Observer,
    /// How much its clock is ahead of the others'.
    skew: Time,
    /// The last round that it was in.
    met: u64,
    resting: bool,
    /// Whoever waited for its group has gone away.
    leaving: bool,
    /// When it acts next.
    wakes: Time,
    /// Decided, and on its way to the cell: against which version, and what.
    sent: Option<(u64, SharedState)>,
}

struct World {
    random: Random,
    seed: u64,
    now: Time,
    limits: Limits,
    version: u64,
    cell: Option<SharedState>,
    actors: Vec<Actor>,
    born: u64,
    groups: BTreeMap<u64, BTreeMap<String, u32>>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let min = 1 + random.below(3) as usize;
        let limits = Limits { min, max: min + random.below(3) as usize };
        let mut world = Self {
            random,
            seed,
            now: Time::ZERO,
            limits,
            version: 0,
            cell: None,
            actors: Vec::new(),
            born: 0,
            groups: BTreeMap::new(),
        };
        for _ in 0..min + 2 {
            world.bear();
        }
        world
    }

    fn bear(&mut self) {
        self.born += 1;
        let settings = DynamicSettings {
            last_call: Duration::from_secs(10),
            ..DynamicSettings::new(self.limits)
        };
        let skew = Duration::from_secs(self.random.below(1_000_000));
        let mut observer = Observer::new(format!("node{}", self.born), settings);
        observer.begin_waiting(self.now + skew);
        let wakes = self.now + self.random.milliseconds(3000);
        let actor =
            Actor { observer, skew, met: 0, resting: false, leaving: false, wakes, sent: None };
        self.actors.push(actor);
    }

    /// One step of the node that is next.
    fn step(&mut self) {
        let index = (0..self.actors.len()).min_by_key(|index| self.actors[*index].wakes);
        let Some(index) = index else { return self.bear() };
        self.now = self.now.max(self.actors[index].wakes);
        if self.now < HEALED && self.trouble(index) {
            return;
        }
        let actor = &mut self.actors[index];
        let local = self.now + actor.skew;
        if let Some((version, state)) = actor.sent.take()
            && version == self.version
        {
            self.version += 1;
            Self::check(self.seed, &mut self.groups, self.cell.as_ref(), &state);
            self.cell = Some(state);
        }
        if let Some(state) = &self.cell {
            actor.observer.look(local, state);
            let seen = actor.observer.without_dead(state);
            if actor.resting && seen.waiting(actor.met) > 0 {
                actor.resting = false;
                actor.observer.begin_waiting(local);
            }
        }
        let intent = match (actor.leaving, actor.resting) {
            (true, _) => Intent::Leave,
            (false, true) => Intent::Rest,
            (false, false) => Intent::Join { not_before: actor.met + 1 },
        };
        let (action, _) = decide(local, self.cell.as_ref(), &mut actor.observer, intent);
        // It is told of changes soon after them, so it looks often enough for that.
        actor.wakes = self.now + self.random.milliseconds(900);
        match action {
            Action::Write(state) => {
                actor.sent = Some((self.version, *state));
                actor.wakes = self.now + self.random.milliseconds(300);
            }
            Action::Meet { round, rank, .. } => {
                assert!(round > actor.met, "seed {}: round {round} again", self.seed);
                assert_eq!(self.groups[&round][actor.observer.me()], rank, "seed {}", self.seed);
                (actor.met, actor.resting) = (round, true);
            }
            Action::Fail(DynamicFailure::Timeout { .. }) => actor.observer.begin_waiting(local),
            Action::Fail(failure) => {
                let closed =
                    matches!(failure, DynamicFailure::Closed(_) | DynamicFailure::NotNeeded(_));
                assert!(closed, "seed {}: {failure:?}", self.seed);
            }
            Action::Gone => {
                actor.leaving = false;
                actor.observer.begin_waiting(local);
            }
            Action::Wait(_) => {}
        }
    }

    /// Now and then a node dies, sleeps, comes anew, begins again with its workers, or leaves.
    fn trouble(&mut self, index: usize) -> bool {
        let living = self.actors.len();
        match self.random.below(400) {
            0 => drop(self.actors.remove(index)),
            // What it was about to write may still be on its way when it wakes.
            1 => self.actors[index].wakes = self.now + self.random.milliseconds(40_000),
            2 if living < self.limits.max + 3 => self.bear(),
            3 if self.actors[index].resting => {
                let local = self.now + self.actors[index].skew;
                self.actors[index].resting = false;
                self.actors[index].observer.begin_waiting(local);
            }
            4 => {
                let actor = &mut self.actors[index];
                (actor.leaving, actor.resting) = (true, false);
                // As the driver does: a group that formed meanwhile is left too.
                if let Some(state) = &self.cell
                    && state.complete
                    && state.participants.contains_key(actor.observer.me())
                {
                    actor.met = actor.met.max(state.round);
                }
            }
            _ => return false,
        }
        true
    }

    /// What every write must keep.
    fn check(
        seed: u64,
        groups: &mut BTreeMap<u64, BTreeMap<String, u32>>,
        before: Option<&SharedState>,
        after: &SharedState,
    ) {
        let read = SharedState::from_json(&after.to_json());
        assert!(read.is_ok(), "seed {seed}: what was written cannot be read: {read:?}");
        let was_complete = before.is_some_and(|state| state.complete && state.round == after.round);
        assert!(before.is_none_or(|state| state.round <= after.round), "seed {seed}: R2");
        if !after.complete {
            assert!(!was_complete, "seed {seed}: round {} opened again", after.round);
            return;
        }
        let ranks: BTreeMap<String, u32> =
            after.participants.iter().map(|(id, rank)| (id.clone(), rank.unwrap())).collect();
        let size = ranks.len();
        let mut order: Vec<u32> = ranks.values().copied().collect();
        order.sort_unstable();
        assert!(order.into_iter().eq(0..size as u32), "seed {seed}: R1, ranks {ranks:?}");
        assert!((after.limits.min..=after.limits.max).contains(&size), "seed {seed}: {ranks:?}");
        let formed = groups.entry(after.round).or_insert_with(|| {
            let closed = before.is_some_and(|state| state.closed.is_some());
            assert!(!closed, "seed {seed}: R3, a group in a closed run");
            ranks.clone()
        });
        assert_eq!(*formed, ranks, "seed {seed}: R1, two rosters in round {}", after.round);
    }

    /// Whether all that live are in one group, but for those that there is no room for.
    fn settled(&self) -> bool {
        let Some(state) = &self.cell else { return false };
        let inside = |actor: &&Actor| actor.resting && actor.met == state.round;
        let settled = self.actors.iter().filter(inside).count();
        state.complete
            && state.waiting(state.round) == 0
            && settled == self.actors.len().min(self.limits.max)
    }
}

#[test]
fn every_seed_keeps_the_rules_and_meets_once_the_trouble_is_over() {
    let mut formed = 0;
    for seed in SEEDS {
        let mut world = World::new(seed);
        while world.now < HEALED {
            world.step();
        }
        while world.actors.len() < world.limits.min {
            world.bear();
        }
        while !world.settled() {
            world.step();
            assert!(world.now < END, "seed {seed}: no group at the end: {:?}", world.cell);
        }
        formed += world.groups.len();

        // Closed, it forms no further group, whatever happens.
        let mut state = world.cell.clone().unwrap();
        state.close("node1", crate::rendezvous::documents::RunOutcome::Failed, "enough");
        state.sign("someone");
        (world.cell, world.version) = (Some(state), world.version + 1);
        let groups = world.groups.len();
        let end = world.now + Duration::from_secs(60);
        for actor in &mut world.actors {
            actor.resting = false;
        }
        while world.now < end {
            world.step();
        }
        assert_eq!(world.groups.len(), groups, "seed {seed}: R3");
    }
    assert!(formed > 1000, "too little happened to prove anything: {formed} groups");
}
