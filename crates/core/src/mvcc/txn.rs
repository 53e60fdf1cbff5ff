//! Transactions: decided on the state before, checked whole, then run without a way to fail.

use super::history::History;
use super::range::{range, readable};
use super::{Mvcc, Writing};
use crate::kv::{
    Compare, Delete, KeyValue, KvError, Op, OpResult, Put, Range, Relation, Revision, Target, Txn,
    TxnResult,
};

// ---- Deciding

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
pub(super) fn check_plan(store: &Mvcc, plan: &Plan<'_>, now: Revision) -> Result<(), KvError> {
    plan.each(&mut |step| match step {
        Step::Put(put) => store.check_ignored(put).and_then(|()| store.check_lease(put)),
        _ => Ok(()),
    })?;
    plan.each(&mut |step| match step {
        // By itself a read of a negative revision means now. In here etcd takes it as it is.
        Step::Range(range) if range.revision < store.history.compacted().min(0) => {
            Err(KvError::Compacted)
        }
        Step::Range(range) => readable(&store.history, range.revision, now).map(drop),
        _ => Ok(()),
    })
}

impl Plan<'_> {
    /// Looks at every step, those of inner transactions in their place.
    fn each(&self, look: &mut impl FnMut(&Step<'_>) -> Result<(), KvError>) -> Result<(), KvError> {
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
