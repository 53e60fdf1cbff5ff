//! The queues behind locks and elections: below a name each lease has a key, and the oldest key has its turn.
//!
//! Keys, comparisons and waits are those of etcd's own client library, so that its users and those of the services can
//! share a lock.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use rallypoint_core::kv::{
    Compare, CompareTarget, Event, EventKind, KeyRange, KeyValue, LeaseId, Op, OpResult, Put,
    Range, RangeResult, Relation, Revision, SortOrder, SortTarget, Txn, TxnResult, Watch,
};
use rallypoint_core::mvcc::{StreamId, WatchMessage};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::convert;
use crate::server::engine::{Engine, stopped};

/// The time to live of the lease of a caller that brings none, in seconds; etcd's.
const DEFAULT_TTL: i64 = 60;

/// The access of the services to the store.
#[derive(Clone)]
pub(super) struct Queues {
    pub(super) engine: Arc<Engine>,
    pub(super) stopping: CancellationToken,
}

/// A key in a queue. Dropping it gives the place up; [`keep`](Self::keep) does not.
pub(super) struct Place {
    engine: Arc<Engine>,
    pub(super) key: Bytes,
    /// The revision of the key's creation, by which places are ordered.
    pub(super) created: Revision,
    /// The revision of the transaction that took the place.
    pub(super) revision: Revision,
    /// The value of the key, if the lease had the place already.
    pub(super) former: Option<Bytes>,
    kept: bool,
}

/// The prefix of the keys of a queue.
pub(super) fn prefix(name: &Bytes) -> Bytes {
    [name.as_ref(), b"/"].concat().into()
}

/// Holds if the key is still the one that was created at `revision`.
fn created_at(key: &Bytes, revision: Revision) -> Compare {
    Compare {
        range: KeyRange::key(key.clone()),
        relation: Relation::Equal,
        target: CompareTarget::Create(revision),
    }
}

impl Queues {
    /// The lease that the caller brings, or a new one.
    pub(super) async fn lease(&self, given: LeaseId) -> Result<LeaseId, Status> {
        if given != 0 {
            return Ok(given);
        }
        let (lease, _) = self.engine.grant(None, DEFAULT_TTL).await?.map_err(convert::status)?;
        Ok(lease)
    }

    /// Whether the key exists, with the revision of the answer.
    pub(super) fn look(&self, key: &Bytes) -> Result<(Revision, bool), Status> {
        let found = self.range(&Range::new(KeyRange::key(key.clone())))?;
        Ok((found.revision, !found.kvs.is_empty()))
    }

    /// Deletes a key. Returns the revision.
    pub(super) async fn delete(&self, key: Bytes) -> Result<Revision, Status> {
        let delete = KeyRange::key(key).into();
        let done = self.engine.write(|store, _| store.delete(delete)).await?;
        Ok(done.map_err(convert::status)?.revision)
    }

    /// Deletes the key if it is still the one that was created at `created`. Returns the revision.
    pub(super) async fn remove(&self, key: &Bytes, created: Revision) -> Result<Revision, Status> {
        let delete = Op::Delete(KeyRange::key(key.clone()).into());
        Ok(self.txn(Txn::when([created_at(key, created)]).then([delete])).await?.revision)
    }

    /// Writes the key if it is still the one that was created at `created`. Returns the revision if it was.
    pub(super) async fn replace(
        &self,
        key: &Bytes,
        created: Revision,
        (value, lease): (Bytes, LeaseId),
    ) -> Result<Option<Revision>, Status> {
        let put = Op::Put(Put::new(key.clone(), value).on_lease(lease));
        let done = self.txn(Txn::when([created_at(key, created)]).then([put])).await?;
        Ok(done.succeeded.then_some(done.revision))
    }

    async fn txn(&self, txn: Txn) -> Result<TxnResult, Status> {
        self.engine.write(|store, _| store.txn(txn)).await?.map_err(convert::status)
    }

    fn range(&self, range: &Range) -> Result<RangeResult, Status> {
        self.engine.read(|store| store.range(range)).map_err(convert::status)
    }

