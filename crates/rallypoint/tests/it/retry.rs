//! What the client does about answers that a real server gives too rarely to wait for: a server that
//! says what it is told to, and counts.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rallypoint::client::{Client, ClientError, ClientOptions};
use rallypoint::core::kv::{Compare, KeyRange, KvError, Op, Put, Txn};
use rallypoint::proto::etcd as pb;
use rallypoint::proto::etcd::kv_server::{Kv, KvServer};
use rallypoint::proto::etcd::lease_server::{Lease, LeaseServer};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::client::client;
use crate::support::Embedded;

/// Refuses the first requests as scripted, then answers; remembers what it was asked. It takes its time
/// for a read or a put.
#[derive(Clone, Default)]
struct Script(Arc<Mutex<(VecDeque<Status>, Vec<String>)>>, Duration);

impl Script {
    fn asked(&self, what: impl Into<String>) -> Result<(), Status> {
        let mut script = self.0.lock().unwrap();
        script.1.push(what.into());
        script.0.pop_front().map_or(Ok(()), Err)
    }

    /// From now on: first these, and a count from nothing.
    fn say(&self, answers: impl IntoIterator<Item = (Code, &'static str)>) {
        let answers = answers.into_iter().map(|(code, text)| Status::new(code, text));
        *self.0.lock().unwrap() = (answers.collect(), Vec::new());
    }

    fn heard(&self) -> Vec<String> {
        self.0.lock().unwrap().1.clone()
    }
}

#[tonic::async_trait]
impl Kv for Script {
    async fn range(
        &self,
        _: Request<pb::RangeRequest>,
    ) -> Result<Response<pb::RangeResponse>, Status> {
        self.asked("range")?;
        tokio::time::sleep(self.1).await;
        Ok(Response::new(Default::default()))
    }

    type RangeStreamStream = futures_util::stream::Empty<Result<pb::RangeStreamResponse, Status>>;

    async fn range_stream(
        &self,
        _: Request<pb::RangeRequest>,
    ) -> Result<Response<Self::RangeStreamStream>, Status> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn put(&self, _: Request<pb::PutRequest>) -> Result<Response<pb::PutResponse>, Status> {
        self.asked("put")?;
        tokio::time::sleep(self.1).await;
        Ok(Response::new(Default::default()))
    }

    async fn delete_range(
        &self,
        _: Request<pb::DeleteRangeRequest>,
    ) -> Result<Response<pb::DeleteRangeResponse>, Status> {
        self.asked("delete")?;
        Ok(Response::new(Default::default()))
    }

    async fn txn(&self, _: Request<pb::TxnRequest>) -> Result<Response<pb::TxnResponse>, Status> {
        self.asked("txn")?;
        Ok(Response::new(Default::default()))
    }

    async fn compact(
        &self,
        _: Request<pb::CompactionRequest>,
    ) -> Result<Response<pb::CompactionResponse>, Status> {
        self.asked("compact")?;
        Ok(Response::new(Default::default()))
    }
}

#[tonic::async_trait]
impl Lease for Script {
    type LeaseKeepAliveStream =
        futures_util::stream::Empty<Result<pb::LeaseKeepAliveResponse, Status>>;

    async fn lease_grant(
        &self,
        request: Request<pb::LeaseGrantRequest>,
    ) -> Result<Response<pb::LeaseGrantResponse>, Status> {
        let pb::LeaseGrantRequest { id, ttl } = request.into_inner();
        self.asked(id.to_string())?;
        Ok(Response::new(pb::LeaseGrantResponse { id, ttl, ..Default::default() }))
    }

    async fn lease_revoke(
        &self,
        _: Request<pb::LeaseRevokeRequest>,
    ) -> Result<Response<pb::LeaseRevokeResponse>, Status> {
        self.asked("revoke")?;
        Ok(Response::new(Default::default()))
    }

    async fn lease_keep_alive(
        &self,
        _: Request<Streaming<pb::LeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<pb::LeaseTimeToLiveRequest>,
    ) -> Result<Response<pb::LeaseTimeToLiveResponse>, Status> {
        let id = request.into_inner().id;
        let answer =
            pb::LeaseTimeToLiveResponse { id, ttl: 4, granted_ttl: 5, ..Default::default() };
        Ok(Response::new(answer))
    }

