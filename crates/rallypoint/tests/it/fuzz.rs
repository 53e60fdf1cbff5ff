//! Nonsense in every form that fits through a socket. The server answers or hangs up, goes on
//! serving, and keeps nothing of it.
//!
//! RALLYPOINT_FUZZ_ROUNDS asks for more (or less) of it, RALLYPOINT_TEST_SEED for the same again.

mod messages;
mod raw;

use std::time::Duration;

use prost::Message;
use rallypoint::proto::etcd as pb;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use self::messages::Messages;
use crate::support::hostile::{PREFACE, Target, eventually, frame};
use crate::support::wire;

/// Small limits, so that what may be kept is soon kept.
const LIMITS: [&str; 8] = [
    "--keep-revisions",
    "500",
    "--max-bytes",
    "20000000",
    "--max-leases",
    "500",
    "--max-watches",
    "500",
];

/// A batch is a tenth of a second or so.
fn rounds() -> usize {
    std::env::var("RALLYPOINT_FUZZ_ROUNDS").map_or(60, |text| text.parse().unwrap())
}

#[expect(clippy::print_stdout, reason = "a failed test must say how it can be repeated")]
fn random() -> fastrand::Rng {
    let given = std::env::var("RALLYPOINT_TEST_SEED").ok();
    let seed = given.map_or_else(|| fastrand::u64(..), |text| text.parse().unwrap());
    println!("RALLYPOINT_TEST_SEED={seed}");
    fastrand::Rng::with_seed(seed)
}

/// Runs a batch again and again. After each the server must be as well as before, and in the end as
/// lean as after the first few.
async fn fuzz(mut batch: impl AsyncFnMut(&Target, &mut fastrand::Rng)) {
    let mut random = random();
    let mut server = Target::start(&LIMITS).await;
    let rounds = rounds().max(2);
    let mut plateau = 0;
    for round in 0..rounds {
        batch(&server, &mut random).await;
        assert_serves(&mut server).await;
        if round == rounds / 2 {
            plateau = server.resident_bytes();
        }
    }
    eventually("the connections are gone", Duration::from_secs(15), async || {
        server.descriptors() < 30
    })
    .await;
    let grown = server.resident_bytes().saturating_sub(plateau);
    assert!(grown < 30 << 20, "the second half took {grown} bytes more");
}

