//! Following keys of a server: a snapshot, then every change, and a new snapshot when the watch cannot go on.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rallypoint_core::kv::{Event, EventKind, KeyRange, KeyValue, RangeResult, Revision, Watch};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;
use tonic::Status;

use super::backoff::sleep;
use super::reminder::Reminder;
use super::retry::{SERVER_BACKOFF, retry, transient};
use crate::client::{Client, ClientError, WatchError, Watcher};
use crate::log_target::CLIENT;

/// How long to wait after the server has refused a watch or a read, in case its administrator changes that.
pub(crate) const AFTER_REFUSAL: Duration = Duration::from_secs(1);

/// The log repeats that a key cannot be followed after this time, and then each time after twice as long.
const REFUSAL_REPORTED_AGAIN: Duration = Duration::from_secs(10);

/// A request that is under way.
type Pending<T> = Pin<Box<dyn Future<Output = Result<T, ClientError>> + Send>>;

/// Opens watches, and retries until it has them.
///
/// # Errors
/// If the server refuses them.
pub(crate) async fn open_watches(
    client: &Client,
    watches: &[Watch],
) -> Result<Watcher, ClientError> {
    let failed = |error, _| match error {
        WatchError::Client(error) => transient(error).map(drop),
        WatchError::Refused { endpoint, reason, .. } => {
            let (request, source) = ("watch", Status::permission_denied(reason));
            Err(ClientError::Refused { request, endpoint, source })
        }
        error => {
            tracing::debug!(target: CLIENT, %error, "a watch could not be opened yet");
            Ok(())
        }
    };
    retry(SERVER_BACKOFF, || client.watch(watches.iter().cloned()), failed).await
}

/// What a [`Follower`] learns.
#[derive(Debug)]
pub(crate) enum Update<S> {
    /// The whole of it, at first and whenever changes may have been missed.
    Snapshot {
        /// The result of the read.
        found: S,
        /// The server belongs to another cluster than the one of the snapshot before.
        is_other_cluster: bool,
    },
    /// Changes since the last update.
    Changed {
        /// The index of the watch that reports them.
        watch: usize,
        /// The changes, in their order.
        events: Vec<Event>,
    },
    /// Changes may have been missed, for this reason. The next update is a snapshot.
    Interrupted(WatchError),
}

/// Follows what some watches are about. A snapshot is read after the watches have begun, so that no change is missed.
pub(crate) struct Follower<S> {
    client: Client,
    watches: Vec<Watch>,
    read: Arc<dyn Fn(Client) -> Pending<S> + Send + Sync>,
    stage: FollowStage<S>,
    is_other_cluster: bool,
}

enum FollowStage<S> {
    Opening(Pending<(Watcher, S)>),
    Watching(Box<Watcher>),
}

