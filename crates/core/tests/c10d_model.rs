//! The state against a model of itself, over random histories.
//!
//! The model keeps flat lists and looks through all of them. What it cannot tell, whether its own rules
//! lose anybody, is asked in the end: nobody may be left waiting for a key that exists.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use proptest::prelude::*;
use rallypoint_core::c10d::{StoreState, Ticket};

const KEYS: [&str; 3] = ["a", "b", "c"];

#[derive(Debug, Clone)]
enum Step {
    Set(usize, u8),
    Add(usize, i64),
    CompareSet(usize, u8, u8),
    Append(usize, u8),
    Delete(usize),
    Push(usize, u8),
    /// Somebody pops: the waiter of this number if it was woken, or else a passer-by.
    Pop(usize, usize),
    Wait(Vec<usize>),
    Barrier(usize, i64),
    Cancel(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0..KEYS.len();
    let step = prop_oneof![
        2 => (key.clone(), 0..4_u8).prop_map(|(k, v)| Step::Set(k, v)),
        2 => (key.clone(), -2..3_i64).prop_map(|(k, n)| Step::Add(k, n)),
        2 => (key.clone(), 0..4_u8, 0..4_u8).prop_map(|(k, e, d)| Step::CompareSet(k, e, d)),
        2 => (key.clone(), 0..4_u8).prop_map(|(k, v)| Step::Append(k, v)),
        4 => key.clone().prop_map(Step::Delete),
        4 => (key.clone(), 0..4_u8).prop_map(|(k, v)| Step::Push(k, v)),
        4 => (key.clone(), 0..8_usize).prop_map(|(k, w)| Step::Pop(k, w)),
        6 => prop::collection::vec(key.clone(), 0..4).prop_map(Step::Wait),
        2 => (key, 1..4_i64).prop_map(|(k, n)| Step::Barrier(k, n)),
        3 => (0..8_usize).prop_map(Step::Cancel),
    ];
    prop::collection::vec(step, 1..60)
}

/// Digits, mostly, and sometimes something that is no number, or nothing.
fn value(seed: u8) -> Bytes {
    match seed {
        0 => Bytes::new(),
        1 => "x".into(),
        n => n.to_string().into(),
    }
}

/// A waiter, by its number.
type Who = usize;

#[derive(Debug, Default)]
struct Model {
    values: BTreeMap<Bytes, Vec<u8>>,
    queues: BTreeMap<Bytes, Vec<Bytes>>,
    waiters: Vec<(Who, BTreeSet<Bytes>)>,
    barriers: Vec<(Who, Bytes, i64)>,
    woken: Vec<(Who, Bytes)>,
    released: Vec<Who>,
}

impl Model {
    fn exists(&self, key: &Bytes) -> bool {
        self.values.contains_key(key) || self.queue_len(key) > 0
    }

    fn queue_len(&self, key: &Bytes) -> usize {
        self.queues.get(key).map_or(0, Vec::len)
    }

    fn write(&mut self, key: &Bytes, value: Vec<u8>) {
        self.values.insert(key.clone(), value);
        for (_, missing) in &mut self.waiters {
            missing.remove(key);
        }
        let gone = self.waiters.extract_if(.., |(_, missing)| missing.is_empty());
        self.released.extend(gone.map(|(who, _)| who));
    }

    fn add(&mut self, key: &Bytes, amount: i64) -> Option<i64> {
        let digits = self.values.get(key).map_or(b"0".as_slice(), Vec::as_slice);
        let sum = std::str::from_utf8(digits).ok()?.parse::<i64>().ok()?.checked_add(amount)?;
        self.write(key, sum.to_string().into_bytes());
        Some(sum)
    }

    fn barrier(&mut self, who: Who, key: &Bytes, world_size: i64) -> Option<bool> {
        let count = self.add(key, 1)?;
        let mut open = self.barriers.clone();
        open.retain(|(_, at, goal)| at == key && *goal <= count);
        open.sort_by_key(|(who, _, goal)| (*goal, *who));
        self.released.extend(open.iter().map(|(who, ..)| who));
        self.barriers.retain(|entry| !open.contains(entry));
        if count < world_size {
            self.barriers.push((who, key.clone(), world_size));
        }
        Some(count < world_size)
    }

    fn wake_one(&mut self, key: &Bytes) {
        let released = self.waiters.iter_mut().position(|(_, missing)| {
            missing.remove(key);
            missing.is_empty()
        });
        if let Some(position) = released {
            let (who, _) = self.waiters.remove(position);
            self.woken.push((who, key.clone()));
            self.released.push(who);
        }
    }

    fn pop(&mut self, key: &Bytes, who: Option<Who>) -> Option<Bytes> {
        if let Some(who) = who {
            let before = self.woken.len();
            self.woken.retain(|entry| *entry != (who, key.clone()));
            if self.woken.len() == before {
                self.pass_on(who);
            }
        }
        let queue = self.queues.get_mut(key)?;
        (!queue.is_empty()).then(|| queue.remove(0))
    }

