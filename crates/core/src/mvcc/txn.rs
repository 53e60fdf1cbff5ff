//! Transactions: planned on the state before them, checked as a whole, then run without a way to fail.

use super::history::History;
use super::range::{range, readable};
use super::{Mvcc, Writing};
use crate::kv::{
    Compare, CompareTarget, Delete, KeyValue, KvError, Op, OpResult, Put, Range, Relation,
    Revision, Txn, TxnResult,
};

// ---- Planning

/// A transaction whose comparisons are evaluated: only the operations to run are left.
pub(super) struct Plan<'a> {
    succeeded: bool,
    steps: Vec<PlannedOp<'a>>,
}

enum PlannedOp<'a> {
    Range(&'a Range),
    Put(&'a Put),
    Delete(&'a Delete),
    Inner(Plan<'a>),
}

/// Evaluates every comparison, also those of inner transactions, on the state before any operation.
pub(super) fn plan<'a>(history: &History, now: Revision, txn: &'a Txn) -> Plan<'a> {
    let succeeded = txn.compares.iter().all(|compare| holds(history, now, compare));
    let branch = if succeeded { &txn.success } else { &txn.failure };
    let steps = branch
        .iter()
        .map(|op| match op {
            Op::Range(range) => PlannedOp::Range(range),
            Op::Put(put) => PlannedOp::Put(put),
            Op::Delete(delete) => PlannedOp::Delete(delete),
            Op::Txn(inner) => PlannedOp::Inner(plan(history, now, inner)),
        })
        .collect();
    Plan { succeeded, steps }
}

fn holds(history: &History, now: Revision, compare: &Compare) -> bool {
    let mut found = history.range(&compare.range, now).filter_map(|(k, v)| v.live(k)).peekable();
    if found.peek().is_none() {
        // The key does not exist: numbers count as 0, and no comparison of a value holds.
        return !matches!(compare.target, CompareTarget::Value(_))
            && relates(&KeyValue::default(), compare);
    }
    found.all(|kv| relates(&kv, compare))
}

fn relates(kv: &KeyValue, compare: &Compare) -> bool {
    let order = match &compare.target {
        CompareTarget::Version(version) => kv.version.cmp(version),
        CompareTarget::Create(revision) => kv.create_revision.cmp(revision),
        CompareTarget::Mod(revision) => kv.mod_revision.cmp(revision),
        CompareTarget::Value(value) => kv.value.cmp(value),
        CompareTarget::Lease(lease) => kv.lease.cmp(lease),
    };
    match compare.relation {
        Relation::Equal => order.is_eq(),
        Relation::NotEqual => order.is_ne(),
        Relation::Greater => order.is_gt(),
        Relation::Less => order.is_lt(),
    }
}

/// Refuses a plan if any operation of it would fail, so that no transaction fails half-way. The first operation that
/// would fail is the reason, as from etcd 3.6 on.
pub(super) fn check_plan(store: &Mvcc, plan: &Plan<'_>, now: Revision) -> Result<(), KvError> {
    plan.each(&mut |step| match step {
        PlannedOp::Put(put) => store.check_ignored(put).and_then(|()| store.check_lease(put)),
        // Outside a transaction a negative revision means the newest. Inside, etcd takes it literally.
        PlannedOp::Range(range) if range.revision < store.history.compacted().min(0) => {
            Err(KvError::Compacted)
        }
        PlannedOp::Range(range) => readable(&store.history, range.revision, now).map(drop),
        _ => Ok(()),
    })
}

impl Plan<'_> {
    /// Visits every operation, those of inner transactions in their place.
    fn each(
        &self,
        look: &mut impl FnMut(&PlannedOp<'_>) -> Result<(), KvError>,
    ) -> Result<(), KvError> {
        self.steps.iter().try_for_each(|step| match step {
            PlannedOp::Inner(inner) => inner.each(look),
            step => look(step),
        })
    }
}

// ---- Running

/// Runs a plan that [`check_plan`] has passed.
pub(super) fn run(writing: &mut Writing<'_>, plan: &Plan<'_>) -> TxnResult {
    let steps = plan.steps.iter().map(|step| match step {
        PlannedOp::Range(wanted) => OpResult::Range(
            range(writing.history(), wanted, writing.revision()).expect("the plan was checked"),
        ),
        PlannedOp::Put(put) => OpResult::Put(writing.put(put)),
        PlannedOp::Delete(delete) => OpResult::Delete(writing.delete(delete)),
        PlannedOp::Inner(inner) => OpResult::Txn(run(writing, inner)),
    });
    let results = steps.collect();
    TxnResult { revision: writing.revision(), succeeded: plan.succeeded, results }
}

/// Runs a plan that only reads, `now` being the newest revision that the reader sees.
pub(super) fn read(history: &History, plan: &Plan<'_>, now: Revision) -> TxnResult {
    let steps = plan.steps.iter().map(|step| match step {
        PlannedOp::Range(wanted) => {
            OpResult::Range(range(history, wanted, now).expect("the plan was checked"))
        }
        PlannedOp::Inner(inner) => OpResult::Txn(read(history, inner, now)),
        PlannedOp::Put(_) | PlannedOp::Delete(_) => unreachable!("the plan only reads"),
    });
    TxnResult { revision: now, succeeded: plan.succeeded, results: steps.collect() }
}
