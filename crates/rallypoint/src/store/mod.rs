//! Stores: what the nodes of a group share, with the interface of PyTorch's c10d store.

pub(crate) mod agent;
mod error;
mod etcd;
mod hash;
mod keep_alive;
mod prefix;
mod tcp;
mod timeout;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

pub use self::agent::{AgentStore, ConnectionEnd, LostPeer, PeerReport, StoreOwner};
pub use self::error::StoreError;
pub use self::etcd::EtcdStore;
pub use self::hash::HashStore;
pub(crate) use self::keep_alive::keep_alive;
pub use self::prefix::PrefixStore;
pub use self::tcp::TcpStore;
pub(crate) use self::tcp::{Presence, PresenceEnd};
pub use self::timeout::DEFAULT_TIMEOUT;

/// A key-value store that a group shares. Keys and values are any bytes.
///
/// A key *exists* once a value was written to it, or while its queue is not empty. Queues have a key space
/// of their own, and only [`check`](Self::check) and [`wait`](Self::wait) look into both. A queue should not
/// have the name of a value: on PyTorch's wire a wait cannot tell them apart, so that a wait for the one is
/// ended by the other, `get` returns an empty value, and `queue_pop` finds an empty queue. On etcd each waits
/// for its own.
///
/// Dropping a call's future cancels the call; a write may still be executed.
#[async_trait]
pub trait Store: Send + Sync {
    /// Writes a value.
    async fn set(&self, key: &[u8], value: Bytes) -> Result<(), StoreError>;

    /// The value of a key. Waits for it as long as [`timeout`](Self::timeout).
    async fn get(&self, key: &[u8]) -> Result<Bytes, StoreError>;

    /// Adds to a counter, which begins at 0, and returns the sum. The counter's value is its decimal
    /// digits; adding 0 reads it, and creates it if there is none.
    async fn add(&self, key: &[u8], amount: i64) -> Result<i64, StoreError>;

    /// Writes `desired` if the value is `expected`, or if there is none and `expected` is empty. Returns
    /// the value that the key has afterwards, or `expected` if it has none.
    async fn compare_set(
        &self,
        key: &[u8],
        expected: &[u8],
        desired: Bytes,
    ) -> Result<Bytes, StoreError>;

    /// Appends to the value, or creates it.
    async fn append(&self, key: &[u8], value: Bytes) -> Result<(), StoreError>;

    /// Deletes a value. Returns whether there was one.
    async fn delete_key(&self, key: &[u8]) -> Result<bool, StoreError>;

    /// Whether all of the keys exist.
    async fn check(&self, keys: &[&[u8]]) -> Result<bool, StoreError>;

    /// Waits until all of the keys exist.
    async fn wait(&self, keys: &[&[u8]], timeout: Duration) -> Result<(), StoreError>;

    /// The number of keys with a value.
    async fn num_keys(&self) -> Result<u64, StoreError>;

    /// The keys that have a value, in no particular order.
    async fn list_keys(&self) -> Result<Vec<Bytes>, StoreError>;

    /// Writes several values.
    async fn multi_set(&self, pairs: &[(&[u8], Bytes)]) -> Result<(), StoreError>;

    /// The values of several keys. Waits for each as [`get`](Self::get) does.
    async fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Bytes>, StoreError>;

    /// Appends a value to a queue.
    async fn queue_push(&self, key: &[u8], value: Bytes) -> Result<(), StoreError>;

    /// Takes the first value of a queue. If the queue is empty, the call waits for as long as
    /// [`timeout`](Self::timeout) if `block`, and fails otherwise.
    async fn queue_pop(&self, key: &[u8], block: bool) -> Result<Bytes, StoreError>;

    /// The length of a queue.
    async fn queue_len(&self, key: &[u8]) -> Result<u64, StoreError>;

    /// Waits until `world_size` calls were made with this key. A key serves one barrier; a call that has given
    /// up stays counted.
    async fn barrier(
        &self,
        key: &[u8],
        world_size: u64,
        timeout: Duration,
    ) -> Result<(), StoreError> {
        let arrivals = [key, b"/num_members"].concat();
        let complete = [key, b"/last_member"].concat();
        let arrived = self.add(&arrivals, 1).await?;
        if u64::try_from(arrived).is_ok_and(|arrived| arrived >= world_size) {
            self.set(&complete, "1".into()).await?;
            return Ok(());
        }
        match self.wait(&[&complete], timeout).await {
            Err(StoreError::Timeout { waited, .. }) => {
                let arrived = self.add(&arrivals, 0).await.ok();
                let key = String::from_utf8_lossy(key).into_owned();
                Err(StoreError::Barrier { key, waited, arrived, world_size })
            }
            done => done,
        }
    }

    /// A store on the same keys with a time-out of its own, whose calls never wait for a call of this store.
    async fn try_clone(&self) -> Result<Arc<dyn Store>, StoreError>;

    /// The time-out of calls without one of their own: 300 seconds, unless it was changed.
    fn timeout(&self) -> Duration;

    /// Changes the time-out of calls without one of their own, in whole milliseconds. Calls under way are not
    /// affected.
    fn set_timeout(&self, timeout: Duration);
}
