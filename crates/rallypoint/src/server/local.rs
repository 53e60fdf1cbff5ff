//! The server for readers in its own process: they need no connection, and do not keep the server.

use std::sync::{Arc, Weak};

use rallypoint_core::kv::{
    Event, KeyRange, KvError, LeaseId, LeaseStatus, Range, Revision, Txn, TxnResult, Watch,
};
use rallypoint_core::mvcc::{StreamId, WatchMessage};
use tokio::sync::Notify;

use super::engine::Engine;
use super::grpc::ETCD_VERSION;
use crate::runs::ServerFacts;

/// A server of this process. Every answer is `None` once the server has ended.
#[derive(Clone)]
pub(crate) struct LocalServer(Weak<Engine>);

impl LocalServer {
    pub(super) fn new(engine: &Arc<Engine>) -> Self {
        Self(Arc::downgrade(engine))
    }

    fn engine(&self) -> Option<Arc<Engine>> {
        self.0.upgrade().filter(|engine| !engine.is_broken())
    }

    /// Whether the server accepts writes.
    pub(crate) fn is_serving(&self) -> bool {
        self.engine().is_some_and(|engine| engine.is_open())
    }

    /// Runs a transaction that only reads.
    pub(crate) fn read(&self, txn: &Txn) -> Option<Result<TxnResult, KvError>> {
        Some(self.engine()?.read(|store| store.read_txn(txn)))
    }

    /// A lease, if it exists.
    pub(crate) fn lease(&self, id: LeaseId) -> Option<Option<LeaseStatus>> {
        Some(self.engine()?.lease_status(id))
    }

    /// The numbers of the server. `keys` are counted.
    pub(crate) fn facts(&self, keys: KeyRange) -> Option<ServerFacts> {
        let engine = self.engine()?;
        let sizes = engine.sizes();
        let counted = Range { count_only: true, ..Range::new(keys) };
        let counted = engine.read(|store| store.range(&counted)).ok();
        Some(ServerFacts {
            endpoint: String::new(),
            kind: Some("rallypoint"),
            version: Some(ETCD_VERSION.to_owned()),
            revision: Some(sizes.revision),
            db_size: i64::try_from(sizes.bytes).ok(),
            leases: Some(sizes.leases),
            keys: counted.map(|found| found.count),
            watchers: Some(sizes.watches),
            problems: Vec::new(),
        })
    }

    /// Follows the changes of these keys.
    pub(crate) fn watch(&self, keys: KeyRange) -> Option<LocalChanges> {
        let engine = self.engine()?;
        let (stream, notify) = engine.open_stream().ok()?;
        let changes = LocalChanges { engine: self.clone(), stream, notify };
        let watch = Watch::new(keys);
        engine.watches(|store| store.watch(stream, None, watch)).ok()?;
        Some(changes)
    }
}

/// The changes of watched keys.
pub(crate) struct LocalChanges {
    engine: LocalServer,
    stream: StreamId,
    notify: Arc<Notify>,
}

impl LocalChanges {
    /// Waits for the next changes; `None` once the server has ended. If the store has forgotten changes, it has the
    /// oldest revision that it knows instead, and the changes end. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<Result<Vec<Event>, Revision>> {
        loop {
            let engine = self.engine.engine()?;
            match engine.watches(|store| store.next_message(self.stream)) {
                Some(WatchMessage::Events { events, .. }) => return Some(Ok(events)),
                Some(WatchMessage::Compacted { compacted, .. }) => return Some(Err(compacted)),
                None => {}
            }
            drop(engine);
            self.notify.notified().await;
        }
    }
}

impl Drop for LocalChanges {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.0.upgrade() {
            engine.close_stream(self.stream);
        }
    }
}
