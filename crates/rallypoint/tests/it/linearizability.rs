//! Many clients at once on a few keys: is there one order that explains every answer?
//!
//! In general that is hard to find. Here the store names it: every answer carries the revision at
//! which it was given, so the revisions are the order and it is enough to check that
//!
//! 1. no two writes have the same revision,
//! 2. every answer is what the writes up to its revision make it,
//! 3. what ended before something else began has no later revision, and a write has an earlier one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use pb::compare::{CompareResult, CompareTarget, TargetUnion};
use rallypoint::proto::etcd as pb;

use crate::support::{Embedded, wire};

#[derive(Debug, Clone, PartialEq)]
enum Action {
    Put {
        value: u64,
    },
    /// What was read: the value and the revision that wrote it.
    Get {
        found: Option<(u64, i64)>,
    },
    Delete {
        deleted: bool,
    },
    /// Put `value` if the key was last changed at `expected`, 0 for never.
    Swap {
        expected: i64,
        value: u64,
        swapped: bool,
    },
}

#[derive(Debug, Clone)]
struct Record {
    began: Duration,
    ended: Duration,
    key: usize,
    revision: i64,
    action: Action,
}

impl Record {
    fn writes(&self) -> bool {
        match self.action {
            Action::Put { .. } => true,
            Action::Get { .. } => false,
            Action::Delete { deleted } => deleted,
            Action::Swap { swapped, .. } => swapped,
        }
    }
}

/// Finds what cannot be explained.
fn check(history: &[Record]) -> Result<(), String> {
    // 1. The writes have one order.
    let mut writes: BTreeMap<i64, &Record> = BTreeMap::new();
    for record in history.iter().filter(|record| record.writes()) {
        if let Some(twin) = writes.insert(record.revision, record) {
            return Err(format!("two writes at one revision: {twin:?}, {record:?}"));
        }
    }
    // 2. Every answer fits the state at its revision.
    type State = BTreeMap<usize, (u64, i64)>;
    let mut states: BTreeMap<i64, State> = BTreeMap::from([(0, State::new())]);
    let mut state = State::new();
    for (revision, record) in &writes {
        match record.action {
            Action::Put { value } | Action::Swap { value, .. } => {
                state.insert(record.key, (value, *revision));
            }
            Action::Delete { .. } => drop(state.remove(&record.key)),
            Action::Get { .. } => unreachable!("a read does not write"),
        }
        states.insert(*revision, state.clone());
    }
    for record in history {
        // A write saw the state just before itself.
        let seen = if record.writes() { record.revision - 1 } else { record.revision };
        let (_, state) = states.range(..=seen).next_back().expect("there is a state at 0");
        let there = state.get(&record.key).copied();
        let fits = match record.action {
            Action::Put { .. } => true,
            Action::Get { found } => found == there,
            Action::Delete { deleted } => deleted == there.is_some(),
            Action::Swap { expected, swapped, .. } => {
                swapped == (expected == there.map_or(0, |(_, changed)| changed))
            }
        };
        if !fits {
            return Err(format!("{record:?} does not fit what was there: {there:?}"));
        }
    }
    // 3. Revisions follow real time: compare each with the latest that had ended when it began.
    let mut by_end: Vec<&Record> = history.iter().collect();
    by_end.sort_by_key(|record| record.ended);
    let mut by_begin: Vec<&Record> = history.iter().collect();
    by_begin.sort_by_key(|record| record.began);
    let mut ended = by_end.into_iter().peekable();
    let mut latest: Option<&Record> = None;
    for record in by_begin {
        while let Some(earlier) = ended.next_if(|earlier| earlier.ended < record.began) {
            if latest.is_none_or(|latest| earlier.revision > latest.revision) {
                latest = Some(earlier);
            }
        }
        if let Some(latest) = latest {
            let after = if record.writes() {
                record.revision > latest.revision
            } else {
                record.revision >= latest.revision
            };
            if !after {
                return Err(format!("{record:?} began after {latest:?} had ended"));
            }
        }
    }
    Ok(())
}

const CLIENTS: usize = 8;
const KEYS: usize = 3;

fn name(key: usize) -> bytes::Bytes {
    format!("key{key}").into()
}

async fn read(kv: &mut Client, key: usize) -> (i64, Option<(u64, i64)>) {
    let request = pb::RangeRequest { key: name(key), ..Default::default() };
    let answer = kv.range(request).await.unwrap().into_inner();
    let found = answer
        .kvs
        .first()
        .map(|kv| (std::str::from_utf8(&kv.value).unwrap().parse().unwrap(), kv.mod_revision));
    (answer.header.unwrap().revision, found)
}

type Client = pb::kv_client::KvClient<tonic::transport::Channel>;

