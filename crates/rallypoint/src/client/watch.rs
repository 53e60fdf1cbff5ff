//! Watches that survive the loss of a server: every event is reported once.
//!
//! Each watch keeps the next revision to report. When its stream breaks, a new one is opened at another
//! endpoint and begins there. The caller that waits for the next batch drives the stream; there is no task
//! behind it.

mod live;

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use rallypoint_core::kv::{Event, Revision, Watch};
use thiserror::Error;
use tokio::time::{Instant, sleep};
use tonic::Status;

use self::live::{Live, OpenFailed, bare_reason, is_passing};
use super::Client;
use super::error::{ClientError, describe};
use super::retry::Failure;
use super::rpc;
use crate::convert::WatchResponse;
use crate::log_target::CLIENT;
use crate::util::reminder::Reminder;

/// The log reports after this time that no stream can be opened, and then each time after twice as long.
const REPORTED_AFTER: Duration = Duration::from_secs(1);

/// The events of one watch for one or more whole revisions, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchBatch {
    /// The index of the watch, from 0 in the order in which they were given.
    pub watch: usize,
    /// The revision up to which every event of the watch has been reported.
    pub revision: Revision,
    /// The changes. Empty in a progress notification.
    pub events: Vec<Event>,
}

/// Why a watch ended.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WatchError {
    /// The history at which the watch should begin or resume is compacted. Read the keys again and watch from
    /// the revision of that answer plus one.
    #[error(
        "watch {watch} cannot tell what happened from revision {wanted} on: the store has forgotten \
         what was before {compact_revision}"
    )]
    Compacted {
        /// The index of the watch.
        watch: usize,
        /// The next revision to report.
        wanted: Revision,
        /// The oldest revision that is not compacted.
        compact_revision: Revision,
    },
    /// The server refused the watch.
    #[error("{endpoint} refused watch {watch}: {reason}")]
    Refused {
        /// The index of the watch.
        watch: usize,
        /// The endpoint that answered.
        endpoint: String,
        /// The reason that the server gave.
        reason: String,
    },
    /// The endpoint belongs to another cluster, whose revisions are unrelated to those seen so far: an
    /// endpoint is wrong, or a server without a data directory was restarted.
    #[error(
        "{endpoint} is of cluster {now:x}, but the watch began in cluster {was:x}; \
         what happened in between cannot be known"
    )]
    ClusterChanged {
        /// The endpoint.
        endpoint: String,
        /// The cluster that the watch began in.
        was: u64,
        /// The cluster that answers now.
        now: u64,
    },
    /// The watch could not be opened, or not reopened.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The watcher has reported its end already.
    #[error("the watcher has ended with an earlier error; open another")]
    Ended,
}

/// Reports the changes of the keys of one or more watches, over one stream.
///
/// Dropping it closes the stream. It does not give up by itself when no server can be reached, but retries
/// while a caller waits in [`next`](Self::next): bound that wait by a time-out of your own.
///
/// ```no_run
/// use rallypoint::client::{Client, WatchError};
/// use rallypoint::core::kv::{KeyRange, Put, Watch};
///
/// # async fn example(client: Client) -> Result<(), WatchError> {
/// let mut watcher = client.watch([Watch::new(KeyRange::prefix("jobs/"))]).await?;
/// // Every write from here on will be reported.
/// client.put(Put::new("jobs/1", "waiting")).await?;
/// let batch = watcher.next().await?;
/// assert_eq!(batch.events[0].kv.key, "jobs/1");
/// # Ok(())
/// # }
/// ```
pub struct Watcher {
    client: Client,
    /// The watches, each with the next revision to report as its start.
    watches: Vec<Watch>,
    /// The cluster that the watches began in.
    cluster: u64,
    revision: Revision,
    state: State,
    /// Batches that were read from the stream and not returned yet.
    ready: VecDeque<WatchBatch>,
    /// The number of streams that were lost in a row, without a message from any of them.
    failures: u32,
    /// When the log reports that no stream can be opened.
    reminder: Reminder,
    /// Whether a progress request is unanswered.
    progress_wanted: bool,
}

