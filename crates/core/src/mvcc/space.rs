//! How much history is kept, and who is refused when there is no room.
//!
//! What exists has the first claim to the store's memory, history the second: it is compacted before a
//! put is refused, and also when it takes more than its share, however few its revisions are. What is
//! too much is what *exists*. Large puts leave the last of the room to small ones, so that whoever fills
//! a store with large values cannot keep a group from meeting in it. Deletions and leases need no room.

use super::Mvcc;
use crate::kv::{KvError, Op, Put, Revision, Txn};

/// A write with so many bytes of keys and values at most is small.
const SMALL: usize = 16 << 10;

/// The part of the memory that large values leave free: one of so many.
const KEPT_BACK: usize = 8;

/// The part that history may take, one of so many. It is cut to half of it, so that it is done seldom.
const HISTORY: usize = 4;

impl Mvcc {
    /// Refuses to put `more` bytes if there is no room for them. History makes room, unless all of it is
    /// to be kept.
    pub(super) fn make_room(&mut self, more: usize) -> Result<(), KvError> {
        let max = self.options.max_bytes;
        let kept_back = if more > SMALL { max / KEPT_BACK } else { 0 };
        // Half of what is kept back is for history: those who watch must be able to keep up.
        let (for_live, for_all) = (max - kept_back, max - kept_back / 2);
        if more > 0 && self.history.live().saturating_add(more) > for_live {
            return Err(KvError::NoSpace);
        }
        if more > 0 && self.history.bytes() + more > for_all {
            self.forget(for_all - more);
            // What is left is history that nobody has seen yet, or that is kept for good.
            if self.history.bytes() + more > for_all {
                return Err(KvError::NoSpace);
            }
        }
        Ok(())
    }

    /// Compacts what is more than should be kept: once it is an eighth too many revisions, or too many
    /// bytes, so that it is done seldom.
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

    /// Compacts, from the oldest on, until the store takes so many `bytes` at most, or all that was
    /// published is forgotten.
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

    /// How many bytes a put adds.
    pub(super) fn put_bytes(&self, put: &Put) -> usize {
        let before = put.ignore_value.then(|| self.history.latest(&put.key)).flatten();
        put.key.len() + before.map_or(put.value.len(), |before| before.value.len())
    }

    /// How many bytes the larger branch of a transaction adds.
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