impl<S: Send + 'static> Follower<S> {
    /// Follows `watches`; `read` takes a snapshot of what they are about.
    pub(crate) fn new<F>(
        client: Client,
        watches: Vec<Watch>,
        read: impl Fn(Client) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<S, ClientError>> + Send + 'static,
    {
        let read: Arc<dyn Fn(Client) -> Pending<S> + Send + Sync> =
            Arc::new(move |client| Box::pin(read(client)));
        let never: Pending<(Watcher, S)> = Box::pin(std::future::pending());
        let mut follower = Self {
            client,
            watches,
            read,
            stage: FollowStage::Opening(never),
            is_other_cluster: false,
        };
        follower.restart(Duration::ZERO);
        follower
    }

    /// Begins again with a snapshot, after `delay`.
    pub(crate) fn restart(&mut self, delay: Duration) {
        let (client, watches) = (self.client.clone(), self.watches.clone());
        let read = self.read.clone();
        self.stage = FollowStage::Opening(Box::pin(async move {
            sleep(delay).await;
            let watcher = open_watches(&client, &watches).await?;
            let failed = |error, _| transient(error).map(drop);
            let found = retry(SERVER_BACKOFF, || read(client.clone()), failed).await?;
            Ok((watcher, found))
        }));
    }

    /// Begins again with a snapshot of a server that belongs to another cluster.
    pub(crate) fn restart_elsewhere(&mut self) {
        self.is_other_cluster = true;
        self.restart(Duration::ZERO);
    }

    /// The next update. Cancel-safe.
    ///
    /// # Errors
    /// If the server refuses the watches or the read. They are tried again after [`AFTER_REFUSAL`].
    pub(crate) async fn next(&mut self) -> Result<Update<S>, ClientError> {
        loop {
            match &mut self.stage {
                FollowStage::Opening(opening) => match opening.as_mut().await {
                    Ok((watcher, found)) => {
                        self.stage = FollowStage::Watching(Box::new(watcher));
                        let is_other_cluster = std::mem::take(&mut self.is_other_cluster);
                        return Ok(Update::Snapshot { found, is_other_cluster });
                    }
                    Err(error) => {
                        self.restart(AFTER_REFUSAL);
                        return Err(error);
                    }
                },
                FollowStage::Watching(watcher) => match watcher.next().await {
                    Ok(batch) if batch.events.is_empty() => {}
                    Ok(batch) => {
                        let (watch, events) = (batch.watch, batch.events);
                        return Ok(Update::Changed { watch, events });
                    }
                    Err(error) => {
                        self.is_other_cluster |= matches!(error, WatchError::ClusterChanged { .. });
                        self.restart(Duration::ZERO);
                        return Ok(Update::Interrupted(error));
                    }
                },
            }
        }
    }
}

/// The newest known state of one key.
#[derive(Debug)]
pub(crate) enum KeyState<'a> {
    /// The key exists.
    Present(&'a KeyValue),
    /// The key does not exist at this revision.
    Absent(Revision),
}

/// A key that a task follows until this is dropped.
#[derive(Debug)]
pub(crate) struct FollowedKey<T> {
    latest: watch::Receiver<T>,
    _task: AbortOnDropHandle<()>,
}

impl<T: Send + Sync + 'static> FollowedKey<T> {
    /// Follows `key`. The value is `initial` until `decode` makes another one of the value before and a state of the
    /// key.
    pub(crate) fn new(
        client: Client,
        key: String,
        initial: T,
        decode: impl Fn(&T, KeyState<'_>) -> Option<T> + Send + Sync + 'static,
    ) -> Self {
        let (sender, latest) = watch::channel(initial);
        let task = tokio::spawn(follow(client, key, sender, decode));
        Self { latest, _task: AbortOnDropHandle::new(task) }
    }

    /// The newest value, and its changes.
    pub(crate) fn latest(&self) -> &watch::Receiver<T> {
        &self.latest
    }
}

