//! Simulation of the rendezvous: any number of nodes, one store, virtual time, and injected faults. One seed decides
//! everything, so every failure can be reproduced.
//!
//! - `world`, which is shared with another test program: virtual time, the network, the server, nodes with their
//!   sessions and guards, faults, and the invariants.
//! - `top`: the agent on top of each node, and its workers; `draw`: the frequency of faults.
//! - `succession`: runs in which hosts succeed each other as servers.
//! - `settle`: liveness, after the last fault.
//! - `variants`: the broken variants that must be detected.
//!
//! `RALLYPOINT_SIM_RUNS` is the number of runs, `RALLYPOINT_SIM_FROM` the first seed, `RALLYPOINT_SIM_SEED` the one run
//! to report. `RALLYPOINT_SIM_ONLY` restricts the runs to one kind of fault (see `world::plan::FaultFilter`), and
//! `RALLYPOINT_SIM_AS_RELEASED=1` takes the guard and the proofs away that the launcher of 0.1 did not have. With
//! `RALLYPOINT_SIM_SUCCESSION=1` a seed stands for a run in which hosts succeed each other.

mod draw;
mod settle;
mod succession;
mod top;
mod variants;
#[allow(dead_code, reason = "each of the two programs uses a part of it")]
#[path = "../world/mod.rs"]
mod world;

use crate::top::Job;
use crate::world::broken::Broken;
use crate::world::events::World;
use crate::world::invariants::{Verdict, Violation};
use crate::world::plan::{FaultFilter, Plan};
use crate::world::random::Random;
use crate::world::record::Records;
use crate::world::runner::{self, number, variable};

/// The default of `RALLYPOINT_SIM_RUNS`.
const RUNS: u64 = 100_000;

/// So many runs are recorded, and decided again.
const RECORDED: u64 = 300;

/// So many runs of a few may be blocked.
const FEW_BLOCKED: u64 = 10;

/// What all runs of one test have in common.
#[derive(Debug, Clone, Copy)]
struct Kind {
    broken: Broken,
    only: FaultFilter,
    /// Hosts succeed each other as servers.
    succession: bool,
}

impl Kind {
    /// What the user of the tests asks for.
    fn asked_for() -> Self {
        let released = number("RALLYPOINT_SIM_AS_RELEASED", 0) > 0;
        let broken = if released { Broken::AsReleased } else { Broken::Nothing };
        Self {
            broken,
            only: FaultFilter::named(&variable("RALLYPOINT_SIM_ONLY").unwrap_or_default()),
            succession: number("RALLYPOINT_SIM_SUCCESSION", 0) > 0,
        }
    }

    /// The course of each run.
    fn lead(self) -> fn(&mut World) -> Verdict {
        if self.succession { World::whole_succession } else { World::whole_run }
    }
}

/// The first seed, and the number of seeds.
fn seeds() -> (u64, u64) {
    (number("RALLYPOINT_SIM_FROM", 0), number("RALLYPOINT_SIM_RUNS", RUNS))
}

/// R1 to R4, L1, fencing, spare nodes, precedence, remaining keys, and liveness.
#[test]
fn every_seed_keeps_every_promise() {
    let (kind, (from, runs)) = (Kind::asked_for(), seeds());
    if let Some((seed, found)) = first_failure(kind, from, runs) {
        panic!("{}", tell_all(kind, seed, &found));
    }
}

/// Y1 to Y4: one group at a time, and the next one, whichever host is lost or cut off. Few runs may be
/// [blocked](World::is_blocked).
#[test]
#[expect(clippy::print_stderr, reason = "the count is worth knowing, and shown on request")]
fn every_seed_keeps_every_promise_where_hosts_succeed_each_other() {
    let (kind, (from, runs)) = (Kind { succession: true, ..Kind::asked_for() }, seeds());
    let (failure, blocked) = runner::first_failure(from, runs, |seed, blocked: &mut u64| {
        let (verdict, world) = lead_through(kind, seed, false);
        *blocked += u64::from(world.is_blocked());
        verdict
    });
    if let Some((seed, found)) = failure {
        panic!("{}", tell_all(kind, seed, &found));
    }
    let blocked: u64 = blocked.iter().sum();
    eprintln!("{blocked} of {runs} runs wait although a quorum lives");
    assert!(blocked <= FEW_BLOCKED + runs / 250, "{blocked} of {runs} runs are blocked");
}

/// The number of seeds that fail, by invariant, with the first seed of each.
#[test]
#[ignore = "counts failures instead of stopping at the first one"]
#[expect(clippy::print_stderr, reason = "the count is what it is for")]
fn count_failures() {
    let (kind, (from, runs)) = (Kind::asked_for(), seeds());
    for line in runner::count_failures(from, runs, |seed| run(kind, seed)) {
        eprintln!("{kind:?}: {line}");
    }
}

