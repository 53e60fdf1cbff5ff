//! Watchers that do not read, and watchers that have much to read.

use std::time::Duration;

use rallypoint::proto::etcd as pb;

use crate::support::hostile::{Target, Watching};
use crate::support::wire;

const MEGABYTE: usize = 1 << 20;

fn everything(start_revision: i64) -> pb::WatchCreateRequest {
    pb::WatchCreateRequest {
        key: vec![0].into(),
        range_end: vec![0].into(),
        start_revision,
        ..Default::default()
    }
}

/// Puts `count` values of a megabyte under one key. The newest revision.
async fn put_megabytes(endpoint: &str, count: usize) -> i64 {
    let mut kv = wire::kv(endpoint);
    let value: bytes::Bytes = vec![7; MEGABYTE].into();
    let mut revision = 0;
    for _ in 0..count {
        let put = pb::PutRequest { key: "k".into(), value: value.clone(), ..Default::default() };
        revision = kv.put(put).await.unwrap().into_inner().header.unwrap().revision;
    }
    revision
}

/// Reads until the event of revision `last`, and checks that each from `first` on comes once.
async fn assert_reads_all(watching: &mut Watching, first: i64, last: i64) {
    let mut next = first;
    while next <= last {
        let response = watching.next().await;
        assert!(!response.canceled, "{response:?}");
        for event in response.events {
            assert_eq!(event.kv.unwrap().mod_revision, next);
            next += 1;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_that_never_reads_costs_next_to_nothing_and_slows_no_other() {
    let mut server = Target::start(&["--keep-revisions", "20"]).await;
    let mut idle = Vec::new();
    for _ in 0..8 {
        let mut watching = Watching::open(&server.endpoint()).await;
        watching.create(everything(0)).await;
        assert!(watching.next().await.created);
        idle.push(watching);
    }
    let mut busy = Watching::open(&server.endpoint()).await;
    busy.create(everything(0)).await;
    assert!(busy.next().await.created);
    let mut before = 0;
    for round in 0..45 {
        // The history that is kept, and what the allocator makes of it, is there with or without
        // them.
        if round == 5 {
            before = server.resident_bytes();
        }
        let last = put_megabytes(&server.endpoint(), 5).await;
        let reading = assert_reads_all(&mut busy, last - 4, last);
        tokio::time::timeout(Duration::from_secs(5), reading).await.expect("the other is slowed");
    }
    let grown = server.resident_bytes().saturating_sub(before) / MEGABYTE;
    assert!(grown < 60, "{grown} MB more after 200 MB went by");

    // A watcher that was away for too long is told so, after what it had been sent already.
    for watching in &mut idle {
        let mut next = 2;
        let over = loop {
            let response = watching.next().await;
            if response.canceled {
                break response;
            }
            for event in response.events {
                assert_eq!(event.kv.unwrap().mod_revision, next);
                next += 1;
            }
        };
        assert!(over.compact_revision > next, "{over:?}");
    }
    server.assert_unharmed();
}

#[tokio::test]
async fn a_watcher_that_reads_again_gets_everything_once() {
    let server = Target::start(&[]).await;
    let mut watching = Watching::open(&server.endpoint()).await;
    watching.create(everything(0)).await;
    assert!(watching.next().await.created);
    let last = put_megabytes(&server.endpoint(), 40).await;
    assert_reads_all(&mut watching, 2, last).await;
}

/// A stream with a backlog must hear its client: it may want to end the watch that has it.
#[tokio::test]
async fn a_watch_with_much_to_say_can_be_canceled() {
    let server = Target::start(&[]).await;
    put_megabytes(&server.endpoint(), 60).await;
    let mut watching = Watching::open(&server.endpoint()).await;
    watching.create(everything(1)).await;
    assert!(watching.next().await.created);
    watching.next().await;
    watching.cancel(0).await;
    // What was on its way already may come first; the client's buffers hold a few.
    let mut late = 0;
    while !watching.next().await.canceled {
        late += 1;
        assert!(late < 20, "a canceled watch goes on and on");
    }
}

/// Everything in one message must fit in what stock clients take, 4 MiB.
#[tokio::test]
async fn a_replay_with_previous_values_comes_in_messages_that_clients_take() {
    let server = Target::start(&[]).await;
    let mut kv = wire::kv(&server.endpoint());
    for length in [1500, 600, 1500, 600, 1500, 600, 1500, 600].map(|kilobytes| kilobytes << 10) {
        let value = vec![7; length].into();
        let put = pb::PutRequest { key: "k".into(), value, ..Default::default() };
        kv.put(put).await.unwrap();
    }
    let mut watching = Watching::open(&server.endpoint()).await;
    watching.create(pb::WatchCreateRequest { prev_kv: true, ..everything(1) }).await;
    assert!(watching.next().await.created);
    assert_reads_all(&mut watching, 2, 9).await;
}