async fn follow<T>(
    client: Client,
    key: String,
    latest: watch::Sender<T>,
    decode: impl Fn(&T, KeyState<'_>) -> Option<T>,
) {
    let set = |state: KeyState<'_>| {
        let next = decode(&latest.borrow(), state);
        if let Some(value) = next {
            latest.send_replace(value);
        }
    };
    let range = KeyRange::key(key.clone());
    let watches = vec![Watch::new(range.clone())];
    let read = move |client: Client| {
        let range = range.clone();
        async move { client.range(range).await }
    };
    let mut follower: Follower<RangeResult> = Follower::new(client, watches, read);
    let mut snapshot = 0;
    let mut refused: Option<Reminder> = None;
    loop {
        match follower.next().await {
            Ok(Update::Snapshot { found, .. }) => {
                (snapshot, refused) = (found.revision, None);
                set(found.kvs.first().map_or(KeyState::Absent(found.revision), KeyState::Present));
            }
            Ok(Update::Changed { events, .. }) => {
                // The watch began before the snapshot, which may be newer than its first events.
                let Some(event) = events.last().filter(|event| event.kv.mod_revision > snapshot)
                else {
                    continue;
                };
                set(match event.kind {
                    EventKind::Put => KeyState::Present(&event.kv),
                    EventKind::Delete => KeyState::Absent(event.kv.mod_revision),
                });
            }
            Ok(Update::Interrupted(error)) => {
                tracing::debug!(
                    target: CLIENT,
                    key, %error, "the watch on a key begins again with a snapshot"
                )
            }
            Err(error) => {
                let reminder = || Reminder::doubling(REFUSAL_REPORTED_AGAIN).at_once();
                if refused.get_or_insert_with(reminder).is_due() {
                    tracing::warn!(
                        target: CLIENT,
                        key, %error, "the server refuses to let a key be followed; trying again"
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rallypoint_core::kv::Put;
    use tokio::net::TcpListener;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::client::ClientOptions;
    use crate::server::{ServerOptions, serve};

    #[tokio::test]
    async fn another_server_in_place_of_the_first_is_followed_from_a_new_snapshot() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let first = CancellationToken::new();
        let server = serve(listener, ServerOptions::default(), first.clone().cancelled_owned());
        let server = AbortOnDropHandle::new(tokio::spawn(server));
        let client = Client::connect(ClientOptions::new([address.to_string()])).await.unwrap();
        let range = KeyRange::key("key");
        let read = {
            let range = range.clone();
            move |client: Client| {
                let range = range.clone();
                async move { client.range(range).await }
            }
        };
        client.put(Put::new("key", "1")).await.unwrap();
        let mut follower = Follower::new(client.clone(), vec![Watch::new(range)], read);
        let Update::Snapshot { found, is_other_cluster: false } = follower.next().await.unwrap()
        else {
            panic!("the first update is a snapshot")
        };
        assert_eq!(found.kvs[0].value, "1");
        client.put(Put::new("key", "2")).await.unwrap();
        let Update::Changed { watch: 0, events } = follower.next().await.unwrap() else {
            panic!("then a change")
        };
        assert_eq!(events[0].kv.value, "2");
        first.cancel();
        server.await.unwrap().unwrap();
        let listener = TcpListener::bind(address).await.unwrap();
        let server = serve(listener, ServerOptions::default(), std::future::pending());
        let _server = AbortOnDropHandle::new(tokio::spawn(server));
        let interrupted = follower.next().await.unwrap();
        assert!(
            matches!(interrupted, Update::Interrupted(WatchError::ClusterChanged { .. })),
            "{interrupted:?}"
        );
        let Update::Snapshot { found, is_other_cluster: true } = follower.next().await.unwrap()
        else {
            panic!("the interruption ends with a snapshot")
        };
        assert!(found.kvs.is_empty());
    }

    #[tokio::test]
    async fn a_key_is_known_before_and_after_each_change() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = listener.local_addr().unwrap().to_string();
        let server = serve(listener, ServerOptions::default(), std::future::pending());
        let _server = AbortOnDropHandle::new(tokio::spawn(server));
        let client = Client::connect(ClientOptions::new([endpoint])).await.unwrap();
        client.put(Put::new("key", "1")).await.unwrap();
        let decode = |_: &String, state: KeyState<'_>| match state {
            KeyState::Present(kv) => Some(String::from_utf8_lossy(&kv.value).into_owned()),
            KeyState::Absent(_) => Some("absent".to_owned()),
        };
        let followed =
            FollowedKey::new(client.clone(), "key".to_owned(), "unknown".to_owned(), decode);
        let mut latest = followed.latest().clone();
        latest.wait_for(|value| value == "1").await.unwrap();
        client.put(Put::new("key", "2")).await.unwrap();
        latest.wait_for(|value| value == "2").await.unwrap();
        client.delete(KeyRange::key("key")).await.unwrap();
        latest.wait_for(|value| value == "absent").await.unwrap();
    }
}
