//! The Watch service: one stream, any number of watches.
//!
//! A stream is a value, not a task, and it has no queue. It reads its client's requests and takes
//! its next message from the store only when the connection has room for the answer, so a client
//! that does not read costs a position in history and nothing else.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{self, BoxStream, StreamExt};
use prost::Message;
use tokio::sync::Notify;
use tokio::time::Interval;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use super::calls::CallPermit;
use super::header::ResponseHeaders;
use crate::proto::etcd as pb;
use crate::proto::etcd::watch_request::RequestUnion;
use crate::server::engine::{Engine, stopped};
use crate::server::metrics::ActiveCall;

/// The id of a watch that was refused, and of a progress notification for the whole stream.
const NO_WATCH: i64 = -1;

/// The shortest interval of progress notifications; etcd's.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

pub(super) struct WatchService {
    pub(super) engine: Arc<Engine>,
    pub(super) headers: ResponseHeaders,
    pub(super) stopping: CancellationToken,
    pub(super) progress_interval: Duration,
    /// The size of a response above which it is split for watches that requested fragments.
    pub(super) fragment_bytes: usize,
}

#[tonic::async_trait]
impl pb::watch_server::Watch for WatchService {
    type WatchStream = BoxStream<'static, Result<pb::WatchResponse, Status>>;

    async fn watch(
        &self,
        mut request: Request<Streaming<pb::WatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (id, notify) = self.engine.open_stream()?;
        let mut progress = tokio::time::interval(self.progress_interval.max(SHORTEST_INTERVAL));
        progress.reset();
        let session = WatchSession {
            id,
            _permit: request.extensions_mut().remove::<CallPermit>(),
            call: request.extensions_mut().remove::<Arc<ActiveCall>>(),
            notify,
            progress,
            requests: Some(request.into_inner()),
            engine: self.engine.clone(),
            headers: self.headers,
            stopping: self.stopping.clone(),
            outgoing: VecDeque::new(),
            fragmented: BTreeSet::new(),
            fragment_bytes: self.fragment_bytes,
            progress_asked: false,
        };
        let responses = stream::unfold(Some(session), |session| async {
            let mut session = session?;
            match session.next().await {
                Ok(response) => Some((Ok(response), Some(session))),
                Err(status) => {
                    if let Some(call) = &session.call {
                        call.ends_with(status.code());
                    }
                    Some((Err(status), None))
                }
            }
        });
        Ok(Response::new(responses.boxed()))
    }
}

struct WatchSession {
    id: u64,
    engine: Arc<Engine>,
    headers: ResponseHeaders,
    /// Signals that the store has a message for this stream.
    notify: Arc<Notify>,
    /// `None` once the client has closed its side; it may go on listening.
    requests: Option<Streaming<pb::WatchRequest>>,
    /// Counts the stream among those of its connection.
    _permit: Option<CallPermit>,
    /// Counts the stream as handled when it ends.
    call: Option<Arc<ActiveCall>>,
    stopping: CancellationToken,
    progress: Interval,
    /// Responses to the last request, or the fragments of the last message.
    outgoing: VecDeque<pb::WatchResponse>,
    /// The watches that requested fragments.
    fragmented: BTreeSet<i64>,
    fragment_bytes: usize,
    progress_asked: bool,
}

impl WatchSession {
    async fn next(&mut self) -> Result<pb::WatchResponse, Status> {
        loop {
            if let Some(response) = self.outgoing.pop_front() {
                return Ok(response);
            }
            // Before the next message: a stream with a long replay must read its client's requests, which
            // may cancel it, and must notice that the server stops.
            if self.stopping.is_cancelled() {
                return Err(stopped());
            }
            if let Some(request) = next_request(&mut self.requests).now_or_never() {
                match request? {
                    None => self.requests = None,
                    Some(request) => self.handle(request),
                }
                continue;
            }
            let (id, asked) = (self.id, self.progress_asked);
            let (message, synced) = self.engine.watches(|store| {
                let message = store.next_message(id);
                let synced = asked && message.is_none() && store.is_synced(id);
                (message, synced.then(|| store.revision()))
            });
            if let Some(message) = message {
                self.send(message.into());
                continue;
            }
            if let Some(revision) = synced {
                self.progress_asked = false;
                return Ok(pb::WatchResponse {
                    header: self.headers.header(revision),
                    watch_id: NO_WATCH,
                    ..Default::default()
                });
            }
            tokio::select! {
                request = next_request(&mut self.requests) => match request? {
                    None => self.requests = None,
                    Some(request) => self.handle(request),
                },
                () = self.notify.notified() => {}
                _ = self.progress.tick() => self.notify_progress(),
                () = self.stopping.cancelled() => return Err(stopped()),
            }
        }
    }