/// More nodes than fit into one transaction: their ranks are written in pieces.
#[test]
fn a_large_group_forms_and_forms_again() {
    for seed in 0..4 {
        let mut random = Random::new(seed);
        let plan = Plan { nodes: 300, ..Plan::large(&mut random, draw::fault) };
        let mut world = World::new(plan, Job, random, Broken::Nothing, false);
        world.whole_run().unwrap_or_else(|found| panic!("seed {seed}: {found:?}"));
        assert!(world.servers[0].rankings >= 3, "seed {seed}: the ranks went in one piece");
    }
}

/// The run of one seed, with a report if it fails.
#[test]
fn one_seed() {
    let (kind, seed) = (Kind::asked_for(), number("RALLYPOINT_SIM_SEED", 0));
    if let Err(found) = run(kind, seed) {
        panic!("{}", tell_all(kind, seed, &found));
    }
}

/// The events of every node tell what happened, and its record leads to the same decisions again.
#[test]
fn what_is_recorded_can_be_decided_again() {
    let kind = Kind::asked_for();
    for seed in 0..number("RALLYPOINT_SIM_RUNS", RUNS).min(RECORDED) {
        let mut world = world(kind, seed, false);
        world.records = Some(Records::default());
        let (_, world) = runner::led(world, World::whole_run);
        let checked = world.records.unwrap_or_default().check(seed);
        checked.unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    }
}

/// What a failure prints leads to the same run.
#[test]
fn a_failure_says_how_to_see_it_again() {
    let found = Violation { invariant: "none", what: "an example".to_owned() };
    let told = |succession: bool| {
        let text = tell_all(Kind { succession, ..Kind::asked_for() }, 7, &found);
        text.lines().last().unwrap_or_default().to_owned()
    };
    assert!(told(true).contains(" RALLYPOINT_SIM_SUCCESSION=1 "), "{}", told(true));
    assert!(!told(false).contains("SUCCESSION"), "{}", told(false));
    assert!(told(false).contains(" RALLYPOINT_SIM_SEED=7 "), "{}", told(false));
}

/// Each broken variant is found within its number of seeds, by one of its invariants.
#[test]
fn every_broken_variant_is_found() {
    let survivors = survivors(&variants::TABLE, variants::WORLD, false);
    assert!(survivors.is_empty(), "{}", survivors.join("\n"));
}

/// Each broken variant of the rules that keep one group at a time is found.
#[test]
fn every_broken_variant_of_one_group_at_a_time_is_found() {
    let survivors = survivors(&variants::ONE_GROUP, FaultFilter::Everything, false);
    assert!(survivors.is_empty(), "{}", survivors.join("\n"));
}

/// Each broken variant of the rules of succession is found.
#[test]
fn every_broken_variant_of_succession_is_found() {
    let survivors = survivors(&variants::SUCCESSION, FaultFilter::Everything, true);
    assert!(survivors.is_empty(), "{}", survivors.join("\n"));
}

/// The variants that are not found, or by something else.
#[expect(
    clippy::print_stderr,
    reason = "which seed found what is worth knowing, and shown on request"
)]
fn survivors(table: &[(Broken, u64, &[&str])], only: FaultFilter, succession: bool) -> Vec<String> {
    let mut survivors = Vec::new();
    for (broken, seeds, invariants) in table.iter().copied() {
        let kind = Kind { broken, only, succession };
        match first_failure(kind, 0, seeds) {
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
    survivors
}

fn first_failure(kind: Kind, from: u64, runs: u64) -> Option<(u64, Violation)> {
    runner::first_failure(from, runs, |seed, ()| run(kind, seed)).0
}

fn run(kind: Kind, seed: u64) -> Verdict {
    lead_through(kind, seed, false).0
}

fn lead_through(kind: Kind, seed: u64, tracing: bool) -> (Verdict, World) {
    runner::led(world(kind, seed, tracing), kind.lead())
}

fn world(kind: Kind, seed: u64, tracing: bool) -> World {
    let mut random = Random::new(seed);
    let plan = match kind.succession {
        true => succession::plan(&mut random),
        false => Plan::of(&mut random, kind.only, draw::fault),
    };
    World::new(plan, Job, random, kind.broken, tracing)
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

fn tell_all(kind: Kind, seed: u64, found: &Violation) -> String {
    let (_, world) = lead_through(kind, seed, true);
    let chosen: &[&str] = if kind.succession { &["SUCCESSION"] } else { &[] };
    runner::tell_all(("sim", "RALLYPOINT_SIM"), chosen, seed, found, world)
}
