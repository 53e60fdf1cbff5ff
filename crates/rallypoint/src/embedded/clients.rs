//! The nodes that still use the embedded server of this process.

use std::collections::BTreeSet;

use bytes::Bytes;
use rallypoint_core::kv::{EventKind, KeyRange, Range, Watch};
use rallypoint_core::rendezvous::keys::Keys;

use crate::client::{Client, WatchError};
use crate::log_target::EMBEDDED;

/// Waits until no node of the run is left, since all of them use the server of this process, and logs which are. It
/// does not wait for nodes of another run that use the server too.
///
/// # Errors
/// [`WatchError`] if the server does not answer. It is in this process, so no other node can use it either.
pub async fn clients_gone(client: &Client, keys: &Keys) -> Result<(), WatchError> {
    let everything = Range { keys_only: true, ..Range::new(KeyRange::all()) };
    let found = client.range(everything).await?;
    let is_node = |key: &Bytes| Keys::node_of(key).is_some();
    let nodes = found.kvs.into_iter().map(|kv| kv.key).filter(is_node);
    let (mut left, of_other_runs): (BTreeSet<Bytes>, BTreeSet<Bytes>) =
        nodes.partition(|key| key.starts_with(keys.root().as_bytes()));
    if !of_other_runs.is_empty() {
        tracing::warn!(
            target: EMBEDDED,
            nodes = names(&of_other_runs),
            "nodes of other runs use the server of this run, which ends with it; give each run a port of its own, or \
             start a server for all of them (rallypoint serve)"
        );
    }
    if left.is_empty() {
        return Ok(());
    }
    tracing::info!(
        target: EMBEDDED,
        nodes = names(&left),
        "other nodes use the server of this process; it stays until they end, or until a second signal"
    );
    let watch = Watch::new(keys.nodes()).from_revision(found.revision + 1);
    let mut watcher = client.watch([watch]).await?;
    while !left.is_empty() {
        for event in watcher.next().await?.events {
            match event.kind {
                EventKind::Put => left.insert(event.kv.key),
                EventKind::Delete => left.remove(&event.kv.key),
            };
        }
    }
    Ok(())
}

fn names(nodes: &BTreeSet<Bytes>) -> String {
    nodes.iter().filter_map(|key| Keys::node_of(key)).collect::<Vec<_>>().join(", ")
}
