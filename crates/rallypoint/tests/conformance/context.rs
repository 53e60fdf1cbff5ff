//! What a case has in hand: a server, clients for it, and keys that no other case uses.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use pb::watch_request::RequestUnion;
use rallypoint::proto::etcd as pb;
use tokio::sync::mpsc;
use tonic::transport::Channel;
use tonic::{Response, Status, Streaming};

use crate::ask::{self, prefix_end, revision};
use crate::harness::{Arm, Server};
use crate::support::wire;

/// The context of one case on one arm.
#[derive(Debug)]
pub struct Context {
    /// Where it runs.
    pub arm: Arm,
    /// What all keys of this case begin with.
    pub prefix: String,
    /// How to reach the server.
    pub endpoint: String,
    /// A connection of its own.
    pub channel: Channel,
    server: Option<Server>,
    leases: AtomicU64,
}

/// What a request came to.
pub type Answer<T> = Result<T, Status>;

fn inner<T>(answer: Answer<Response<T>>) -> Answer<T> {
    answer.map(Response::into_inner)
}

impl Context {
    /// On a server that others own.
    pub fn at(arm: Arm, endpoint: String) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let channel = wire::channel(&endpoint);
        let prefix = format!("{:04}/", NEXT.fetch_add(1, Ordering::Relaxed));
        Self { arm, prefix, endpoint, channel, server: None, leases: AtomicU64::new(0) }
    }

    /// On a server of its own.
    pub fn with(arm: Arm, server: Server) -> Self {
        let endpoint = server.endpoint();
        Self { server: Some(server), ..Self::at(arm, endpoint) }
    }

    /// Kills the server and starts it again.
    pub async fn restart(mut self) -> Self {
        self.server.as_mut().expect("a case that restarts owns its server").restart().await;
        self.channel = wire::channel(&self.endpoint);
        self
    }

    /// A key of this case.
    pub fn key(&self, name: &str) -> Bytes {
        format!("{}{name}", self.prefix).into()
    }

    /// All keys of this case.
    pub fn all(&self) -> pb::RangeRequest {
        let key: Bytes = self.prefix.clone().into();
        pb::RangeRequest { range_end: prefix_end(&key), key, ..Default::default() }
    }

    /// The keys from `start` to `end`, excluded.
    pub fn span(&self, start: &str, end: &str) -> pb::RangeRequest {
        pb::RangeRequest { key: self.key(start), range_end: self.key(end), ..Default::default() }
    }

    /// The keys without this case's prefix.
    pub fn names<'a>(&self, kvs: impl IntoIterator<Item = &'a pb::KeyValue>) -> Vec<String> {
        kvs.into_iter()
            .map(|kv| {
                let key = std::str::from_utf8(&kv.key).unwrap();
                key.strip_prefix(&self.prefix).unwrap_or(key).to_owned()
            })
            .collect()
    }

    /// A pair as it looks right after its first put.
    pub fn new_pair(&self, name: &str, value: &str, revision: i64) -> pb::KeyValue {
        pb::KeyValue {
            key: self.key(name),
            value: value.to_owned().into(),
            create_revision: revision,
            mod_revision: revision,
            version: 1,
            lease: 0,
        }
    }

    /// The bare KV client.
    pub fn kv(&self) -> pb::kv_client::KvClient<Channel> {
        pb::kv_client::KvClient::new(self.channel.clone()).max_decoding_message_size(64 << 20)
    }

    /// The bare Lease client.
    pub fn leases(&self) -> pb::lease_client::LeaseClient<Channel> {
        pb::lease_client::LeaseClient::new(self.channel.clone())
    }

    /// The bare Maintenance client.
    pub fn maintenance(&self) -> pb::maintenance_client::MaintenanceClient<Channel> {
        pb::maintenance_client::MaintenanceClient::new(self.channel.clone())
    }

    /// Range.
    pub async fn range(&self, request: pb::RangeRequest) -> Answer<pb::RangeResponse> {
        inner(self.kv().range(request).await)
    }

    /// Put.
    pub async fn put(&self, request: pb::PutRequest) -> Answer<pb::PutResponse> {
        inner(self.kv().put(request).await)
    }

    /// DeleteRange.
    pub async fn delete(&self, request: pb::DeleteRangeRequest) -> Answer<pb::DeleteRangeResponse> {
        inner(self.kv().delete_range(request).await)
    }

    /// Txn.
    pub async fn txn(&self, request: pb::TxnRequest) -> Answer<pb::TxnResponse> {
        inner(self.kv().txn(request).await)
    }

    /// Compact.
    pub async fn compact(&self, revision: i64) -> Answer<pb::CompactionResponse> {
        inner(self.kv().compact(pb::CompactionRequest { revision, physical: false }).await)
    }

    /// Compact, and wait until the past is really gone.
    pub async fn compact_physically(&self, revision: i64) {
        let request = pb::CompactionRequest { revision, physical: true };
        self.kv().compact(request).await.unwrap();
    }

    /// Writes a key and gives the revision.
    pub async fn set(&self, name: &str, value: &str) -> i64 {
        let answer = self.put(ask::put(self.key(name), value.to_owned())).await.unwrap();
        revision(&answer.header)
    }

    /// Writes a key on a lease and gives the revision.
    pub async fn set_on(&self, lease: i64, name: &str, value: &str) -> i64 {
        let put = pb::PutRequest { lease, ..ask::put(self.key(name), value.to_owned()) };
        revision(&self.put(put).await.unwrap().header)
    }

    /// Deletes a key that exists and gives the revision.
    pub async fn unset(&self, name: &str) -> i64 {
        let answer = self.delete(ask::del(self.key(name))).await.unwrap();
        assert_eq!(answer.deleted, 1);
        revision(&answer.header)
    }

    /// One pair, if it is there.
    pub async fn pair(&self, name: &str) -> Option<pb::KeyValue> {
        self.range(ask::get(self.key(name))).await.unwrap().kvs.pop()
    }

    /// The current revision.
    pub async fn now(&self) -> i64 {
        revision(&self.range(ask::get(self.key("now"))).await.unwrap().header)
    }

    /// A lease id that does not exist.
    pub fn lease_id(&self) -> i64 {
        let number: i64 = self.prefix.trim_end_matches('/').parse().unwrap();
        let next = self.leases.fetch_add(1, Ordering::Relaxed) as i64;
        0x7e57_0000_0000 + number * 1000 + next
    }

    /// LeaseGrant.
    pub async fn grant(&self, id: i64, ttl: i64) -> Answer<pb::LeaseGrantResponse> {
        inner(self.leases().lease_grant(pb::LeaseGrantRequest { ttl, id }).await)
    }

    /// A new lease.
    pub async fn lease(&self, ttl: i64) -> i64 {
        let id = self.lease_id();
        assert_eq!(self.grant(id, ttl).await.unwrap().id, id);
        id
    }

    /// LeaseRevoke.
    pub async fn revoke(&self, id: i64) -> Answer<pb::LeaseRevokeResponse> {
        inner(self.leases().lease_revoke(pb::LeaseRevokeRequest { id }).await)
    }

    /// LeaseTimeToLive, with the keys in order (etcd gives them in none).
    pub async fn time_to_live(&self, id: i64) -> pb::LeaseTimeToLiveResponse {
        let request = pb::LeaseTimeToLiveRequest { id, keys: true };
        let mut answer = inner(self.leases().lease_time_to_live(request).await).unwrap();
        answer.keys.sort();
        answer
    }

    /// LeaseLeases: the ids.
    pub async fn lease_list(&self) -> Vec<i64> {
        let answer = inner(self.leases().lease_leases(pb::LeaseLeasesRequest {}).await).unwrap();
        answer.leases.iter().map(|lease| lease.id).collect()
    }

    /// A stream for watches.
    pub fn watch_stream(&self) -> WatchStream {
        WatchStream::open(self.channel.clone(), None)
    }

    /// A stream that keeps leases alive.
    pub fn keep_alives(&self) -> KeepAlives {
        KeepAlives::open(self.leases())
    }

    /// A stream with one watch on all keys of this case, from `start` on.
    pub async fn watch_all(&self, start: i64) -> WatchStream {
        let mut stream = self.watch_stream();
        stream
            .create(pb::WatchCreateRequest { start_revision: start, ..self.watch_of_all() })
            .await;
        stream
    }

    /// A request to watch all keys of this case.
    pub fn watch_of_all(&self) -> pb::WatchCreateRequest {
        let all = self.all();
        pb::WatchCreateRequest { key: all.key, range_end: all.range_end, ..Default::default() }
    }

    /// A request to watch one key.
    pub fn watch_of(&self, name: &str) -> pb::WatchCreateRequest {
        pb::WatchCreateRequest { key: self.key(name), ..Default::default() }
    }
}

