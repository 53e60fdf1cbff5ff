//! The state of one c10d store in memory: values, queues, and the waiters for them.
//!
//! It answers as the server of PyTorch's `TCPStore` does. A key *exists* while it has a value or its queue
//! has an element; values and queues are separate otherwise. Nothing here sleeps: a caller that must wait
//! gets a [`Ticket`], and the call that releases it puts it on the list that
//! [`take_released`](StoreState::take_released) returns.

#[cfg(test)]
mod tests;
mod waiters;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use thiserror::Error;

pub use self::waiters::Ticket;
use self::waiters::Waiters;

/// Why an addition failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AddError {
    /// The value is not a number.
    #[error("{0:?} is no whole number, so nothing can be added to it")]
    NotANumber(String),
    /// The sum overflows 64 bits.
    #[error("{before} and {amount} make more than 64 bits hold")]
    Overflow {
        /// The value.
        before: i64,
        /// The amount to add.
        amount: i64,
    },
}

/// Values, queues and waiters. `W` is the owner's handle of a waiter.
///
/// The cost of a call depends on the keys that it names and the waiters that it releases, and on nothing
/// else.
///
/// ```
/// use rallypoint_core::c10d::StoreState;
///
/// let mut state = StoreState::default();
/// let ticket = state.wait([b"a".as_slice(), b"b"], "Ada");
/// assert!(ticket.is_some(), "the keys do not exist");
/// state.set(b"a", "1".into());
/// assert!(state.take_released().is_empty());
/// state.add(b"b", 5).unwrap();
/// assert_eq!(state.take_released(), ["Ada"]);
/// ```
#[derive(Debug)]
pub struct StoreState<W> {
    values: BTreeMap<Bytes, Bytes>,
    /// The queues by their keys; an empty queue is removed.
    queues: BTreeMap<Bytes, VecDeque<Bytes>>,
    waiters: Waiters<W>,
}

impl<W> Default for StoreState<W> {
    fn default() -> Self {
        Self { values: BTreeMap::new(), queues: BTreeMap::new(), waiters: Waiters::default() }
    }
}

impl<W> StoreState<W> {
    /// Writes a value.
    pub fn set(&mut self, key: &[u8], value: Bytes) {
        match self.values.get_mut(key) {
            Some(old) => *old = value,
            None => drop(self.values.insert(Bytes::copy_from_slice(key), value)),
        }
        self.waiters.written(key);
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Option<&Bytes> {
        self.values.get(key)
    }

    /// Adds to the decimal number in a value, or to 0 if there is none, and returns the sum.
    pub fn add(&mut self, key: &[u8], amount: i64) -> Result<i64, AddError> {
        let sum = self.values.get(key).map_or(Ok(amount), |value| sum(value, amount))?;
        self.set(key, sum.to_string().into());
        Ok(sum)
    }

    /// Writes `desired` if the value is `expected`, or if there is none and `expected` is empty. Returns
    /// the value that the key has afterwards, if it has one.
    pub fn compare_set(&mut self, key: &[u8], expected: &[u8], desired: Bytes) -> Option<&Bytes> {
        let equal = match self.values.get(key) {
            Some(value) => value == expected,
            None => expected.is_empty(),
        };
        if equal {
            self.set(key, desired);
        }
        self.values.get(key)
    }

    /// Appends to the value, or creates it.
    pub fn append(&mut self, key: &[u8], value: &[u8]) {
        let before = self.values.get_mut(key).map(std::mem::take).unwrap_or_default();
        // In place, unless a reader still holds a reference to the value.
        let mut whole = before.try_into_mut().unwrap_or_else(|shared| shared.as_ref().into());
        whole.extend_from_slice(value);
        self.set(key, whole.freeze());
    }

    /// Deletes a value. Returns whether there was one.
    pub fn delete(&mut self, key: &[u8]) -> bool {
        self.values.remove(key).is_some()
    }

    /// The keys that have a value.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &Bytes> {
        self.values.keys()
    }

    /// Whether a key has a value or its queue an element.
    pub fn exists(&self, key: &[u8]) -> bool {
        self.values.contains_key(key) || self.queues.contains_key(key)
    }

    /// Appends a value to a queue. Of the waiters that lack this key alone, the one that has waited longest is
    /// released, since there is one element to take.
    pub fn queue_push(&mut self, key: &[u8], value: Bytes) {
        match self.queues.get_mut(key) {
            Some(queue) => queue.push_back(value),
            None => drop(self.queues.insert(Bytes::copy_from_slice(key), [value].into())),
        }
        self.waiters.pushed(key);
    }

    /// Takes the first value of a queue. A waiter that was released by a push passes its ticket, since it was
    /// released for this.
    pub fn queue_pop(&mut self, key: &[u8], woken: Option<Ticket>) -> Option<Bytes> {
        if let Some(ticket) = woken
            && !self.waiters.used(ticket, key)
        {
            self.pass_on(ticket);
        }
        let queue = self.queues.get_mut(key)?;
        let first = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(key);
        }
        first
    }

    /// The length of a queue.
    pub fn queue_len(&self, key: &[u8]) -> usize {
        self.queues.get(key).map_or(0, VecDeque::len)
    }

    /// Waits until each of the keys that does not exist has been written once. `None` if all exist.
    pub fn wait<'k>(
        &mut self,
        keys: impl IntoIterator<Item = &'k [u8]>,
        waiter: W,
    ) -> Option<Ticket> {
        let missing = keys.into_iter().filter(|key| !self.exists(key));
        let missing: BTreeSet<Bytes> = missing.map(Bytes::copy_from_slice).collect();
        (!missing.is_empty()).then(|| self.waiters.register(missing, waiter))
    }

    /// Counts one more arrival in the value of `key`, and waits until it is `world_size`. `None` if it is.
    pub fn barrier(
        &mut self,
        key: &[u8],
        world_size: i64,
        waiter: W,
    ) -> Result<Option<Ticket>, AddError> {
        let arrived = self.add(key, 1)?;
        self.waiters.arrived(key, arrived);
        let wait = || self.waiters.register_arrival(key, world_size, waiter);
        Ok((arrived < world_size).then(wait))
    }

    /// Cancels a wait, and returns the keys that were still missing. `None` if the waiter was released already;
    /// if that was for an element of a queue, the next in line is released instead.
    pub fn cancel(&mut self, ticket: Ticket) -> Option<BTreeSet<Bytes>> {
        let missing = self.waiters.cancel(ticket);
        if missing.is_none() {
            self.pass_on(ticket);
        }
        missing
    }

    /// Declares that a released waiter does something else than to take an element of a queue. If it was
    /// released for one, the next in line is released. Each element of a queue with waiters has thus released
    /// one that is still expected to take it, so that no element is forgotten.
    pub fn pass_on(&mut self, ticket: Ticket) {
        if let Some(key) = self.waiters.unused(ticket)
            && self.queues.contains_key(&key)
        {
            self.waiters.pushed(&key);
        }
    }

    /// The waiters that were released since the last call, in order.
    pub fn take_released(&mut self) -> Vec<W> {
        self.waiters.take_released()
    }
}

/// The sum of a value, which must be a decimal number, and an amount.
pub fn sum(value: &[u8], amount: i64) -> Result<i64, AddError> {
    let text = String::from_utf8_lossy(value);
    let before = text.trim().parse::<i64>();
    // The value may have megabytes, and its beginning is enough for the error.
    let word = || text.chars().take(64).collect();
    let before = before.map_err(|_| AddError::NotANumber(word()))?;
    before.checked_add(amount).ok_or(AddError::Overflow { before, amount })
}
