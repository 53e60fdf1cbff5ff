//! Transactions, in etcd's order: look at the request, look at the state before, then run.

use std::collections::BTreeSet;

use bytes::Bytes;
use rallypoint_core::kv::{
    Compare, CompareTarget, KeyRange, KeyValue, KvError, Op, OpResult, Put, Relation, Revision,
    Txn, TxnResult,
};

use super::{Draft, Model, inside};

impl Model {
    pub(crate) fn txn(&mut self, txn: &Txn) -> Result<TxnResult, KvError> {
        check(txn, self.options.max_txn_ops)?;
        check_twice(txn)?;
        let head = self.head();
        let path = self.decide(txn, head);
        self.check_state(txn, &path, head)?;
        let mut draft = Draft::new(self);
        let answer = draft.txn(txn, &mut path.iter());
        draft.commit();
        Ok(answer)
    }

    /// The same for a reader, who sees what is published and changes nothing.
    pub(crate) fn read_txn(&self, txn: &Txn) -> Result<TxnResult, KvError> {
        check(txn, self.options.max_txn_ops)?;
        let path = self.decide(txn, self.published);
        self.check_state(txn, &path, self.published)?;
        let mut then = self.clone();
        then.states.truncate(self.published as usize + 1);
        then.events.truncate(self.published as usize + 1);
        Ok(Draft::new(&mut then).txn(txn, &mut path.iter()))
    }

    /// Which way each transaction goes: this one, then the inner ones of the branch it takes.
    fn decide(&self, txn: &Txn, at: Revision) -> Vec<bool> {
        let succeeded = txn.compares.iter().all(|compare| self.holds(compare, at));
        let mut path = vec![succeeded];
        for op in branch(txn, succeeded) {
            if let Op::Txn(inner) = op {
                path.extend(self.decide(inner, at));
            }
        }
        path
    }

    fn holds(&self, compare: &Compare, at: Revision) -> bool {
        let state = &self.states[at as usize];
        let mut found: Vec<KeyValue> =
            state.values().filter(|kv| inside(&compare.range, &kv.key)).cloned().collect();
        if found.is_empty() {
            if matches!(compare.target, CompareTarget::Value(_)) {
                return false;
            }
            found.push(KeyValue::default());
        }
        found.iter().all(|kv| match &compare.target {
            CompareTarget::Version(given) => relates(compare.relation, &kv.version, given),
            CompareTarget::Create(given) => relates(compare.relation, &kv.create_revision, given),
            CompareTarget::Mod(given) => relates(compare.relation, &kv.mod_revision, given),
            CompareTarget::Value(given) => relates(compare.relation, &kv.value, given),
            CompareTarget::Lease(given) => relates(compare.relation, &kv.lease, given),
        })
    }

    fn check_state(&self, txn: &Txn, path: &[bool], now: Revision) -> Result<(), KvError> {
        let mut ops = Vec::new();
        flatten(txn, &mut path.iter(), &mut ops);
        for op in &ops {
            match op {
                Op::Put(put) => self.check_ignore(put).and_then(|()| self.check_lease(put))?,
                // In a transaction a negative revision does not stand for now.
                Op::Range(range) if range.revision < 0 && range.revision < self.compacted => {
                    return Err(KvError::Compacted);
                }
                Op::Range(range) => self.check_revision(range.revision, now)?,
                Op::Delete(_) | Op::Txn(_) => {}
            }
        }
        Ok(())
    }
}

/// The operations that will run, in order, without the transactions around them.
fn flatten<'t, 'a>(txn: &'t Txn, path: &mut impl Iterator<Item = &'a bool>, ops: &mut Vec<&'t Op>) {
    for op in branch(txn, next(path)) {
        match op {
            Op::Txn(inner) => flatten(inner, path, ops),
            op => ops.push(op),
        }
    }
}

