//! Addition without compare-and-set, so that a thousand concurrent additions need a thousand requests.
//!
//! etcd counts the puts of each key: its version. A counter is the number that it began with and, for
//! each power of two, one key whose puts say how often it was added, and one how often it was taken off.
//! An addition puts the digits of its amount and reads all of them, in one transaction that no other
//! addition can make fail. Only the beginning is compared, since it might not be a number, and additions
//! do not change it.

use bytes::Bytes;
use rallypoint_core::kv::{Compare, CompareTarget, KeyRange, Op, OpResult, Put, Relation, Txn};
use rallypoint_core::rendezvous::keys::{Digit, NameKeys};

use super::name_value::NameValue;
use super::{EtcdStore, StoreError, read_last};

impl EtcdStore {
    pub(super) async fn count(&self, name: &[u8], amount: i64) -> Result<i64, StoreError> {
        let keys = self.keys.of(name);
        // The base of a counter unless another value was written.
        let mut base = Bytes::from_static(b"0");
        loop {
            let answer = self.client.txn(self.addition(&keys, amount, base)).await?;
            let counted = answer.succeeded
                || matches!(answer.results.last(), Some(OpResult::Txn(inner)) if inner.succeeded);
            let current = NameValue::new(&keys, answer.revision, read_last(answer));
            let sum = current.sum().map_err(|error| Self::no_number(name, error))?;
            match i64::try_from(sum) {
                Ok(sum) if counted => return Ok(sum),
                Err(_) if counted => {
                    self.take_back(&keys, amount, &current).await?;
                    let before = sum - i128::from(amount);
                    let what = format!("{before} and {amount} make more than 64 bits hold");
                    return Err(Self::corrupt(name, what));
                }
                _ => base = current.base(),
            }
        }
    }

    /// Subtracts what was just added, unless the counter was overwritten since.
    async fn take_back(
        &self,
        keys: &NameKeys,
        amount: i64,
        current: &NameValue,
    ) -> Result<(), StoreError> {
        let digits = Digit::of(amount).map(|digit| keys.digit(digit.opposite()));
        let puts = digits.map(|key| Op::Put(Put::new(key, Bytes::new()).on_lease(self.lease)));
        self.client.txn(Txn::when([current.same_base(keys)]).then(puts)).await?;
        Ok(())
    }

    /// Adds `amount` if there is no counter yet, or if its base is `base`, and reads it.
    fn addition(&self, keys: &NameKeys, amount: i64, base: Bytes) -> Txn {
        let put = |key, value| Op::Put(Put::new(key, value).on_lease(self.lease));
        let read = Op::Range(keys.digits_and_value().into());
        let puts = Digit::of(amount).map(|digit| put(keys.digit(digit), Bytes::new()));
        // By itself, because what a transaction has in one branch it cannot have once more within the
        // other: with up to 63 digits in both there were too many.
        let add = Op::Txn(Txn::default().then(puts.chain([read.clone()])));
        let known = Compare {
            range: KeyRange::key(keys.value()),
            relation: Relation::Equal,
            target: CompareTarget::Value(base),
        };
        let go_on = Txn::when([known]).then([add.clone()]).otherwise([read]);
        Txn::when([Compare::absent(keys.value())])
            .then([put(keys.value(), Bytes::from_static(b"0")), add])
            .otherwise([Op::Txn(go_on)])
    }
}
