//! Runs many seeds on two threads, and reports the first failure, or the number of failures.

use std::collections::BTreeMap;
use std::panic;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::events::World;
use super::invariants::{Verdict, Violation};

#[expect(clippy::disallowed_methods, reason = "how long to test is not the core's to decide")]
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

pub(crate) fn number(name: &str, otherwise: u64) -> u64 {
    variable(name).and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// The number of threads.
const THREADS: usize = 2;

/// Runs each thread's part, and returns the results.
fn on_all<T: Send>(part: impl Fn(usize) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let part = &part;
        let threads: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || part(thread))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, T>| thread.join();
        threads.into_iter().map(|thread| join(thread).expect("a run catches panics")).collect()
    })
}

/// The first seed of these that fails, and what each thread has seen on the way.
pub(crate) fn first_failure<S: Default + Send>(
    from: u64,
    runs: u64,
    run: impl Fn(u64, &mut S) -> Verdict + Sync,
) -> (Option<(u64, Violation)>, Vec<S>) {
    let lowest = AtomicU64::new(u64::MAX);
    let parts = on_all(|thread| {
        let mut seen = S::default();
        let mut seeds = (from + thread as u64..from + runs).step_by(THREADS);
        let not_beaten = |seed: &u64| *seed < lowest.load(Relaxed);
        let found = seeds.by_ref().take_while(not_beaten).find_map(|seed| {
            let found = run(seed, &mut seen).err()?;
            lowest.fetch_min(seed, Relaxed);
            Some((seed, found))
        });
        (found, seen)
    });
    let (found, seen): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
    (found.into_iter().flatten().min_by_key(|(seed, _)| *seed), seen)
}

/// The number of these seeds that fail, by invariant, with the first seed of each.
pub(crate) fn count_failures(
    from: u64,
    runs: u64,
    run: impl Fn(u64) -> Verdict + Sync,
) -> Vec<String> {
    let parts = on_all(|thread| {
        let seeds = (from + thread as u64..from + runs).step_by(THREADS);
        seeds.filter_map(|seed| Some((seed, run(seed).err()?))).collect::<Vec<_>>()
    });
    let mut found: Vec<(u64, Violation)> = parts.into_iter().flatten().collect();
    found.sort_by_key(|(seed, _)| *seed);
    let mut told = vec![format!("{} of {runs} seeds fail", found.len())];
    let mut first: BTreeMap<&str, (u64, u64, &str)> = BTreeMap::new();
    for (seed, Violation { invariant, what }) in &found {
        first.entry(invariant).or_insert((0, *seed, what)).0 += 1;
    }
    told.extend(first.into_iter().map(|(invariant, (seeds, first, what))| {
        format!("{seeds} by {invariant}, first seed {first}: {what}")
    }));
    told
}

/// Runs a world. A panic counts as a violation.
pub(crate) fn led(mut world: World, lead: impl FnOnce(&mut World) -> Verdict) -> (Verdict, World) {
    let verdict = panic::catch_unwind(panic::AssertUnwindSafe(|| lead(&mut world)));
    let verdict = verdict.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(Violation { invariant: "panic", what: text.unwrap_or("without a message").to_owned() })
    });
    (verdict, world)
}

/// What went wrong in a run of `test`, what led to it, and how to see it again: with the variables that were
/// set, by whose names the runs of that test are chosen, and with those that say what the test itself has chosen.
pub(crate) fn tell_all(
    (test, name): (&str, &str),
    chosen: &[&str],
    seed: u64,
    found: &Violation,
    world: World,
) -> String {
    let trace: Vec<String> = world.trace.into_iter().flatten().collect();
    let mut variables = format!("{name}_SEED={seed}");
    for name in [format!("{name}_ONLY"), format!("{name}_AS_RELEASED")] {
        if let Some(value) = variable(&name) {
            variables = format!("{name}={value} {variables}");
        }
    }
    for what in chosen {
        variables = format!("{name}_{what}=1 {variables}");
    }
    format!(
        "seed {seed}, {}: {}\n{:?}\n{:?}\n{}\nTo see it again: {variables} cargo test --release -p \
         rallypoint-core --test {test} one_seed -- --nocapture",
        found.invariant,
        found.what,
        world.plan,
        world.job,
        trace.join("\n"),
    )
}
