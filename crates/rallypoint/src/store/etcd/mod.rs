//! A store on etcd, or on Rallypoint's own server.
//!
//! - `name_value`: the value under one name.
//! - `counter`, `update`, `queue`: concurrent additions; read-modify-write of a value; queues.
//! - `points`, `wait`: reading a few small ranges, and waiting until each has a key.

mod counter;
mod name_value;
mod points;
mod queue;
mod update;
mod wait;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use rallypoint_core::kv::{KeyRange, KeyValue, LeaseId, Op, OpResult, Put, Range, Txn, TxnResult};
use rallypoint_core::rendezvous::keys::{NameKeys, StoreKeys};

use self::name_value::NoNumber;
use self::points::MAX_OPS;
use super::timeout::Timeout;
use super::{Store, StoreError};
use crate::client::Client;
use crate::util::backoff::Backoff;

/// etcd's default limit of the size of a request.
const MAX_REQUEST: usize = 1536 << 10;

/// The parts of a request besides the value: the number of keys, and the bytes around them.
const KEYS: usize = 8;
const OVERHEAD: usize = 512;

/// The number of keys that are listed with one request.
const PAGE: i64 = 1000;

/// A store below a prefix of an etcd.
///
/// Values lie there as they are, under keys that [`StoreKeys`] tells. Reading and waiting cost the same
/// however many keys lie below the prefix: points are read, and points are watched, without polling. An
/// [`add`](Store::add) is one request, however many add at once.
///
/// All who use one prefix must give the same lease. Otherwise a part of what belongs together may vanish
/// by itself.
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
/// store.queue_push(b"tasks", "first".into()).await?;
/// assert_eq!(store.queue_pop(b"tasks", true).await?, "first");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct EtcdStore {
    client: Client,
    keys: StoreKeys,
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
        let keys = StoreKeys::new(prefix);
        Self { client, keys, lease, timeout: Timeout::new(timeout) }
    }

    /// How large a request with a value of this size may become, if it may be sent.
    fn fits(&self, name: &[u8], size: usize) -> Result<usize, StoreError> {
        let request = size.saturating_add(KEYS * self.keys.of(name).length() + OVERHEAD);
        if request > MAX_REQUEST {
            return Err(StoreError::TooLarge { key: text(name), size, limit: MAX_REQUEST });
        }
        Ok(request)
    }

    /// The operations that write a value in place of the current one.
    fn overwrite(&self, keys: &NameKeys, value: Bytes) -> [Op; 2] {
        let put = Put::new(keys.value(), value).on_lease(self.lease);
        [Op::Put(put), Op::Delete(keys.digits().into())]
    }

    fn no_number(name: &[u8], NoNumber(found): NoNumber) -> StoreError {
        // The value may have a megabyte, and its beginning is enough for the error.
        let found: String = found.chars().take(64).collect();
        Self::corrupt(name, format!("{found:?} is no whole number, so nothing can be added to it"))
    }

    fn corrupt(name: &[u8], what: String) -> StoreError {
        StoreError::Corrupt { key: text(name), what }
    }
}

/// A name as text.
fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// The result of the last operation that a transaction executed, also within inner transactions.
fn last(mut answer: TxnResult) -> Option<OpResult> {
    match answer.results.pop()? {
        OpResult::Txn(inner) => last(inner),
        result => Some(result),
    }
}

/// The pairs that the last operation of a transaction has read.
fn read_last(answer: TxnResult) -> Vec<KeyValue> {
    match last(answer) {
        Some(OpResult::Range(found)) => found.kvs,
        _ => Vec::new(),
    }
}

/// The backoff of an update after another writer has changed the value first.
const CONFLICT_BACKOFF: Backoff =
    Backoff::new(Duration::from_millis(2), Duration::from_millis(64)).with_full_jitter();

/// Of each call that writes, an answer that is lost is an error
/// ([`ClientError::OutcomeUnknown`](crate::client::ClientError::OutcomeUnknown)): it may have been executed.
#[async_trait]
impl Store for EtcdStore {
    async fn set(&self, key: &[u8], value: Bytes) -> Result<(), StoreError> {
        self.multi_set(&[(key, value)]).await
    }

    async fn get(&self, key: &[u8]) -> Result<Bytes, StoreError> {
        let mut found = self.multi_get(&[key]).await?;
        Ok(found.pop().unwrap_or_default())
    }