/// The answers of a stream, collected by a task of its own: a server may hold back even the
/// headers of its answer until it was asked something.
#[derive(Debug)]
struct Answers<T>(mpsc::Receiver<Answer<T>>);

impl<T: Send + 'static> Answers<T> {
    fn collect(
        opening: impl Future<Output = Answer<Response<Streaming<T>>>> + Send + 'static,
    ) -> Self {
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            let mut stream = match opening.await {
                Ok(stream) => stream.into_inner(),
                Err(status) => return drop(sender.send(Err(status)).await),
            };
            while let Some(answer) = stream.message().await.transpose() {
                if sender.send(answer).await.is_err() {
                    return;
                }
            }
        });
        Self(receiver)
    }

    async fn next(&mut self) -> Answer<Option<T>> {
        let patience = Duration::from_secs(60);
        tokio::time::timeout(patience, self.0.recv()).await.expect("an answer in time").transpose()
    }
}

fn requests<T: Send + 'static>() -> (mpsc::Sender<T>, impl Stream<Item = T> + Send + 'static) {
    let (sender, mut receiver) = mpsc::channel(64);
    (sender, futures_util::stream::poll_fn(move |context| receiver.poll_recv(context)))
}

/// One LeaseKeepAlive stream.
#[derive(Debug)]
pub struct KeepAlives {
    requests: Option<mpsc::Sender<pb::LeaseKeepAliveRequest>>,
    answers: Answers<pb::LeaseKeepAliveResponse>,
}

