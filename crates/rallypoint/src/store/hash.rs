//! A store in the memory of this process.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use rallypoint_core::c10d::{AddError, StoreState, Ticket};
use tokio::sync::oneshot;

use super::timeout::{CallTimeout, Timeout};
use super::{DEFAULT_TIMEOUT, Store, StoreError};

/// A state whose waiters are tasks.
type Waited = StoreState<oneshot::Sender<()>>;

/// A store in the memory of this process, for groups within one process. Clones share their keys.
///
/// ```
/// use rallypoint::store::{HashStore, Store};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = HashStore::default();
/// store.set(b"greeting", "hello".into()).await?;
/// assert_eq!(store.get(b"greeting").await?, "hello");
/// assert_eq!(store.add(b"visits", 1).await?, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct HashStore {
    state: Arc<Mutex<Waited>>,
    timeout: Timeout,
}

impl Default for HashStore {
    fn default() -> Self {
        Self { state: Arc::default(), timeout: Timeout::new(DEFAULT_TIMEOUT) }
    }
}

impl fmt::Debug for HashStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HashStore").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// The locked state. Waiters that are released meanwhile are woken when the guard is dropped.
struct Locked<'a>(MutexGuard<'a, Waited>);

impl Deref for Locked<'_> {
    type Target = Waited;

    fn deref(&self) -> &Waited {
        &self.0
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Waited {
        &mut self.0
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        for waiter in self.0.take_released() {
            // If the receiver is gone, the drop of its wait passes the wake-up on.
            let _ = waiter.send(());
        }
    }
}

/// A wait. When it is dropped its ticket is removed, and an unused wake-up passes to the next waiter.
struct HashStoreWait<'a> {
    store: &'a HashStore,
    ticket: Ticket,
    released: oneshot::Receiver<()>,
}

impl Drop for HashStoreWait<'_> {
    fn drop(&mut self) {
        self.store.lock().cancel(self.ticket);
    }
}

impl HashStoreWait<'_> {
    async fn end(&mut self, patience: CallTimeout) -> Result<(), StoreError> {
        if tokio::time::timeout(patience.left(), &mut self.released).await.is_ok() {
            return Ok(());
        }
        match self.store.lock().cancel(self.ticket) {
            Some(missing) => {
                let missing = missing.iter().map(|key| name(key)).collect();
                Err(StoreError::Timeout { waited: patience.whole(), missing })
            }
            // The waiter was released at the last moment.
            None => Ok(()),
        }
    }
}

fn name(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}

impl HashStore {
    fn lock(&self) -> Locked<'_> {
        Locked(self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Begins to wait, unless all of the keys exist.
    fn begin(&self, keys: &[&[u8]]) -> Option<HashStoreWait<'_>> {
        let (waiter, released) = oneshot::channel();
        let ticket = self.lock().wait(keys.iter().copied(), waiter)?;
        Some(HashStoreWait { store: self, ticket, released })
    }
}

#[async_trait]
impl Store for HashStore {
    async fn set(&self, key: &[u8], value: Bytes) -> Result<(), StoreError> {
        self.lock().set(key, value);
        Ok(())
    }

    async fn get(&self, key: &[u8]) -> Result<Bytes, StoreError> {
        let mut values = self.multi_get(&[key]).await?;
        Ok(values.pop().unwrap_or_default())
    }

    async fn add(&self, key: &[u8], amount: i64) -> Result<i64, StoreError> {
        let sum = self.lock().add(key, amount);
        sum.map_err(|error: AddError| StoreError::Corrupt {
            key: name(key),
            what: error.to_string(),
        })
    }

    async fn compare_set(
        &self,
        key: &[u8],
        expected: &[u8],
        desired: Bytes,
    ) -> Result<Bytes, StoreError> {
        let now = self.lock().compare_set(key, expected, desired).cloned();
        Ok(now.unwrap_or_else(|| Bytes::copy_from_slice(expected)))
    }

    async fn append(&self, key: &[u8], value: Bytes) -> Result<(), StoreError> {
        self.lock().append(key, &value);
        Ok(())
    }

    async fn delete_key(&self, key: &[u8]) -> Result<bool, StoreError> {
        Ok(self.lock().delete(key))
    }

    async fn check(&self, keys: &[&[u8]]) -> Result<bool, StoreError> {
        let state = self.lock();
        Ok(keys.iter().all(|key| state.exists(key)))
    }

    async fn wait(&self, keys: &[&[u8]], timeout: Duration) -> Result<(), StoreError> {
        match self.begin(keys) {
            Some(mut waiting) => waiting.end(CallTimeout::new(timeout)).await,
            None => Ok(()),
        }
    }

    async fn num_keys(&self) -> Result<u64, StoreError> {
        Ok(self.lock().keys().len() as u64)
    }

    async fn list_keys(&self) -> Result<Vec<Bytes>, StoreError> {
        Ok(self.lock().keys().cloned().collect())
    }

    async fn multi_set(&self, pairs: &[(&[u8], Bytes)]) -> Result<(), StoreError> {
        let mut state = self.lock();
        pairs.iter().for_each(|(key, value)| state.set(key, value.clone()));
        Ok(())
    }

    async fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Bytes>, StoreError> {
        self.wait(keys, self.timeout()).await?;
        let state = self.lock();
        // Deleted again, or only a queue: an empty value, as PyTorch's server answers.
        Ok(keys.iter().map(|key| state.get(key).cloned().unwrap_or_default()).collect())
    }

    async fn queue_push(&self, key: &[u8], value: Bytes) -> Result<(), StoreError> {
        self.lock().queue_push(key, value);
        Ok(())
    }

    async fn queue_pop(&self, key: &[u8], block: bool) -> Result<Bytes, StoreError> {
        let patience = CallTimeout::new(self.timeout());
        let mut waiting: Option<HashStoreWait<'_>> = None;
        loop {
            {
                let mut state = self.lock();
                let woken = waiting.as_ref().map(|waiting| waiting.ticket);
                if let Some(first) = state.queue_pop(key, woken) {
                    return Ok(first);
                }
                // A key with a value exists, so waiting for it does not help.
                if !block || state.get(key).is_some() {
                    return Err(StoreError::QueueEmpty { key: name(key) });
                }
            }
            // This is the first attempt, or another caller took the element.
            waiting = self.begin(&[key]);
            if let Some(waiting) = &mut waiting {
                waiting.end(patience).await?;
            }
        }
    }

    async fn queue_len(&self, key: &[u8]) -> Result<u64, StoreError> {
        Ok(self.lock().queue_len(key) as u64)
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
