//! Queues: one key for each item, in the order of their creation.
//!
//! An item wakes every waiting caller, and all but one find the queue empty; and a server reads a whole
//! queue to find its first item. This serves as many items and callers as a group has nodes, not a message queue.

use bytes::Bytes;
use rallypoint_core::kv::{
    Compare, Delete, KeyRange, KeyValue, Op, OpResult, Put, Range, SortOrder, SortTarget, Txn,
    Watch,
};
use tokio::time::timeout_at;

use super::points::WaitDeadline;
use super::{EtcdStore, StoreError, last, text};
use crate::client::{WatchError, Watcher};
use crate::util::random;

/// The number of items that a pop reads: as many concurrent pops succeed at the first attempt.
const HEADS: i64 = 16;

/// Reads the keys of the first items.
fn heads(queue: KeyRange) -> Range {
    Range {
        limit: HEADS,
        sort_target: SortTarget::Create,
        sort_order: SortOrder::Ascend,
        keys_only: true,
        ..Range::new(queue)
    }
}

impl EtcdStore {
    pub(super) async fn push(&self, name: &[u8], value: Bytes) -> Result<(), StoreError> {
        self.fits(name, value.len())?;
        let keys = self.keys.of(name);
        loop {
            let item = keys.item(random::name());
            let put = Put::new(item.clone(), value.clone()).on_lease(self.lease);
            let txn = Txn::when([Compare::absent(item)]).then([Op::Put(put)]);
            // A collision of random numbers is very unlikely, but would lose an item.
            if self.client.txn(txn).await?.succeeded {
                return Ok(());
            }
        }
    }

    pub(super) async fn length(&self, name: &[u8]) -> Result<u64, StoreError> {
        let queue = Range::new(self.keys.of(name).queue());
        let counted = self.client.range(Range { count_only: true, ..queue }).await?;
        Ok(u64::try_from(counted.count).unwrap_or(0))
    }

    pub(super) async fn pop(&self, name: &[u8], block: bool) -> Result<Bytes, StoreError> {
        let queue = self.keys.of(name).queue();
        let patience = WaitDeadline::new(&self.client, self.timeout.get());
        if let Some(value) = self.take_first(&queue, &patience).await? {
            return Ok(value);
        }
        if !block {
            return Err(StoreError::QueueEmpty { key: text(name) });
        }
        loop {
            match self.wait_and_take(&queue, &patience).await {
                // The history was forgotten while the connection was lost: begin again.
                Err(StoreError::Watch(WatchError::Compacted { .. })) => {}
                Ok(None) => {
                    let missing = vec![text(name)];
                    return Err(StoreError::Timeout { waited: patience.timeout, missing });
                }
                Ok(Some(value)) => return Ok(value),
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes the first item as soon as there is one that no other caller takes; `None` if the time is up.
    async fn wait_and_take(
        &self,
        queue: &KeyRange,
        patience: &WaitDeadline,
    ) -> Result<Option<Bytes>, StoreError> {
        let watch = Watch { no_delete: true, ..Watch::new(queue.clone()) };
        let opened = timeout_at(patience.deadline, patience.client.watch([watch])).await;
        let Ok(opened) = opened else { return Ok(None) };
        let mut watcher: Watcher = opened?;
        loop {
            // Not bounded by the deadline: an item that is taken without an answer would be lost.
            if let Some(value) = self.take_first(queue, patience).await? {
                return Ok(Some(value));
            }
            match timeout_at(patience.deadline, watcher.next()).await {
                Ok(batch) => drop(batch?),
                Err(_) => return Ok(None),
            }
        }
    }

    /// Takes the first item, if there is any.
    ///
    /// New items are appended. If the first of the items that were read is gone, the second is therefore the
    /// first, and so on: one transaction takes the first of them that exists. Only if all are gone must the
    /// queue be read again, which the transaction does itself.
    async fn take_first(
        &self,
        queue: &KeyRange,
        patience: &WaitDeadline,
    ) -> Result<Option<Bytes>, StoreError> {
        let mut items: Vec<KeyValue> = patience.client.range(heads(queue.clone())).await?.kvs;
        while !items.is_empty() {
            let again = Txn::default().then([Op::Range(heads(queue.clone()))]);
            let take = items.iter().rev().fold(again, |otherwise, item| {
                let delete = Delete { range: KeyRange::key(item.key.clone()), prev_kv: true };
                Txn::when([Compare::exists(item.key.clone())])
                    .then([Op::Delete(delete)])
                    .otherwise([Op::Txn(otherwise)])
            });
            // With the full time-out of a request: an answer that comes too late would lose an item.
            match last(self.client.txn(take).await?) {
                Some(OpResult::Delete(mut taken)) => {
                    return Ok(taken.prev_kvs.pop().map(|kv| kv.value));
                }
                Some(OpResult::Range(found)) => items = found.kvs,
                _ => items.clear(),
            }
        }
        Ok(None)
    }
}