enum State {
    Live(Box<Live>),
    /// The future is kept here and not in that of `next`, so that a caller with short time-outs still gets
    /// a new stream.
    Opening(Pin<Box<dyn Future<Output = Result<Box<Live>, OpenFailed>> + Send>>),
    Ended,
}

impl std::fmt::Debug for Watcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watcher").field("watches", &self.watches).finish_non_exhaustive()
    }
}

impl Client {
    /// Opens a stream that carries all of `watches`, and returns when the server has acknowledged each
    /// of them: every later write will be reported.
    ///
    /// # Errors
    /// [`WatchError::Refused`] if the server refuses one of them; [`WatchError::Client`] with
    /// [`ClientError::Unavailable`] if no server could be reached within the time-out.
    pub async fn watch(
        &self,
        watches: impl IntoIterator<Item = Watch>,
    ) -> Result<Watcher, WatchError> {
        let mut watches: Vec<Watch> = watches.into_iter().collect();
        if watches.is_empty() {
            return Err(ClientError::invalid("watches", "", "give at least one").into());
        }
        let begun = Instant::now();
        let mut attempts = 0;
        let live = loop {
            attempts += 1;
            let (failure, source) = match Live::open(self, &watches, attempts - 1).await {
                Ok(live) => break live,
                Err(OpenFailed::Never(error)) => return Err(error),
                Err(OpenFailed::Again(failure, status)) => (failure, status),
            };
            let delay = self.stream_delay(attempts, failure);
            if failure == Failure::NotTrusted && attempts as usize >= self.shared.endpoints.len()
                || begun.elapsed() + delay >= self.timeout
            {
                let endpoint = self.shared.endpoints.current().name.to_string();
                let (request, waited) = ("watch", begun.elapsed());
                return Err(ClientError::Unavailable {
                    request,
                    endpoint,
                    attempts,
                    waited,
                    source,
                }
                .into());
            }
            sleep(delay).await;
        };
        for (watch, created_at) in watches.iter_mut().zip(&live.created_at) {
            // From now on the start is a fixed revision: a new stream must not begin later than this one.
            if watch.start_revision <= 0 {
                watch.start_revision = created_at + 1;
            }
        }
        Ok(Watcher {
            client: self.clone(),
            watches,
            cluster: live.cluster,
            revision: live.created_at.iter().copied().max().unwrap_or(0),
            state: State::Live(live),
            ready: VecDeque::new(),
            failures: 0,
            reminder: Reminder::doubling(REPORTED_AFTER),
            progress_wanted: false,
        })
    }
}