    /// The pair whose turn it is, if there is one, with the revision of the answer.
    pub(super) fn first(&self, prefix: &Bytes) -> Result<(Revision, Option<KeyValue>), Status> {
        let found = self.range(&Range {
            limit: 1,
            sort_target: SortTarget::Create,
            sort_order: SortOrder::Ascend,
            ..Range::new(KeyRange::prefix(prefix.clone()))
        })?;
        Ok((found.revision, found.kvs.into_iter().next()))
    }

    /// Takes a place in the queue, or finds the one that the lease has.
    pub(super) async fn enqueue(
        &self,
        prefix: &Bytes,
        lease: LeaseId,
        value: Bytes,
    ) -> Result<Place, Status> {
        let key: Bytes = [prefix.as_ref(), format!("{lease:x}").as_bytes()].concat().into();
        let txn = Txn::when([Compare::absent(key.clone())])
            .then([Op::Put(Put::new(key.clone(), value).on_lease(lease))])
            .otherwise([Op::Range(KeyRange::key(key.clone()).into())]);
        let done = self.txn(txn).await?;
        let former = match done.results.into_iter().next() {
            Some(OpResult::Range(found)) => found.kvs.into_iter().next(),
            _ => None,
        };
        Ok(Place {
            engine: self.engine.clone(),
            key,
            created: former.as_ref().map_or(done.revision, |pair| pair.create_revision),
            revision: done.revision,
            former: former.map(|pair| pair.value),
            kept: false,
        })
    }

    /// Waits until no older key is in the queue. Returns whether there was one.
    pub(super) async fn turn(&self, prefix: &Bytes, place: &Place) -> Result<bool, Status> {
        let mut waited = false;
        loop {
            let before = self.range(&Range {
                limit: 1,
                sort_target: SortTarget::Create,
                sort_order: SortOrder::Descend,
                max_create_revision: place.created - 1,
                ..Range::new(KeyRange::prefix(prefix.clone()))
            })?;
            let Some(next) = before.kvs.into_iter().next() else { return Ok(waited) };
            waited = true;
            let mut changes = self.watch(KeyRange::key(next.key), before.revision + 1)?;
            let is_deletion = |event: &Event| event.kind == EventKind::Delete;
            while !changes.next().await?.is_none_or(|(_, events)| events.iter().any(is_deletion)) {}
        }
    }

    /// Follows the changes of these keys from this revision on.
    pub(super) fn watch(&self, keys: KeyRange, from: Revision) -> Result<Changes, Status> {
        let (stream, notify) = self.engine.open_stream()?;
        let changes = Changes { queues: self.clone(), stream, notify };
        let watch = Watch::new(keys).from_revision(from);
        self.engine
            .watches(|store| store.watch(stream, None, watch))
            .map_err(|_| Status::resource_exhausted("etcdserver: too many requests"))?;
        Ok(changes)
    }
}

impl Place {
    /// Leaves the key in the queue.
    pub(super) fn keep(mut self) -> Bytes {
        self.kept = true;
        self.key.clone()
    }
}

impl Drop for Place {
    /// A caller that gives up while it waits must not have its turn later.
    fn drop(&mut self) {
        if !self.kept {
            let txn = Txn::when([created_at(&self.key, self.created)])
                .then([Op::Delete(KeyRange::key(self.key.clone()).into())]);
            // The change takes effect when it is first polled. Nobody waits until it is on disk.
            let _ = self.engine.write(|store, _| store.txn(txn)).now_or_never();
        }
    }
}

/// The changes of watched keys.
pub(super) struct Changes {
    queues: Queues,
    stream: StreamId,
    notify: Arc<Notify>,
}

impl Changes {
    /// Waits for the next changes, and returns them with the revision of the store. `None` if the store has forgotten
    /// some, and the caller has to read again. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<Option<(Revision, Vec<Event>)>, Status> {
        loop {
            let engine = &self.queues.engine;
            match engine.watches(|store| store.next_message(self.stream)) {
                Some(WatchMessage::Events { revision, events, .. }) => {
                    return Ok(Some((revision, events)));
                }
                Some(WatchMessage::Compacted { .. }) => return Ok(None),
                None => {}
            }
            tokio::select! {
                () = self.notify.notified() => {}
                () = self.queues.stopping.cancelled() => return Err(stopped()),
            }
        }
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        self.queues.engine.close_stream(self.stream);
    }
}
