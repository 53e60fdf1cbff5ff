//! The operations by which a node announces itself.

use bytes::Bytes;
use serde::Serialize;

use crate::kv::{KeyRange, LeaseId, Op, Put, Txn};
use crate::rendezvous::documents::{BootstrapStore, Proofs, encode};

/// The puts and deletes by which a node announces itself.
#[derive(Debug, Clone, Default)]
pub(in crate::rendezvous) struct AnnouncementOps {
    pub(super) ops: Vec<Op>,
}

impl AnnouncementOps {
    pub(in crate::rendezvous) fn put(
        mut self,
        key: String,
        value: impl Into<Bytes>,
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

/// The value of a confirmation: the bootstrap store, from rank 0, and proofs; empty without both.
pub(super) fn confirmation(store: Option<&BootstrapStore>, proofs: Proofs) -> Bytes {
    #[derive(Serialize)]
    struct Confirmation<'a> {
        #[serde(flatten)]
        store: Option<&'a BootstrapStore>,
        #[serde(flatten)]
        proofs: Proofs,
    }
    match (store, proofs == Proofs::default()) {
        (None, true) => Bytes::new(),
        (store, _) => encode(&Confirmation { store, proofs }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rendezvous::documents::{Address, decode};

    #[test]
    fn a_confirmation_has_the_store_and_the_proofs_or_is_empty() {
        let address = Address { host: "h".into(), port: 1 };
        let (token, liveness) = ("t".to_owned(), None);
        let store = BootstrapStore { address, token, liveness, runs_server: false };
        let proofs = Proofs { proved_dead: vec!["x".into()] };
        assert_eq!(confirmation(None, Proofs::default()), "");
        assert_eq!(confirmation(Some(&store), Proofs::default()), encode(&store));
        for known in [None, Some(&store)] {
            let value = confirmation(known, proofs.clone());
            assert_eq!(decode::<Proofs>(b"k", &value), Ok(proofs.clone()));
            assert_eq!(decode::<BootstrapStore>(b"k", &value).ok().as_ref(), known);
        }
    }
}
