//! What administrators ask of a server: hashes, defragmentation, alarms; and reads in parts.

use rallypoint::proto::etcd as pb;
use tonic::{Code, Request};

use crate::ask::{put, refusal, refused, refused_as, revision};
use crate::cases;
use crate::context::{Answer, Context};
use crate::differences;
use crate::harness::{Case, PASSWORD};

pub fn cases() -> Vec<Case> {
    cases![
        Shared: defragmenting_loses_nothing, an_alarm_that_is_off_is_turned_off, users_are_off,
            a_stream_in_the_wrong_order, a_stream_with_filters;
        Quiet: a_hash_is_of_what_is_there, a_hash_of_the_past, a_hash_of_the_future,
            a_hash_of_what_is_compacted, a_read_in_parts, a_limited_read_in_parts,
            a_read_in_parts_of_nothing;
        Fresh: a_hash_before_any_compaction;
        Auth: users_are_on, upkeep_is_for_users;
    ]
}

async fn hash_at(t: &Context, revision: i64) -> Answer<pb::HashKvResponse> {
    let answer = t.maintenance().hash_kv(pb::HashKvRequest { revision }).await;
    answer.map(tonic::Response::into_inner)
}

async fn hash_of_all(t: &Context) -> u32 {
    t.maintenance().hash(pb::HashRequest {}).await.unwrap().into_inner().hash
}

async fn a_hash_is_of_what_is_there(t: Context) {
    let first = t.set("a", "1").await;
    let before = hash_at(&t, 0).await.unwrap();
    assert_eq!(revision(&before.header), first);
    let whole = hash_of_all(&t).await;
    assert_eq!((hash_at(&t, 0).await.unwrap().hash, hash_of_all(&t).await), (before.hash, whole));
    t.set("a", "2").await;
    assert_ne!(hash_at(&t, 0).await.unwrap().hash, before.hash);
    assert_ne!(hash_of_all(&t).await, whole);
}

async fn a_hash_of_the_past(t: Context) {
    let first = t.set("a", "1").await;
    let before = hash_at(&t, 0).await.unwrap();
    let second = t.set("a", "2").await;
    let after = hash_at(&t, first).await.unwrap();
    assert_eq!((after.hash, revision(&after.header)), (before.hash, second));
    let named = if differences::of(t.arm).hash_has_its_revision { first } else { 0 };
    assert_eq!((before.hash_revision, after.hash_revision), (named, named));
}

async fn a_hash_of_the_future(t: Context) {
    let now = t.now().await;
    refused_as(hash_at(&t, now + 1).await, refusal::FUTURE);
}

async fn a_hash_of_what_is_compacted(t: Context) {
    let first = t.set("a", "1").await;
    let second = t.set("a", "2").await;
    t.compact(second).await.unwrap();
    refused_as(hash_at(&t, first).await, refusal::COMPACTED);
    let at = hash_at(&t, second).await;
    match differences::of(t.arm).hash_at_compaction {
        true => drop(at.unwrap()),
        false => refused_as(at, refusal::COMPACTED),
    }
    t.set("a", "3").await;
    assert_eq!(hash_at(&t, 0).await.unwrap().compact_revision, second);
}

async fn a_hash_before_any_compaction(t: Context) {
    t.set("a", "1").await;
    assert_eq!(hash_at(&t, 0).await.unwrap().compact_revision, -1);
}

async fn defragmenting_loses_nothing(t: Context) {
    t.set("a", "1").await;
    t.maintenance().defragment(pb::DefragmentRequest {}).await.unwrap();
    assert_eq!(t.pair("a").await.unwrap().value, "1");
}

async fn an_alarm_that_is_off_is_turned_off(t: Context) {
    let mut request = pb::AlarmRequest::default();
    request.set_action(pb::alarm_request::AlarmAction::Deactivate);
    request.set_alarm(pb::alarm_request::AlarmType::Nospace);
    let answer = t.maintenance().alarm(request).await.unwrap().into_inner();
    assert!(answer.alarms.is_empty(), "{answer:?}");
}

async fn auth_status(t: &Context, token: Option<&str>) -> Answer<pb::AuthStatusResponse> {
    let mut request = Request::new(pb::AuthStatusRequest {});
    if let Some(token) = token {
        request.metadata_mut().insert("token", token.parse().unwrap());
    }
    let mut client = pb::auth_client::AuthClient::new(t.channel.clone());
    client.auth_status(request).await.map(tonic::Response::into_inner)
}

