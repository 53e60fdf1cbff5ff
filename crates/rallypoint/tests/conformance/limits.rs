//! How much is too much.

use std::time::{Duration, Instant};

use bytes::Bytes;
use prost::Message;
use rallypoint::proto::etcd as pb;
use tonic::{Code, Status};

use crate::ask::{
    always, del, get, op_del, op_get, op_put, put, refusal, refused, refused_as, revision,
};
use crate::cases;
use crate::context::Context;
use crate::differences;
use crate::harness::{Case, QUOTA};

pub fn cases() -> Vec<Case> {
    cases![
        Shared: almost_too_large, too_large, a_transaction_that_is_too_large, far_too_large,
            far_too_large_a_transaction, a_long_key, an_answer_larger_than_any_request,
            many_requests_at_once;
        Quota: without_room_writes_are_refused, without_room_the_rest_goes_on;
    ]
}

/// What etcd lets through to its log.
const REQUEST: usize = 1 << 20 | 1 << 19;

/// What etcd's gRPC server reads at all.
const MESSAGE: usize = 2 << 20;

/// How long a server may go on taking more than it has room for.
const FILLING: Duration = Duration::from_secs(60);

async fn almost_too_large(t: Context) {
    t.put(put(t.key("a"), vec![1; REQUEST - 1024])).await.unwrap();
    assert_eq!(t.pair("a").await.unwrap().value.len(), REQUEST - 1024);
}

async fn too_large(t: Context) {
    refused_as(t.put(put(t.key("a"), vec![1; REQUEST])).await, refusal::TOO_LARGE);
    refused_as(t.put(put(t.key("a"), vec![1; MESSAGE - 1024])).await, refusal::TOO_LARGE);
    assert_eq!(t.pair("a").await, None);
}

async fn a_transaction_that_is_too_large(t: Context) {
    let ops = (0..4).map(|number| op_put(put(t.key(&format!("{number}")), vec![1; 400 << 10])));
    refused_as(t.txn(always(ops.collect())).await, refusal::TOO_LARGE);
    assert_eq!(t.range(t.all()).await.unwrap().count, 0);
}

async fn far_too_large(t: Context) {
    let request = put(t.key("a"), vec![1; MESSAGE]);
    let size = request.encoded_len();
    let message = format!("grpc: received message larger than max ({size} vs. {MESSAGE})");
    refused(t.put(request).await, Code::ResourceExhausted, &message);
    // The connection is still good.
    t.set("a", "1").await;
}

async fn far_too_large_a_transaction(t: Context) {
    let ops = (0..100).map(|number| op_put(put(t.key(&format!("{number}")), vec![1; 32 << 10])));
    let request = always(ops.collect());
    let size = request.encoded_len();
    let message = format!("grpc: received message larger than max ({size} vs. {MESSAGE})");
    refused(t.txn(request).await, Code::ResourceExhausted, &message);
}

async fn a_long_key(t: Context) {
    let key: Bytes = [t.prefix.as_bytes(), &[b'k'; 100 << 10]].concat().into();
    t.put(put(key.clone(), "1")).await.unwrap();
    let answer = t.range(t.all()).await.unwrap();
    assert_eq!(answer.kvs[0].key, key);
}

async fn an_answer_larger_than_any_request(t: Context) {
    for number in 0..6 {
        t.put(put(t.key(&format!("{number}")), vec![number; 1 << 20])).await.unwrap();
    }
    let answer = t.range(t.all()).await.unwrap();
    assert_eq!(answer.kvs.iter().map(|kv| kv.value.len()).sum::<usize>(), 6 << 20);
}

async fn many_requests_at_once(t: Context) {
    let puts = (0..1000).map(|number| {
        let (mut kv, key) = (t.kv(), t.key(&format!("{number:04}")));
        tokio::spawn(async move { kv.put(put(key, "1")).await.unwrap().into_inner() })
    });
    let mut revisions = Vec::new();
    for put in puts.collect::<Vec<_>>() {
        revisions.push(put.await.unwrap().header.unwrap().revision);
    }
    revisions.sort_unstable();
    revisions.dedup();
    assert_eq!(revisions.len(), 1000);
    let count = pb::RangeRequest { count_only: true, ..t.all() };
    assert_eq!(t.range(count).await.unwrap().count, 1000);
}

/// Writes until there is no more room. Etcd counts what it has committed to its file, a tenth of a second late or
/// more, so a quick disk takes several times the quota before the first refusal. A slow one takes so long for a write
/// that etcd does not wait for it, which says nothing of the room.
async fn fill(t: &Context) {
    let begun = Instant::now();
    for number in 0.. {
        let request = put(t.key(&format!("{number:02}")), vec![1; 1 << 20]);
        match t.put(request).await {
            Err(status) if is_late(t, &status) => {}
            Err(status) => return refused_as(Err::<(), _>(status), refusal::NO_SPACE),
            Ok(_) => {}
        }
        let written = (number + 1) << 20;
        assert!(
            begun.elapsed() < FILLING,
            "{written} bytes went into a store that has room for {QUOTA}"
        );
        if written > 2 * QUOTA {
            // More would only keep the disk busy, which is to commit what there is.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Whether a real etcd has not waited for its disk. Ours waits.
fn is_late(t: &Context, status: &Status) -> bool {
    !t.arm.is_ours()
        && status.code() == Code::Unavailable
        && status.message() == "etcdserver: request timed out"
}

async fn without_room_writes_are_refused(t: Context) {
    fill(&t).await;
    let request = put(t.key("more"), vec![1; 1 << 20]);
    refused_as(t.put(request.clone()).await, refusal::NO_SPACE);
    refused_as(t.txn(always(vec![op_put(request)])).await, refusal::NO_SPACE);
    // It waits for none of the writes that a slow disk still holds up.
    let read = pb::RangeRequest { serializable: true, ..get(t.key("more")) };
    assert_eq!(t.range(read).await.unwrap().kvs, []);
}

async fn without_room_the_rest_goes_on(t: Context) {
    fill(&t).await;
    assert!(t.range(t.all()).await.unwrap().count >= 3);
    let now = t.unset("00").await;
    let gone = always(vec![op_del(del(t.key("01")))]);
    let read = always(vec![op_get(get(t.key("02")))]);
    if differences::of(t.arm).transactions_need_room {
        // The alarm that does this goes through the log of requests, after the one that set it off.
        while t.txn(read.clone()).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        refused_as(t.txn(read).await, refusal::NO_SPACE);
        refused_as(t.txn(gone).await, refusal::NO_SPACE);
    } else {
        assert_eq!(revision(&t.txn(gone).await.unwrap().header), now + 1);
        assert!(t.txn(read).await.unwrap().succeeded);
    }
    t.compact(now).await.unwrap();
}
