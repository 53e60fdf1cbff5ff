//! Transactions: checked whole, decided on the state before, then run without a way to fail.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::history::History;
use super::range::{range, readable};
use super::{Store, Writing};
use crate::error::StoreError;
use crate::kv::{
    Compare, Delete, KeyRange, KeyValue, Op, OpResult, Put, Range, Relation, Revision, Target, Txn,
    TxnResult,
};

// ---- What can be said of a request by looking at it alone

pub(super) fn check(txn: &Txn, max_ops: usize) -> Result<(), StoreError> {
    let used = txn.compares.len().max(txn.success.len()).max(txn.failure.len());
    let left = max_ops.checked_sub(used).ok_or(StoreError::TooManyOps)?;
    for compare in &txn.compares {
        check_range(&compare.range)?;
    }
    for op in txn.success.iter().chain(&txn.failure) {
        match op {
            Op::Range(range) => check_range(&range.range)?,
            Op::Put(put) => check_put(put)?,
            Op::Delete(delete) => check_range(&delete.range)?,
            Op::Txn(inner) => check(inner, left)?,
        }
    }
    Writes::of(&txn.success)?;
    Writes::of(&txn.failure)?;
    Ok(())
}

pub(super) fn check_range(range: &KeyRange) -> Result<(), StoreError> {
    if range.start().is_empty() { Err(StoreError::KeyNotProvided) } else { Ok(()) }
}

pub(super) fn check_put(put: &Put) -> Result<(), StoreError> {
    if put.key.is_empty() {
        Err(StoreError::KeyNotProvided)
    } else if put.ignore_value && !put.value.is_empty() {
        Err(StoreError::ValueProvided)
    } else if put.ignore_lease && put.lease != 0 {
        Err(StoreError::LeaseProvided)
    } else {
        Ok(())
    }
}

/// What one branch would write, to find a key that is written twice.
///
/// The rules are etcd's to the letter, with what they overlook: a deletion without an end is not
/// seen, nor one in a later inner transaction than the put.
#[derive(Default)]
struct Writes<'a> {
    puts: BTreeSet<&'a Bytes>,
    deletes: Deletes<'a>,
}

impl<'a> Writes<'a> {
    fn of(branch: &'a [Op]) -> Result<Self, StoreError> {
        let mut writes = Self::default();
        for op in branch {
            if let Op::Delete(Delete { range, .. }) = op {
                writes.deletes.add(range);
            }
        }
        for op in branch {
            if let Op::Txn(inner) = op {
                let success = Self::of(&inner.success)?;
                let failure = Self::of(&inner.failure)?;
                for key in &success.puts {
                    writes.put(key)?;
                }
                // Only one branch of the inner transaction runs, so both may put the same key.
                for key in failure.puts.difference(&success.puts) {
                    writes.put(key)?;
                }
                writes.deletes.extend(success.deletes);
                writes.deletes.extend(failure.deletes);
            }
        }
        for op in branch {
            if let Op::Put(put) = op {
                writes.put(&put.key)?;
            }
        }
        Ok(writes)
    }

    fn put(&mut self, key: &'a Bytes) -> Result<(), StoreError> {
        if self.deletes.contain(key) || !self.puts.insert(key) {
            return Err(StoreError::DuplicateKey);
        }
        Ok(())
    }
}

/// What is deleted, kept so that a key is found in it without looking at all of it: inner
/// transactions can hold a hundred thousand deletions, and as many puts to be compared with them.
#[derive(Default)]
struct Deletes<'a> {
    keys: BTreeSet<&'a Bytes>,
    /// From start to end. No two touch.
    spans: BTreeMap<&'a Bytes, &'a Bytes>,
}

impl<'a> Deletes<'a> {
    fn add(&mut self, range: &'a KeyRange) {
        match range {
            KeyRange::From(_) => {}
            KeyRange::Key(key) => drop(self.keys.insert(key)),
            KeyRange::Span(start, end) => self.add_span(start, end),
        }
    }

