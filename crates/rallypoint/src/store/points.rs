//! Reads a few keys, and waits for those that are not there yet: point reads and point watches, however
//! many keys lie beside them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use rallypoint_core::kv::{EventKind, KeyRange, OpResult, Range, Txn, Watch};
use tokio::time::{Instant, timeout_at};

use crate::client::{Client, ClientError, WatchError, Watcher};

/// etcd takes no more operations in one transaction, unless it is told to.
pub(super) const MAX_OPS: usize = 128;

/// Longer than anyone waits; cut here, so that adding it to a moment cannot overflow.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// What a read may take even if nothing shall be waited for.
const ONE_READ: Duration = Duration::from_secs(1);

/// Why not all of the keys were found.
pub(super) enum WaitFailed {
    /// The time is up, and these are still missing.
    TimedOut(Vec<Bytes>),
    Client(ClientError),
    Watch(WatchError),
}

impl From<ClientError> for WaitFailed {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

/// Those of the keys that exist, with their values unless `keys_only`.
pub(super) async fn read(
    client: &Client,
    keys: &[Bytes],
    keys_only: bool,
) -> Result<BTreeMap<Bytes, Bytes>, ClientError> {
    let mut found = BTreeMap::new();
    for part in keys.chunks(MAX_OPS) {
        let range = |key: &Bytes| Range { keys_only, ..KeyRange::key(key.clone()).into() };
        let txn = Txn::reading(part.iter().map(range));
        for result in client.txn(txn).await?.results {
            if let OpResult::Range(range) = result {
                found.extend(range.kvs.into_iter().map(|kv| (kv.key, kv.value)));
            }
        }
    }
    Ok(found)
}

/// Waits until each of the keys has existed, and returns the values seen.
pub(super) async fn wait(
    client: &Client,
    keys: &[Bytes],
    timeout: Duration,
) -> Result<BTreeMap<Bytes, Bytes>, WaitFailed> {
    let deadline = Instant::now() + timeout.min(FOR_EVER);
    // A server that cannot be reached must not hold up the caller for longer than it wants to wait.
    let client = client.with_timeout(client.timeout().min(timeout.max(ONE_READ)));
    let mut found = read(&client, keys, false).await?;
    loop {
        let missing = missing(keys, &found);
        if missing.is_empty() {
            return Ok(found);
        }
        // By now they are known to be missing, whatever else goes wrong.
        let waiting = wait_for(&client, &missing, &mut found);
        match timeout_at(deadline, waiting).await {
            // The history was forgotten while the connection was lost: begin again.
            Ok(Ok(()) | Err(WaitFailed::Watch(WatchError::Compacted { .. }))) => {}
            Ok(Err(failed)) => return Err(failed),
            Err(_) => return Err(WaitFailed::TimedOut(self::missing(keys, &found))),
        }
    }
}

fn missing(keys: &[Bytes], found: &BTreeMap<Bytes, Bytes>) -> Vec<Bytes> {
    let missing: BTreeSet<&Bytes> = keys.iter().filter(|key| !found.contains_key(*key)).collect();
    missing.into_iter().cloned().collect()
}

/// Watches the missing keys, reads them once more, and takes what comes until none is missing.
async fn wait_for(
    client: &Client,
    missing: &[Bytes],
    found: &mut BTreeMap<Bytes, Bytes>,
) -> Result<(), WaitFailed> {
    let watch = |key: &Bytes| Watch { no_delete: true, ..Watch::new(KeyRange::key(key.clone())) };
    // From now on, not from the revision of the first read: etcd is slow to serve the past.
    let opened = client.watch(missing.iter().map(watch)).await;
    let mut watcher: Watcher = opened.map_err(WaitFailed::Watch)?;
    // What was written between the first read and the watch.
    found.extend(read(client, missing, false).await?);
    while !missing.iter().all(|key| found.contains_key(key)) {
        let batch = watcher.next().await.map_err(WaitFailed::Watch)?;
        let puts = batch.events.into_iter().filter(|event| event.kind == EventKind::Put);
        found.extend(puts.map(|event| (event.kv.key, event.kv.value)));
    }
    Ok(())
}