    fn handle(&mut self, request: RequestUnion) {
        match request {
            RequestUnion::CreateRequest(create) => self.create(create),
            RequestUnion::CancelRequest(pb::WatchCancelRequest { watch_id }) => {
                let (revision, canceled) = self
                    .engine
                    .watches(|store| (store.revision(), store.unwatch(self.id, watch_id)));
                if canceled {
                    self.fragmented.remove(&watch_id);
                    self.outgoing.push_back(pb::WatchResponse {
                        header: self.headers.header(revision),
                        watch_id,
                        canceled: true,
                        ..Default::default()
                    });
                }
            }
            RequestUnion::ProgressRequest(_) => {
                // On a stream without watches the request would wait for ever; etcd 3.5 drops it, too.
                self.progress_asked = self.engine.watches(|store| store.has_watches(self.id));
            }
        }
    }

    fn create(&mut self, create: pb::WatchCreateRequest) {
        let wanted = Some(create.watch_id).filter(|id| *id != 0);
        let fragment = create.fragment;
        let (revision, created) = self
            .engine
            .watches(|store| (store.revision(), store.watch(self.id, wanted, create.into())));
        let mut response = pb::WatchResponse {
            header: self.headers.header(revision),
            created: true,
            ..Default::default()
        };
        match created {
            Ok(id) => {
                response.watch_id = id;
                if fragment {
                    self.fragmented.insert(id);
                }
            }
            Err(refused) => {
                response.watch_id = NO_WATCH;
                response.canceled = true;
                response.cancel_reason = refused.to_string();
            }
        }
        self.outgoing.push_back(response);
    }

    fn send(&mut self, mut response: pb::WatchResponse) {
        response.header = self.headers.stamp(response.header);
        if response.canceled {
            self.fragmented.remove(&response.watch_id);
        }
        if self.fragmented.contains(&response.watch_id) {
            self.outgoing.extend(fragments(response, self.fragment_bytes));
        } else {
            self.outgoing.push_back(response);
        }
    }

    fn notify_progress(&mut self) {
        let (revision, quiet) =
            self.engine.watches(|store| (store.revision(), store.quiet_watches(self.id)));
        let notification = |watch_id| pb::WatchResponse {
            header: self.headers.header(revision),
            watch_id,
            ..Default::default()
        };
        self.outgoing.extend(quiet.into_iter().map(notification));
    }
}

/// The client's next request; `None` when it has closed its side.
async fn next_request(
    requests: &mut Option<Streaming<pb::WatchRequest>>,
) -> Result<Option<RequestUnion>, Status> {
    let Some(stream) = requests else { return std::future::pending().await };
    while let Some(request) = stream.message().await? {
        if request.request_union.is_some() {
            return Ok(request.request_union);
        }
    }
    Ok(None)
}

impl Drop for WatchSession {
    fn drop(&mut self) {
        self.engine.close_stream(self.id);
    }
}

/// Splits a response that is too large into as few fragments as possible.
fn fragments(mut whole: pb::WatchResponse, limit: usize) -> Vec<pb::WatchResponse> {
    let events = std::mem::take(&mut whole.events);
    let empty = whole;
    let mut parts = vec![empty.clone()];
    let mut bytes = 0;
    for event in events {
        let part = parts.last_mut().expect("it begins with one");
        let size = event.encoded_len();
        if !part.events.is_empty() && bytes + size >= limit {
            part.fragment = true;
            parts.push(empty.clone());
            bytes = 0;
        }
        bytes += size;
        parts.last_mut().expect("it begins with one").events.push(event);
    }
    parts
}
