//! Users, passwords and tokens.

use pb::auth_client::AuthClient;
use rallypoint::proto::etcd as pb;
use tonic::{Code, Request, Status};

use crate::ask::{always, del, get, op_get, put, refused};
use crate::cases;
use crate::context::{Context, WatchStream};
use crate::differences;
use crate::harness::{Case, PASSWORD};

pub fn cases() -> Vec<Case> {
    cases![
        Shared: it_is_off, a_bad_token_while_it_is_off;
        Auth: without_a_token, with_a_bad_token, with_a_wrong_password, with_an_unknown_user,
            with_a_token, with_the_other_name_of_a_token, two_tokens, watching_with_a_token,
            watching_without_a_token, watching_with_a_bad_token, leases_with_a_token,
            status_without_a_token, members_need_no_token;
    ]
}

const BAD_TOKEN: &str = "etcdserver: invalid auth token";
const NO_USER: &str = "etcdserver: user name is empty";
const WRONG: &str = "etcdserver: authentication failed, invalid user ID or password";

async fn authenticate(t: &Context, name: &str, password: &str) -> Result<String, Status> {
    let request = pb::AuthenticateRequest { name: name.into(), password: password.into() };
    let answer = AuthClient::new(t.channel.clone()).authenticate(request).await?.into_inner();
    assert!(!answer.token.is_empty());
    assert!(answer.header.is_some());
    Ok(answer.token)
}

fn with<T>(message: T, name: &'static str, token: &str) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert(name, token.parse().unwrap());
    request
}

async fn it_is_off(t: Context) {
    let message = "etcdserver: authentication is not enabled";
    let answer = authenticate(&t, "root", PASSWORD).await;
    refused(answer, Code::FailedPrecondition, message);
}

async fn a_bad_token_while_it_is_off(t: Context) {
    if !differences::of(t.arm).checks_tokens_while_off {
        t.kv().put(with(put(t.key("a"), "1"), "token", "nonsense")).await.unwrap();
        return;
    }
    let answer = t.kv().put(with(put(t.key("a"), "1"), "token", "nonsense")).await;
    refused(answer, Code::Unauthenticated, BAD_TOKEN);
    let answer = t.kv().range(with(get(t.key("a")), "token", "nonsense")).await;
    refused(answer, Code::Unauthenticated, BAD_TOKEN);
}

async fn without_a_token(t: Context) {
    let key = || t.key("a");
    refused(t.range(get(key())).await, Code::InvalidArgument, NO_USER);
    refused(t.put(put(key(), "1")).await, Code::InvalidArgument, NO_USER);
    refused(t.delete(del(key())).await, Code::InvalidArgument, NO_USER);
    refused(t.txn(always(vec![op_get(get(key()))])).await, Code::InvalidArgument, NO_USER);
    let serializable = pb::RangeRequest { serializable: true, ..get(key()) };
    refused(t.range(serializable).await, Code::InvalidArgument, NO_USER);
}

async fn with_a_bad_token(t: Context) {
    // Not "name.number": etcd takes the number for a log index and waits until it gets there.
    for token in ["nonsense", "a.b.c", ""] {
        let answer = t.kv().range(with(get(t.key("a")), "token", token)).await;
        refused(answer, Code::Unauthenticated, BAD_TOKEN);
        let answer = t.kv().put(with(put(t.key("a"), "1"), "token", token)).await;
        refused(answer, Code::Unauthenticated, BAD_TOKEN);
    }
}

async fn with_a_wrong_password(t: Context) {
    for password in ["wrong", "", "open sesame ", "Open sesame"] {
        refused(authenticate(&t, "root", password).await, Code::InvalidArgument, WRONG);
    }
}

async fn with_an_unknown_user(t: Context) {
    refused(authenticate(&t, "nobody", PASSWORD).await, Code::InvalidArgument, WRONG);
}

async fn with_a_token(t: Context) {
    let token = authenticate(&t, "root", PASSWORD).await.unwrap();
    let mut kv = t.kv();
    kv.put(with(put(t.key("a"), "1"), "token", &token)).await.unwrap();
    let answer = kv.range(with(get(t.key("a")), "token", &token)).await.unwrap().into_inner();
    assert_eq!(answer.kvs[0].value, "1");
    let txn = always(vec![op_get(get(t.key("a")))]);
    assert!(kv.txn(with(txn, "token", &token)).await.unwrap().into_inner().succeeded);
    let gone = kv.delete_range(with(del(t.key("a")), "token", &token)).await.unwrap();
    assert_eq!(gone.into_inner().deleted, 1);
}