    async fn lease_leases(
        &self,
        _: Request<pb::LeaseLeasesRequest>,
    ) -> Result<Response<pb::LeaseLeasesResponse>, Status> {
        Ok(Response::new(Default::default()))
    }
}

async fn scripted() -> (Script, Client, AbortOnDropHandle<()>) {
    let script = Script::default();
    let (address, server) = serve(script.clone()).await;
    (script, client([address]).await, server)
}

async fn serve(script: Script) -> (String, AbortOnDropHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = tonic::transport::Server::builder()
        .add_service(KvServer::new(script.clone()))
        .add_service(LeaseServer::new(script))
        .serve_with_incoming(TcpIncoming::from(listener));
    let server = tokio::spawn(async move { server.await.unwrap() });
    (address, AbortOnDropHandle::new(server))
}

const BUSY: (Code, &str) = (Code::Unknown, "etcdserver: too many requests");
const NO_LEADER: (Code, &str) = (Code::Unavailable, "etcdserver: no leader");
const CHANGED: (Code, &str) = (Code::Unavailable, "etcdserver: leader changed");
const TIMED_OUT: (Code, &str) = (Code::Unavailable, "etcdserver: request timed out");

#[tokio::test]
async fn what_was_not_executed_is_sent_again() {
    let (script, client, _server) = scripted().await;
    script.say([BUSY, NO_LEADER, BUSY]);
    client.put(Put::new("a", "")).await.unwrap();
    assert_eq!(script.heard(), ["put"; 4]);
    script.say([CHANGED, TIMED_OUT]);
    client.range(KeyRange::all()).await.unwrap();
    assert_eq!(script.heard(), ["range"; 3]);
    script.say([CHANGED]);
    let reads = Txn::when([Compare::exists("a")]).then([Op::Range(KeyRange::all().into())]);
    client.txn(reads).await.unwrap();
    assert_eq!(script.heard(), ["txn"; 2]);
}

#[tokio::test]
async fn what_may_have_been_executed_is_not() {
    let (script, client, _server) = scripted().await;
    let writes = Txn::default().then([Op::Put(Put::new("a", ""))]);
    for answer in [CHANGED, TIMED_OUT] {
        for request in ["put", "delete", "txn", "compact", "revoke", "7"] {
            script.say([BUSY, answer]);
            let error = match request {
                "put" => client.put(Put::new("a", "")).await.unwrap_err(),
                "delete" => client.delete(KeyRange::all()).await.unwrap_err(),
                "txn" => client.txn(writes.clone()).await.unwrap_err(),
                "compact" => client.compact(5, false).await.unwrap_err(),
                "revoke" => client.lease_revoke(7).await.unwrap_err(),
                _ => client.lease_grant(5, Some(7)).await.unwrap_err(),
            };
            assert!(matches!(error, ClientError::OutcomeUnknown { .. }), "{error}");
            assert!(error.to_string().contains(answer.1), "{error}");
            assert_eq!(script.heard(), [request; 2]);
        }
    }
}

#[tokio::test]
async fn a_lease_whose_grant_was_not_heard_of_is_found_again() {
    let (script, client, _server) = scripted().await;
    script.say([CHANGED, (Code::FailedPrecondition, "etcdserver: lease already exists")]);
    let lease = client.lease_grant(5, None).await.unwrap();
    assert_eq!(lease.ttl, 5);
    assert_eq!(script.heard(), [lease.id.to_string(), lease.id.to_string()]);
}

const EXISTS: (Code, &str) = (Code::FailedPrecondition, "etcdserver: lease already exists");

#[tokio::test]
async fn a_lease_that_exists_before_it_was_asked_for_is_not_ours() {
    let (script, client, _server) = scripted().await;
    // In the second case the first attempt was surely not executed.
    for (answers, taken) in [(vec![EXISTS], 1), (vec![BUSY, EXISTS], 2), (vec![EXISTS, EXISTS], 2)]
    {
        script.say(answers);
        let lease = client.lease_grant(5, None).await.unwrap();
        let heard = script.heard();
        assert_eq!(heard.last(), Some(&lease.id.to_string()));
        assert_eq!(heard.len(), taken + 1, "{heard:?}");
        assert!(!heard[..taken].contains(&lease.id.to_string()), "{heard:?}");
    }
    // A server that says so for ever is not asked for ever.
    script.say([EXISTS; 100]);
    let taken = client.lease_grant(5, None).await.unwrap_err();
    assert!(matches!(taken, ClientError::Kv(KvError::LeaseExists)), "{taken}");
}

/// Nodes that started in the same moment after their machines did.
#[tokio::test]
async fn two_nodes_whose_generators_agree_do_not_share_a_lease() {
    let server = Embedded::memory().await;
    let client = client([server.endpoint()]).await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        fastrand::seed(7);
        ids.push(client.lease_grant(60, None).await.unwrap().id);
    }
    assert_ne!(ids[0], ids[1]);
    assert_eq!(client.leases().await.unwrap().len(), 2);
}

/// One answer that takes its time is no reason to leave a server that answers others.
#[tokio::test]
async fn a_slow_answer_is_waited_for_while_the_server_answers_at_all() {
    let script = Script(Default::default(), Duration::from_millis(2500));
    let (address, _server) = serve(script.clone()).await;
    let attempt_timeout = Duration::from_secs(8);
    let options =
        ClientOptions::new([address]).with(|options| options.attempt_timeout = attempt_timeout);
    let client = Client::connect(options).await.unwrap();
    let (read, written) =
        tokio::join!(client.range(KeyRange::all()), client.put(Put::new("a", "")));
    read.unwrap();
    written.unwrap();
    let mut heard = script.heard();
    heard.sort();
    assert_eq!(heard, ["put", "range"]);
}

#[tokio::test]
async fn a_server_that_stays_busy_is_given_up_in_time() {
    let (script, client, _server) = scripted().await;
    let client = client.with_timeout(Duration::from_millis(400));
    script.say([BUSY; 100]);
    let error = client.put(Put::new("a", "")).await.unwrap_err();
    assert!(matches!(error, ClientError::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains(BUSY.1), "{error}");
    // It was not hammered at: the pauses double.
    assert!((2..=8).contains(&script.heard().len()), "{:?}", script.heard());
}
