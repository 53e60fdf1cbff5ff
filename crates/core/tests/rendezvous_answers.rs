//! Replies to a node that arrive out of order, or late.

#![allow(clippy::unwrap_used, reason = "a test that fails should stop")]

use std::time::Duration;

use rallypoint_core::kv::{Compare, KeyValue, Op, OpResult, Put, RangeResult, Txn, TxnResult};
use rallypoint_core::rendezvous::documents::{Limits, NodeDocument, RunOutcome};
use rallypoint_core::rendezvous::keys::Keys;
use rallypoint_core::rendezvous::ranks::RankPolicy;
use rallypoint_core::rendezvous::sizes::SizeRules;
use rallypoint_core::rendezvous::{Node, NodeConfig, NodeInput, NodeOutput, Purpose, RequestId};

fn node() -> Node {
    node_with(7)
}

fn node_with(entropy: u64) -> Node {
    let keys = Keys::new("/p", "run");
    let config = NodeConfig {
        run_lease: keys.run_lease(),
        keys,
        limits: Limits { min: 1, max: 2 },
        sizes: SizeRules::default(),
        timeout: Duration::from_secs(60),
        server_timeout: Duration::from_secs(60),
        last_call: Duration::from_secs(1),
        confirm: Duration::from_secs(2),
        lease_ttl: Duration::from_secs(2),
        rank_policy: RankPolicy::Stable,
        sole: false,
        succession: None,
        started: None,
        keeps_events: true,
    };
    Node::new(config, NodeDocument { id: "me".to_owned(), ..NodeDocument::default() }, entropy)
}

fn outputs(node: &mut Node, input: NodeInput) -> Vec<NodeOutput> {
    node.handle(Duration::from_millis(1), input);
    std::iter::from_fn(|| node.poll_output()).collect()
}

