//! The rendezvous as a whole: any number of machines, one store, virtual time, and all that can go wrong
//! between them. One seed decides everything, so every failure can be repeated.
//!
//! - `plan`: what a seed stands for.
//! - `world`: virtual time and what is under way in it; `network`, `server`, `node` and `session` are
//!   its parts, `mishaps` what goes wrong.
//! - `invariants`: what must hold after every step.
//! - `settle`: what must become so when nothing goes wrong any more.
//! - `broken`: proof that the two see what they should.
//!
//! `RALLYPOINT_SIM_RUNS` says how many runs, `RALLYPOINT_SIM_FROM` with which seed to begin,
//! `RALLYPOINT_SIM_SEED` which one run to tell.

mod broken;
mod invariants;
mod mishaps;
mod network;
mod node;
mod plan;
mod random;
mod server;
mod session;
mod settle;
mod world;

use std::panic;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::broken::Broken;
use crate::invariants::{Verdict, Violation};
use crate::plan::Plan;
use crate::random::Random;
use crate::world::World;

/// So many runs, unless `RALLYPOINT_SIM_RUNS` says otherwise.
const RUNS: u64 = 100_000;

/// R1 to R4, fencing, surplus nodes, precedence, what is left behind, and that all becomes well.
#[test]
fn every_seed_keeps_every_promise() {
    let (from, runs) = (number("RALLYPOINT_SIM_FROM", 0), number("RALLYPOINT_SIM_RUNS", RUNS));
    if let Some((seed, found)) = first_failure(Broken::Nothing, from, runs) {
        panic!("{}", tell_all(Broken::Nothing, seed, &found));
    }
}

/// More nodes than fit into one transaction: their ranks are written in pieces.
#[test]
fn a_large_group_forms_and_forms_again() {
    for seed in 0..4 {
        let mut random = Random::new(seed);
        let plan = Plan { nodes: 300, ..Plan::large(&mut random) };
        let mut world = World::new(plan, random, Broken::Nothing, false);
        world.whole_run().unwrap_or_else(|found| panic!("seed {seed}: {found:?}"));
        assert!(world.server.rankings >= 3, "seed {seed}: the ranks went in one piece");
    }
}

/// The run of one seed, told.
#[test]
fn one_seed() {
    let seed = number("RALLYPOINT_SIM_SEED", 0);
    if let Err(found) = run(Broken::Nothing, seed) {
        panic!("{}", tell_all(Broken::Nothing, seed, &found));
    }
}

/// Each wrong variant is found within its number of seeds, by one of its invariants.
#[test]
#[expect(
    clippy::print_stderr,
    reason = "which seed found what is worth knowing, and shown on request"
)]
fn every_broken_variant_is_found() {
    let mut survivors = Vec::new();
    for (broken, seeds, invariants) in broken::TABLE {
        match first_failure(broken, 0, seeds) {
            Some((seed, found)) => {
                let by = found.invariant;
                eprintln!("{broken:?}: seed {seed}, by {by}: {}", found.what);
                if !invariants.contains(&by) {
                    survivors.push(format!("{broken:?} was found by {by}: {}", found.what));
                }
            }
            None => survivors.push(format!("{broken:?} was not found in {seeds} seeds")),
        }
    }
    assert!(survivors.is_empty(), "{}", survivors.join("\n"));
}

#[expect(clippy::disallowed_methods, reason = "how long to test is not the core's to decide")]
fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// The first seed of these that fails, looked for by two threads.
fn first_failure(broken: Broken, from: u64, runs: u64) -> Option<(u64, Violation)> {
    let lowest = AtomicU64::new(u64::MAX);
    let every_other = |first: u64| {
        let mut seeds = (from + first..from + runs).step_by(2);
        seeds.by_ref().take_while(|seed| *seed < lowest.load(Relaxed)).find_map(|seed| {
            let found = run(broken, seed).err()?;
            lowest.fetch_min(seed, Relaxed);
            Some((seed, found))
        })
    };
    let found = std::thread::scope(|scope| {
        let other = scope.spawn(|| every_other(1));
        let one = every_other(0);
        [one, other.join().expect("a run catches its own panics")]
    });
    found.into_iter().flatten().min_by_key(|(seed, _)| *seed)
}

fn run(broken: Broken, seed: u64) -> Verdict {
    lead_through(broken, seed, false).0
}

/// Leads a world through the run of `seed`. A panic is a verdict too.
fn lead_through(broken: Broken, seed: u64, tracing: bool) -> (Verdict, World) {
    let mut random = Random::new(seed);
    let plan = Plan::of(&mut random);
    let mut world = World::new(plan, random, broken, tracing);
    let led = panic::catch_unwind(panic::AssertUnwindSafe(|| world.whole_run()));
    let verdict = led.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(Violation { invariant: "panic", what: text.unwrap_or("without a word").to_owned() })
    });
    (verdict, world)
}

impl World {
    fn whole_run(&mut self) -> Verdict {
        self.run_until(self.plan.chaos.max(self.plan.gathering))?;
        self.heal()?;
        self.settle()?;
        if self.plan.funeral {
            self.funeral()?;
            self.settle()?;
        }
        if self.plan.farewell {
            self.farewell()?;
        }
        Ok(())
    }
}

/// What went wrong, what led to it, and how to see it again.
fn tell_all(broken: Broken, seed: u64, found: &Violation) -> String {
    let (_, world) = lead_through(broken, seed, true);
    let trace: Vec<String> = world.trace.into_iter().flatten().collect();
    format!(
        "seed {seed}, {}: {}\n{:?}\n{}\nTo see it again: RALLYPOINT_SIM_SEED={seed} cargo test --release -p \
         rallypoint-core --test sim one_seed -- --nocapture",
        found.invariant,
        found.what,
        world.plan,
        trace.join("\n"),
    )
}
