//! One of the two servers, and the watches on it.

use std::sync::{Arc, Mutex};

use pb::watch_request::RequestUnion;
use rallypoint::proto::etcd as pb;
use tokio::sync::{mpsc, watch};
use tonic::Status;
use tonic::transport::Channel;

use super::generate::Step;
use super::normal::{self, Answer, Body};
use crate::support::wire;

/// What a watch told: events, and how it ended if it did.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    events: Vec<pb::Event>,
    compacted: Option<i64>,
}

impl History {
    /// Where two of them part.
    pub fn difference(&self, other: &Self) -> String {
        let same = self.events.iter().zip(&other.events).take_while(|(one, other)| one == other);
        let at = same.count();
        format!(
            "after {at} equal events, one told {:#?}\nand the other {:#?}\nended by compaction: {:?}, {:?}",
            self.events.get(at),
            other.events.get(at),
            self.compacted,
            other.compacted
        )
    }
}

struct Watching {
    request: pb::WatchCreateRequest,
    history: Arc<Mutex<History>>,
    _requests: mpsc::Sender<pb::WatchRequest>,
}

/// A server with the generated clients.
pub struct Peer {
    channel: Channel,
    kv: pb::kv_client::KvClient<Channel>,
    lease: pb::lease_client::LeaseClient<Channel>,
    watches: Vec<Watching>,
}

impl Peer {
    pub fn new(endpoint: &str) -> Self {
        let channel = wire::channel(endpoint);
        let kv = pb::kv_client::KvClient::new(channel.clone());
        let lease = pb::lease_client::LeaseClient::new(channel.clone());
        Self { channel, kv, lease, watches: Vec::new() }
    }

    /// Takes a step and says what came of it.
    pub async fn answer(&mut self, step: &Step) -> Answer {
        normal::done(self.take(step).await)
    }

    async fn take(&mut self, step: &Step) -> Result<(Option<pb::ResponseHeader>, Body), Status> {
        match step.clone() {
            Step::Range(request) => {
                let mut answer = self.kv.range(request.clone()).await?.into_inner();
                let header = answer.header.take();
                Ok((header, Body::Range(normal::range(&request, answer))))
            }
            Step::Put(request) => {
                let mut answer = self.kv.put(request).await?.into_inner();
                Ok((answer.header.take(), Body::Put(answer)))
            }
            Step::Delete(request) => {
                let mut answer = self.kv.delete_range(request).await?.into_inner();
                Ok((answer.header.take(), Body::Delete(answer)))
            }
            Step::Txn(request) => {
                let answer = self.kv.txn(request.clone()).await.map_err(normal::txn_refusal)?;
                let mut answer = answer.into_inner();
                let header = answer.header.take();
                Ok((header, Body::Txn(normal::txn(&request, answer))))
            }
            Step::Compact(request) => {
                let answer = self.kv.compact(request).await?.into_inner();
                Ok((answer.header, Body::Compact))
            }
            Step::Grant(request) => {
                let answer = self.lease.lease_grant(request).await?.into_inner();
                Ok((answer.header, Body::Grant { id: answer.id, ttl: answer.ttl }))
            }
            Step::Revoke(id) => {
                let request = pb::LeaseRevokeRequest { id };
                let answer = self.lease.lease_revoke(request).await?.into_inner();
                Ok((answer.header, Body::Revoke))
            }
            Step::KeepAlive(id) => {
                let request = pb::LeaseKeepAliveRequest { id };
                let once = futures_util::stream::iter([request]);
                let mut answers = self.lease.lease_keep_alive(once).await?.into_inner();
                let answer = answers.message().await?.expect("one answer to one request");
                assert_eq!(answer.id, id);
                Ok((answer.header, Body::KeepAlive { ttl: answer.ttl }))
            }
            Step::TimeToLive(id) => {
                let request = pb::LeaseTimeToLiveRequest { id, keys: true };
                let mut answer = self.lease.lease_time_to_live(request).await?.into_inner();
                answer.keys.sort();
                let (alive, granted) = (answer.ttl >= 0, answer.granted_ttl);
                Ok((answer.header, Body::TimeToLive { alive, granted, keys: answer.keys }))
            }
            Step::Leases => {
                let request = pb::LeaseLeasesRequest {};
                let answer = self.lease.lease_leases(request).await?.into_inner();
                let mut ids: Vec<i64> = answer.leases.iter().map(|lease| lease.id).collect();
                ids.sort_unstable();
                Ok((answer.header, Body::Leases(ids)))
            }
            Step::Watch(request, mark) => self.watch(request, mark).await,
        }
    }

    async fn watch(
        &mut self,
        request: pb::WatchCreateRequest,
        mark: Option<i64>,
    ) -> Result<(Option<pb::ResponseHeader>, Body), Status> {
        let (sender, mut receiver) = mpsc::channel(1);
        let create = RequestUnion::CreateRequest(request.clone());
        let create = pb::WatchRequest { request_union: Some(create) };
        sender.send(create).await.expect("the receiver is here");
        let outgoing = futures_util::stream::poll_fn(move |context| receiver.poll_recv(context));
        let mut client = pb::watch_client::WatchClient::new(self.channel.clone());
        let mut stream = client.watch(outgoing).await?.into_inner();
        let created = stream.message().await?.expect("an answer to the request");
        assert!(created.created && created.events.is_empty(), "{created:?}");

        let history = Arc::new(Mutex::new(History::default()));
        let (announce, mut changed) = watch::channel(0);
        let collected = history.clone();
        tokio::spawn(async move {
            while let Ok(Some(response)) = stream.message().await {
                let mut history = collected.lock().unwrap();
                if response.canceled {
                    history.compacted = Some(response.compact_revision);
                }
                history.events.extend(response.events);
                drop(history);
                announce.send_modify(|count| *count += 1);
            }
        });
        if let (Some(mark), false) = (mark, created.canceled) {
            loop {
                let told = {
                    let history = history.lock().unwrap();
                    let last = history.events.last().and_then(|event| event.kv.as_ref());
                    history.compacted.is_some() || last.is_some_and(|kv| kv.mod_revision >= mark)
                };
                if told {
                    break;
                }
                changed.changed().await.expect("the stream goes on");
            }
        }
        self.watches.push(Watching { request, history, _requests: sender });
        let (id, canceled) = (created.watch_id, created.canceled);
        Ok((created.header, Body::Watch { id, canceled, reason: created.cancel_reason }))
    }

    /// What a watch asked for.
    pub fn request(&self, number: usize) -> &pb::WatchCreateRequest {
        &self.watches[number].request
    }

    /// What each watch told so far.
    pub fn histories(&self) -> Vec<History> {
        self.watches.iter().map(|watching| watching.history.lock().unwrap().clone()).collect()
    }
}