async fn with_the_other_name_of_a_token(t: Context) {
    let token = authenticate(&t, "root", PASSWORD).await.unwrap();
    t.kv().put(with(put(t.key("a"), "1"), "authorization", &token)).await.unwrap();
}

async fn two_tokens(t: Context) {
    let first = authenticate(&t, "root", PASSWORD).await.unwrap();
    let second = authenticate(&t, "root", PASSWORD).await.unwrap();
    assert_ne!(first, second);
    for token in [first, second] {
        t.kv().put(with(put(t.key("a"), "1"), "token", &token)).await.unwrap();
    }
}

async fn watching_with_a_token(t: Context) {
    let token = authenticate(&t, "root", PASSWORD).await.unwrap();
    let mut stream = WatchStream::open(t.channel.clone(), Some(&token));
    let created = stream.create(t.watch_of("a")).await;
    assert!(!created.canceled, "{created:?}");
    t.kv().put(with(put(t.key("a"), "1"), "token", &token)).await.unwrap();
    assert_eq!(stream.next().await.events.len(), 1);
}

/// The stream stays open, where it is opened at all; each request on it is refused by itself.
async fn watch_refused(t: &Context, mut stream: WatchStream, code: Code, reason: &str) {
    if !differences::of(t.arm).opens_streams_of_strangers {
        return refused(stream.try_next().await, code, reason);
    }
    let reason = format!("rpc error: code = {code:?} desc = {reason}");
    for watch_id in [0, 7] {
        let request = pb::WatchCreateRequest { watch_id, ..t.watch_of("a") };
        let created = stream.create(request).await;
        assert!(created.canceled, "{created:?}");
        if differences::of(t.arm).refused_watch_is_vague {
            let vague = "rpc error: code = PermissionDenied desc = etcdserver: permission denied";
            assert_eq!((created.watch_id, created.cancel_reason.as_str()), (watch_id, vague));
        } else {
            assert_eq!((created.watch_id, created.cancel_reason), (-1, reason.clone()));
        }
    }
}

async fn watching_without_a_token(t: Context) {
    let stream = t.watch_stream();
    watch_refused(&t, stream, Code::InvalidArgument, NO_USER).await;
}

async fn watching_with_a_bad_token(t: Context) {
    let stream = WatchStream::open(t.channel.clone(), Some("nonsense"));
    watch_refused(&t, stream, Code::Unauthenticated, BAD_TOKEN).await;
}

async fn leases_with_a_token(t: Context) {
    let token = authenticate(&t, "root", PASSWORD).await.unwrap();
    let mut leases = t.leases();
    let grant = pb::LeaseGrantRequest { id: 7, ttl: 60 };
    leases.lease_grant(with(grant, "token", &token)).await.unwrap();
    let request = pb::PutRequest { lease: 7, ..put(t.key("a"), "1") };
    t.kv().put(with(request, "token", &token)).await.unwrap();
    let request = pb::LeaseTimeToLiveRequest { id: 7, keys: true };
    let answer = leases.lease_time_to_live(with(request, "token", &token)).await.unwrap();
    assert_eq!(answer.into_inner().keys, [t.key("a")]);
    leases.lease_revoke(with(pb::LeaseRevokeRequest { id: 7 }, "token", &token)).await.unwrap();
    let answer = t.kv().range(with(get(t.key("a")), "token", &token)).await.unwrap();
    assert_eq!(answer.into_inner().count, 0);
}

async fn status_without_a_token(t: Context) {
    let answer = t.maintenance().status(pb::StatusRequest {}).await;
    if differences::of(t.arm).status_needs_a_token {
        return refused(answer.map(drop), Code::InvalidArgument, NO_USER);
    }
    answer.unwrap();
}

async fn members_need_no_token(t: Context) {
    if differences::of(t.arm).members_need_a_token {
        return;
    }
    let mut cluster = pb::cluster_client::ClusterClient::new(t.channel.clone());
    cluster.member_list(pb::MemberListRequest::default()).await.unwrap();
}
