//! A simulation of several nodes over one document with compare-and-set, in virtual time, with crashes, pauses and
//! delays. Each run is a function of its seed, which a failure prints; that seed alone in [`SEEDS`] reproduces it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::kv::Time;
use crate::rendezvous::documents::Limits;

/// The seeds that every run tries.
const SEEDS: std::ops::Range<u64> = 0..300;

/// When the faults end.
const HEALED: Time = Time::from_secs(400);
/// When all live nodes must be in a group, or be spares.
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
    /// The offset of the node's clock.
    skew: Time,
    /// The last round whose group had the node as a member.
    met: u64,
    resting: bool,
    /// The caller of the rendezvous has cancelled it.
    leaving: bool,
    /// When the node acts next.
    wakes: Time,
    /// A write on its way to the store: the version that it replaces, and the state.
    sent: Option<(u64, SharedState)>,
}

struct World {
    random: Random,
    seed: u64,
    now: Time,
    limits: Limits,
    version: u64,
    document: Option<SharedState>,
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
            document: None,
            actors: Vec::new(),
            born: 0,
            groups: BTreeMap::new(),
        };
        for _ in 0..min + 2 {
            world.start_node();
        }
        world
    }

    fn start_node(&mut self) {
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

    /// One step of the node that acts next.
    fn step(&mut self) {
        let index = (0..self.actors.len()).min_by_key(|index| self.actors[*index].wakes);
        let Some(index) = index else { return self.start_node() };
        self.now = self.now.max(self.actors[index].wakes);
        if self.now < HEALED && self.inject_fault(index) {
            return;
        }
        let actor = &mut self.actors[index];
        let local = self.now + actor.skew;
        if let Some((version, state)) = actor.sent.take()
            && version == self.version
        {
            self.version += 1;
            Self::check(self.seed, &mut self.groups, self.document.as_ref(), &state);
            self.document = Some(state);
        }
        if let Some(state) = &self.document {
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
        let (action, _) = decide(local, self.document.as_ref(), &mut actor.observer, intent);
        // Nodes are notified soon after a change, so they wake often.
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

    /// Now and then a node dies, is suspended, starts, restarts its workers, or leaves.
    fn inject_fault(&mut self, index: usize) -> bool {
        let living = self.actors.len();
        match self.random.below(400) {
            0 => drop(self.actors.remove(index)),
            // Its write may still be on its way when it wakes.
            1 => self.actors[index].wakes = self.now + self.random.milliseconds(40_000),
            2 if living < self.limits.max + 3 => self.start_node(),
            3 if self.actors[index].resting => {
                let local = self.now + self.actors[index].skew;
                self.actors[index].resting = false;
                self.actors[index].observer.begin_waiting(local);
            }
            4 => {
                let actor = &mut self.actors[index];
                (actor.leaving, actor.resting) = (true, false);
                // The driver does the same: a group that formed in the meantime is left as well.
                if let Some(state) = &self.document
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

    /// Checks the invariants of every write.
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
        assert_eq!(*formed, ranks, "seed {seed}: R1, two groups in round {}", after.round);
    }

    /// Whether all live nodes are in one group, apart from spares.
    fn settled(&self) -> bool {
        let Some(state) = &self.document else { return false };
        let inside = |actor: &&Actor| actor.resting && actor.met == state.round;
        let settled = self.actors.iter().filter(inside).count();
        state.complete
            && state.waiting(state.round) == 0
            && settled == self.actors.len().min(self.limits.max)
    }
}

#[test]
fn every_seed_keeps_the_invariants_and_forms_a_group_after_the_faults() {
    let mut formed = 0;
    for seed in SEEDS {
        let mut world = World::new(seed);
        while world.now < HEALED {
            world.step();
        }
        while world.actors.len() < world.limits.min {
            world.start_node();
        }
        while !world.settled() {
            world.step();
            assert!(world.now < END, "seed {seed}: no group at the end: {:?}", world.document);
        }
        formed += world.groups.len();

        // A closed run forms no further group.
        let mut state = world.document.clone().unwrap();
        state.close("node1", crate::rendezvous::documents::RunOutcome::Failed, "enough");
        state.sign("someone");
        (world.document, world.version) = (Some(state), world.version + 1);
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
