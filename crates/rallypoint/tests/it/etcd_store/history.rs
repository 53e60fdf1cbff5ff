//! Many callers at once on one name: is there an order that explains every answer?
//!
//! Histories are short, so that all orders can be tried: what is done next is any call that began before
//! the first of the others ended.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use rallypoint::store::{EtcdStore, Store, StoreError};

use super::counters::several;
use super::on_each_server;

#[derive(Debug, Clone)]
enum Call {
    Set(Bytes),
    Add(i64),
    CompareSet(Bytes, Bytes),
    Append(Bytes),
    Delete,
    Check,
}

/// Nothing for a call that was refused.
type Answer = Option<Bytes>;

#[derive(Debug, Clone)]
struct Record {
    began: Duration,
    ended: Duration,
    call: Call,
    answer: Answer,
}

fn draw(random: &mut fastrand::Rng) -> Call {
    let mut value = || {
        let known = ["0", "5", "6", "7", "x"];
        Bytes::from(known[random.usize(..known.len())])
    };
    let (one, other) = (value(), value());
    match random.u8(..12) {
        0 => Call::Set(one),
        1 => Call::Delete,
        2 => Call::Append("1".into()),
        3 => Call::Check,
        4 => Call::CompareSet(Bytes::new(), one),
        5..8 => Call::CompareSet(one, other),
        amount => Call::Add(i64::from(amount) - 10),
    }
}

async fn ask(store: &EtcdStore, name: &[u8], call: &Call) -> Answer {
    let yes = |yes: bool| Bytes::from(yes.to_string());
    let answer = match call.clone() {
        Call::Set(value) => store.set(name, value).await.map(|()| Bytes::new()),
        Call::Add(amount) => store.add(name, amount).await.map(|sum| sum.to_string().into()),
        Call::CompareSet(old, new) => store.compare_set(name, &old, new).await,
        Call::Append(value) => store.append(name, value).await.map(|()| Bytes::new()),
        Call::Delete => store.delete_key(name).await.map(yes),
        Call::Check => store.check(&[name]).await.map(yes),
    };
    match answer {
        Ok(answer) => Some(answer),
        Err(StoreError::Corrupt { .. }) => None,
        Err(error) => panic!("{call:?}: {error}"),
    }
}

/// What a call does to a value, and what it answers.
fn apply(value: Option<Bytes>, call: &Call) -> (Option<Bytes>, Answer) {
    let yes = |yes: bool| Some(Bytes::from(yes.to_string()));
    match call {
        Call::Set(new) => (Some(new.clone()), Some(Bytes::new())),
        Call::Add(amount) => {
            let text = value.as_deref().map_or_else(|| "0".into(), String::from_utf8_lossy);
            match text.parse::<i64>() {
                // What is only read stays as it is written: 01 is 1.
                Ok(before) if *amount == 0 && value.is_some() => {
                    (value, Some(before.to_string().into()))
                }
                Ok(before) => {
                    let sum = Bytes::from((before + amount).to_string());
                    (Some(sum.clone()), Some(sum))
                }
                Err(_) => (value, None),
            }
        }
        Call::CompareSet(old, new) => match value {
            None if !old.is_empty() => (None, Some(old.clone())),
            Some(value) if value != old => (Some(value.clone()), Some(value)),
            _ => (Some(new.clone()), Some(new.clone())),
        },
        Call::Append(piece) => {
            let whole = [value.as_deref().unwrap_or_default(), piece].concat();
            (Some(whole.into()), Some(Bytes::new()))
        }
        Call::Delete => (None, yes(value.is_some())),
        Call::Check => (value.clone(), yes(value.is_some())),
    }
}

/// Whether the calls that are not `done` can follow on `value` in some order.
fn explained(
    history: &[Record],
    done: u64,
    value: Option<Bytes>,
    failed: &mut BTreeSet<(u64, Option<Bytes>)>,
) -> bool {
    let open = || history.iter().enumerate().filter(|(place, _)| done >> place & 1 == 0);
    let Some(bound) = open().map(|(_, record)| record.ended).min() else { return true };
    if failed.contains(&(done, value.clone())) {
        return false;
    }
    for (place, record) in open().filter(|(_, record)| record.began <= bound) {
        let (next, answer) = apply(value.clone(), &record.call);
        if answer == record.answer && explained(history, done | 1 << place, next, failed) {
            return true;
        }
    }
    failed.insert((done, value));
    false
}

const CALLERS: usize = 5;
const CALLS: usize = 8;
const ROUNDS: usize = 25;

#[tokio::test]
async fn concurrent_calls_have_an_order() {
    on_each_server(async |endpoint| {
        let stores = several(&endpoint, CALLERS).await;
        let zero = Instant::now();
        for round in 0..ROUNDS {
            let name = round.to_string();
            let callers = stores.iter().map(|(_, store)| async {
                let mut random = fastrand::Rng::new();
                let mut history = Vec::new();
                for _ in 0..CALLS {
                    let call = draw(&mut random);
                    let began = zero.elapsed();
                    let answer = ask(store, name.as_bytes(), &call).await;
                    history.push(Record { began, ended: zero.elapsed(), call, answer });
                }
                history
            });
            let mut history: Vec<Record> = join_all(callers).await.into_iter().flatten().collect();
            history.sort_by_key(|record| record.began);
            let lines: Vec<String> = history.iter().map(|record| format!("{record:?}")).collect();
            let lines = lines.join("\n");
            assert!(explained(&history, 0, None, &mut BTreeSet::new()), "no order for\n{lines}");
        }
    })
    .await;
}

/// A checker that never complains would pass everything.
#[test]
fn the_checker_notices() {
    let at = |began, ended, call, answer: &str| Record {
        began: Duration::from_millis(began),
        ended: Duration::from_millis(ended),
        call,
        answer: Some(Bytes::copy_from_slice(answer.as_bytes())),
    };
    let holds = |history: &[Record]| explained(history, 0, None, &mut BTreeSet::new());
    let good = [
        at(0, 10, Call::Add(1), "2"),
        at(5, 15, Call::Add(1), "1"),
        at(12, 20, Call::CompareSet("2".into(), "7".into()), "7"),
        at(21, 30, Call::Add(-1), "6"),
        at(31, 40, Call::Delete, "true"),
        at(41, 50, Call::Check, "false"),
    ];
    assert!(holds(&good));
    let spoilt = |place: usize, answer: &'static str| {
        let mut history = good.clone();
        history[place].answer = Some(answer.into());
        !holds(&history)
    };
    assert!(spoilt(1, "2"), "one addition was lost");
    assert!(spoilt(2, "1"), "an old value was seen");
    assert!(spoilt(3, "8"), "an addition came back to life");
    assert!(spoilt(5, "true"), "a deleted value was seen");
    // What had ended comes first.
    let mut late = good.clone();
    late[1].began = Duration::from_millis(11);
    assert!(!holds(&late));
}