    fn add_span(&mut self, mut start: &'a Bytes, mut end: &'a Bytes) {
        if end <= start {
            return;
        }
        while let Some((from, to)) = self.spans.range::<Bytes, _>(..=end).next_back().map(|(a, b)| (*a, *b))
            && to >= start
        {
            self.spans.remove(from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.spans.insert(start, end);
    }

    fn extend(&mut self, mut other: Self) {
        self.keys.append(&mut other.keys);
        other.spans.into_iter().for_each(|(start, end)| self.add_span(start, end));
    }

    fn contain(&self, key: &Bytes) -> bool {
        let span = self.spans.range::<Bytes, _>(..=key).next_back();
        self.keys.contains(key) || span.is_some_and(|(_, end)| key < *end)
    }
}

// ---- What can be said by looking at the state before

/// A transaction whose way is decided: no comparison is left in it.
pub(super) struct Plan<'a> {
    succeeded: bool,
    steps: Vec<Step<'a>>,
}

enum Step<'a> {
    Range(&'a Range),
    Put(&'a Put),
    Delete(&'a Delete),
    Inner(Plan<'a>),
}

/// Decides every comparison, also those of inner transactions, on the state before any operation.
pub(super) fn plan<'a>(history: &History, now: Revision, txn: &'a Txn) -> Plan<'a> {
    let succeeded = txn.compares.iter().all(|compare| holds(history, now, compare));
    let branch = if succeeded { &txn.success } else { &txn.failure };
    let steps = branch
        .iter()
        .map(|op| match op {
            Op::Range(range) => Step::Range(range),
            Op::Put(put) => Step::Put(put),
            Op::Delete(delete) => Step::Delete(delete),
            Op::Txn(inner) => Step::Inner(plan(history, now, inner)),
        })
        .collect();
    Plan { succeeded, steps }
}

fn holds(history: &History, now: Revision, compare: &Compare) -> bool {
    let mut found = history.range(&compare.range, now).filter_map(|(k, v)| v.live(k)).peekable();
    if found.peek().is_none() {
        // Nothing is there: numbers count as 0, and a value can be neither like nor unlike.
        return !matches!(compare.target, Target::Value(_))
            && relates(&KeyValue::default(), compare);
    }
    found.all(|kv| relates(&kv, compare))
}

fn relates(kv: &KeyValue, compare: &Compare) -> bool {
    let order = match &compare.target {
        Target::Version(version) => kv.version.cmp(version),
        Target::Create(revision) => kv.create_revision.cmp(revision),
        Target::Mod(revision) => kv.mod_revision.cmp(revision),
        Target::Value(value) => kv.value.cmp(value),
        Target::Lease(lease) => kv.lease.cmp(lease),
    };
    match compare.relation {
        Relation::Equal => order.is_eq(),
        Relation::NotEqual => order.is_ne(),
        Relation::Greater => order.is_gt(),
        Relation::Less => order.is_lt(),
    }
}

/// Refuses a plan of which any step would fail, so that none can fail half-way.
pub(super) fn check_plan(store: &Store, plan: &Plan<'_>, now: Revision) -> Result<(), StoreError> {
    for step in &plan.steps {
        match step {
            Step::Range(range) => drop(readable(&store.history, range.revision, now)?),
            Step::Put(put) => store.check_put_state(put)?,
            Step::Delete(_) => {}
            Step::Inner(inner) => check_plan(store, inner, now)?,
        }
    }
    Ok(())
}

// ---- Running

/// Runs a plan that [`check_plan`] has passed.
pub(super) fn run(writing: &mut Writing<'_>, plan: &Plan<'_>) -> TxnResult {
    let steps = plan.steps.iter().map(|step| match step {
        Step::Range(wanted) => OpResult::Range(
            range(writing.history(), wanted, writing.revision()).expect("the plan was checked"),
        ),
        Step::Put(put) => OpResult::Put(writing.put(put)),
        Step::Delete(delete) => OpResult::Delete(writing.delete(delete)),
        Step::Inner(inner) => OpResult::Txn(run(writing, inner)),
    });
    let results = steps.collect();
    TxnResult { revision: writing.revision(), succeeded: plan.succeeded, results }
}

/// Runs a plan that only reads, for a reader to whom `now` is the newest revision.
pub(super) fn read(
    history: &History,
    plan: &Plan<'_>,
    now: Revision,
) -> Result<TxnResult, StoreError> {
    let steps = plan.steps.iter().map(|step| match step {
        Step::Range(wanted) => range(history, wanted, now).map(OpResult::Range),
        Step::Inner(inner) => read(history, inner, now).map(OpResult::Txn),
        Step::Put(_) | Step::Delete(_) => unreachable!("only transactions that read come here"),
    });
    let results = steps.collect::<Result<_, _>>()?;
    Ok(TxnResult { revision: now, succeeded: plan.succeeded, results })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every set of three spans over six keys, looked up both ways.
    #[test]
    fn what_is_deleted_is_what_some_range_holds() {
        let key = |number: usize| Bytes::from(vec![b'a' + number as u8]);
        let ranges: Vec<KeyRange> = (0..6)
            .flat_map(|start| (0..6).map(move |end| (start, end)))
            .map(|(start, end)| KeyRange::Span(key(start), key(end)))
            .chain((0..6).map(|number| KeyRange::Key(key(number))))
            .collect();
        for (a, b, c) in (0..ranges.len()).flat_map(|a| {
            let count = ranges.len();
            (0..count).flat_map(move |b| (0..count).map(move |c| (a, b, c)))
        }) {
            let (mut deletes, mut inner) = (Deletes::default(), Deletes::default());
            deletes.add(&ranges[a]);
            inner.add(&ranges[b]);
            inner.add(&ranges[c]);
            deletes.extend(inner);
            for number in 0..6 {
                let key = key(number);
                let expected = [a, b, c].iter().any(|range| ranges[*range].contains(&key));
                assert_eq!(deletes.contain(&key), expected, "{:?}", [a, b, c]);
            }
        }
    }
}
