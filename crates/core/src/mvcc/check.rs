//! Validation of a request by itself: before any lock, state or clock.

use std::collections::{BTreeMap, BTreeSet};

use crate::kv::{Delete, KeyRange, KvError, Op, Put, Txn};
use bytes::Bytes;

pub(super) fn txn(txn: &Txn, max_ops: usize) -> Result<(), KvError> {
    ops(txn, max_ops)?;
    // Once, for the outermost transaction, when everything else is valid: it visits inner ones itself.
    Writes::of(&txn.success)?;
    Writes::of(&txn.failure)?;
    Ok(())
}

fn ops(txn: &Txn, max_ops: usize) -> Result<(), KvError> {
    let used = txn.compares.len().max(txn.success.len()).max(txn.failure.len());
    let left = max_ops.checked_sub(used).ok_or(KvError::TooManyOps)?;
    for compare in &txn.compares {
        range(&compare.range)?;
    }
    for op in txn.success.iter().chain(&txn.failure) {
        match op {
            Op::Range(read) => range(&read.range)?,
            Op::Put(put) => self::put(put)?,
            Op::Delete(delete) => range(&delete.range)?,
            Op::Txn(inner) => ops(inner, left)?,
        }
    }
    Ok(())
}

pub(super) fn range(range: &KeyRange) -> Result<(), KvError> {
    if range.start().is_empty() { Err(KvError::KeyNotProvided) } else { Ok(()) }
}

pub(super) fn put(put: &Put) -> Result<(), KvError> {
    if put.key.is_empty() {
        Err(KvError::KeyNotProvided)
    } else if put.ignore_value && !put.value.is_empty() {
        Err(KvError::ValueProvided)
    } else if put.ignore_lease && put.lease != 0 {
        Err(KvError::LeaseProvided)
    } else {
        Ok(())
    }
}

/// The keys that one branch would write, to find a key that is written twice.
///
/// The rules are etcd's to the letter, including what they overlook: a deletion without an end, and a
/// deletion in an inner transaction after the put.
#[derive(Default)]
struct Writes<'a> {
    puts: BTreeSet<&'a Bytes>,
    deletes: Deletes<'a>,
}

impl<'a> Writes<'a> {
    fn of(branch: &'a [Op]) -> Result<Self, KvError> {
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

    fn put(&mut self, key: &'a Bytes) -> Result<(), KvError> {
        if self.deletes.contains(key) || !self.puts.insert(key) {
            return Err(KvError::DuplicateKey);
        }
        Ok(())
    }
}

/// The keys that a branch would delete. Overlapping spans are merged, so that a look-up visits one of them:
/// a request can hold tens of thousands of both.
#[derive(Default)]
struct Deletes<'a> {
    keys: BTreeSet<&'a Bytes>,
    /// The end of each span by its start.
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