async fn client(endpoint: String, number: usize, steps: usize, zero: Instant) -> Vec<Record> {
    let mut random = fastrand::Rng::with_seed(number as u64);
    let mut kv = wire::kv(&endpoint);
    let mut known = [0; KEYS];
    let mut history = Vec::new();
    for step in 0..steps {
        let key = random.usize(..KEYS);
        let value = (number * steps + step) as u64;
        let put = pb::PutRequest {
            key: name(key),
            value: value.to_string().into(),
            ..Default::default()
        };
        let began = zero.elapsed();
        let (revision, action) = match random.u8(..10) {
            0..3 => {
                let answer = kv.put(put).await.unwrap().into_inner();
                (answer.header.unwrap().revision, Action::Put { value })
            }
            3 => {
                let request = pb::DeleteRangeRequest { key: name(key), ..Default::default() };
                let answer = kv.delete_range(request).await.unwrap().into_inner();
                let deleted = answer.deleted == 1;
                (answer.header.unwrap().revision, Action::Delete { deleted })
            }
            4..7 => {
                let (revision, found) = read(&mut kv, key).await;
                known[key] = found.map_or(0, |(_, changed)| changed);
                (revision, Action::Get { found })
            }
            _ => {
                let expected = known[key];
                let compare = pb::Compare {
                    result: CompareResult::Equal.into(),
                    target: CompareTarget::Mod.into(),
                    key: name(key),
                    target_union: Some(TargetUnion::ModRevision(expected)),
                    ..Default::default()
                };
                let put = pb::request_op::Request::RequestPut(put);
                let request = pb::TxnRequest {
                    compare: vec![compare],
                    success: vec![pb::RequestOp { request: Some(put) }],
                    failure: vec![],
                };
                let answer = kv.txn(request).await.unwrap().into_inner();
                let swapped = answer.succeeded;
                let revision = answer.header.unwrap().revision;
                (revision, Action::Swap { expected, value, swapped })
            }
        };
        history.push(Record { began, ended: zero.elapsed(), key, revision, action });
    }
    history
}

async fn run(server: &Embedded, steps: usize) -> Vec<Record> {
    let zero = Instant::now();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| tokio::spawn(client(server.endpoint(), number, steps, zero)))
        .collect();
    let mut history = Vec::new();
    for client in clients {
        history.extend(client.await.unwrap());
    }
    history
}

async fn explained(server: Embedded) {
    let history = run(&server, 400).await;
    let swaps = history.iter().filter(|r| matches!(r.action, Action::Swap { swapped: true, .. }));
    assert!(swaps.count() > 20, "too few swaps succeeded to say anything");
    check(&history).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn in_memory() {
    explained(Embedded::memory().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn on_disk() {
    explained(Embedded::disk().await).await;
}

/// A checker that never complains would pass everything: spoil a good history in each way it should
/// notice.
#[test]
fn the_checker_notices() {
    let at = |began, ended, revision, action| Record {
        began: Duration::from_millis(began),
        ended: Duration::from_millis(ended),
        key: 0,
        revision,
        action,
    };
    let good = vec![
        at(0, 10, 2, Action::Put { value: 1 }),
        at(20, 30, 2, Action::Get { found: Some((1, 2)) }),
        at(25, 45, 3, Action::Swap { expected: 2, value: 2, swapped: true }),
        at(40, 60, 4, Action::Delete { deleted: true }),
        at(50, 70, 3, Action::Get { found: Some((2, 3)) }),
        at(80, 90, 4, Action::Get { found: None }),
        at(95, 99, 4, Action::Swap { expected: 3, value: 9, swapped: false }),
    ];
    check(&good).unwrap();
    let spoilt = |index: usize, spoil: fn(&mut Record)| {
        let mut history = good.clone();
        spoil(&mut history[index]);
        check(&history).unwrap_err()
    };
    assert!(spoilt(2, |r| r.revision = 2).contains("two writes"));
    assert!(spoilt(1, |r| r.action = Action::Get { found: None }).contains("does not fit"));
    assert!(spoilt(4, |r| r.revision = 4).contains("does not fit"));
    assert!(spoilt(3, |r| r.action = Action::Delete { deleted: false }).contains("does not fit"));
    let lost = Action::Swap { expected: 1, value: 2, swapped: true };
    let mut history = good.clone();
    history[2].action = lost;
    assert!(check(&history).unwrap_err().contains("does not fit"));
    // A read from before a write that had ended.
    let stale = at(100, 110, 3, Action::Get { found: Some((2, 3)) });
    let history: Vec<Record> = good.iter().cloned().chain([stale]).collect();
    assert!(check(&history).unwrap_err().contains("had ended"));
    // A write that goes back in time.
    let late = at(61, 65, 5, Action::Put { value: 5 });
    let early = at(120, 130, 5, Action::Put { value: 5 });
    let mut history = vec![at(100, 110, 6, Action::Put { value: 6 }), early];
    assert!(check(&history).unwrap_err().contains("had ended"));
    history[1] = late;
    check(&history).unwrap();
}
