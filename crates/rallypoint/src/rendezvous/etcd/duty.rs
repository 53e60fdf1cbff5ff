//! The two things that a driver watches: the document in force, and what the coordinator must see.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use rallypoint_core::kv::{Event, KeyRange, TxnResult, Watch};
use rallypoint_core::rendezvous::{NodeConfig, NodeInput, WatchSetId};
use tokio::time::sleep;
use tonic::Status;

use super::request::{REFUSED, delay, is_fatal};
use crate::client::{Client, ClientError, WatchError, Watcher};

type Opening<T> = Pin<Box<dyn Future<Output = Result<T, ClientError>> + Send>>;

/// The watch on the document in force. Begun anew, with a fresh look, when it cannot go on.
pub(super) struct ActiveWatch {
    client: Client,
    settings: NodeConfig,
    state: State<(Watcher, TxnResult)>,
    /// The server that answers is not the one that answered before.
    another_server: bool,
}

enum State<T> {
    Opening(Opening<T>),
    Live(Box<Watcher>),
}

impl ActiveWatch {
    pub(super) fn new(client: Client, settings: NodeConfig) -> Self {
        let state = State::Opening(Box::pin(look(client.clone(), settings.clone())));
        Self { client, settings, state, another_server: false }
    }

    /// Begins anew, not before `after`.
    pub(super) fn anew(&mut self, after: Duration) {
        let (patient, same) = (self.client.clone(), self.settings.clone());
        let opening = async move {
            sleep(after).await;
            look(patient, same).await
        };
        self.state = State::Opening(Box::pin(opening));
    }

    /// What it has to say next. Cancel-safe.
    ///
    /// # Errors
    /// If the server does not let us watch.
    pub(super) async fn next(&mut self) -> Result<NodeInput, ClientError> {
        loop {
            match &mut self.state {
                State::Opening(opening) => {
                    let (watcher, found) = match opening.as_mut().await {
                        Ok(found) => found,
                        Err(error) => {
                            self.anew(REFUSED);
                            return Err(error);
                        }
                    };
                    self.state = State::Live(Box::new(watcher));
                    let another_server = std::mem::take(&mut self.another_server);
                    return Ok(NodeInput::Snapshot { found, another_server });
                }
                State::Live(watcher) => match watcher.next().await {
                    Ok(batch) if batch.events.is_empty() => {}
                    Ok(batch) => return Ok(NodeInput::ActiveChanged { events: batch.events }),
                    Err(error) => {
                        tracing::warn!(%error, "the watch on the round begins anew");
                        self.another_server |= matches!(error, WatchError::ClusterChanged { .. });
                        self.anew(Duration::ZERO);
                    }
                },
            }
        }
    }
}

/// Watches `rdzv/active`, then reads what is in force: whatever the answer does not have, the watch will tell.
async fn look(client: Client, settings: NodeConfig) -> Result<(Watcher, TxnResult), ClientError> {
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

/// Opens watches, and tries again until it has them.
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
            Err(error) => tracing::debug!(%error, "a watch could not be opened yet"),
        }
        sleep(delay(failures)).await;
        failures += 1;
    }
}

/// What the coordinator watches, while this node is one.
#[derive(Default)]
pub(super) struct DutyWatch {
    current: Option<Duty>,
}

struct Duty {
    id: WatchSetId,
    client: Client,
    watches: Vec<Watch>,
    state: State<Watcher>,
}

impl Duty {
    fn open(&mut self, after: Duration) {
        let (client, watches) = (self.client.clone(), self.watches.clone());
        self.state = State::Opening(Box::pin(async move {
            sleep(after).await;
            open(&client, &watches).await
        }));
    }
}

impl DutyWatch {
    pub(super) fn replace(&mut self, client: &Client, id: WatchSetId, watches: Vec<Watch>) {
        let state = State::Opening(Box::pin(std::future::pending()));
        let mut duty = Duty { id, client: client.clone(), watches, state };
        duty.open(Duration::ZERO);
        self.current = Some(duty);
    }

    pub(super) fn end(&mut self) {
        self.current = None;
    }

    /// What it has to say next; never anything if nothing is watched. Cancel-safe.
    ///
    /// # Errors
    /// If the server does not let us watch. It is asked again after a while.
    pub(super) async fn next(&mut self) -> Result<NodeInput, ClientError> {
        let Some(duty) = &mut self.current else { return std::future::pending().await };
        let id = duty.id;
        loop {
            match &mut duty.state {
                State::Opening(opening) => match opening.as_mut().await {
                    Ok(watcher) => {
                        duty.state = State::Live(Box::new(watcher));
                        return Ok(NodeInput::Watching { id });
                    }
                    Err(error) => {
                        duty.open(REFUSED);
                        return Err(error);
                    }
                },
                State::Live(watcher) => match watcher.next().await {
                    Ok(batch) if batch.events.is_empty() => {}
                    Ok(batch) => {
                        let (watch, events): (usize, Vec<Event>) = (batch.watch, batch.events);
                        return Ok(NodeInput::Watched { id, watch, events });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the coordinator's watches begin anew");
                        self.current = None;
                        return Ok(NodeInput::WatchBroken { id });
                    }
                },
            }
        }
    }
}
