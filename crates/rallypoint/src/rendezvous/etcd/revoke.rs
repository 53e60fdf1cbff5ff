//! Revokes the lease of a dead node before it expires.

use rallypoint_core::kv::{KeyRange, KvError};
use rallypoint_core::rendezvous::keys::Keys;

use crate::client::{Client, ClientError};
use crate::log_target::RENDEZVOUS;
use crate::util::retry::{SERVER_BACKOFF, retry, transient};

/// Revokes the lease of a node that is proved to be dead, so that all of its keys are deleted. Retries until the server
/// has answered; if the server refuses, the lease expires.
///
/// Node ids are never used twice, so a late revocation is harmless.
pub(super) async fn revoke_dead(client: Client, keys: Keys, node: String) {
    let failed = |error, _| {
        transient(error).map(|error| {
            tracing::debug!(
                target: RENDEZVOUS,
                node, %error, "a dead node's lease is not revoked yet"
            )
        })
    };
    match retry(SERVER_BACKOFF, || revoke(&client, &keys, &node), failed).await {
        Ok(true) => tracing::info!(
            target: RENDEZVOUS,
            "node {node} is dead: its host refuses its liveness socket; its lease was revoked"
        ),
        Ok(false) => {
            tracing::debug!(target: RENDEZVOUS, node, "a dead node had no lease any more");
        }
        Err(error) => tracing::warn!(
            target: RENDEZVOUS,
            node, %error, "a node is dead, but its lease could not be revoked; it ends by itself"
        ),
    }
}

/// Returns whether the node had a lease.
async fn revoke(client: &Client, keys: &Keys, node: &str) -> Result<bool, ClientError> {
    let found = client.range(KeyRange::key(keys.node(node))).await?;
    let Some(kv) = found.kvs.first().filter(|kv| kv.lease != 0) else { return Ok(false) };
    match client.lease_revoke(kv.lease).await {
        Ok(()) => Ok(true),
        // Another node has revoked the lease first.
        Err(ClientError::Kv(KvError::LeaseNotFound)) => Ok(false),
        Err(error) => Err(error),
    }
}
