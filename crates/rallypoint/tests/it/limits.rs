//! Limits: a client that exceeds one is told so, other clients go on, and what is given back can be had
//! again.

use std::time::Duration;

use rallypoint::proto::etcd as pb;
use tonic::Code;

use crate::support::hostile::{Target, Watching, eventually, greet, ping};
use crate::support::wire;

#[tokio::test]
async fn one_connection_too_many_is_told_why() {
    let mut server = Target::start(&["--max-connections", "5"]).await;
    let mut held = Vec::new();
    for _ in 0..5 {
        let mut stream = server.connect().await;
        greet(&mut stream).await.unwrap();
        held.push(stream);
    }
    for _ in 0..20 {
        let refusal = greet(&mut server.connect().await).await.unwrap_err();
        assert_eq!(refusal, "5 connections are open, which is the limit");
    }
    let read = || pb::RangeRequest { key: "k".into(), ..Default::default() };
    wire::kv(&server.endpoint()).range(read()).await.unwrap_err();

    for stream in &mut held {
        ping(stream).await.unwrap();
    }
    held.pop();
    eventually("there is room again", Duration::from_secs(5), async || {
        wire::kv(&server.endpoint()).range(read()).await.is_ok()
    })
    .await;
    server.assert_unharmed();
}

#[tokio::test]
async fn one_watch_too_many_is_refused_and_a_lost_client_frees_its_own() {
    let server = Target::start(&["--max-watches", "3"]).await;
    let proxy = crate::support::Proxy::start(server.endpoint()).await;
    // First a client that says goodbye, then one whose connection is cut.
    for round in 0..2 {
        let mut watching = Watching::open(&proxy.endpoint()).await;
        for _ in 0..3 {
            let create = || pb::WatchCreateRequest { key: "k".into(), ..Default::default() };
            eventually("the watches of others are gone", Duration::from_secs(5), async || {
                watching.create(create()).await;
                !watching.next().await.canceled
            })
            .await;
        }
        watching.create(pb::WatchCreateRequest { key: "k".into(), ..Default::default() }).await;
        let refused = watching.next().await;
        assert!(refused.created && refused.canceled && refused.watch_id == -1, "{refused:?}");
        let reason = "rallypoint: 3 watches exist, which is the limit (max-watches)";
        assert_eq!(refused.cancel_reason, reason);
        // Those within the limit work.
        let put = pb::PutRequest { key: "k".into(), ..Default::default() };
        wire::kv(&server.endpoint()).put(put).await.unwrap();
        for _ in 0..3 {
            assert_eq!(watching.next().await.events.len(), 1);
        }
        if round == 1 {
            proxy.sever();
            watching.assert_over().await;
        }
    }
    let mut watching = Watching::open(&server.endpoint()).await;
    for _ in 0..3 {
        eventually("the watches of others are gone", Duration::from_secs(5), async || {
            watching.create(pb::WatchCreateRequest { key: "k".into(), ..Default::default() }).await;
            !watching.next().await.canceled
        })
        .await;
    }
}

#[tokio::test]
async fn one_lease_too_many_is_refused() {
    let server = Target::start(&["--max-leases", "2"]).await;
    let mut client = pb::lease_client::LeaseClient::new(wire::channel(&server.endpoint()));
    let grant = |id| pb::LeaseGrantRequest { ttl: 60, id };
    client.lease_grant(grant(1)).await.unwrap();
    client.lease_grant(grant(2)).await.unwrap();
    for id in [0, 3] {
        let refused = client.lease_grant(grant(id)).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
        assert!(refused.message().contains("max-leases"), "{refused:?}");
    }
    client.lease_revoke(pb::LeaseRevokeRequest { id: 1 }).await.unwrap();
    client.lease_grant(grant(3)).await.unwrap();
}

#[tokio::test]
async fn memory_for_keys_is_bounded() {
    let mut server = Target::start(&["--max-bytes", "20000000", "--keep-revisions", "0"]).await;
    let mut kv = wire::kv(&server.endpoint());
    let value: bytes::Bytes = vec![7; 1 << 20].into();
    let mut put = async |key: String| {
        let request =
            pb::PutRequest { key: key.into(), value: value.clone(), ..Default::default() };
        kv.put(request).await
    };
    let mut last = 0;
    let refused = loop {
        match put("k".into()).await {
            Ok(answer) => last = answer.into_inner().header.unwrap().revision,
            Err(refused) => break refused,
        }
        assert!(last < 40, "the limit does not hold");
    };
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(refused.message(), "etcdserver: mvcc: database space exceeded");
    // Compaction makes room.
    let compact = pb::CompactionRequest { revision: last, ..Default::default() };
    wire::kv(&server.endpoint()).compact(compact).await.unwrap();
    put("k".into()).await.unwrap();
    server.assert_unharmed();
}

