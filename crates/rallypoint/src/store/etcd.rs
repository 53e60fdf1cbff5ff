//! A store on etcd, or on our own server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use rallypoint_core::kv::{Compare, KeyRange, KeyValue, LeaseId, Op, OpResult, Put, Txn};

use super::points::{self, MAX_OPS, WaitFailed};
use super::timeout::Timeout;
use super::{Store, StoreError};
use crate::client::Client;

/// The largest request that etcd takes unless it is told to take more.
const MAX_REQUEST: usize = 1536 << 10;

/// What a request has besides keys and values: a little for each pair.
const OVERHEAD: usize = 64;

/// A store below a prefix of an etcd, where keys and values lie as they are.
///
/// Waiting costs one watch and no polling, however many keys lie below the prefix. A key that is deleted
/// while others are still waited for counts as found.
///
/// ```
/// use std::time::Duration;
/// use rallypoint::client::{Client, ClientOptions};
/// use rallypoint::store::{EtcdStore, Store};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use rallypoint::server::{ServerOptions, serve};
/// # let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// # let endpoint = listener.local_addr()?.to_string();
/// # tokio::spawn(serve(listener, ServerOptions::default(), std::future::pending()));
/// let client = Client::connect(ClientOptions::new([endpoint])).await?;
/// let store = EtcdStore::new(client, "/jobs/7/", 0, Duration::from_secs(300));
/// store.set(b"greeting", "hello".into()).await?;
/// assert_eq!(store.get(b"greeting").await?, "hello");
/// assert_eq!(store.add(b"visits", 1).await?, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct EtcdStore {
    client: Client,
    prefix: Bytes,
    lease: LeaseId,
    timeout: Timeout,
}

impl EtcdStore {
    /// The store whose keys begin with `prefix`, to the letter. What is written lives as long as
    /// `lease`, or until it is deleted if that is 0.
    pub fn new(
        client: Client,
        prefix: impl Into<Bytes>,
        lease: LeaseId,
        timeout: Duration,
    ) -> Self {
        Self { client, prefix: prefix.into(), lease, timeout: Timeout::new(timeout) }
    }

    fn key(&self, name: &[u8]) -> Bytes {
        let mut key = BytesMut::with_capacity(self.prefix.len() + name.len());
        key.extend_from_slice(&self.prefix);
        key.extend_from_slice(name);
        key.freeze()
    }

    fn keys(&self, names: &[&[u8]]) -> Vec<Bytes> {
        names.iter().map(|name| self.key(name)).collect()
    }

    /// The key as its user knows it.
    fn name(&self, key: &[u8]) -> String {
        String::from_utf8_lossy(key.get(self.prefix.len()..).unwrap_or(key)).into_owned()
    }

    /// A write of one pair, and how large it is.
    fn put(&self, name: &[u8], value: Bytes) -> Result<(Put, usize), StoreError> {
        let key = self.key(name);
        let size = key.len() + value.len() + OVERHEAD;
        if size > MAX_REQUEST {
            let (key, size) = (self.name(&key), value.len());
            return Err(StoreError::TooLarge { key, size, limit: MAX_REQUEST });
        }
        Ok((Put::new(key, value).on_lease(self.lease), size))
    }

    async fn find(
        &self,
        keys: &[Bytes],
        timeout: Duration,
    ) -> Result<BTreeMap<Bytes, Bytes>, StoreError> {
        points::wait(&self.client, keys, timeout).await.map_err(|failed| match failed {
            WaitFailed::TimedOut(missing) => {
                let missing = missing.iter().map(|key| self.name(key)).collect();
                StoreError::Timeout { waited: timeout, missing }
            }
            WaitFailed::Client(error) => error.into(),
            WaitFailed::Watch(error) => error.into(),
        })
    }

    /// The number in a counter, which is 0 if there is none.
    fn counter(&self, key: &Bytes, found: Option<&KeyValue>) -> Result<i64, StoreError> {
        let Some(kv) = found else { return Ok(0) };
        let text = String::from_utf8_lossy(&kv.value);
        text.trim().parse().map_err(|_| StoreError::Corrupt {
            key: self.name(key),
            what: format!("{text:?} is no whole number, so nothing can be added to it"),
        })
    }
}

#[async_trait]
impl Store for EtcdStore {
    async fn set(&self, key: &[u8], value: Bytes) -> Result<(), StoreError> {
        let (put, _) = self.put(key, value)?;
        self.client.put(put).await?;
        Ok(())
    }

    async fn get(&self, key: &[u8]) -> Result<Bytes, StoreError> {
        let mut found = self.multi_get(&[key]).await?;
        Ok(found.pop().unwrap_or_default())
    }

