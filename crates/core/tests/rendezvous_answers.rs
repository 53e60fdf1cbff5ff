//! Answers that come in an unlucky order, or a little too late.

#![allow(clippy::unwrap_used, reason = "a test that fails should stop")]

use std::time::Duration;

use rallypoint_core::kv::{Compare, KeyValue, Op, OpResult, Put, RangeResult, Txn, TxnResult};
use rallypoint_core::rendezvous::document::Node;
use rallypoint_core::rendezvous::gate::Limits;
use rallypoint_core::rendezvous::keys::Keys;
use rallypoint_core::rendezvous::ranks::RankPolicy;
use rallypoint_core::rendezvous::{Input, Machine, Output, Purpose, RequestId, Settings};

fn machine() -> Machine {
    let keys = Keys::new("/p", "run");
    let settings = Settings {
        run_lease: keys.run_lease(),
        keys,
        limits: Limits { min: 1, max: 2 },
        timeout: Duration::from_secs(60),
        last_call: Duration::from_secs(1),
        confirm: Duration::from_secs(2),
        rank_policy: RankPolicy::Stable,
    };
    Machine::new(settings, Node { id: "me".to_owned(), ..Node::default() })
}

fn outputs(machine: &mut Machine, input: Input) -> Vec<Output> {
    machine.handle(Duration::from_millis(1), input);
    std::iter::from_fn(|| machine.poll_output()).collect()
}

fn request(outputs: Vec<Output>, wanted: Purpose) -> (RequestId, Txn) {
    let found = outputs.into_iter().find_map(|output| match output {
        Output::Request { id, purpose, txn } if purpose == wanted => Some((id, txn)),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("no request to {wanted:?}"))
}

/// The document that a request puts in force, as a server of this revision has it.
fn document(txn: &Txn, revision: i64) -> KeyValue {
    written(txn, &Keys::new("/p", "run").active(), revision)
}

fn written(txn: &Txn, key: &str, revision: i64) -> KeyValue {
    let put = txn.success.iter().find_map(|op| match op {
        Op::Put(put) if put.key == *key => Some(put.clone()),
        _ => None,
    });
    let Put { key, value, lease, .. } = put.unwrap();
    KeyValue { key, value, create_revision: revision, mod_revision: revision, version: 1, lease }
}

/// The server was restarted without its memory, so its revisions are lower than what the node knows,
/// and the answers of the new one come before the watch has noticed.
#[test]
fn a_round_opened_on_a_server_that_forgot_everything_has_a_coordinator() {
    let mut machine = machine();
    outputs(&mut machine, Input::SessionOpened { lease: 7 });
    outputs(&mut machine, Input::Snapshot { revision: 1000, active: None, forgotten: false });
    let (id, txn) = request(outputs(&mut machine, Input::Enter), Purpose::Open);
    let result = TxnResult { revision: 2, succeeded: true, results: Vec::new() };
    let told = outputs(&mut machine, Input::Answered { id, result });
    let looks = matches!(told.as_slice(), [Output::LookAgain]);
    assert!(looks, "it must look before it asks again: {told:#?}");
    let active = Some(document(&txn, 2));
    let told = outputs(&mut machine, Input::Snapshot { revision: 3, active, forgotten: true });
    let watches = told.iter().any(|output| matches!(output, Output::Watch { .. }));
    assert!(watches, "nobody looks who joins: {told:#?}");
}

/// The time for a meeting is over, not that for closing the run.
#[test]
fn a_closing_outlives_the_meeting() {
    let mut machine = machine();
    outputs(&mut machine, Input::SessionOpened { lease: 7 });
    outputs(&mut machine, Input::Snapshot { revision: 10, active: None, forgotten: false });
    let (id, _) = request(outputs(&mut machine, Input::Enter), Purpose::Open);
    let result = TxnResult { revision: 12, succeeded: true, results: Vec::new() };
    outputs(&mut machine, Input::Answered { id, result });
    let close = Input::Close { reason: "enough".into() };
    let (id, _) = request(outputs(&mut machine, close), Purpose::Close);
    machine.handle(Duration::from_secs(10_000), Input::Wake);
    assert!(machine.awaits(id), "the closing was forgotten");
}

/// The watch had to begin anew, and what it read first is older than the answer to our own request.
#[test]
fn a_look_that_is_late_does_not_cost_a_round_its_coordinator() {
    let mut machine = machine();
    outputs(&mut machine, Input::SessionOpened { lease: 7 });
    outputs(&mut machine, Input::Snapshot { revision: 10, active: None, forgotten: false });
    let (id, _) = request(outputs(&mut machine, Input::Enter), Purpose::Open);
    let result = TxnResult { revision: 12, succeeded: true, results: Vec::new() };
    outputs(&mut machine, Input::Answered { id, result });
    let late = Input::Snapshot { revision: 11, active: None, forgotten: false };
    let late = outputs(&mut machine, late);
    assert!(late.is_empty(), "{late:#?}");
    let why = machine.view(Duration::from_millis(1)).waits_for.unwrap();
    assert_eq!(why, "looking who is there");
}

/// Another report, or a late node, changed the document while ours was on its way.
#[test]
fn a_report_is_repeated_as_long_as_its_round_is_in_force() {
    let mut machine = machine();
    let (_, txn) = {
        outputs(&mut machine, Input::SessionOpened { lease: 7 });
        outputs(&mut machine, Input::Snapshot { revision: 10, active: None, forgotten: false });
        request(outputs(&mut machine, Input::Enter), Purpose::Open)
    };
    let mut machine = self::machine();
    outputs(&mut machine, Input::SessionOpened { lease: 8 });
    let active = Some(document(&txn, 11));
    outputs(&mut machine, Input::Snapshot { revision: 11, active, forgotten: false });
    let suspect = Input::Suspect { node: "other".to_owned() };
    let (id, _) = request(outputs(&mut machine, suspect), Purpose::Suspect);
    let refused = |kv| {
        let found = RangeResult { revision: 12, kvs: vec![kv], count: 1, more: false };
        TxnResult { revision: 12, succeeded: false, results: vec![OpResult::Range(found)] }
    };
    let result = refused(document(&txn, 12));
    let (_, again) =
        request(outputs(&mut machine, Input::Answered { id, result }), Purpose::Suspect);
    let unchanged = Compare::unchanged_since(Keys::new("/p", "run").active(), 12);
    assert!(again.compares.contains(&unchanged), "{again:#?}");
}