fn request(outputs: Vec<NodeOutput>, wanted: Purpose) -> (RequestId, Txn) {
    let found = outputs.into_iter().find_map(|output| match output {
        NodeOutput::Request { id, purpose, txn } if purpose == wanted => Some((id, txn)),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("no request to {wanted:?}"))
}

/// The key and value that a request writes, at this revision.
fn written(txn: &Txn, key: &str, revision: i64) -> KeyValue {
    let put = txn.success.iter().find_map(|op| match op {
        Op::Put(put) if put.key == *key => Some(put.clone()),
        _ => None,
    });
    let Put { key, value, lease, .. } = put.unwrap();
    KeyValue { key, value, create_revision: revision, mod_revision: revision, version: 1, lease }
}

/// A snapshot of a server at this revision.
fn found(revision: i64, kvs: [Option<KeyValue>; 3], another_server: bool) -> NodeInput {
    let range = |kv: Option<KeyValue>| {
        let count = i64::from(kv.is_some());
        let kvs = kv.into_iter().collect();
        OpResult::Range(RangeResult { revision, kvs, count, more: false })
    };
    let results = kvs.map(range).into();
    NodeInput::Snapshot { found: TxnResult { revision, succeeded: true, results }, another_server }
}

fn nothing(revision: i64) -> NodeInput {
    found(revision, [None, None, None], false)
}

/// A snapshot after a request was executed at this revision.
fn after(txn: &Txn, revision: i64, another_server: bool) -> NodeInput {
    let keys = Keys::new("/p", "run");
    let kvs = [keys.active(), keys.round(), keys.history()];
    found(revision, kvs.map(|key| Some(written(txn, &key, revision))), another_server)
}

fn ends_session(outputs: &[NodeOutput]) -> bool {
    outputs.iter().any(|output| matches!(output, NodeOutput::EndSession))
}

/// The server has lost its state, so its revisions are lower than those that the node has observed, and its replies
/// arrive before the watch breaks.
#[test]
fn an_answer_of_a_server_that_forgot_everything_is_the_loss_of_the_session() {
    let mut node = node();
    outputs(&mut node, NodeInput::SessionOpened { lease: 7 });
    outputs(&mut node, nothing(1000));
    let (id, _) = request(outputs(&mut node, NodeInput::Enter), Purpose::Open);
    let result = TxnResult { revision: 2, succeeded: true, results: Vec::new() };
    let told = outputs(&mut node, NodeInput::Answered { id, result });
    assert!(ends_session(&told), "{told:#?}");
    let looks = told.iter().any(|output| matches!(output, NodeOutput::Resync));
    assert!(looks, "it must look before it asks again: {told:#?}");
    let told = outputs(&mut node, nothing(3));
    assert!(matches!(told.as_slice(), [NodeOutput::OpenSession]), "{told:#?}");
    let told = outputs(&mut node, NodeInput::SessionOpened { lease: 8 });
    request(told, Purpose::Open);
}

/// The history in the snapshot is not the observed one, though its revisions are higher.
#[test]
fn another_history_is_the_loss_of_the_session_in_the_same_input() {
    let mut other = node();
    outputs(&mut other, NodeInput::SessionOpened { lease: 9 });
    outputs(&mut other, nothing(1));
    let (_, theirs) = request(outputs(&mut other, NodeInput::Enter), Purpose::Open);

    let mut node = node_with(8);
    outputs(&mut node, NodeInput::SessionOpened { lease: 7 });
    outputs(&mut node, nothing(10));
    let (id, _) = request(outputs(&mut node, NodeInput::Enter), Purpose::Open);
    let result = TxnResult { revision: 12, succeeded: true, results: Vec::new() };
    outputs(&mut node, NodeInput::Answered { id, result });
    let told = outputs(&mut node, after(&theirs, 20, false));
    assert!(ends_session(&told), "{told:#?}");
    assert!(!node.view(Duration::ZERO).session);
}

/// The attempt to join times out, but the closing of the run does not.
#[test]
fn a_closing_outlives_the_meeting() {
    let mut node = node();
    outputs(&mut node, NodeInput::SessionOpened { lease: 7 });
    outputs(&mut node, nothing(10));
    let (id, _) = request(outputs(&mut node, NodeInput::Enter), Purpose::Open);
    let result = TxnResult { revision: 12, succeeded: true, results: Vec::new() };
    outputs(&mut node, NodeInput::Answered { id, result });
    let outcome = RunOutcome::Failed;
    let close = NodeInput::Close { outcome, reason: "enough".into() };
    let (id, _) = request(outputs(&mut node, close), Purpose::Close);
    node.handle(Duration::from_secs(10_000), NodeInput::Wake);
    assert!(node.awaits(id), "the closing was forgotten");
}

/// The watch was opened again, and its snapshot is older than the reply to the node's own request.
#[test]
fn a_look_that_is_late_does_not_cost_a_round_its_coordinator() {
    let mut node = node();
    outputs(&mut node, NodeInput::SessionOpened { lease: 7 });
    outputs(&mut node, nothing(10));
    let (id, _) = request(outputs(&mut node, NodeInput::Enter), Purpose::Open);
    let result = TxnResult { revision: 12, succeeded: true, results: Vec::new() };
    outputs(&mut node, NodeInput::Answered { id, result });
    // The run's history began with that reply, so an older snapshot cannot show another one.
    let late = outputs(&mut node, nothing(11));
    assert!(late.is_empty(), "{late:#?}");
    let why = node.view(Duration::from_millis(1)).waits_for.unwrap();
    assert_eq!(why, "reading the membership");
}

/// Another report, or a late node, changed the document while the report was in flight.
#[test]
fn a_report_is_repeated_as_long_as_its_round_is_in_force() {
    let mut node = node();
    let (_, txn) = {
        outputs(&mut node, NodeInput::SessionOpened { lease: 7 });
        outputs(&mut node, nothing(10));
        request(outputs(&mut node, NodeInput::Enter), Purpose::Open)
    };
    let mut node = self::node();
    outputs(&mut node, NodeInput::SessionOpened { lease: 8 });
    outputs(&mut node, after(&txn, 11, false));
    let suspect = NodeInput::Suspect { node: "other".to_owned() };
    let (id, _) = request(outputs(&mut node, suspect), Purpose::Suspect);
    let NodeInput::Snapshot { found, .. } = after(&txn, 12, false) else { panic!("a look") };
    let result = TxnResult { succeeded: false, ..found };
    let (_, again) =
        request(outputs(&mut node, NodeInput::Answered { id, result }), Purpose::Suspect);
    let unchanged = Compare::unchanged_since(Keys::new("/p", "run").active(), 12);
    assert!(again.compares.contains(&unchanged), "{again:#?}");
}