/// It refused every put and every rendezvous, for ever, with nothing in it.
#[tokio::test]
async fn an_empty_store_whose_history_has_filled_its_space_takes_puts() {
    for disk in [&["--data-dir", "DIR/data"][..], &[]] {
        let args = [&["--max-bytes", "20000000"][..], disk].concat();
        let mut server = Target::start(&args).await;
        let mut kv = wire::kv(&server.endpoint());
        let value: bytes::Bytes = vec![7; 1 << 20].into();
        for _ in 0..60 {
            let put =
                pb::PutRequest { key: "k".into(), value: value.clone(), ..Default::default() };
            kv.put(put).await.unwrap();
            let delete = pb::DeleteRangeRequest { key: "k".into(), ..Default::default() };
            kv.delete_range(delete).await.unwrap();
        }
        server.assert_unharmed();
    }
}

#[tokio::test]
async fn large_values_leave_room_for_small_writes() {
    let mut server = Target::start(&["--max-bytes", "20000000"]).await;
    let mut kv = wire::kv(&server.endpoint());
    let put = |key: String, length| pb::PutRequest {
        key: key.into(),
        value: vec![7; length].into(),
        ..Default::default()
    };
    let mut number = 0;
    let refused = loop {
        number += 1;
        assert!(number < 40, "the limit does not hold");
        if let Err(refused) = kv.put(put(format!("large/{number}"), 1 << 20)).await {
            break refused;
        }
    };
    assert_eq!(refused.message(), "etcdserver: mvcc: database space exceeded");
    // And those who fill up what is left, to the last byte that they can have.
    for size in [500_000, 100_000, 20_000] {
        while kv.put(put(format!("large/{number}"), size)).await.is_ok() {
            number += 1;
        }
    }
    let mut leases = pb::lease_client::LeaseClient::new(wire::channel(&server.endpoint()));
    leases.lease_grant(pb::LeaseGrantRequest { ttl: 60, id: 7 }).await.unwrap();
    for number in 0..100 {
        let node = put(format!("rdzv/node/{number}"), 2 << 10);
        kv.put(pb::PutRequest { lease: 7, ..node }).await.unwrap();
    }
    leases.lease_revoke(pb::LeaseRevokeRequest { id: 7 }).await.unwrap();
    server.assert_unharmed();
}

#[tokio::test]
async fn what_is_too_large_is_refused_and_the_connection_goes_on() {
    let server = Target::start(&[]).await;
    let mut kv = wire::kv(&server.endpoint());
    let put = |length| pb::PutRequest {
        key: "k".into(),
        value: vec![7; length].into(),
        ..Default::default()
    };
    let refused = kv.put(put(1600 << 10)).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert_eq!(refused.message(), "etcdserver: request is too large");
    for length in [2 << 20, 64 << 20] {
        let refused = kv.put(put(length)).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
        let (sentence, limit) = ("grpc: received message larger than max (", " vs. 2097152)");
        let text = refused.message();
        assert!(text.starts_with(sentence) && text.ends_with(limit), "{text}");
    }
    kv.put(put(1 << 20)).await.unwrap();
}

/// A request of a megabyte that asks for 74 GB: one value, again and again.
#[tokio::test]
async fn an_answer_that_is_too_large_for_memory_is_refused() {
    use pb::request_op::Request;
    let mut server = Target::start(&[]).await;
    let mut kv = wire::kv(&server.endpoint());
    let value = vec![7; 1 << 20].into();
    kv.put(pb::PutRequest { key: "k".into(), value, ..Default::default() }).await.unwrap();
    let repeat = |request: Request| {
        let op = pb::RequestOp { request: Some(request) };
        pb::TxnRequest { success: vec![op; 42], ..Default::default() }
    };
    let range = pb::RangeRequest { key: "k".into(), ..Default::default() };
    let inner = repeat(Request::RequestTxn(repeat(Request::RequestRange(range))));
    let before = server.resident_bytes();
    let refused = kv.txn(repeat(Request::RequestTxn(inner))).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
    let sentence = "grpc: trying to send message larger than max (";
    assert!(refused.message().starts_with(sentence), "{refused:?}");
    let grown = server.resident_bytes().saturating_sub(before) >> 20;
    assert!(grown < 200, "{grown} MB for an answer that was not given");
    server.assert_unharmed();
}
