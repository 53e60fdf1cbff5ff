//! Connections that do not speak as they should. Whatever comes, other clients are served.

use std::time::{Duration, Instant};

use rallypoint::proto::etcd as pb;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::hostile::{
    PREFACE, Target, eventually, frame, greet, kind, ping, request_headers,
};
use crate::support::wire;

/// How long the server waits for a greeting, with what a busy machine adds.
const PATIENCE: Duration = Duration::from_secs(14);

async fn assert_serves(server: &mut Target) {
    let put = pb::PutRequest { key: "k".into(), ..Default::default() };
    let mut kv = wire::kv(&server.endpoint());
    let answer = tokio::time::timeout(Duration::from_secs(5), kv.put(put)).await;
    answer.expect("no answer in 5 s").unwrap();
    server.assert_unharmed();
}

/// Reads until the other side is done, and tells what it said.
async fn read_to_end(stream: &mut TcpStream, patience: Duration) -> Vec<u8> {
    let mut all = Vec::new();
    let read = tokio::time::timeout(patience, stream.read_to_end(&mut all)).await;
    assert!(read.is_ok(), "the connection is still open after {patience:?}");
    all
}

#[tokio::test]
async fn garbage_ends_only_its_own_connection() {
    let mut server = Target::start(&[]).await;
    let mut random = fastrand::Rng::with_seed(7);
    for length in [1, 23, 24, 25, 100, 5000, 300_000] {
        let mut stream = server.connect().await;
        let mut bytes: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
        // At least one byte that HTTP/1 cannot take for a request either.
        bytes[0] = 0;
        // The server may be quicker to close than we are to write.
        let _ = stream.write_all(&bytes).await;
        let _ = stream.shutdown().await;
        read_to_end(&mut stream, PATIENCE).await;
    }
    assert_serves(&mut server).await;
}

#[tokio::test]
async fn a_client_that_sends_nothing_or_half_a_preface_is_disconnected() {
    let mut server = Target::start(&[]).await;
    let before = server.descriptors();
    let started = Instant::now();
    let openings: [&[u8]; 5] = [
        b"",
        b"P",
        &PREFACE[..23],
        // HTTP/1 that stops in the middle of its headers, or after an answer.
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: ",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ];
    let mut streams = Vec::new();
    for opening in openings {
        let mut stream = server.connect().await;
        stream.write_all(opening).await.unwrap();
        streams.push(stream);
    }
    let mut good = server.connect().await;
    greet(&mut good).await.unwrap();
    for (stream, opening) in streams.iter_mut().zip(openings) {
        let patience = PATIENCE.saturating_sub(started.elapsed());
        let read = tokio::time::timeout(patience, stream.read_to_end(&mut Vec::new())).await;
        assert!(read.is_ok(), "still open after {:?}", opening.escape_ascii().to_string());
    }
    assert!(started.elapsed() > Duration::from_secs(5), "that was no patience at all");
    // A connection that greeted and then has nothing to say is none of these.
    let answer = tokio::time::timeout(Duration::from_secs(5), ping(&mut good)).await;
    answer.expect("no answer in 5 s").unwrap();
    drop(good);
    eventually("all descriptors are back", PATIENCE, async || server.descriptors() <= before).await;
    assert_serves(&mut server).await;
}

#[tokio::test]
async fn a_browser_is_told_what_this_is() {
    let server = Target::start(&[]).await;
    let mut stream = server.connect().await;
    let request = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let answer = read_to_end(&mut stream, Duration::from_secs(5)).await;
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 415 "), "{answer}");
    assert!(answer.contains("It speaks etcd's v3 API over gRPC"), "{answer}");
}

/// The beginning of a Put: its headers, and less of a message than was announced.
fn half_a_request() -> Vec<u8> {
    let headers = request_headers("/etcdserverpb.KV/Put");
    let data = [&[0_u8, 0, 0, 0, 100][..], &[b'x'; 10]].concat();
    [frame(kind::HEADERS, 4, 1, &headers), frame(kind::DATA, 0, 1, &data)].concat()
}

#[tokio::test]
async fn a_connection_reset_in_a_request_leaves_nothing_behind() {
    let mut server = Target::start(&[]).await;
    assert_serves(&mut server).await;
    let before = server.descriptors();
    for _ in 0..50 {
        let mut stream = server.connect().await;
        greet(&mut stream).await.unwrap();
        stream.write_all(&half_a_request()).await.unwrap();
        stream.set_zero_linger().unwrap();
    }
    eventually("all descriptors are back", Duration::from_secs(5), async || {
        server.descriptors() <= before
    })
    .await;
    assert_serves(&mut server).await;
    let all = pb::RangeRequest { key: "x".into(), ..Default::default() };
    let found = wire::kv(&server.endpoint()).range(all).await.unwrap().into_inner();
    assert_eq!(found.count, 0, "half a request was taken for a whole one");
}

#[tokio::test]
async fn a_thousand_connections_come_and_go() {
    let mut server = Target::start(&[]).await;
    assert_serves(&mut server).await;
    let before = server.descriptors();
    let mut open = Vec::new();
    for number in 0..1000 {
        let mut stream = server.connect().await;
        match number % 4 {
            0 => {}
            1 => stream.write_all(&PREFACE[..12]).await.unwrap(),
            2 => stream.write_all(PREFACE).await.unwrap(),
            _ => greet(&mut stream).await.unwrap(),
        }
        open.push(stream);
        if number % 3 == 0 {
            open.swap_remove(open.len() / 2);
        }
    }
    assert_serves(&mut server).await;
    drop(open);
    eventually("all descriptors are back", Duration::from_secs(5), async || {
        server.descriptors() <= before
    })
    .await;
    assert_serves(&mut server).await;
}

#[tokio::test]
async fn headers_without_end_are_cut_short() {
    let mut server = Target::start(&[]).await;
    let mut kv = wire::kv(&server.endpoint());
    kv.range(pb::RangeRequest { key: "k".into(), ..Default::default() }).await.unwrap();
    let before = server.resident_bytes();

    // Large ones, from a client that is honest about them.
    let mut request =
        tonic::Request::new(pb::RangeRequest { key: "k".into(), ..Default::default() });
    request.metadata_mut().insert("huge", "x".repeat(1 << 20).parse().unwrap());
    let mut other = wire::kv(&server.endpoint());
    let answer = tokio::time::timeout(Duration::from_secs(5), other.range(request)).await;
    answer.expect("no answer in 5 s").unwrap_err();

    // Ones that never end.
    let mut stream = server.connect().await;
    greet(&mut stream).await.unwrap();
    stream.write_all(&frame(kind::HEADERS, 0, 1, &request_headers("/a/b"))).await.unwrap();
    let more = [&[0_u8, 1, b'a', 0x7f, 0x81, 0x7f][..], &[b'x'; 16_000]].concat();
    let started = Instant::now();
    while stream.write_all(&frame(kind::CONTINUATION, 0, 1, &more)).await.is_ok() {
        assert!(started.elapsed() < Duration::from_secs(5), "it takes headers for ever");
    }
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes for headers");

    // The connection that was there before has noticed nothing.
    kv.range(pb::RangeRequest { key: "k".into(), ..Default::default() }).await.unwrap();
    assert_serves(&mut server).await;
}