    /// Reads and writes with a compare until nobody comes in between. If an answer is lost, that is an
    /// error: the sum does not tell who added what, and adding again might count twice.
    async fn add(&self, key: &[u8], amount: i64) -> Result<i64, StoreError> {
        let full = self.key(key);
        let mut found: Option<KeyValue> = None;
        let mut attempts = 0_u32;
        loop {
            let before = self.counter(&full, found.as_ref())?;
            if amount == 0 && found.is_some() {
                return Ok(before);
            }
            let sum = before.checked_add(amount).ok_or_else(|| StoreError::Corrupt {
                key: self.name(&full),
                what: format!("{before} and {amount} make more than 64 bits hold"),
            })?;
            let (put, _) = self.put(key, sum.to_string().into())?;
            let guard = match &found {
                None => Compare::absent(full.clone()),
                Some(kv) => Compare::unchanged_since(full.clone(), kv.mod_revision),
            };
            let txn = Txn::when([guard])
                .then([Op::Put(put)])
                .otherwise([Op::Range(KeyRange::key(full.clone()).into())]);
            let answer = self.client.txn(txn).await?;
            if answer.succeeded {
                return Ok(sum);
            }
            found = answer.results.into_iter().find_map(|result| match result {
                OpResult::Range(range) => range.kvs.into_iter().next(),
                _ => None,
            });
            // The first time it was only guessed that there is no such counter; after that somebody
            // was quicker, and is best let through.
            if attempts > 0 {
                let most = 1 << attempts.min(6);
                tokio::time::sleep(Duration::from_millis(fastrand::u64(0..=most))).await;
            }
            attempts = attempts.saturating_add(1);
        }
    }

    async fn check(&self, keys: &[&[u8]]) -> Result<bool, StoreError> {
        let keys = self.keys(keys);
        let found = points::read(&self.client, &keys, true).await?;
        Ok(keys.iter().all(|key| found.contains_key(key)))
    }

    async fn wait(&self, keys: &[&[u8]], timeout: Duration) -> Result<(), StoreError> {
        self.find(&self.keys(keys), timeout).await.map(drop)
    }

    /// Up to 128 pairs, if they are not large, are written at once; more of them one lot after the other.
    async fn multi_set(&self, pairs: &[(&[u8], Bytes)]) -> Result<(), StoreError> {
        // One transaction may write a key only once; the last value counts.
        let mut puts = BTreeMap::new();
        for (key, value) in pairs {
            puts.insert(*key, self.put(key, value.clone())?);
        }
        let (mut ops, mut bytes) = (Vec::new(), 0);
        for (put, size) in puts.into_values() {
            if ops.len() == MAX_OPS || bytes + size > MAX_REQUEST {
                self.client.txn(Txn::default().then(std::mem::take(&mut ops))).await?;
                bytes = 0;
            }
            ops.push(Op::Put(put));
            bytes += size;
        }
        if !ops.is_empty() {
            self.client.txn(Txn::default().then(ops)).await?;
        }
        Ok(())
    }

    async fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Bytes>, StoreError> {
        let keys = self.keys(keys);
        let found = self.find(&keys, self.timeout.get()).await?;
        Ok(keys.iter().filter_map(|key| found.get(key).cloned()).collect())
    }

    async fn compare_set(
        &self,
        _key: &[u8],
        _expected: &[u8],
        _desired: Bytes,
    ) -> Result<Bytes, StoreError> {
        todo!()
    }

    async fn append(&self, _key: &[u8], _value: Bytes) -> Result<(), StoreError> {
        todo!()
    }

    async fn delete_key(&self, _key: &[u8]) -> Result<bool, StoreError> {
        todo!()
    }

    async fn num_keys(&self) -> Result<u64, StoreError> {
        todo!()
    }

    async fn list_keys(&self) -> Result<Vec<Bytes>, StoreError> {
        todo!()
    }

    async fn queue_push(&self, _key: &[u8], _value: Bytes) -> Result<(), StoreError> {
        todo!()
    }

    async fn queue_pop(&self, _key: &[u8], _block: bool) -> Result<Bytes, StoreError> {
        todo!()
    }

    async fn queue_len(&self, _key: &[u8]) -> Result<u64, StoreError> {
        todo!()
    }

    async fn try_clone(&self) -> Result<Arc<dyn Store>, StoreError> {
        Ok(Arc::new(self.clone()))
    }

    fn timeout(&self) -> Duration {
        self.timeout.get()
    }

    fn set_timeout(&self, timeout: Duration) {
        self.timeout.set(timeout);
    }
}
