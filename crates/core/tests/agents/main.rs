//! Agents together: the real agents on top of the real rendezvous, a model of their processes, virtual time,
//! and all that can happen to a job. One seed decides everything, so every failure can be repeated.
//!
//! - `world`, which is shared with another test program: virtual time, the network, the server, nodes with
//!   their sessions and guards, what goes wrong, and what must hold after every step.
//! - `plan`: how the agents are set, and what goes wrong how often.
//! - `top`: the launcher around the agent; `events`: the membership events that it gives the agent; `workers`: the
//!   model of the processes; `shared`: what nodes share besides the rendezvous.
//! - `invariants`: what must hold after every step, and what must have been seen in all runs together.
//!
//! `RALLYPOINT_AGENTS_RUNS` says how many runs, `RALLYPOINT_AGENTS_FROM` with which seed to begin,
//! `RALLYPOINT_AGENTS_SEED` which one run to tell. `RALLYPOINT_AGENTS_ONLY` leaves one kind of fault in the
//! world (see `world::plan::FaultFilter`), and `RALLYPOINT_AGENTS_AS_RELEASED=1` takes the guard and the proofs away
//! that the launcher of 0.1 did not have.

mod events;
mod invariants;
mod plan;
mod shared;
mod top;
mod workers;
#[allow(dead_code, reason = "each of the two programs uses a part of it")]
#[path = "../world/mod.rs"]
mod world;

use crate::invariants::Seen;
use crate::plan::{Work, Wrong};
use crate::top::Job;
use crate::world::broken::Broken;
use crate::world::events::World;
use crate::world::invariants::{Verdict, Violation};
use crate::world::plan::{FaultFilter, Millis, Plan};
use crate::world::random::Random;
use crate::world::record::Records;
use crate::world::runner::{self, number, variable};

/// The number of runs, unless `RALLYPOINT_AGENTS_RUNS` says otherwise.
const RUNS: u64 = 100_000;

/// The number of runs in which every interesting event must have occurred.
const ENOUGH: u64 = 20_000;

/// So many runs are recorded, and decided again.
const RECORDED: u64 = 300;

/// When nothing goes wrong any more, every agent ends within this time.
const PATIENCE: Millis = 600_000;

/// What all runs of one test have in common.
#[derive(Debug, Clone, Copy)]
struct Kind {
    wrong: Wrong,
    broken: Broken,
    only: FaultFilter,
}

impl Kind {
    /// What the user of the tests asks for.
    fn asked_for() -> Self {
        let released = number("RALLYPOINT_AGENTS_AS_RELEASED", 0) > 0;
        let broken = if released { Broken::AsReleased } else { Broken::Nothing };
        let only = FaultFilter::named(&variable("RALLYPOINT_AGENTS_ONLY").unwrap_or_default());
        Self { wrong: Wrong::Nothing, broken, only }
    }
}

/// With which seed to begin, and how many there are.
fn seeds() -> (u64, u64) {
    (number("RALLYPOINT_AGENTS_FROM", 0), number("RALLYPOINT_AGENTS_RUNS", RUNS))
}

#[test]
fn every_seed_keeps_every_promise() {
    let (kind, (from, runs)) = (Kind::asked_for(), seeds());
    let run = |seed, seen: &mut Seen| {
        let (verdict, world) = lead_through(kind, seed, false);
        seen.add(world.job.seen);
        verdict
    };
    let (found, seen) = runner::first_failure(from, runs, run);
    if let Some((seed, found)) = found {
        panic!("{}", tell_all(kind, seed, &found));
    }
    if runs >= ENOUGH {
        let mut all = Seen::default();
        seen.into_iter().for_each(|seen| all.add(seen));
        let missing = all.missing();
        assert!(missing.is_empty(), "no run has come to {missing:?}");
    }
}

/// How many seeds fail, by which invariant, and the first of each.
#[test]
#[ignore = "counts failures instead of stopping at the first one"]
#[expect(clippy::print_stderr, reason = "the count is what it is for")]
fn count_failures() {
    let (kind, (from, runs)) = (Kind::asked_for(), seeds());
    for line in runner::count_failures(from, runs, |seed| lead_through(kind, seed, false).0) {
        eprintln!("{kind:?}: {line}");
    }
}

/// The run of one seed, told.
#[test]
fn one_seed() {
    let (kind, seed) = (Kind::asked_for(), number("RALLYPOINT_AGENTS_SEED", 0));
    if let Err(found) = lead_through(kind, seed, false).0 {
        panic!("{}", tell_all(kind, seed, &found));
    }
}

/// The events of every node tell what happened, and its record leads to the same decisions again.
#[test]
fn what_is_recorded_can_be_decided_again() {
    let kind = Kind::asked_for();
    for seed in 0..number("RALLYPOINT_AGENTS_RUNS", RUNS).min(RECORDED) {
        let mut world = world(kind, seed, false);
        world.records = Some(Records::default());
        let (_, world) = runner::led(world, World::whole_run);
        let checked = world.records.unwrap_or_default().check(seed);
        checked.unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    }
}

/// Proof that the invariants see what they should: each wrong way to drive an agent is found by its own.
#[test]
fn every_broken_variant_is_found() {
    let table = [
        (Wrong::StopsTooSoon, Broken::Nothing, FaultFilter::Kind, "one workers at a time"),
        (Wrong::ForgetsEarlierKill, Broken::NoGuard, FaultFilter::Cut, "fencing"),
        (Wrong::Nothing, Broken::NoGuard, FaultFilter::Standstill, "fencing"),
        (Wrong::GrantsEveryRestart, Broken::Nothing, FaultFilter::Kind, "budget"),
        (Wrong::LosesEvents, Broken::Nothing, FaultFilter::Kind, "an end"),
    ];
    for (wrong, broken, only, invariant) in table {
        let kind = Kind { wrong, broken, only };
        let run = |seed, (): &mut ()| lead_through(kind, seed, false).0;
        let (found, _) = runner::first_failure(0, 5_000, run);
        let (_, found) = found.unwrap_or_else(|| panic!("{kind:?} was not found"));
        assert_eq!(found.invariant, invariant, "{kind:?}: {}", found.what);
    }
}

fn lead_through(kind: Kind, seed: u64, tracing: bool) -> (Verdict, World) {
    runner::led(world(kind, seed, tracing), World::whole_run)
}

fn world(kind: Kind, seed: u64, tracing: bool) -> World {
    let mut random = Random::new(seed);
    let plan = Plan::of(&mut random, kind.only, plan::fault);
    let job = Job::new(Work::of(&mut random, &plan), kind.wrong);
    World::new(plan, job, random, kind.broken, tracing)
}

impl World {
    fn whole_run(&mut self) -> Verdict {
        self.run_until(self.plan.chaos.max(self.plan.gathering))?;
        self.heal()?;
        let end = self.now + PATIENCE;
        while self.now < end && self.nodes.iter().any(|node| node.alive) {
            self.run_until(self.now + 500)?;
        }
        self.check_ended()
    }
}

fn tell_all(kind: Kind, seed: u64, found: &Violation) -> String {
    let (_, world) = lead_through(kind, seed, true);
    runner::tell_all(("agents", "RALLYPOINT_AGENTS"), &[], seed, found, world)
}