impl Watcher {
    /// The store's revision when the last of the watches was acknowledged: each of them reports every change
    /// after it, and a watch with a past start reports earlier ones, too.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Waits for the next batch.
    ///
    /// Cancel-safe: if the future is dropped, nothing is lost, not even the progress of a new
    /// connection. After an error the watcher has ended.
    ///
    /// # Errors
    /// [`WatchError`] says why the watches cannot continue. A lost connection is not an error.
    pub async fn next(&mut self) -> Result<WatchBatch, WatchError> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
                return Ok(batch);
            }
            let stepped = match &mut self.state {
                State::Ended => return Err(WatchError::Ended),
                State::Live(live) => match live.next().await {
                    Ok(message) => self.take(message),
                    Err(failed) => self.reopen(failed.into()),
                },
                State::Opening(opening) => match opening.as_mut().await {
                    Ok(live) => self.opened(live),
                    Err(failed) => self.reopen(failed),
                },
            };
            if let Err(error) = stepped {
                self.state = State::Ended;
                return Err(error);
            }
        }
    }

    /// Requests a progress notification. When the server has reported all changes, each watch returns a batch
    /// without events.
    ///
    /// The server may not answer while one of the watches is catching up; then request again. Older versions
    /// of etcd 3.4 and 3.5 may answer too early, before events of that revision; such an answer is therefore
    /// passed on, but a watch never resumes from it.
    pub fn progress(&mut self) {
        self.progress_wanted = true;
        if let State::Live(live) = &self.state {
            live.stream.try_send(rpc::watch_progress());
        }
    }

    /// Starts to open a new stream, unless the failure is permanent.
    fn reopen(&mut self, failed: OpenFailed) -> Result<(), WatchError> {
        let (failure, status) = match failed {
            OpenFailed::Again(failure, status) => (failure, status),
            OpenFailed::Never(error) => return Err(error),
        };
        // A stream that lasted was a success, even without a message.
        if matches!(&self.state, State::Live(live) if live.since.elapsed() > Duration::from_secs(5))
        {
            self.failures = 0;
        }
        self.failures = self.failures.saturating_add(1);
        if self.failures == 1 {
            self.reminder = Reminder::doubling(REPORTED_AFTER);
            tracing::debug!(
                target: CLIENT,
                reason = describe(&status), "a watch stream was lost; opening another"
            );
        } else if self.reminder.is_due() {
            let failures = self.failures;
            tracing::warn!(
                target: CLIENT,
                failures, reason = describe(&status), "a watch cannot be resumed yet"
            );
        }
        let delay = self.client.stream_delay(self.failures, failure);
        let (client, watches) = (self.client.clone(), self.watches.clone());
        let failures = self.failures;
        self.state = State::Opening(Box::pin(async move {
            sleep(delay).await;
            Live::open(&client, &watches, failures).await
        }));
        Ok(())
    }

    fn opened(&mut self, live: Box<Live>) -> Result<(), WatchError> {
        if live.cluster != self.cluster {
            return Err(WatchError::ClusterChanged {
                endpoint: live.stream.responses.endpoint().to_owned(),
                was: self.cluster,
                now: live.cluster,
            });
        }
        if self.progress_wanted {
            live.stream.try_send(rpc::watch_progress());
        }
        self.state = State::Live(live);
        Ok(())
    }

    /// Turns a message into batches and advances the watch's next revision.
    fn take(&mut self, message: WatchResponse) -> Result<(), WatchError> {
        let State::Live(live) = &self.state else { return Ok(()) };
        self.failures = 0;
        let watch = live.ids.get(&message.id).copied();
        if message.canceled {
            let watch = watch.unwrap_or(0);
            if message.compact_revision > 0 {
                return Err(WatchError::Compacted {
                    watch,
                    wanted: self.watches[watch].start_revision,
                    compact_revision: message.compact_revision,
                });
            }
            let reason = bare_reason(&message.reason);
            if is_passing(reason) {
                let failed = live.stream.responses.ended(Status::unavailable(reason));
                return self.reopen(failed.into());
            }
            let endpoint = live.stream.responses.endpoint().to_owned();
            return Err(WatchError::Refused { watch, endpoint, reason: reason.to_owned() });
        }
        match watch {
            Some(watch) => self.take_events(watch, message),
            None if message.events.is_empty() && !message.created => {
                self.progress_wanted = false;
                let revision = message.revision;
                let batch = |watch| WatchBatch { watch, revision, events: Vec::new() };
                self.ready.extend((0..self.watches.len()).map(batch));
            }
            None => {
                tracing::warn!(
                    target: CLIENT,
                    id = message.id, "events for a watch that does not exist"
                )
            }
        }
        Ok(())
    }

    fn take_events(&mut self, index: usize, message: WatchResponse) {
        let watch = &mut self.watches[index];
        let WatchResponse { mut events, mut revision, .. } = message;
        let progress = events.is_empty();
        if !progress {
            events.retain(|event| event.kv.mod_revision >= watch.start_revision);
            let Some(last) = events.last() else { return };
            // The message's own revision is that of the store, which a replay has not reached yet.
            revision = last.kv.mod_revision;
        }
        watch.start_revision = watch.start_revision.max(revision + 1);
        // Progress is always requested, so that an idle watch resumes from its position and not from its
        // start; it is passed on only to callers that requested it.
        if !progress || watch.progress_notify {
            self.ready.push_back(WatchBatch { watch: index, revision, events });
        }
    }
}
