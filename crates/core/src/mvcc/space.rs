//! How much history is kept, and which writes are refused when memory runs out.
//!
//! Current pairs have the first claim to the store's memory, history the second: it is compacted before a
//! put is refused, and also when it takes more than its share, however few its revisions are. A put is
//! refused when the *current* pairs would exceed the limit. Large puts leave the last part of the memory to
//! small ones, so that a client that fills a store with large values cannot block a rendezvous in it.
//! Deletions and leases need no memory.

use super::Mvcc;
use crate::kv::{KvError, Op, Put, Revision, Txn};

/// The largest size of a small write, in bytes of keys and values.
const SMALL: usize = 16 << 10;

/// The divisor for the part of the memory that large writes leave free.
const KEPT_BACK: usize = 8;

/// The divisor for the part of the memory that history may take. History beyond it is cut to half of that,
/// so that compactions are rare.
const HISTORY: usize = 4;

impl Mvcc {
    /// Makes room for `more` bytes by compacting history, unless all of it must be kept. An error if that is
    /// not enough.
    pub(super) fn make_room(&mut self, more: usize) -> Result<(), KvError> {
        let max = self.options.max_bytes;
        let kept_back = if more > SMALL { max / KEPT_BACK } else { 0 };
        // Half of the reserve is for history: watches must be able to keep up.
        let (for_live, for_all) = (max - kept_back, max - kept_back / 2);
        if more > 0 && self.history.live().saturating_add(more) > for_live {
            return Err(KvError::NoSpace);
        }
        if more > 0 && self.history.bytes() + more > for_all {
            self.forget(for_all - more);
            // The rest is history that is not published yet, or that must be kept.
            if self.history.bytes() + more > for_all {
                return Err(KvError::NoSpace);
            }
        }
        Ok(())
    }

    /// Compacts history that exceeds its limits: by an eighth in revisions, or in bytes, so that compactions
    /// are rare.
    pub(super) fn trim(&mut self) {
        let keep = self.options.keep_revisions;
        let kept = self.revision() - self.history.compacted().max(1);
        if keep > 0 && kept - keep > keep / 8 {
            self.compact(self.revision() - keep).expect("it is published and not yet compacted");
        }
        let (live, share) = (self.history.live(), self.options.max_bytes / HISTORY);
        if self.history.bytes().saturating_sub(live) > share {
            self.forget(live + share / 2);
        }
    }

    /// Compacts the oldest history until the store takes at most `bytes`, or all that is published is
    /// compacted.
    fn forget(&mut self, bytes: usize) {
        if self.options.keep_revisions == 0 {
            return;
        }
        while self.history.bytes() > bytes {
            let (oldest, newest) = (self.history.compacted().max(1), self.revision());
            if oldest == newest {
                return;
            }
            let middle: Revision = newest - (newest - oldest) / 2;
            self.compact(middle).expect("it is published and not yet compacted");
        }
    }

    /// The number of bytes that a put adds.
    pub(super) fn put_bytes(&self, put: &Put) -> usize {
        let before = put.ignore_value.then(|| self.history.latest(&put.key)).flatten();
        put.key.len() + before.map_or(put.value.len(), |before| before.value.len())
    }

    /// The number of bytes that the larger branch of a transaction adds.
    pub(super) fn txn_bytes(&self, txn: &Txn) -> usize {
        let branch = |ops: &[Op]| -> usize {
            ops.iter()
                .map(|op| match op {
                    Op::Put(put) => self.put_bytes(put),
                    Op::Txn(inner) => self.txn_bytes(inner),
                    Op::Range(_) | Op::Delete(_) => 0,
                })
                .sum()
        };
        branch(&txn.success).max(branch(&txn.failure))
    }
}
