//! The store against a model of itself, over random histories.
//!
//! - `model`: what the store must answer, written from etcd's semantics in the plainest way.
//! - `streams`: what watches must hear.
//! - `steps`: what a history is made of, and how it is drawn.
//! - `run`: leads both through a history and compares them.
//! - `regressions`: bugs that were.
//! - `tables`: the corners that are easier to read as a list.
//!
//! A failure prints the shortest history that shows it, and the step that went wrong.

mod model;
mod regressions;
mod run;
mod steps;
mod streams;
mod tables;

use std::panic;

use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};
use rallypoint_core::mvcc::MvccOptions;

use crate::run::{Run, Verdict};
use crate::steps::Step;

/// S1, S2, S3: one revision per write, watches that miss nothing, leases that go in one piece; and
/// all else that a client could tell the store from etcd by.
#[test]
fn store_does_what_the_model_does() {
    let config = Config { cases: cases(), failure_persistence: None, ..Config::default() };
    let drawn = (steps::options(), steps::history());
    let outcome = TestRunner::new(config).run(&drawn, |(options, history)| {
        lead_through(&options, &history).map_err(TestCaseError::fail)
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Abort(why)) => panic!("{why}"),
        Err(TestError::Fail(why, (options, mut history))) => {
            let why = shorten(&options, &mut history).unwrap_or_else(|| why.to_string());
            let steps: Vec<String> = history.iter().map(|step| format!("\n  {step:?}")).collect();
            panic!("{why}\n{options:?}\n{} steps:{}", steps.len(), steps.concat());
        }
    }
}

/// The number of histories, unless `PROPTEST_CASES` says otherwise.
#[expect(clippy::disallowed_methods, reason = "how long to test is not the core's to decide")]
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(20_000)
}

/// Leads a store through a history. A panic is a verdict too.
fn lead_through(options: &MvccOptions, history: &[Step]) -> Verdict {
    let lead = || {
        let mut run = Run::new(options.clone());
        for (number, step) in history.iter().enumerate() {
            run.step(step).map_err(|why| format!("step {number}, {step:?}\n  {why}"))?;
        }
        run.finish().map_err(|why| format!("in the end: {why}"))
    };
    panic::catch_unwind(panic::AssertUnwindSafe(lead)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("panic: {}", text.unwrap_or("without a message")))
    })
}

/// Leaves out every step that the failure does not need, and tells what it is then. What is drawn
/// shrinks by itself, but once only: a step that a later one needed may be idle when that one is
/// simpler.
fn shorten(options: &MvccOptions, history: &mut Vec<Step>) -> Option<String> {
    let mut why = lead_through(options, history).err();
    loop {
        let before = history.len();
        for place in (0..before).rev() {
            let left_out = history.remove(place);
            match lead_through(options, history) {
                Err(still) => why = Some(still),
                Ok(()) => history.insert(place, left_out),
            }
        }
        if history.len() == before {
            return why;
        }
    }
}
