//! What an operator may do to a run, and a node that closes it.

use super::{RoundDocuments, RoundGuard, Txns};
use crate::kv::{KeyRange, Op, Put, Txn};
use crate::rendezvous::documents::{Overruled, encode};

impl Txns {
    /// Closes the run.
    pub(in crate::rendezvous) fn close(
        &self,
        guard: RoundGuard,
        closed: RoundDocuments<'_>,
    ) -> Txn {
        self.when(guard, self.put(closed, self.run_lease))
    }

    /// Lets a new group form without a quorum of earlier groups.
    pub(in crate::rendezvous) fn overrule(&self, guard: RoundGuard, overruled: &Overruled) -> Txn {
        let put = Put::new(self.keys.overruled(), encode(overruled)).on_lease(self.run_lease);
        self.when(guard, vec![Op::Put(put)])
    }

    /// Deletes the document in force.
    pub(in crate::rendezvous) fn delete_active(&self, guard: RoundGuard) -> Txn {
        self.when(guard, vec![Op::Delete(KeyRange::key(self.keys.active()).into())])
    }
}
