//! The watches of a driver: the round's document, and the keys that the coordinator follows.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use rallypoint_core::kv::{Event, KeyRange, TxnResult, Watch};
use rallypoint_core::rendezvous::{NodeConfig, NodeInput, WatchSetId};
use tokio::time::sleep;
use tonic::Status;

use super::request::{REFUSED, delay, is_fatal};
use crate::client::{Client, ClientError, WatchError, Watcher};
use crate::log_target::RENDEZVOUS;

type Opening<T> = Pin<Box<dyn Future<Output = Result<T, ClientError>> + Send>>;

/// The watch on the document in force. A broken watch is opened again, with a new snapshot.
pub(super) struct ActiveWatch {
    client: Client,
    settings: NodeConfig,
    state: WatchState<(Watcher, TxnResult)>,
    /// The cluster id has changed since the last snapshot.
    another_server: bool,
}

enum WatchState<T> {
    Opening(Opening<T>),
    Live(Box<Watcher>),
}

impl ActiveWatch {
    pub(super) fn new(client: Client, settings: NodeConfig) -> Self {
        let state =
            WatchState::Opening(Box::pin(open_with_snapshot(client.clone(), settings.clone())));
        Self { client, settings, state, another_server: false }
    }

    /// Opens the watch again after this delay, with a new snapshot.
    pub(super) fn reopen(&mut self, after: Duration) {
        let (patient, same) = (self.client.clone(), self.settings.clone());
        let opening = async move {
            sleep(after).await;
            open_with_snapshot(patient, same).await
        };
        self.state = WatchState::Opening(Box::pin(opening));
    }

    /// Waits for the next snapshot or change. Cancel-safe.
    ///
    /// # Errors
    /// [`ClientError`] if the server refuses the watch; it is opened again after [`REFUSED`].
    pub(super) async fn next(&mut self) -> Result<NodeInput, ClientError> {
        loop {
            match &mut self.state {
                WatchState::Opening(opening) => {
                    let (watcher, found) = match opening.as_mut().await {
                        Ok(found) => found,
                        Err(error) => {
                            self.reopen(REFUSED);
                            return Err(error);
                        }
                    };
                    self.state = WatchState::Live(Box::new(watcher));
                    let another_server = std::mem::take(&mut self.another_server);
                    return Ok(NodeInput::Snapshot { found, another_server });
                }
                WatchState::Live(watcher) => match watcher.next().await {
                    Ok(batch) if batch.events.is_empty() => {}
                    Ok(batch) => return Ok(NodeInput::ActiveChanged { events: batch.events }),
                    Err(error) => {
                        tracing::warn!(
                            target: RENDEZVOUS,
                            %error, "the watch on the round begins anew"
                        );
                        self.another_server |= matches!(error, WatchError::ClusterChanged { .. });
                        self.reopen(Duration::ZERO);
                    }
                },
            }
        }
    }
}

/// Watches `rdzv/active`, then reads what is in force: whatever the answer does not have, the watch will tell.
async fn open_with_snapshot(
    client: Client,
    settings: NodeConfig,
) -> Result<(Watcher, TxnResult), ClientError> {
    let active = KeyRange::key(settings.keys.active());
    let watcher = open(&client, &[Watch::new(active)]).await?;
    let mut failures = 0;
    loop {
        match client.txn(settings.snapshot_txn()).await {
            Ok(found) => return Ok((watcher, found)),
            Err(error) if is_fatal(&error) => return Err(error),
            Err(_) => sleep(delay(failures)).await,
        }
        failures += 1;
    }
}

/// Opens watches, and retries until they are open or the server refuses them.
async fn open(client: &Client, watches: &[Watch]) -> Result<Watcher, ClientError> {
    let mut failures = 0;
    loop {
        match client.watch(watches.iter().cloned()).await {
            Ok(watcher) => return Ok(watcher),
            Err(WatchError::Client(error)) if is_fatal(&error) => return Err(error),
            Err(WatchError::Refused { endpoint, reason, .. }) => {
                let (request, source) = ("watch", Status::permission_denied(reason));
                return Err(ClientError::Refused { request, endpoint, source });
            }
            Err(error) => {
                tracing::debug!(target: RENDEZVOUS, %error, "a watch could not be opened yet")
            }
        }
        sleep(delay(failures)).await;
        failures += 1;
    }
}

/// The watches of the coordinator, while this node is one.
#[derive(Default)]
pub(super) struct CoordinatorWatches {
    current: Option<WatchSet>,
}

struct WatchSet {
    id: WatchSetId,
    client: Client,
    watches: Vec<Watch>,
    state: WatchState<Watcher>,
}

impl WatchSet {
    fn open(&mut self, after: Duration) {
        let (client, watches) = (self.client.clone(), self.watches.clone());
        self.state = WatchState::Opening(Box::pin(async move {
            sleep(after).await;
            open(&client, &watches).await
        }));
    }
}

impl CoordinatorWatches {
    pub(super) fn replace(&mut self, client: &Client, id: WatchSetId, watches: Vec<Watch>) {
        let state = WatchState::Opening(Box::pin(std::future::pending()));
        let mut watches = WatchSet { id, client: client.clone(), watches, state };
        watches.open(Duration::ZERO);
        self.current = Some(watches);
    }

    pub(super) fn end(&mut self) {
        self.current = None;
    }

    /// Waits for the next event; for ever if nothing is watched. Cancel-safe.
    ///
    /// # Errors
    /// [`ClientError`] if the server refuses the watches; they are opened again after [`REFUSED`].
    pub(super) async fn next(&mut self) -> Result<NodeInput, ClientError> {
        let Some(watches) = &mut self.current else { return std::future::pending().await };
        let id = watches.id;
        loop {
            match &mut watches.state {
                WatchState::Opening(opening) => match opening.as_mut().await {
                    Ok(watcher) => {
                        watches.state = WatchState::Live(Box::new(watcher));
                        return Ok(NodeInput::Watching { id });
                    }
                    Err(error) => {
                        watches.open(REFUSED);
                        return Err(error);
                    }
                },
                WatchState::Live(watcher) => match watcher.next().await {
                    Ok(batch) if batch.events.is_empty() => {}
                    Ok(batch) => {
                        let (watch, events): (usize, Vec<Event>) = (batch.watch, batch.events);
                        return Ok(NodeInput::Watched { id, watch, events });
                    }
                    Err(error) => {
                        tracing::warn!(
                            target: RENDEZVOUS,
                            %error, "the coordinator's watches begin anew"
                        );
                        self.current = None;
                        return Ok(NodeInput::WatchBroken { id });
                    }
                },
            }
        }
    }
}
