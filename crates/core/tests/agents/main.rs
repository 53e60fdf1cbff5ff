//! Agents together: any number of machines, a tiny model of the rendezvous and of processes, virtual time,
//! and all that can happen to a job. One seed decides everything, so every failure can be repeated.
//!
//! - `plan`: what a seed stands for.
//! - `world`: virtual time, and what the agents' outputs come to.
//! - `meeting`: the model of the rendezvous; `workers`: that of the processes; `mishaps`: what goes wrong.
//! - `invariants`: what must hold after every step, and what must have been seen in all runs together.
//!
//! `RALLYPOINT_AGENTS_RUNS` says how many runs, `RALLYPOINT_AGENTS_SEED` which one run to tell.

mod invariants;
mod meeting;
mod mishaps;
mod plan;
#[path = "../sim/random.rs"]
mod random;
mod workers;
mod world;

use crate::invariants::{Seen, Verdict, Violation};
use crate::plan::{Broken, Plan};
use crate::random::Random;
use crate::world::World;

/// So many runs, unless `RALLYPOINT_AGENTS_RUNS` says otherwise.
const RUNS: u64 = 20_000;

#[test]
fn every_seed_keeps_every_promise() {
    let runs = number("RALLYPOINT_AGENTS_RUNS", RUNS);
    let mut seen = Seen::default();
    for seed in 0..runs {
        let (verdict, world) = lead_through(Broken::Nothing, seed, false);
        if let Err(found) = verdict {
            panic!("{}", tell_all(seed, &found));
        }
        seen.add(world.seen);
    }
    if runs >= RUNS {
        let missing = seen.missing();
        assert!(missing.is_empty(), "no run has come to {missing:?}");
    }
}

/// The run of one seed, told.
#[test]
fn one_seed() {
    let seed = number("RALLYPOINT_AGENTS_SEED", 0);
    if let Err(found) = lead_through(Broken::Nothing, seed, false).0 {
        panic!("{}", tell_all(seed, &found));
    }
}

/// Proof that the invariants see what they should: each wrong way to drive an agent is found by its own.
#[test]
fn every_broken_variant_is_found() {
    let table = [
        (Broken::StopsTooSoon, "one crew at a time"),
        (Broken::ForgetsHaste, "fencing"),
        (Broken::GrantsEveryRestart, "budget"),
        (Broken::LosesNews, "an end"),
    ];
    for (broken, invariant) in table {
        let found = (0..5_000).find_map(|seed| lead_through(broken, seed, false).0.err());
        let found = found.unwrap_or_else(|| panic!("{broken:?} was not found"));
        assert_eq!(found.invariant, invariant, "{broken:?}: {}", found.what);
    }
}

#[expect(clippy::disallowed_methods, reason = "how long to test is not the core's to decide")]
fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn lead_through(broken: Broken, seed: u64, tracing: bool) -> (Verdict, World) {
    let mut random = Random::new(seed);
    let plan = Plan::of(&mut random, broken);
    let mut world = World::new(plan, random, tracing);
    let verdict = world.whole_run();
    (verdict, world)
}

/// What went wrong, what led to it, and how to see it again.
fn tell_all(seed: u64, found: &Violation) -> String {
    let (_, world) = lead_through(Broken::Nothing, seed, true);
    format!(
        "seed {seed}, {}: {}\n{:?}\n{}\nTo see it again: RALLYPOINT_AGENTS_SEED={seed} cargo test -p \
         rallypoint-core --test agents one_seed",
        found.invariant,
        found.what,
        world.plan,
        world.trace.unwrap_or_default().join("\n"),
    )
}