    fn pass_on(&mut self, who: Who) {
        let Some(position) = self.woken.iter().position(|entry| entry.0 == who) else { return };
        let (_, key) = self.woken.remove(position);
        if self.queue_len(&key) > 0 {
            self.wake_one(&key);
        }
    }

    /// Whether it had waited.
    fn cancel(&mut self, who: Who) -> bool {
        let before = self.waiters.len() + self.barriers.len();
        self.waiters.retain(|entry| entry.0 != who);
        self.barriers.retain(|entry| entry.0 != who);
        let waited = self.waiters.len() + self.barriers.len() < before;
        if !waited {
            self.pass_on(who);
        }
        waited
    }
}

#[derive(Default)]
struct Run {
    real: StoreState<Who>,
    model: Model,
    /// By the number of the waiter.
    tickets: Vec<Ticket>,
}

impl Run {
    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        let key = |index: usize| Bytes::from_static(KEYS[index].as_bytes());
        let next = self.tickets.len();
        match step {
            Step::Set(k, v) => {
                self.real.set(&key(k), value(v));
                self.model.write(&key(k), value(v).to_vec());
            }
            Step::Append(k, v) => {
                self.real.append(&key(k), &value(v));
                let before = self.model.values.get(&key(k)).cloned().unwrap_or_default();
                self.model.write(&key(k), [before, value(v).to_vec()].concat());
            }
            Step::Add(k, n) => {
                prop_assert_eq!(self.real.add(&key(k), n).ok(), self.model.add(&key(k), n));
            }
            Step::CompareSet(k, e, d) => {
                let got = self.real.compare_set(&key(k), &value(e), value(d)).cloned();
                let before = self.model.values.get(&key(k)).cloned();
                if before.unwrap_or_default() == value(e) {
                    self.model.write(&key(k), value(d).to_vec());
                }
                prop_assert_eq!(got.map(Vec::from), self.model.values.get(&key(k)).cloned());
            }
            Step::Delete(k) => {
                let deleted = self.model.values.remove(&key(k)).is_some();
                prop_assert_eq!(self.real.delete(&key(k)), deleted);
            }
            Step::Push(k, v) => {
                self.real.queue_push(&key(k), value(v));
                self.model.queues.entry(key(k)).or_default().push(value(v));
                self.model.wake_one(&key(k));
            }
            Step::Pop(k, who) => {
                let ticket = self.tickets.get(who).copied();
                let popped = self.real.queue_pop(&key(k), ticket);
                prop_assert_eq!(popped, self.model.pop(&key(k), ticket.map(|_| who)));
                prop_assert_eq!(self.real.queue_len(&key(k)), self.model.queue_len(&key(k)));
            }
            Step::Wait(keys) => {
                let keys: BTreeSet<Bytes> = keys.into_iter().map(key).collect();
                let ticket = self.real.wait(keys.iter().map(AsRef::as_ref), next);
                let missing = keys.into_iter().filter(|key| !self.model.exists(key));
                let missing: BTreeSet<Bytes> = missing.collect();
                prop_assert_eq!(ticket.is_none(), missing.is_empty());
                if let Some(ticket) = ticket {
                    self.model.waiters.push((next, missing));
                    self.tickets.push(ticket);
                }
            }
            Step::Barrier(k, world_size) => {
                let real = self.real.barrier(&key(k), world_size, next).ok();
                let waits = self.model.barrier(next, &key(k), world_size);
                prop_assert_eq!(real.map(|ticket| ticket.is_some()), waits);
                self.tickets.extend(real.flatten());
            }
            Step::Cancel(who) => {
                if let Some(ticket) = self.tickets.get(who) {
                    prop_assert_eq!(self.real.cancel(*ticket).is_some(), self.model.cancel(who));
                }
            }
        }
        prop_assert_eq!(self.real.take_released(), std::mem::take(&mut self.model.released));
        let (keys, expected) = (self.real.keys(), self.model.values.keys());
        prop_assert!(keys.eq(expected));
        Ok(())
    }

    /// Everybody who was released does something else.
    fn finish(mut self) -> Result<(), TestCaseError> {
        loop {
            let waiting = self.model.waiters.iter().map(|entry| entry.0);
            let waiting: BTreeSet<Who> =
                waiting.chain(self.model.barriers.iter().map(|b| b.0)).collect();
            let released = (0..self.tickets.len()).filter(|who| !waiting.contains(who));
            released.for_each(|who| self.real.pass_on(self.tickets[who]));
            let next: BTreeSet<Who> = self.real.take_released().into_iter().collect();
            if next.is_empty() {
                break;
            }
            self.model.waiters.retain(|entry| !next.contains(&entry.0));
        }
        for (who, ticket) in self.tickets.iter().enumerate() {
            let at_barrier = self.model.barriers.iter().any(|entry| entry.0 == who);
            let missing = self.real.cancel(*ticket).unwrap_or_default();
            let forgotten = missing.iter().any(|key| self.real.exists(key));
            prop_assert!(at_barrier || !forgotten, "waiter {} misses {:?}", who, missing);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5_000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn c10d_state_does_what_the_model_does(steps in steps()) {
        let mut run = Run::default();
        for step in steps {
            run.step(step)?;
        }
        run.finish()?;
    }
}