async fn token(t: &Context) -> String {
    let mut client = pb::auth_client::AuthClient::new(t.channel.clone());
    let (name, password) = ("root".to_owned(), PASSWORD.to_owned());
    let request = pb::AuthenticateRequest { name, password };
    client.authenticate(request).await.unwrap().into_inner().token
}

async fn users_are_off(t: Context) {
    let answer = auth_status(&t, None).await;
    if !differences::of(t.arm).tells_whether_it_has_users {
        let message = "unknown method AuthStatus for service etcdserverpb.Auth";
        return refused(answer, Code::Unimplemented, message);
    }
    let answer = answer.unwrap();
    assert!(!answer.enabled);
    assert!(answer.auth_revision > 0);
}

async fn users_are_on(t: Context) {
    if !differences::of(t.arm).tells_whether_it_has_users {
        return;
    }
    let token = token(&t).await;
    assert!(auth_status(&t, Some(&token)).await.unwrap().enabled);
    let stranger = auth_status(&t, None).await;
    if differences::of(t.arm).tells_strangers_that_it_has_users {
        return assert!(stranger.unwrap().enabled);
    }
    refused(stranger, Code::InvalidArgument, "etcdserver: user name is empty");
}

async fn upkeep_is_for_users(t: Context) {
    let (code, words) = match differences::of(t.arm).upkeep_is_refused_as_others {
        true => (Code::InvalidArgument, "etcdserver: user name is empty"),
        false => (Code::Unknown, "auth: user name is empty"),
    };
    refused(hash_at(&t, 0).await, code, words);
    refused(t.maintenance().defragment(pb::DefragmentRequest {}).await, code, words);
}

/// The parts of an answer, if the server knows such answers.
async fn parts(t: &Context, request: pb::RangeRequest) -> Option<Vec<pb::RangeResponse>> {
    let answer = t.kv().range_stream(request).await;
    if !differences::of(t.arm).reads_in_parts {
        let message = "unknown method RangeStream for service etcdserverpb.KV";
        refused(answer.map(drop), Code::Unimplemented, message);
        return None;
    }
    let (mut stream, mut parts) = (answer.unwrap().into_inner(), Vec::new());
    while let Some(part) = stream.message().await.unwrap() {
        parts.push(part.range_response.unwrap());
    }
    Some(parts)
}

/// The parts are the whole answer, and only the last has a header.
fn whole(mut parts: Vec<pb::RangeResponse>) -> pb::RangeResponse {
    let last = parts.pop().unwrap();
    for part in &parts {
        assert_eq!((&part.header, part.count, part.more), (&None, 0, false));
    }
    let kvs = parts.into_iter().flat_map(|part| part.kvs).chain(last.kvs).collect();
    pb::RangeResponse { kvs, ..last }
}

async fn a_read_in_parts(t: Context) {
    for number in 0..40 {
        let value = vec![b'x'; 100 << 10];
        t.put(put(t.key(&format!("{number:02}")), value)).await.unwrap();
    }
    let Some(parts) = parts(&t, t.all()).await else { return };
    assert!(parts.len() > 2, "{}", parts.len());
    assert_eq!(whole(parts), t.range(t.all()).await.unwrap());
}

async fn a_limited_read_in_parts(t: Context) {
    for name in ["a", "b", "c"] {
        t.set(name, "1").await;
    }
    let request = pb::RangeRequest { limit: 2, ..t.all() };
    let Some(parts) = parts(&t, request.clone()).await else { return };
    assert_eq!(whole(parts), t.range(request).await.unwrap());
}

async fn a_read_in_parts_of_nothing(t: Context) {
    let Some(parts) = parts(&t, t.all()).await else { return };
    assert_eq!(whole(parts), t.range(t.all()).await.unwrap());
}

async fn stream_refused(t: &Context, request: pb::RangeRequest, message: &str) {
    if !differences::of(t.arm).reads_in_parts {
        return;
    }
    let answer = match t.kv().range_stream(request).await {
        Ok(stream) => stream.into_inner().message().await,
        Err(status) => Err(status),
    };
    refused(answer, Code::Unimplemented, message);
}

async fn a_stream_in_the_wrong_order(t: Context) {
    let mut request = t.all();
    request.set_sort_order(pb::range_request::SortOrder::Descend);
    stream_refused(&t, request, "RangeStream does not support custom sort orders").await;
}

async fn a_stream_with_filters(t: Context) {
    let request = pb::RangeRequest { min_mod_revision: 1, ..t.all() };
    stream_refused(&t, request, "RangeStream does not support revision filters").await;
}