    /// One request, or two if the counter was given a value other than 0 before. If an answer is lost, that
    /// is an error: the sum does not tell who added what, and adding again might count twice.
    ///
    /// A sum that 64 bits do not hold is an error too. The amount is taken off again, but others may see it
    /// for a moment.
    async fn add(&self, key: &[u8], amount: i64) -> Result<i64, StoreError> {
        self.count(key, amount).await
    }

    async fn compare_set(
        &self,
        key: &[u8],
        expected: &[u8],
        desired: Bytes,
    ) -> Result<Bytes, StoreError> {
        self.fits(key, desired.len())?;
        let swap = |before: &[u8]| (before == expected).then(|| desired.clone());
        let after = self.update(key, swap).await?;
        Ok(after.unwrap_or_else(|| Bytes::copy_from_slice(expected)))
    }

    async fn append(&self, key: &[u8], value: Bytes) -> Result<(), StoreError> {
        let append = |before: &[u8]| Some(Bytes::from([before, &value].concat()));
        self.update(key, append).await.map(drop)
    }

    async fn delete_key(&self, key: &[u8]) -> Result<bool, StoreError> {
        let keys = self.keys.of(key);
        let value = Op::Delete(KeyRange::key(keys.value()).into());
        let txn = Txn::default().then([Op::Delete(keys.digits().into()), value]);
        let deleted = last(self.client.txn(txn).await?);
        Ok(matches!(deleted, Some(OpResult::Delete(value)) if value.deleted > 0))
    }

    async fn check(&self, keys: &[&[u8]]) -> Result<bool, StoreError> {
        Ok(points::missing(&self.client, &self.places(keys)).await?.is_empty())
    }

    /// A key that is deleted while others are still waited for counts as found.
    async fn wait(&self, keys: &[&[u8]], timeout: Duration) -> Result<(), StoreError> {
        self.wait_for(keys, timeout).await
    }

    /// Counts by reading all keys below the prefix, queues too.
    async fn num_keys(&self) -> Result<u64, StoreError> {
        Ok(self.list_keys().await?.len() as u64)
    }

    /// Reads all keys below the prefix, queues too, in parts. What exists all the while is named, and what
    /// comes or goes meanwhile may be.
    async fn list_keys(&self) -> Result<Vec<Bytes>, StoreError> {
        let mut names = Vec::new();
        let mut rest = self.keys.all();
        loop {
            let page = Range { limit: PAGE, keys_only: true, ..Range::new(rest) };
            let found = self.client.range(page).await?;
            let named = found.kvs.iter().filter_map(|kv| self.keys.name_of_value(&kv.key));
            names.extend(named.map(Bytes::copy_from_slice));
            match found.kvs.last() {
                Some(last) if found.more => rest = self.keys.behind(&last.key),
                _ => return Ok(names),
            }
        }
    }

    /// Up to 64 pairs, if they are not large, are written at once; more of them one lot after the other.
    async fn multi_set(&self, pairs: &[(&[u8], Bytes)]) -> Result<(), StoreError> {
        // One transaction may write a key only once; the last value counts.
        let mut writes = BTreeMap::new();
        for (name, value) in pairs {
            let size = self.fits(name, value.len())?;
            let write = self.overwrite(&self.keys.of(name), value.clone());
            writes.insert(*name, (write, size));
        }
        let (mut ops, mut bytes) = (Vec::new(), 0);
        for (write, size) in writes.into_values() {
            if ops.len() + write.len() > MAX_OPS || bytes + size > MAX_REQUEST {
                self.client.txn(Txn::default().then(std::mem::take(&mut ops))).await?;
                bytes = 0;
            }
            ops.extend(write);
            bytes += size;
        }
        if !ops.is_empty() {
            self.client.txn(Txn::default().then(ops)).await?;
        }
        Ok(())
    }

    async fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Bytes>, StoreError> {
        self.values(keys, self.timeout.get()).await
    }

    /// If the answer is lost, that is an error, and the item may be lost with it; likewise if the future
    /// is dropped. It is never handed out twice.
    async fn queue_pop(&self, key: &[u8], block: bool) -> Result<Bytes, StoreError> {
        self.pop(key, block).await
    }

    async fn queue_push(&self, key: &[u8], value: Bytes) -> Result<(), StoreError> {
        self.push(key, value).await
    }

    async fn queue_len(&self, key: &[u8]) -> Result<u64, StoreError> {
        self.length(key).await
    }

    /// A store with a time-out of its own. The connection is shared, since no call on it waits for
    /// another.
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
