//! The watches of a driver: the round's document, and the keys that the coordinator follows.

use std::time::Duration;

use rallypoint_core::kv::{KeyRange, TxnResult, Watch};
use rallypoint_core::rendezvous::{NodeConfig, NodeInput, WatchSetId};

use crate::client::{Client, ClientError};
use crate::log_target::RENDEZVOUS;
use crate::util::follow::{Follower, Update};

/// The watch on the document in force. A broken watch is opened again, with a new snapshot.
pub(super) struct ActiveWatch(Follower<TxnResult>);

impl ActiveWatch {
    /// Watches `rdzv/active`, and reads what is in force.
    pub(super) fn new(client: Client, config: &NodeConfig) -> Self {
        let active = Watch::new(KeyRange::key(config.keys.active()));
        let snapshot = config.snapshot_txn();
        let read = move |client: Client| {
            let snapshot = snapshot.clone();
            async move { client.txn(snapshot).await }
        };
        Self(Follower::new(client, vec![active], read))
    }

    /// Opens the watch again, with a new snapshot.
    pub(super) fn reopen(&mut self) {
        self.0.restart(Duration::ZERO);
    }

    /// Opens the watch at another server.
    pub(super) fn reopen_elsewhere(&mut self) {
        self.0.restart_elsewhere();
    }

    /// Waits for the next snapshot or change, or for `None`, which is an interruption. Cancel-safe.
    ///
    /// # Errors
    /// [`ClientError`] if the server refuses the watch, which is opened again after a while.
    pub(super) async fn next(&mut self) -> Result<Option<NodeInput>, ClientError> {
        Ok(match self.0.next().await? {
            Update::Snapshot { found, is_other_cluster } => {
                Some(NodeInput::Snapshot { found, another_server: is_other_cluster })
            }
            Update::Changed { events, .. } => Some(NodeInput::ActiveChanged { events }),
            Update::Interrupted(error) => {
                tracing::warn!(
                    target: RENDEZVOUS,
                    %error, "the watch on the round is opened again"
                );
                None
            }
        })
    }
}

/// The watches of the coordinator, while this node is one.
#[derive(Default)]
pub(super) struct CoordinatorWatches {
    /// The core reads the membership itself, so the follower's snapshot is empty.
    current: Option<(WatchSetId, Follower<()>)>,
}

impl CoordinatorWatches {
    pub(super) fn replace(&mut self, client: &Client, id: WatchSetId, watches: Vec<Watch>) {
        let read = |_| std::future::ready(Ok(()));
        self.current = Some((id, Follower::new(client.clone(), watches, read)));
    }

    pub(super) fn end(&mut self) {
        self.current = None;
    }

    /// Waits for the next event; for ever if nothing is watched. Cancel-safe.
    ///
    /// # Errors
    /// [`ClientError`] if the server refuses the watches, which are opened again after a while.
    pub(super) async fn next(&mut self) -> Result<NodeInput, ClientError> {
        let Some((id, follower)) = &mut self.current else { return std::future::pending().await };
        let id = *id;
        Ok(match follower.next().await? {
            Update::Snapshot { .. } => NodeInput::Watching { id },
            Update::Changed { watch, events } => NodeInput::Watched { id, watch, events },
            // The core opens the watches again, under another id.
            Update::Interrupted(error) => {
                tracing::warn!(
                    target: RENDEZVOUS,
                    %error, "the coordinator's watches are opened again"
                );
                self.current = None;
                NodeInput::WatchBroken { id }
            }
        })
    }
}