impl Draft<'_> {
    fn txn<'a>(&mut self, txn: &Txn, path: &mut impl Iterator<Item = &'a bool>) -> TxnResult {
        let succeeded = next(path);
        let mut results = Vec::new();
        for op in branch(txn, succeeded) {
            results.push(match op {
                Op::Range(range) => {
                    OpResult::Range(self.model.read(range, self.revision(), &self.state))
                }
                Op::Put(put) => OpResult::Put(self.put(put)),
                Op::Delete(delete) => OpResult::Delete(self.delete(delete)),
                Op::Txn(inner) => OpResult::Txn(self.txn(inner, path)),
            });
        }
        TxnResult { revision: self.revision(), succeeded, results }
    }
}

fn next<'a>(path: &mut impl Iterator<Item = &'a bool>) -> bool {
    *path.next().expect("the path has a turn for every transaction on it")
}

fn branch(txn: &Txn, succeeded: bool) -> &[Op] {
    if succeeded { &txn.success } else { &txn.failure }
}

fn relates<T: Ord>(relation: Relation, ours: &T, given: &T) -> bool {
    match relation {
        Relation::Equal => ours == given,
        Relation::NotEqual => ours != given,
        Relation::Greater => ours > given,
        Relation::Less => ours < given,
    }
}

// ---- The request alone

pub(super) fn check_key(key: &[u8]) -> Result<(), KvError> {
    if key.is_empty() { Err(KvError::KeyNotProvided) } else { Ok(()) }
}

pub(super) fn check_put(put: &Put) -> Result<(), KvError> {
    check_key(&put.key)?;
    if put.ignore_value && !put.value.is_empty() {
        return Err(KvError::ValueProvided);
    }
    if put.ignore_lease && put.lease != 0 {
        return Err(KvError::LeaseProvided);
    }
    Ok(())
}

fn check(txn: &Txn, allowed: usize) -> Result<(), KvError> {
    let size = [txn.compares.len(), txn.success.len(), txn.failure.len()].into_iter().max();
    let size = size.expect("there are three");
    if size > allowed {
        return Err(KvError::TooManyOps);
    }
    for compare in &txn.compares {
        check_key(compare.range.start())?;
    }
    for op in txn.success.iter().chain(&txn.failure) {
        match op {
            Op::Range(range) => check_key(range.range.start())?,
            Op::Put(put) => check_put(put)?,
            Op::Delete(delete) => check_key(delete.range.start())?,
            Op::Txn(inner) => check(inner, allowed - size)?,
        }
    }
    Ok(())
}

/// A key written twice is refused once the whole request is known to be sound otherwise.
fn check_twice(txn: &Txn) -> Result<(), KvError> {
    writes(&txn.success)?;
    writes(&txn.failure)?;
    Ok(())
}

/// The keys that a branch may put and the ranges that it may delete.
///
/// Deletions of this level count against every put below; those of an inner transaction against
/// what comes after it, and against all puts of this level.
fn writes(ops: &[Op]) -> Result<(BTreeSet<Bytes>, Vec<KeyRange>), KvError> {
    let mut puts: BTreeSet<Bytes> = BTreeSet::new();
    let mut deletes: Vec<KeyRange> = Vec::new();
    for op in ops {
        if let Op::Delete(delete) = op {
            deletes.push(delete.range.clone());
        }
    }
    for op in ops {
        let Op::Txn(inner) = op else { continue };
        let (then_puts, then_deletes) = writes(&inner.success)?;
        let (else_puts, else_deletes) = writes(&inner.failure)?;
        let either: BTreeSet<Bytes> = then_puts.union(&else_puts).cloned().collect();
        for key in either {
            if puts.contains(&key) || seen(&deletes, &key) {
                return Err(KvError::DuplicateKey);
            }
            puts.insert(key);
        }
        deletes.extend(then_deletes);
        deletes.extend(else_deletes);
    }
    for op in ops {
        let Op::Put(put) = op else { continue };
        if seen(&deletes, &put.key) || !puts.insert(put.key.clone()) {
            return Err(KvError::DuplicateKey);
        }
    }
    Ok((puts, deletes))
}

/// A deletion without an end is not seen: a quirk that clients can observe.
fn seen(deletes: &[KeyRange], key: &[u8]) -> bool {
    deletes.iter().any(|range| !matches!(range, KeyRange::From(_)) && inside(range, key))
}
