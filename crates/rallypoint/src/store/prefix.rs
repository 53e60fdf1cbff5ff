//! A part of another store.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::{Store, StoreError};

/// A store within another one: each key gets a prefix and a slash.
///
/// [`num_keys`](Store::num_keys) still counts all keys of the other store, as it does in PyTorch;
/// [`list_keys`](Store::list_keys) names those with the prefix, without it. The time-out is that of the
/// other store.
///
/// ```
/// use std::sync::Arc;
/// use rallypoint::store::{HashStore, PrefixStore, Store};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let whole = Arc::new(HashStore::default());
/// let part = PrefixStore::new("workers", whole.clone());
/// part.set(b"greeting", "hello".into()).await?;
/// assert_eq!(whole.get(b"workers/greeting").await?, "hello");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct PrefixStore {
    prefix: Vec<u8>,
    store: Arc<dyn Store>,
}

impl PrefixStore {
    /// The part of `store` whose keys begin with `prefix` and a slash.
    pub fn new(prefix: impl AsRef<[u8]>, store: Arc<dyn Store>) -> Self {
        Self { prefix: [prefix.as_ref(), b"/"].concat(), store }
    }

    /// The store that this one is a part of.
    pub fn underlying_store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    fn key(&self, key: &[u8]) -> Vec<u8> {
        [&self.prefix, key].concat()
    }

    fn keys(&self, keys: &[&[u8]]) -> Vec<Vec<u8>> {
        keys.iter().map(|key| self.key(key)).collect()
    }
}

impl std::fmt::Debug for PrefixStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let prefix = String::from_utf8_lossy(&self.prefix);
        f.debug_struct("PrefixStore").field("prefix", &prefix).finish_non_exhaustive()
    }
}

fn slices(keys: &[Vec<u8>]) -> Vec<&[u8]> {
    keys.iter().map(Vec::as_slice).collect()
}

#[async_trait]
impl Store for PrefixStore {
    async fn set(&self, key: &[u8], value: Bytes) -> Result<(), StoreError> {
        self.store.set(&self.key(key), value).await
    }

    async fn get(&self, key: &[u8]) -> Result<Bytes, StoreError> {
        self.store.get(&self.key(key)).await
    }

    async fn add(&self, key: &[u8], amount: i64) -> Result<i64, StoreError> {
        self.store.add(&self.key(key), amount).await
    }

    async fn compare_set(
        &self,
        key: &[u8],
        expected: &[u8],
        desired: Bytes,
    ) -> Result<Bytes, StoreError> {
        self.store.compare_set(&self.key(key), expected, desired).await
    }

    async fn append(&self, key: &[u8], value: Bytes) -> Result<(), StoreError> {
        self.store.append(&self.key(key), value).await
    }

    async fn delete_key(&self, key: &[u8]) -> Result<bool, StoreError> {
        self.store.delete_key(&self.key(key)).await
    }

    async fn check(&self, keys: &[&[u8]]) -> Result<bool, StoreError> {
        self.store.check(&slices(&self.keys(keys))).await
    }

    async fn wait(&self, keys: &[&[u8]], timeout: Duration) -> Result<(), StoreError> {
        self.store.wait(&slices(&self.keys(keys)), timeout).await
    }

    async fn num_keys(&self) -> Result<u64, StoreError> {
        self.store.num_keys().await
    }

    async fn list_keys(&self) -> Result<Vec<Bytes>, StoreError> {
        let keys = self.store.list_keys().await?;
        let ours = keys.into_iter().filter(|key| key.starts_with(&self.prefix));
        Ok(ours.map(|key| key.slice(self.prefix.len()..)).collect())
    }

    async fn multi_set(&self, pairs: &[(&[u8], Bytes)]) -> Result<(), StoreError> {
        let keys: Vec<_> = pairs.iter().map(|(key, _)| self.key(key)).collect();
        let values = pairs.iter().map(|(_, value)| value.clone());
        let pairs: Vec<_> = slices(&keys).into_iter().zip(values).collect();
        self.store.multi_set(&pairs).await
    }

    async fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Bytes>, StoreError> {
        self.store.multi_get(&slices(&self.keys(keys))).await
    }

    async fn queue_push(&self, key: &[u8], value: Bytes) -> Result<(), StoreError> {
        self.store.queue_push(&self.key(key), value).await
    }

    async fn queue_pop(&self, key: &[u8], block: bool) -> Result<Bytes, StoreError> {
        self.store.queue_pop(&self.key(key), block).await
    }

    async fn queue_len(&self, key: &[u8]) -> Result<u64, StoreError> {
        self.store.queue_len(&self.key(key)).await
    }

    async fn try_clone(&self) -> Result<Arc<dyn Store>, StoreError> {
        let store = self.store.try_clone().await?;
        Ok(Arc::new(Self { prefix: self.prefix.clone(), store }))
    }

    fn timeout(&self) -> Duration {
        self.store.timeout()
    }

    fn set_timeout(&self, timeout: Duration) {
        self.store.set_timeout(timeout);
    }
}
