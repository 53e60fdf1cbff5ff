//! What the server says of itself, and of what it does not serve.

use bytes::Bytes;
use rallypoint::proto::etcd as pb;
use tonic::{Code, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_prost::ProstCodec;

use crate::ask::{refused, revision};
use crate::cases;
use crate::context::Context;
use crate::differences;
use crate::harness::{Arm, Case};

pub fn cases() -> Vec<Case> {
    cases![
        Shared: status, status_leads_itself, status_has_a_version_that_clients_accept, members,
            members_are_reachable, members_linearizable_or_not, no_alarms, health, health_by_service,
            an_unknown_method, an_unknown_service, every_header_is_of_the_same_member,
            what_we_do_not_serve_is_refused_by_name;
        Quiet: status_has_the_current_revision, the_size_grows;
    ]
}

async fn ask_status(t: &Context) -> pb::StatusResponse {
    t.maintenance().status(pb::StatusRequest {}).await.unwrap().into_inner()
}

async fn ask_members(t: &Context, linearizable: bool) -> pb::MemberListResponse {
    let mut client = pb::cluster_client::ClusterClient::new(t.channel.clone());
    client.member_list(pb::MemberListRequest { linearizable }).await.unwrap().into_inner()
}

async fn status(t: Context) {
    t.set("a", "1").await;
    let status = ask_status(&t).await;
    assert!(status.db_size > 0 && status.db_size_in_use > 0);
    assert!(status.db_size_in_use <= status.db_size);
    assert!(status.raft_index > 0 && status.raft_applied_index > 0 && status.raft_term > 0);
    assert!(status.raft_applied_index <= status.raft_index);
    assert!(status.errors.is_empty());
    // etcd reports its quota from 3.6 on.
    assert_eq!(status.db_size_quota > 0, differences::of(t.arm).hash_has_its_revision);
    assert!(!status.is_learner);
}

async fn status_leads_itself(t: Context) {
    let status = ask_status(&t).await;
    let header = status.header.unwrap();
    assert_ne!(status.leader, 0);
    assert_eq!(status.leader, header.member_id);
    assert_eq!(status.raft_term, header.raft_term);
}

async fn status_has_a_version_that_clients_accept(t: Context) {
    let version = ask_status(&t).await.version;
    let parts: Vec<u64> = version.split('.').map(|part| part.parse().unwrap()).collect();
    assert_eq!((parts.len(), parts[0]), (3, 3), "{version}");
    assert!(parts[1] >= 4, "{version}");
    // Ours claims to be the newest of those that these cases run on.
    if t.arm.is_ours() || t.arm == Arm::Etcd36 {
        assert_eq!(parts[1], 6, "{version}");
    }
}

async fn members(t: Context) {
    let answer = ask_members(&t, true).await;
    assert_eq!(answer.members.len(), 1);
    let member = &answer.members[0];
    let header = answer.header.unwrap();
    assert_eq!(member.id, header.member_id);
    assert!(!member.name.is_empty() && !member.is_learner);
    assert!(!member.peer_urls.is_empty());
    // The list is not part of the store.
    assert_eq!(header.revision, 0);
    assert_ne!(header.cluster_id, 0);
}

async fn members_are_reachable(t: Context) {
    // Clients take the endpoints of a cluster from here.
    let member = ask_members(&t, true).await.members.remove(0);
    assert_eq!(member.client_urls, std::slice::from_ref(&t.endpoint));
}

async fn members_linearizable_or_not(t: Context) {
    assert_eq!(ask_members(&t, false).await.members, ask_members(&t, true).await.members);
}

async fn no_alarms(t: Context) {
    let request = pb::AlarmRequest::default();
    let answer = t.maintenance().alarm(request).await.unwrap().into_inner();
    assert!(answer.alarms.is_empty());
    assert_eq!(answer.header.is_some(), differences::of(t.arm).alarm_header);
}

async fn health(t: Context) {
    let mut client = HealthClient::new(t.channel.clone());
    let request = HealthCheckRequest { service: String::new() };
    let answer = client.check(request).await.unwrap().into_inner();
    assert_eq!(answer.status(), ServingStatus::Serving);
}

async fn health_by_service(t: Context) {
    let mut client = HealthClient::new(t.channel.clone());
    let request = HealthCheckRequest { service: "nobody".into() };
    assert_eq!(client.check(request).await.unwrap_err().code(), Code::NotFound);
}

/// Calls a method by its name, with a request that has no fields.
async fn call(t: &Context, path: &str) -> Result<(), Status> {
    let mut client = tonic::client::Grpc::new(t.channel.clone());
    client.ready().await.unwrap();
    let codec: ProstCodec<pb::StatusRequest, pb::StatusRequest> = ProstCodec::default();
    let path = http::uri::PathAndQuery::try_from(path).unwrap();
    client.unary(tonic::Request::new(pb::StatusRequest {}), path, codec).await.map(|_| ())
}

async fn an_unknown_method(t: Context) {
    let answer = call(&t, "/etcdserverpb.KV/Guess").await;
    let message = "unknown method Guess for service etcdserverpb.KV";
    refused(answer, Code::Unimplemented, message);
    let answer = call(&t, "/etcdserverpb.Watch/Guess").await;
    let message = "unknown method Guess for service etcdserverpb.Watch";
    refused(answer, Code::Unimplemented, message);
}

async fn an_unknown_service(t: Context) {
    let answer = call(&t, "/etcdserverpb.Nobody/Range").await;
    refused(answer, Code::Unimplemented, "unknown service etcdserverpb.Nobody");
}

async fn every_header_is_of_the_same_member(t: Context) {
    let of = |header: Option<pb::ResponseHeader>| {
        let header = header.unwrap();
        (header.cluster_id, header.member_id, header.raft_term)
    };
    let expected = of(ask_status(&t).await.header);
    let put = t.put(crate::ask::put(t.key("a"), "1")).await.unwrap();
    assert_eq!(of(put.header), expected);
    assert_eq!(of(t.range(t.all()).await.unwrap().header), expected);
    let gone = t.delete(crate::ask::del(t.key("a"))).await.unwrap();
    assert_eq!(of(gone.header), expected);
    assert_eq!(of(t.txn(pb::TxnRequest::default()).await.unwrap().header), expected);
    assert_eq!(of(t.grant(t.lease_id(), 60).await.unwrap().header), expected);
    assert_eq!(of(t.watch_stream().create(t.watch_of("a")).await.header), expected);
    assert_eq!(of(ask_members(&t, true).await.header), expected);
}

async fn what_we_do_not_serve_is_refused_by_name(t: Context) {
    if !t.arm.is_ours() {
        return; // etcd serves these.
    }
    for (service, methods) in [
        (
            "etcdserverpb.Cluster",
            &["MemberAdd", "MemberRemove", "MemberUpdate", "MemberPromote"][..],
        ),
        ("etcdserverpb.Maintenance", &["Snapshot", "MoveLeader", "Downgrade"]),
        ("etcdserverpb.Auth", &["AuthEnable", "AuthDisable", "UserAdd", "RoleAdd", "UserList"]),
        ("v3lockpb.Lock", &["Anything"]),
    ] {
        for method in methods {
            let answer = call(&t, &format!("/{service}/{method}")).await;
            let message = format!("unknown method {method} for service {service}");
            refused(answer, Code::Unimplemented, &message);
        }
    }
    let mut activate = pb::AlarmRequest::default();
    activate.set_action(pb::alarm_request::AlarmAction::Activate);
    let refusal = t.maintenance().alarm(activate).await.unwrap_err();
    assert_eq!(refusal.code(), Code::Unimplemented);
    assert!(refusal.message().contains("Alarm with action ACTIVATE is not served"), "{refusal}");
}

async fn status_has_the_current_revision(t: Context) {
    let now = t.set("a", "1").await;
    assert_eq!(revision(&ask_status(&t).await.header), now);
}

async fn the_size_grows(t: Context) {
    let before = ask_status(&t).await;
    for number in 0..4 {
        let value: Bytes = vec![number; 1 << 20].into();
        t.put(crate::ask::put(t.key("a"), value)).await.unwrap();
    }
    // etcd commits to its backend every 100 ms.
    while ask_status(&t).await.db_size_in_use < before.db_size_in_use + (3 << 20) {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}
