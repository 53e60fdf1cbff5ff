//! The waiters of each key, and which of them are released.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

/// The id of a wait. Earlier waits have smaller tickets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

#[derive(Debug)]
struct Waiter<W> {
    who: W,
    missing: BTreeSet<Bytes>,
    /// At a barrier: the number of arrivals to wait for.
    world_size: Option<i64>,
}

#[derive(Debug)]
pub(super) struct Waiters<W> {
    waiters: BTreeMap<Ticket, Waiter<W>>,
    by_key: BTreeMap<Bytes, BTreeSet<Ticket>>,
    at_barrier: BTreeMap<Bytes, BTreeSet<(i64, Ticket)>>,
    /// The waiter was released by a push, and is expected to take an element of this queue.
    woken: BTreeMap<Ticket, Bytes>,
    released: Vec<W>,
    last: Ticket,
}

impl<W> Default for Waiters<W> {
    fn default() -> Self {
        Self {
            waiters: BTreeMap::new(),
            by_key: BTreeMap::new(),
            at_barrier: BTreeMap::new(),
            woken: BTreeMap::new(),
            released: Vec::new(),
            last: Ticket(0),
        }
    }
}

impl<W> Waiters<W> {
    pub(super) fn register(&mut self, missing: BTreeSet<Bytes>, who: W) -> Ticket {
        self.last.0 += 1;
        for key in &missing {
            self.by_key.entry(key.clone()).or_default().insert(self.last);
        }
        self.waiters.insert(self.last, Waiter { who, missing, world_size: None });
        self.last
    }

    pub(super) fn register_arrival(&mut self, key: &[u8], world_size: i64, who: W) -> Ticket {
        self.last.0 += 1;
        let key = Bytes::copy_from_slice(key);
        self.at_barrier.entry(key.clone()).or_default().insert((world_size, self.last));
        let waiter = Waiter { who, missing: [key].into(), world_size: Some(world_size) };
        self.waiters.insert(self.last, waiter);
        self.last
    }

    /// Handles the write of a value: no waiter lacks the key any more.
    pub(super) fn written(&mut self, key: &[u8]) {
        for ticket in self.by_key.remove(key).unwrap_or_default() {
            self.found(ticket, key);
        }
    }

    /// Handles a push to a queue: every waiter sees that the key exists until one is released by it.
    pub(super) fn pushed(&mut self, key: &[u8]) {
        let Some((key, mut waiting)) = self.by_key.remove_entry(key) else { return };
        while let Some(ticket) = waiting.pop_first() {
            if self.found(ticket, &key) {
                self.woken.insert(ticket, key.clone());
                break;
            }
        }
        if !waiting.is_empty() {
            self.by_key.insert(key, waiting);
        }
    }

    /// Handles an arrival at a barrier, which has `count` of them now.
    pub(super) fn arrived(&mut self, key: &[u8], count: i64) {
        let Some((key, mut waiting)) = self.at_barrier.remove_entry(key) else { return };
        while let Some((world_size, ticket)) = waiting.pop_first() {
            if world_size > count {
                waiting.insert((world_size, ticket));
                self.at_barrier.insert(key, waiting);
                return;
            }
            self.found(ticket, &key);
        }
    }

    /// Removes a key from those that a waiter lacks; the waiter is no longer on the key's list. Returns whether
    /// that releases it.
    fn found(&mut self, ticket: Ticket, key: &[u8]) -> bool {
        let waiter = self.waiters.get_mut(&ticket).expect("only those who wait are listed");
        waiter.missing.remove(key);
        let released = waiter.missing.is_empty();
        if released {
            self.released.extend(self.waiters.remove(&ticket).map(|waiter| waiter.who));
        }
        released
    }

    /// Removes a waiter, and returns the keys that it waited for; `None` if it does not wait.
    pub(super) fn cancel(&mut self, ticket: Ticket) -> Option<BTreeSet<Bytes>> {
        let waiter = self.waiters.remove(&ticket)?;
        for key in &waiter.missing {
            match waiter.world_size {
                None => unlist(&mut self.by_key, key, &ticket),
                Some(world_size) => unlist(&mut self.at_barrier, key, &(world_size, ticket)),
            }
        }
        Some(waiter.missing)
    }

    /// Notes that a waiter takes an element of this queue. Returns whether it was released for one.
    pub(super) fn used(&mut self, ticket: Ticket, key: &[u8]) -> bool {
        let used = self.woken.get(&ticket).is_some_and(|queue| queue == key);
        if used {
            self.woken.remove(&ticket);
        }
        used
    }

    /// Notes that a waiter does not take the element that it was released for. Returns the queue.
    pub(super) fn unused(&mut self, ticket: Ticket) -> Option<Bytes> {
        self.woken.remove(&ticket)
    }

    pub(super) fn take_released(&mut self) -> Vec<W> {
        std::mem::take(&mut self.released)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
            && self.by_key.is_empty()
            && self.at_barrier.is_empty()
            && self.woken.is_empty()
    }
}

fn unlist<T: Ord>(lists: &mut BTreeMap<Bytes, BTreeSet<T>>, key: &Bytes, entry: &T) {
    let Some(list) = lists.get_mut(key) else { return };
    list.remove(entry);
    if list.is_empty() {
        lists.remove(key);
    }
}
