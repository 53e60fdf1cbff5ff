//! Reads a few ranges, and waits for those that hold nothing yet: point reads and point watches, however
//! many keys lie beside them.

use std::collections::BTreeSet;
use std::time::Duration;

use rallypoint_core::kv::{KeyRange, OpResult, Range, RangeResult, Txn, Watch};
use tokio::time::{Instant, timeout_at};

use crate::client::{Client, ClientError, WatchError};

/// etcd takes no more operations in one transaction, unless it is told to.
pub(super) const MAX_OPS: usize = 128;

/// Longer than anyone waits; cut here, so that adding it to a moment cannot overflow.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// What a read may take even if nothing shall be waited for. A machine may stall for a second and more, and
/// a short wait shall end with what is missing all the same.
const ONE_READ: Duration = Duration::from_secs(3);

/// How long someone is willing to wait, from now on.
#[derive(Debug)]
pub(super) struct Patience {
    /// The client to wait with: a server that cannot be reached must not hold up the caller for longer
    /// than it wants to wait.
    pub(super) client: Client,
    pub(super) timeout: Duration,
    pub(super) deadline: Instant,
}

impl Patience {
    pub(super) fn new(client: &Client, timeout: Duration) -> Self {
        let client = client.with_timeout(client.timeout().min(timeout.max(ONE_READ)));
        Self { client, timeout, deadline: Instant::now() + timeout.min(FOR_EVER) }
    }
}

/// Why not all of the ranges were seen to hold something.
pub(super) enum WaitFailed {
    /// The time is up, and nothing was seen in these, by their place in what was asked for.
    TimedOut(BTreeSet<usize>),
    Client(ClientError),
    Watch(WatchError),
}

/// What is found in each of the ranges.
pub(super) async fn read(
    client: &Client,
    mut ranges: Vec<Range>,
) -> Result<Vec<RangeResult>, ClientError> {
    // etcd answers a read by itself without a trip to its disk.
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

/// Those of the ranges that hold nothing, by their place.
pub(super) async fn missing(
    client: &Client,
    ranges: &[KeyRange],
) -> Result<BTreeSet<usize>, ClientError> {
    let first = |range: &KeyRange| Range { limit: 1, keys_only: true, ..Range::new(range.clone()) };
    let found = read(client, ranges.iter().map(first).collect()).await?;
    let empty = found.iter().enumerate().filter(|(_, range)| range.kvs.is_empty());
    Ok(empty.map(|(place, _)| place).collect())
}

/// Waits until each of the ranges has held something, none of which did a moment ago.
pub(super) async fn wait(patience: &Patience, ranges: &[KeyRange]) -> Result<(), WaitFailed> {
    let mut missing: BTreeSet<usize> = (0..ranges.len()).collect();
    loop {
        let watching = watch(&patience.client, ranges, &mut missing);
        match timeout_at(patience.deadline, watching).await {
            // The history was forgotten while the connection was lost: begin again.
            Ok(Err(WaitFailed::Watch(WatchError::Compacted { .. }))) => {}
            Ok(outcome) => return outcome,
            Err(_) => return Err(WaitFailed::TimedOut(missing)),
        }
    }
}

/// Watches the missing ranges, reads them once more, and takes what comes until none is missing.
async fn watch(
    client: &Client,
    ranges: &[KeyRange],
    missing: &mut BTreeSet<usize>,
) -> Result<(), WaitFailed> {
    let watched: Vec<usize> = missing.iter().copied().collect();
    let wanted: Vec<KeyRange> = watched.iter().map(|place| ranges[*place].clone()).collect();
    // From now on, not from the revision of an earlier read: etcd is slow to serve the past.
    let watches = wanted.iter().map(|range| Watch { no_delete: true, ..Watch::new(range.clone()) });
    let mut watcher = client.watch(watches).await.map_err(WaitFailed::Watch)?;
    // What was written before the watch began.
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
