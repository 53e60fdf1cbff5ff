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
    check_ops(txn, max_ops)?;
    // Once, from the outermost, when all else is known to be sound: it looks at inner ones itself.
    Writes::of(&txn.success)?;
    Writes::of(&txn.failure)?;
    Ok(())
}

fn check_ops(txn: &Txn, max_ops: usize) -> Result<(), StoreError> {
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
            Op::Txn(inner) => check_ops(inner, left)?,
        }
    }
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
                writes.deletes.add_all(success.deletes);
                writes.deletes.add_all(failure.deletes);
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
        if self.deletes.contains(key) || !self.puts.insert(key) {
            return Err(StoreError::DuplicateKey);
        }
        Ok(())
    }
}

/// The keys that a branch would delete. Spans that overlap are one, so that a look-up is one too: a
/// request can hold tens of thousands of both.
#[derive(Default)]
struct Deletes<'a> {
    keys: BTreeSet<&'a Bytes>,
    /// From start to end.
    spans: BTreeMap<&'a Bytes, &'a Bytes>,
}

impl<'a> Deletes<'a> {
    fn add(&mut self, range: &'a KeyRange) {
        match range {
            KeyRange::Key(key) => drop(self.keys.insert(key)),
            KeyRange::Span(start, end) if start < end => self.add_span(start, end),
            KeyRange::Span(..) | KeyRange::From(_) => {}
        }
    }

    fn add_span(&mut self, mut start: &'a Bytes, mut end: &'a Bytes) {
        while let Some((&other, &others_end)) = self.spans.range::<&Bytes, _>(..=end).next_back()
            && others_end >= start
        {
            self.spans.remove(other);
            (start, end) = (start.min(other), end.max(others_end));
        }
        self.spans.insert(start, end);
    }

    fn add_all(&mut self, mut others: Self) {
        self.keys.append(&mut others.keys);
        others.spans.into_iter().for_each(|(start, end)| self.add_span(start, end));
    }

    fn contains(&self, key: &'a Bytes) -> bool {
        let span = self.spans.range::<&Bytes, _>(..=key).next_back();
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

/// Refuses a plan of which any step would fail, so that none can fail half-way. All writes are looked
/// at before any read, as in etcd.
pub(super) fn check_plan(store: &Store, plan: &Plan<'_>, now: Revision) -> Result<(), StoreError> {
    plan.each(&mut |step| match step {
        Step::Put(put) => store.check_ignored(put).and_then(|()| store.check_lease(put)),
        _ => Ok(()),
    })?;
    plan.each(&mut |step| match step {
        // By itself a read of a negative revision means now. In here etcd takes it as it is.
        Step::Range(range) if range.revision < store.history.compacted().min(0) => {
            Err(StoreError::Compacted)
        }
        Step::Range(range) => readable(&store.history, range.revision, now).map(drop),
        _ => Ok(()),
    })
}

impl Plan<'_> {
    /// Looks at every step, those of inner transactions in their place.
    fn each(
        &self,
        look: &mut impl FnMut(&Step<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.steps.iter().try_for_each(|step| match step {
            Step::Inner(inner) => inner.each(look),
            step => look(step),
        })
    }
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

/// The same for a plan that only reads, and a reader to whom `now` is the newest revision.
pub(super) fn read(history: &History, plan: &Plan<'_>, now: Revision) -> TxnResult {
    let steps = plan.steps.iter().map(|step| match step {
        Step::Range(wanted) => {
            OpResult::Range(range(history, wanted, now).expect("the plan was checked"))
        }
        Step::Inner(inner) => OpResult::Txn(read(history, inner, now)),
        Step::Put(_) | Step::Delete(_) => unreachable!("only transactions that read come here"),
    });
    TxnResult { revision: now, succeeded: plan.succeeded, results: steps.collect() }
}
