//! The store against a plain map, over random histories of one caller.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use rallypoint::store::{EtcdStore, Store, StoreError};

use crate::client::client;
use crate::support::Embedded;

/// Names that are the beginning of another, or look like a part of a key.
const NAMES: [&[u8]; 10] =
    [b"", b"a", b"a=", b"a>", b"a+00", b"aa", b"1:a", b"0:=", b"\0\xff", b"\xff\xff"];

#[derive(Debug, Clone)]
enum Step {
    Set(&'static [u8], Bytes),
    MultiSet(Vec<(&'static [u8], Bytes)>),
    Add(&'static [u8], i64),
    CompareSet(&'static [u8], Bytes, Bytes),
    Append(&'static [u8], Bytes),
    Delete(&'static [u8]),
    Push(&'static [u8], Bytes),
    Pop(&'static [u8]),
}

fn step() -> impl Strategy<Value = Step> {
    let name = || select(NAMES.as_slice());
    let value = || {
        let known: [&[u8]; 8] = [b"", b"0", b"7", b"-3", b" +5\n", b"x", b"\0\xff", b"1="];
        select(known.to_vec()).prop_map(Bytes::from_static)
    };
    let amount = select(vec![0, 1, -1, 3, 7, -1000, 1 << 40]);
    prop_oneof![
        (name(), value()).prop_map(|(name, value)| Step::Set(name, value)),
        vec((name(), value()), 0..5).prop_map(Step::MultiSet),
        (name(), amount).prop_map(|(name, amount)| Step::Add(name, amount)),
        (name(), value(), value()).prop_map(|(name, old, new)| Step::CompareSet(name, old, new)),
        (name(), value()).prop_map(|(name, value)| Step::Append(name, value)),
        name().prop_map(Step::Delete),
        (name(), value()).prop_map(|(name, value)| Step::Push(name, value)),
        name().prop_map(Step::Pop),
    ]
}

/// What an answer comes to, in a form that can be compared.
type Answer = Result<Bytes, &'static str>;

#[derive(Default)]
struct Model {
    values: BTreeMap<&'static [u8], Bytes>,
    queues: BTreeMap<&'static [u8], VecDeque<Bytes>>,
}

impl Model {
    fn step(&mut self, step: &Step) -> Answer {
        match step {
            Step::Set(name, value) => drop(self.values.insert(name, value.clone())),
            Step::MultiSet(pairs) => self.values.extend(pairs.iter().cloned()),
            Step::Add(name, amount) => {
                let before = self.values.get(name).cloned().unwrap_or_else(|| "0".into());
                let before = std::str::from_utf8(&before).ok().and_then(|b| b.trim().parse().ok());
                let sum: i64 = before.map(|before: i64| before + amount).ok_or("corrupt")?;
                // What is only read stays as it is written.
                if *amount != 0 || !self.values.contains_key(name) {
                    self.values.insert(name, sum.to_string().into());
                }
                return Ok(sum.to_string().into());
            }
            Step::CompareSet(name, expected, desired) => match self.values.get(name) {
                None if !expected.is_empty() => return Ok(expected.clone()),
                Some(value) if value != expected => return Ok(value.clone()),
                _ => {
                    self.values.insert(name, desired.clone());
                    return Ok(desired.clone());
                }
            },
            Step::Append(name, value) => {
                let whole = self.values.entry(name).or_default();
                *whole = [whole.as_ref(), value].concat().into();
            }
            Step::Delete(name) => {
                return Ok(self.values.remove(name).is_some().to_string().into());
            }
            Step::Push(name, value) => {
                self.queues.entry(name).or_default().push_back(value.clone())
            }
            Step::Pop(name) => {
                return self.queues.get_mut(name).and_then(VecDeque::pop_front).ok_or("empty");
            }
        }
        Ok(Bytes::new())
    }
}

async fn ask(store: &EtcdStore, step: &Step) -> Answer {
    let answer = match step {
        Step::Set(name, value) => store.set(name, value.clone()).await.map(|()| Bytes::new()),
        Step::MultiSet(pairs) => store.multi_set(pairs).await.map(|()| Bytes::new()),
        Step::Add(name, amount) => store.add(name, *amount).await.map(|sum| sum.to_string().into()),
        Step::CompareSet(name, old, new) => store.compare_set(name, old, new.clone()).await,
        Step::Append(name, value) => store.append(name, value.clone()).await.map(|()| Bytes::new()),
        Step::Delete(name) => store.delete_key(name).await.map(|was| was.to_string().into()),
        Step::Push(name, value) => {
            store.queue_push(name, value.clone()).await.map(|()| Bytes::new())
        }
        Step::Pop(name) => store.queue_pop(name, false).await,
    };
    answer.map_err(|error| match error {
        StoreError::Corrupt { .. } => "corrupt",
        StoreError::QueueEmpty { .. } => "empty",
        error => panic!("{step:?}: {error}"),
    })
}

async fn compare(store: &EtcdStore, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut model = Model::default();
    for step in steps {
        prop_assert_eq!(ask(store, step).await, model.step(step), "{:?}", step);
    }
    let names: BTreeSet<Bytes> =
        model.values.keys().map(|name| Bytes::copy_from_slice(name)).collect();
    prop_assert_eq!(store.num_keys().await.unwrap(), names.len() as u64);
    prop_assert_eq!(BTreeSet::from_iter(store.list_keys().await.unwrap()), names);
    let there: Vec<&[u8]> = model.values.keys().copied().collect();
    let values: Vec<Bytes> = model.values.values().cloned().collect();
    prop_assert_eq!(store.multi_get(&there).await.unwrap(), values);
    for name in NAMES {
        let queued = model.queues.get(name).map_or(0, VecDeque::len);
        prop_assert_eq!(store.queue_len(name).await.unwrap(), queued as u64, "{:?}", name);
        let exists = queued > 0 || model.values.contains_key(name);
        prop_assert_eq!(store.check(&[name]).await.unwrap(), exists, "{:?}", name);
        if let Some(value) = model.values.get(name) {
            prop_assert_eq!(&store.get(name).await.unwrap(), value, "{:?}", name);
        }
    }
    Ok(())
}

#[test]
fn the_store_does_what_a_map_does() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = runtime.block_on(Embedded::memory());
    let client = runtime.block_on(client([server.endpoint()]));
    let config = Config { cases: 100, failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(&vec(step(), 1..60), |steps| {
        // One beside the other, so that they would see each other if they could.
        let prefix = format!("/job/{}:", fastrand::u64(..));
        let store = EtcdStore::new(client.clone(), prefix, 0, Duration::from_secs(20));
        runtime.block_on(compare(&store, &steps))
    });
    outcome.unwrap();
}
