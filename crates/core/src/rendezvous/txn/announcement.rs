//! The operations by which a node announces itself.

use crate::kv::{KeyRange, LeaseId, Op, Put, Txn};

/// The puts and deletes by which a node announces itself.
#[derive(Debug, Clone, Default)]
pub(in crate::rendezvous) struct AnnouncementOps {
    pub(super) ops: Vec<Op>,
}

impl AnnouncementOps {
    pub(in crate::rendezvous) fn put(
        mut self,
        key: String,
        value: impl Into<bytes::Bytes>,
        lease: LeaseId,
    ) -> Self {
        self.ops.push(Op::Put(Put::new(key, value).on_lease(lease)));
        self
    }

    pub(in crate::rendezvous) fn delete(mut self, key: String) -> Self {
        self.ops.push(Op::Delete(KeyRange::key(key).into()));
        self
    }

    pub(in crate::rendezvous) fn delete_if(
        self,
        wanted: bool,
        key: impl FnOnce() -> String,
    ) -> Self {
        if wanted { self.delete(key()) } else { self }
    }

    pub(in crate::rendezvous) fn run(mut self, txn: Option<Txn>) -> Self {
        self.ops.extend(txn.map(Op::Txn));
        self
    }

    pub(in crate::rendezvous) fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }
}
