//! Reads a few small ranges, and waits for those that are empty, by point reads and point watches: their cost
//! does not depend on the number of other keys.

use std::collections::BTreeSet;
use std::time::Duration;

use rallypoint_core::kv::{KeyRange, OpResult, Range, RangeResult, Txn, Watch};
use tokio::time::{Instant, timeout_at};

use crate::client::{Client, ClientError, WatchError};

/// etcd's default limit of operations in one transaction.
pub(super) const MAX_OPS: usize = 128;

/// The longest time-out; a longer one is cut to it, so that a deadline cannot overflow.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// The shortest time-out of a read, even if the caller does not wait. A host may stall for a second and more,
/// and a short wait must still end with the list of missing keys.
const ONE_READ: Duration = Duration::from_secs(3);

/// The time-out and deadline of one wait.
#[derive(Debug)]
pub(super) struct WaitDeadline {
    /// A client with the time-out of the wait: an unreachable server must not delay the caller for longer.
    pub(super) client: Client,
    pub(super) timeout: Duration,
    pub(super) deadline: Instant,
}

impl WaitDeadline {
    pub(super) fn new(client: &Client, timeout: Duration) -> Self {
        let client = client.with_timeout(client.timeout().min(timeout.max(ONE_READ)));
        Self { client, timeout, deadline: Instant::now() + timeout.min(FOR_EVER) }
    }
}

/// Why a wait for the ranges has ended early.
pub(super) enum WaitFailed {
    /// The time is up, and the ranges with these indices are empty.
    TimedOut(BTreeSet<usize>),
    Client(ClientError),
    Watch(WatchError),
}

/// The pairs of each of the ranges.
pub(super) async fn read(
    client: &Client,
    mut ranges: Vec<Range>,
) -> Result<Vec<RangeResult>, ClientError> {
    // etcd answers a plain read without its disk.
    if ranges.len() == 1 {
        return Ok(vec![client.range(ranges.remove(0)).await?]);
    }
    let mut found = Vec::new();
    for part in ranges.chunks(MAX_OPS) {
        let results = client.txn(Txn::reading(part.iter().cloned())).await?.results;
        found.extend(results.into_iter().map(|result| match result {
            OpResult::Range(range) => range,
            _ => RangeResult::default(),
        }));
    }
    Ok(found)
}

/// The indices of the empty ranges.
pub(super) async fn missing(
    client: &Client,
    ranges: &[KeyRange],
) -> Result<BTreeSet<usize>, ClientError> {
    let first = |range: &KeyRange| Range { limit: 1, keys_only: true, ..Range::new(range.clone()) };
    let found = read(client, ranges.iter().map(first).collect()).await?;
    let empty = found.iter().enumerate().filter(|(_, range)| range.kvs.is_empty());
    Ok(empty.map(|(place, _)| place).collect())
}

/// Waits until each of the ranges, all of which were empty, has had a key.
pub(super) async fn wait(patience: &WaitDeadline, ranges: &[KeyRange]) -> Result<(), WaitFailed> {
    let mut missing: BTreeSet<usize> = (0..ranges.len()).collect();
    loop {
        let watching = watch(&patience.client, ranges, &mut missing);
        match timeout_at(patience.deadline, watching).await {
            // The history was compacted while the connection was lost: begin again.
            Ok(Err(WaitFailed::Watch(WatchError::Compacted { .. }))) => {}
            Ok(outcome) => return outcome,
            Err(_) => return Err(WaitFailed::TimedOut(missing)),
        }
    }
}

/// Watches the empty ranges, reads them once more, and follows the watch until none is missing.
async fn watch(
    client: &Client,
    ranges: &[KeyRange],
    missing: &mut BTreeSet<usize>,
) -> Result<(), WaitFailed> {
    let watched: Vec<usize> = missing.iter().copied().collect();
    let wanted: Vec<KeyRange> = watched.iter().map(|place| ranges[*place].clone()).collect();
    // From now on, not from the revision of an earlier read: etcd is slow to replay history.
    let watches = wanted.iter().map(|range| Watch { no_delete: true, ..Watch::new(range.clone()) });
    let mut watcher = client.watch(watches).await.map_err(WaitFailed::Watch)?;
    // Keys that were written before the watch began.
    let still = self::missing(client, &wanted).await.map_err(WaitFailed::Client)?;
    *missing = still.iter().map(|place| watched[*place]).collect();
    while !missing.is_empty() {
        let batch = watcher.next().await.map_err(WaitFailed::Watch)?;
        if !batch.events.is_empty() {
            missing.remove(&watched[batch.watch]);
        }
    }
    Ok(())
}