impl KeepAlives {
    fn open(mut client: pb::lease_client::LeaseClient<Channel>) -> Self {
        let (requests, outgoing) = requests();
        let opening = async move { client.lease_keep_alive(outgoing).await };
        Self { requests: Some(requests), answers: Answers::collect(opening) }
    }

    /// Asks for one more life.
    pub async fn send(&self, id: i64) {
        let request = pb::LeaseKeepAliveRequest { id };
        self.requests.as_ref().unwrap().send(request).await.unwrap();
    }

    /// The next answer.
    pub async fn next(&mut self) -> pb::LeaseKeepAliveResponse {
        self.answers.next().await.unwrap().expect("the stream goes on")
    }

    /// Ends the requests and expects the server to end its side, without a complaint.
    pub async fn finish(mut self) {
        self.requests = None;
        assert_eq!(self.answers.next().await.unwrap(), None);
    }
}

/// One Watch stream.
#[derive(Debug)]
pub struct WatchStream {
    requests: Option<mpsc::Sender<pb::WatchRequest>>,
    answers: Answers<pb::WatchResponse>,
}

impl WatchStream {
    /// Opens one.
    pub fn open(channel: Channel, token: Option<&str>) -> Self {
        let (requests, outgoing) = requests();
        let mut client =
            pb::watch_client::WatchClient::new(channel).max_decoding_message_size(64 << 20);
        let mut request = tonic::Request::new(outgoing);
        if let Some(token) = token {
            request.metadata_mut().insert("token", token.parse().unwrap());
        }
        let opening = async move { client.watch(request).await };
        Self { requests: Some(requests), answers: Answers::collect(opening) }
    }

    /// Sends a request.
    pub async fn send(&self, request: RequestUnion) {
        let request = pb::WatchRequest { request_union: Some(request) };
        self.requests.as_ref().unwrap().send(request).await.unwrap();
    }

    /// Sends a request as it is.
    pub async fn send_raw(&self, request: pb::WatchRequest) {
        self.requests.as_ref().unwrap().send(request).await.unwrap();
    }

    /// Sends a request to create a watch and gives what comes back first.
    pub async fn create(&mut self, request: pb::WatchCreateRequest) -> pb::WatchResponse {
        self.send(RequestUnion::CreateRequest(request)).await;
        let answer = self.next().await;
        assert!(answer.created, "expected the creation first, got {answer:?}");
        answer
    }

    /// Sends a request to cancel a watch.
    pub async fn cancel(&self, watch_id: i64) {
        self.send(RequestUnion::CancelRequest(pb::WatchCancelRequest { watch_id })).await;
    }

    /// Asks how far the stream is.
    pub async fn ask_progress(&self) {
        self.send(RequestUnion::ProgressRequest(pb::WatchProgressRequest {})).await;
    }

    /// The next response, whatever it is.
    pub async fn next(&mut self) -> pb::WatchResponse {
        self.try_next().await.unwrap().expect("the stream goes on")
    }

    /// The next response, the end of the stream, or its error.
    pub async fn try_next(&mut self) -> Answer<Option<pb::WatchResponse>> {
        self.answers.next().await
    }

    /// The next `count` events, however they are packed.
    pub async fn events(&mut self, count: usize) -> Vec<pb::Event> {
        let mut events = Vec::new();
        while events.len() < count {
            let response = self.next().await;
            assert!(!response.canceled, "{response:?}");
            events.extend(response.events);
        }
        assert_eq!(events.len(), count);
        events
    }

    /// Ends our side of the stream.
    pub fn end_requests(&mut self) {
        self.requests = None;
    }
}

/// A put event.
pub fn put_event(kv: pb::KeyValue) -> pb::Event {
    pb::Event { r#type: pb::event::EventType::Put.into(), kv: Some(kv), prev_kv: None }
}

/// A delete event: key and revision, nothing else.
pub fn delete_event(key: Bytes, mod_revision: i64) -> pb::Event {
    let kv = pb::KeyValue { key, mod_revision, ..Default::default() };
    pb::Event { r#type: pb::event::EventType::Delete.into(), kv: Some(kv), prev_kv: None }
}
