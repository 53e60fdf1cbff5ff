//! Stores: what the nodes of a group share, with the interface of PyTorch's c10d store.

mod error;
mod etcd;
mod points;

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

pub use self::error::StoreError;
pub use self::etcd::EtcdStore;

/// A map that a group shares. Keys and values are any bytes.
///
/// Dropping a call's future gives up on it; a write may still be executed.
#[async_trait]
pub trait Store: Send + Sync {
    /// Writes a value.
    async fn set(&self, key: &[u8], value: Bytes) -> Result<(), StoreError>;

    /// The value of a key. Waits for it as long as [`timeout`](Self::timeout).
    async fn get(&self, key: &[u8]) -> Result<Bytes, StoreError>;

    /// Adds to a counter, which begins at 0, and returns the sum. The counter's value is its decimal
    /// digits.
    async fn add(&self, key: &[u8], amount: i64) -> Result<i64, StoreError>;

    /// Whether all of the keys exist.
    async fn check(&self, keys: &[&[u8]]) -> Result<bool, StoreError>;

    /// Waits until all of the keys exist.
    async fn wait(&self, keys: &[&[u8]], timeout: Duration) -> Result<(), StoreError>;

    /// Writes several values.
    async fn multi_set(&self, pairs: &[(&[u8], Bytes)]) -> Result<(), StoreError>;

    /// The values of several keys, each waited for like a single one.
    async fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Bytes>, StoreError>;

    /// How long [`get`](Self::get) and [`multi_get`](Self::multi_get) wait.
    fn timeout(&self) -> Duration;
}
