//! Revokes the lease of a dead node before it expires.
use rallypoint_core::kv::{KeyRange, KvError};
use rallypoint_core::rendezvous::keys::Keys;
use tokio::time::sleep;

use super::request::{delay, is_fatal};
use crate::client::{Client, ClientError};
use crate::log_target::RENDEZVOUS;

/// Revokes the lease of a node that is proved to be dead, so that all of its keys are deleted. Retries until the server
/// has answered; if the server refuses, the lease expires.
///
/// Node ids are never used twice, so a late revocation is harmless.
pub(super) async fn revoke_dead(client: Client, keys: Keys, node: String) {
    let mut failures = 0;
    loop {
        match revoke(&client, &keys, &node).await {
            Ok(true) => {
                tracing::info!(
                    target: RENDEZVOUS,
                    "node {node} is dead: its host refuses its liveness socket; its lease was revoked"
                );
                return;
            }
            Ok(false) => {
                tracing::debug!(target: RENDEZVOUS, node, "a dead node had no lease any more");
                return;
            }
            Err(error) if is_fatal(&error) => {
                tracing::warn!(
                    target: RENDEZVOUS,
                    node,
                    %error,
                    "a node is dead, but its lease could not be revoked; it ends by itself"
                );
                return;
            }
            Err(error) => {
                tracing::debug!(
                    target: RENDEZVOUS,
                    node, %error, "a dead node's lease is not revoked yet"
                )
            }
        }
        sleep(delay(failures)).await;
        failures += 1;
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