async fn assert_serves(server: &mut Target) {
    server.assert_unharmed();
    let mut kv = wire::kv(&server.endpoint());
    let read = kv.range(pb::RangeRequest { key: "k".into(), ..Default::default() });
    let answer = tokio::time::timeout(Duration::from_secs(5), read).await;
    answer.expect("no answer in 5 s").unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_bytes_on_the_port() {
    fuzz(async |server, random| {
        for _ in 0..100 {
            let mut bytes = Vec::new();
            match random.u8(..4) {
                0 => {}
                1 => bytes.extend(&PREFACE[..random.usize(..PREFACE.len())]),
                _ => bytes.extend(PREFACE),
            }
            if random.bool() {
                let noise: Vec<u8> = raw::noise(random, 3000);
                bytes.extend(noise);
            } else {
                // Frames that look like some, with settings in front as there should be.
                bytes.extend(frame(4, 0, 0, b""));
                for _ in 0..random.u8(..20) {
                    let payload = raw::noise(random, 100);
                    let kind = random.u8(..12);
                    bytes.extend(frame(kind, random.u8(..), random.u32(..9), &payload));
                }
            }
            let mut stream = server.connect().await;
            // It may have seen enough before we are done.
            let _ = stream.write_all(&bytes).await;
            let mut answer = [0; 1024];
            let read = stream.read(&mut answer);
            let _ = tokio::time::timeout(Duration::from_millis(1), read).await;
            if random.bool() {
                let _ = stream.set_zero_linger();
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_body_on_any_path() {
    fuzz(async |server, random| {
        let channel = wire::channel(&server.endpoint());
        for _ in 0..400 {
            let path = random.choice(raw::PATHS).unwrap();
            let body = match random.u8(..3) {
                0 => raw::noise(random, 300),
                _ => {
                    let whole = Messages(random).encoded(path);
                    raw::mutate(random, whole)
                }
            };
            let as_stream = raw::is_stream(path) || random.bool();
            let _ = raw::call(&channel, path, body.into(), as_stream).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_message_on_its_path() {
    fuzz(async |server, random| {
        let channel = wire::channel(&server.endpoint());
        for _ in 0..400 {
            let path = random.choice(raw::PATHS).unwrap();
            let body = Messages(random).encoded(path);
            let _ = raw::call(&channel, path, body.into(), raw::is_stream(path)).await;
        }
    })
    .await;
}

/// Wraps a field of bytes around bytes.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    prost::encoding::encode_varint(content.len() as u64, &mut bytes);
    bytes.extend(content);
    bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_in_transactions_do_not_overflow_the_stack() {
    let mut server = Target::start(&[]).await;
    let channel = wire::channel(&server.endpoint());
    let nested = |depth| {
        let mut bytes = Vec::new();
        for _ in 0..depth {
            bytes = field(2, &field(4, &bytes));
        }
        bytes
    };
    // As deep as the decoder goes, they are run.
    let shallow = nested(30);
    pb::TxnRequest::decode(&shallow[..]).unwrap();
    assert!(raw::call(&channel, "/etcdserverpb.KV/Txn", shallow.into(), false).await.is_ok());
    for depth in [60, 1000, 20_000] {
        let answer = raw::call(&channel, "/etcdserverpb.KV/Txn", nested(depth).into(), false).await;
        let refused = answer.unwrap_err();
        assert!(refused.message().contains("recursion"), "{depth} deep: {refused:?}");
        assert_serves(&mut server).await;
    }
}

/// As many writes as fit in one request, within the limit of operations, which is one of depth.
fn many_writes() -> pb::TxnRequest {
    use pb::request_op::Request;
    let mut number = 0_u32;
    let mut leaf = || {
        number += 1;
        let key = number.to_be_bytes()[1..].to_vec().into();
        Request::RequestDeleteRange(pb::DeleteRangeRequest { key, ..Default::default() })
    };
    let level = |ops: Vec<Request>| -> Request {
        let success = ops.into_iter().map(|request| pb::RequestOp { request: Some(request) });
        Request::RequestTxn(pb::TxnRequest { success: success.collect(), ..Default::default() })
    };
    let mut success = Vec::new();
    for outer in 0..42 {
        let middle = (0..42)
            .map(|_| {
                let ops = (0..42).map(|_| leaf()).map(|delete| match delete {
                    // The second half puts, and every put must be compared with every deletion.
                    Request::RequestDeleteRange(delete) if outer >= 21 => {
                        Request::RequestPut(pb::PutRequest {
                            key: delete.key,
                            ..Default::default()
                        })
                    }
                    delete => delete,
                });
                level(ops.collect())
            })
            .collect();
        success.push(pb::RequestOp { request: Some(level(middle)) });
    }
    pb::TxnRequest { success, ..Default::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_of_many_writes_does_not_delay_other_requests() {
    let mut server = Target::start(&[]).await;
    let mut kv = wire::kv(&server.endpoint());
    let large = tokio::spawn(async move { kv.txn(many_writes()).await });
    // Leases of seconds cannot be renewed while the store is at it.
    let mut other = wire::kv(&server.endpoint());
    while !large.is_finished() {
        let read = other.range(pb::RangeRequest { key: "k".into(), ..Default::default() });
        let answer = tokio::time::timeout(Duration::from_secs(2), read).await;
        answer.expect("no answer in 2 s").unwrap();
    }
    assert!(large.await.unwrap().unwrap().into_inner().succeeded);
    assert_serves(&mut server).await;
}
