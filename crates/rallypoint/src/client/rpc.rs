//! etcd's calls, message for message, without the core's types (invariant A2).

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tonic::Status;
use tonic::transport::Channel;

use super::Client;
use super::call::{Stream, StreamFailed};
use super::error::ClientError;
use super::line::{PATIENCE, PATIENCE_FOR_RENEWALS};
use super::retry::Repeat;
use super::traffic::Meter;
#[cfg(feature = "cli")]
pub(crate) use crate::proto::doctor::Outcome as DialBackOutcome;
#[cfg(feature = "cli")]
use crate::proto::doctor::doctor_client::DoctorClient;
#[cfg(feature = "cli")]
use crate::proto::doctor::{DialBackRequest, DialBackResponse};
use crate::proto::etcd as pb;
use crate::proto::etcd::cluster_client::ClusterClient;
use crate::proto::etcd::kv_client::KvClient;
use crate::proto::etcd::lease_client::LeaseClient;
use crate::proto::etcd::maintenance_client::MaintenanceClient;
use crate::proto::etcd::watch_client::WatchClient;
use crate::proto::succession::succession_client::SuccessionClient;
use crate::proto::succession::{AskRequest, AskResponse};

/// No limit: a server limits its responses, and a limit here would only turn a large response into an error.
const MAX_MESSAGE: usize = i32::MAX as usize;

fn kv(channel: Channel) -> KvClient<Channel> {
    KvClient::new(channel).max_decoding_message_size(MAX_MESSAGE)
}

fn lease(channel: Channel) -> LeaseClient<Channel> {
    LeaseClient::new(channel).max_decoding_message_size(MAX_MESSAGE)
}

/// Defines one method for each unary call: its name, whether it may be retried, its request and its response.
macro_rules! calls {
    ($($method:ident($name:literal, $repeat:expr, $request:ty) -> $response:ty
        = $client:expr, $call:ident;)*) => {
        impl Client {
            $(pub(super) async fn $method(&self, message: $request) -> Result<$response, ClientError> {
                self.call($name, $repeat, message, &mut false, |channel, message| async move {
                    $client(channel).$call(message).await
                })
                .await
            })*
        }
    };
}

calls! {
    rpc_range("range", Repeat::Always, pb::RangeRequest) -> pb::RangeResponse = kv, range;
    rpc_put("put", Repeat::IfNotExecuted, pb::PutRequest) -> pb::PutResponse = kv, put;
    rpc_delete("delete", Repeat::IfNotExecuted, pb::DeleteRangeRequest) -> pb::DeleteRangeResponse
        = kv, delete_range;
    rpc_txn_read("txn", Repeat::Always, pb::TxnRequest) -> pb::TxnResponse = kv, txn;
    rpc_txn_write("txn", Repeat::IfNotExecuted, pb::TxnRequest) -> pb::TxnResponse = kv, txn;
    rpc_compact("compact", Repeat::IfNotExecuted, pb::CompactionRequest) -> pb::CompactionResponse
        = kv, compact;
    rpc_grant("lease grant", Repeat::IfNotExecuted, pb::LeaseGrantRequest) -> pb::LeaseGrantResponse
        = lease, lease_grant;
    rpc_revoke("lease revoke", Repeat::IfNotExecuted, pb::LeaseRevokeRequest)
        -> pb::LeaseRevokeResponse = lease, lease_revoke;
    rpc_time_to_live("lease time-to-live", Repeat::Always, pb::LeaseTimeToLiveRequest)
        -> pb::LeaseTimeToLiveResponse = lease, lease_time_to_live;
    rpc_leases("leases", Repeat::Always, pb::LeaseLeasesRequest) -> pb::LeaseLeasesResponse
        = lease, lease_leases;
    rpc_members("member list", Repeat::Always, pb::MemberListRequest) -> pb::MemberListResponse
        = ClusterClient::new, member_list;
    rpc_member_add("member add", Repeat::IfNotExecuted, pb::MemberAddRequest) -> pb::MemberAddResponse
        = ClusterClient::new, member_add;
    rpc_member_remove("member remove", Repeat::IfNotExecuted, pb::MemberRemoveRequest)
        -> pb::MemberRemoveResponse = ClusterClient::new, member_remove;
    rpc_status("status", Repeat::Always, pb::StatusRequest) -> pb::StatusResponse
        = MaintenanceClient::new, status;
    rpc_ask_host("ask", Repeat::Never, AskRequest) -> AskResponse = SuccessionClient::new, ask;
}

impl Client {
    /// Requests a lease with an id that the client has chosen; sets `in_doubt` if an attempt without an answer may have
    /// granted it.
    pub(super) async fn rpc_grant_own(
        &self,
        message: pb::LeaseGrantRequest,
        in_doubt: &mut bool,
    ) -> Result<pb::LeaseGrantResponse, ClientError> {
        let send = |channel, message| async move { lease(channel).lease_grant(message).await };
        self.call("lease grant", Repeat::Always, message, in_doubt, send).await
    }

    #[cfg(feature = "cli")]
    pub(super) async fn rpc_dial_back(
        &self,
        message: DialBackRequest,
    ) -> Result<DialBackResponse, ClientError> {
        let send =
            |channel, message| async move { DoctorClient::new(channel).dial_back(message).await };
        self.call("dial back", Repeat::Always, message, &mut false, send).await
    }
}

