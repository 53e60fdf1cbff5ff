//! SIGTERM: requests under way are finished, waiting clients are told, and no client can delay the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use rallypoint::proto::etcd as pb;
use rustix::process::Signal;
use tokio::io::AsyncWriteExt;
use tonic::Code;

use crate::support::hostile::{
    PREFACE, Target, Watching, frame, greet, kind, ping, request_headers,
};
use crate::support::process::Directory;
use crate::support::wire;

/// The server's own limit, and what a busy machine adds.
const DRAIN: Duration = Duration::from_secs(5 + 3);

fn put(key: &str) -> pb::PutRequest {
    pb::PutRequest { key: key.to_owned().into(), ..Default::default() }
}

#[tokio::test]
async fn watches_and_keep_alives_are_told_and_the_server_leaves_at_once() {
    let mut server = Target::start(&[]).await;
    let mut watching = Watching::open(&server.endpoint()).await;
    watching.create(pb::WatchCreateRequest { key: "k".into(), ..Default::default() }).await;
    assert!(watching.next().await.created);
    let mut leases = pb::lease_client::LeaseClient::new(wire::channel(&server.endpoint()));
    leases.lease_grant(pb::LeaseGrantRequest { ttl: 60, id: 7 }).await.unwrap();
    let renewal = futures_util::stream::iter([pb::LeaseKeepAliveRequest { id: 7 }]);
    let renewals = futures_util::StreamExt::chain(renewal, futures_util::stream::pending());
    let mut renewed = leases.lease_keep_alive(renewals).await.unwrap().into_inner();
    assert_eq!(renewed.message().await.unwrap().unwrap().ttl, 60);
    // Connections with nothing under way must not hold it up either.
    let mut idle = wire::kv(&server.endpoint());
    idle.put(put("k")).await.unwrap();
    assert_eq!(watching.next().await.events.len(), 1);

    let asked = Instant::now();
    server.signal(Signal::TERM);
    let told = watching.assert_over().await;
    assert_eq!((told.code(), told.message()), (Code::Unavailable, "etcdserver: server stopped"));
    let told = renewed.message().await.unwrap_err();
    assert_eq!((told.code(), told.message()), (Code::Unavailable, "etcdserver: server stopped"));
    let status = server.ended(Duration::from_secs(3)).await;
    assert_eq!(status.code(), Some(0), "{}", server.output());
    assert!(asked.elapsed() < Duration::from_secs(3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_under_way_are_finished_and_the_directory_can_be_used_again() {
    let args = ["--data-dir", "DIR/data"];
    let mut directory = Directory::new();
    let mut expected = 0;
    for _ in 0..5 {
        let mut server = Target::start_in(directory, "", &args).await;
        let highest = Arc::new(AtomicI64::new(0));
        let writers: Vec<_> = (0..8)
            .map(|writer| {
                let (mut kv, highest) = (wire::kv(&server.endpoint()), highest.clone());
                tokio::spawn(async move {
                    loop {
                        match kv.put(put(&format!("k{writer}"))).await {
                            Ok(answer) => {
                                let revision = answer.into_inner().header.unwrap().revision;
                                highest.fetch_max(revision, Ordering::SeqCst);
                            }
                            Err(status) => return status,
                        }
                    }
                })
            })
            .collect();
        while highest.load(Ordering::SeqCst) < expected + 200 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        server.signal(Signal::TERM);
        let status = server.ended(Duration::from_secs(3)).await;
        assert_eq!(status.code(), Some(0), "{}", server.output());
        for writer in writers {
            let refused = writer.await.unwrap();
            // Refused, or never sent. Cut off in the middle would be Unknown: nobody could say
            // whether it happened.
            let clean = [Code::Unavailable, Code::Cancelled].contains(&refused.code());
            // The farewell was read before the request was sent: the client has no better code for that.
            let too_late = format!("{refused:?}").contains("GoAway(b\"\", NO_ERROR, Remote)");
            assert!(clean || too_late, "{refused:?}");
        }
        expected = highest.load(Ordering::SeqCst);
        directory = server.into_directory();
        let again = Target::start_in(directory, "", &args).await;
        let all = pb::RangeRequest { key: "k0".into(), ..Default::default() };
        let answer = wire::kv(&again.endpoint()).range(all).await.unwrap().into_inner();
        assert_eq!(answer.header.unwrap().revision, expected, "more or less than acknowledged");
        directory = again.into_directory();
    }
}

#[tokio::test]
async fn clients_that_hang_cannot_hold_it_up() {
    let mut server = Target::start(&[]).await;
    // One that says nothing, one that says half a greeting, one in the middle of a request, one in
    // the middle of its headers, one that never reads what it is sent.
    let silent = server.connect().await;
    let mut half = server.connect().await;
    half.write_all(&PREFACE[..20]).await.unwrap();
    let mut middle = server.connect().await;
    greet(&mut middle).await.unwrap();
    let headers = request_headers("/etcdserverpb.KV/Put");
    let data = [0, 0, 0, 0, 100, 1, 2, 3];
    let request = [frame(kind::HEADERS, 4, 1, &headers), frame(kind::DATA, 0, 1, &data)].concat();
    middle.write_all(&request).await.unwrap();
    let mut unended = server.connect().await;
    greet(&mut unended).await.unwrap();
    unended.write_all(&frame(kind::HEADERS, 0, 1, &headers)).await.unwrap();
    let mut kv = wire::kv(&server.endpoint());
    let value: bytes::Bytes = vec![7; 1 << 20].into();
    for _ in 0..20 {
        kv.put(pb::PutRequest { value: value.clone(), ..put("k") }).await.unwrap();
    }
    let mut deaf = Watching::open(&server.endpoint()).await;
    let create =
        pb::WatchCreateRequest { key: "k".into(), start_revision: 1, ..Default::default() };
    deaf.create(create).await;
    assert!(deaf.next().await.created);

    server.signal(Signal::TERM);
    let status = server.ended(DRAIN).await;
    assert_eq!(status.code(), Some(0), "{}", server.output());
    drop((silent, half, middle, unended, deaf));
}

#[tokio::test]
async fn a_second_signal_ends_the_drain() {
    let mut server = Target::start(&[]).await;
    let mut middle = server.connect().await;
    greet(&mut middle).await.unwrap();
    let headers = request_headers("/etcdserverpb.KV/Put");
    middle.write_all(&frame(kind::HEADERS, 4, 1, &headers)).await.unwrap();
    // Once a ping is answered, what was sent before it has been taken note of.
    ping(&mut middle).await.unwrap();
    server.signal(Signal::TERM);
    let waiting = Instant::now();
    while !server.output().contains("stopping") {
        assert!(waiting.elapsed() < Duration::from_secs(3), "{}", server.output());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    server.signal(Signal::TERM);
    let status = server.ended(Duration::from_secs(2)).await;
    assert_eq!(status.code(), Some(143), "{}", server.output());
}