/// The probe: a call that every server answers at once, from local state. A refusal, for want of a token, is an answer
/// too.
pub(super) async fn probe(channel: Channel, meter: &Meter) -> Result<(), Status> {
    let message = pb::StatusRequest {};
    meter.sent(&message);
    let response = MaintenanceClient::new(channel).status(message).await?;
    meter.received(response.get_ref());
    Ok(())
}

// Requests that are so small that they need no conversion.

pub(super) fn compaction(revision: i64, physical: bool) -> pb::CompactionRequest {
    pb::CompactionRequest { revision, physical }
}

pub(super) fn lease_grant(id: i64, ttl: i64) -> pb::LeaseGrantRequest {
    pb::LeaseGrantRequest { id, ttl }
}

pub(super) fn lease_revoke(id: i64) -> pb::LeaseRevokeRequest {
    pb::LeaseRevokeRequest { id }
}

pub(super) fn lease_time_to_live(id: i64, keys: bool) -> pb::LeaseTimeToLiveRequest {
    pb::LeaseTimeToLiveRequest { id, keys }
}

pub(super) fn leases() -> pb::LeaseLeasesRequest {
    pb::LeaseLeasesRequest {}
}

pub(super) fn host_question(run_id: &str, remembers: u64) -> AskRequest {
    AskRequest { run_id: run_id.to_owned(), remembers }
}

#[cfg(feature = "cli")]
pub(super) fn dial_back(host: &str, port: u16, nonce: &[u8]) -> DialBackRequest {
    let nonce = nonce.to_vec().into();
    DialBackRequest { host: host.to_owned(), port: port.into(), nonce }
}

pub(super) fn watch_progress() -> pb::WatchRequest {
    let progress = pb::WatchProgressRequest {};
    let request_union = Some(pb::watch_request::RequestUnion::ProgressRequest(progress));
    pb::WatchRequest { request_union }
}

/// A watch stream: requests one way, responses the other.
pub(super) struct WatchStream {
    requests: mpsc::Sender<pb::WatchRequest>,
    pub(super) responses: Stream<pb::WatchResponse>,
}

impl WatchStream {
    /// Opens a stream with these requests already in it.
    pub(super) async fn open(
        client: &Client,
        requests: Vec<pb::WatchRequest>,
        bound: Instant,
    ) -> Result<Self, StreamFailed> {
        // The capacity covers later progress requests, which are dropped rather than awaited.
        let (sender, receiver) = mpsc::channel(requests.len() + 4);
        for request in requests {
            // The channel has capacity for all of them, and its receiver exists.
            let _ = sender.try_send(request);
        }
        let responses = client
            .open("watch", receiver, (bound, PATIENCE), |channel, requests| async move {
                let mut client = WatchClient::new(channel).max_decoding_message_size(MAX_MESSAGE);
                client.watch(requests).await
            })
            .await?;
        Ok(Self { requests: sender, responses })
    }

    /// Sends `request` if the stream takes it now.
    pub(super) fn try_send(&self, request: pb::WatchRequest) {
        let _ = self.requests.try_send(request);
    }
}

/// The answer to the renewal of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RenewalAnswer {
    /// The lease lives for this number of seconds from now on.
    Renewed {
        /// The time to live.
        seconds: i64,
    },
    /// The lease exists and was not renewed: the server may not renew leases at present.
    Withheld,
    /// There is no such lease.
    Unknown,
}

/// A stream that keeps one lease alive.
pub(crate) struct KeepAliveStream {
    id: i64,
    requests: mpsc::Sender<pb::LeaseKeepAliveRequest>,
    responses: Stream<pb::LeaseKeepAliveResponse>,
}

impl KeepAliveStream {
    /// Opens a stream for the lease `id`, which starts with a renewal.
    pub(crate) async fn open(
        client: &Client,
        id: i64,
        bound: Instant,
    ) -> Result<Self, StreamFailed> {
        let (sender, receiver) = mpsc::channel(4);
        let _ = sender.try_send(pb::LeaseKeepAliveRequest { id });
        let send =
            |channel, requests| async move { lease(channel).lease_keep_alive(requests).await };
        let responses =
            client.open("lease keep-alive", receiver, (bound, PATIENCE_FOR_RENEWALS), send).await?;
        Ok(Self { id, requests: sender, responses })
    }

    /// Sends a renewal. If the channel is full it is not sent, which shows when no answer comes.
    pub(crate) fn renew(&self) {
        let _ = self.requests.try_send(pb::LeaseKeepAliveRequest { id: self.id });
    }

    /// Waits for the answer to the oldest unanswered renewal. Cancel-safe.
    pub(crate) async fn answer(&mut self) -> Result<RenewalAnswer, StreamFailed> {
        let pb::LeaseKeepAliveResponse { ttl, withheld, .. } = self.responses.answer().await?;
        Ok(match ttl {
            ..=0 => RenewalAnswer::Unknown,
            _ if withheld => RenewalAnswer::Withheld,
            seconds => RenewalAnswer::Renewed { seconds },
        })
    }

    /// Waits until the stream ends, without a pending renewal. Cancel-safe.
    pub(crate) async fn ended(&mut self) -> StreamFailed {
        loop {
            if let Err(failed) = self.responses.next().await {
                return failed;
            }
        }
    }

    /// Abandons the endpoint, which has not answered for `patience`.
    pub(crate) fn abandon(self, patience: Duration) -> StreamFailed {
        self.responses.unanswered(patience)
    }

    pub(crate) fn endpoint(&self) -> &str {
        self.responses.endpoint()
    }
}
