//! The defects that were found in stock PyTorch 2.15 itself.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rallypoint::core::kv::KeyRange;
use rallypoint::rendezvous::{RendezvousError, RendezvousHandler};
use rallypoint::store::StoreError;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::{
    Run, TTL, documents, enter, kill, meet, on_both, until, until_called, until_spare,
    until_waits_for,
};
use crate::support::{Embedded, Etcd, Version};

/// Stock re-uses one store, with its port and its keys, for all rounds; workers find dead peers' addresses.
#[tokio::test]
async fn d1_each_round_has_a_fresh_keyspace_and_another_port() {
    on_both(async |endpoint| {
        let run = Run::new(endpoint, "d1", 2, 2);
        let nodes = run.nodes(2).await;
        let first = meet(&nodes).await;
        let key: &[u8] = b"default_pg/0//cpu//0/0";
        first[0].store.set(key, "127.0.0.1:1".into()).await.unwrap();
        assert!(first[1].store.check(&[key]).await.unwrap(), "the group shares it");
        let second = meet(&nodes).await;
        assert!(second[0].round > first[0].round);
        for info in &second {
            assert!(!info.store.check(&[key]).await.unwrap(), "left over from round 1");
        }
        let [before, after] =
            [&first, &second].map(|infos| infos[0].bootstrap_store_info.master_port);
        assert_ne!(before, after);
        // No worker reads what a worker of the first round writes now.
        first[0].store.set(key, "too late".into()).await.unwrap();
        assert!(!second[1].store.check(&[key]).await.unwrap());
    })
    .await;
}

/// Stock's survivors keep the address of a rank 0 that is gone, unless they become rank 0 themselves.
#[tokio::test]
async fn d2_master_addr_follows_rank_0_for_every_survivor() {
    on_both(async |endpoint| {
        let run = Run::new(endpoint, "d2", 2, 3);
        let mut nodes = Vec::new();
        for number in 1..=3 {
            let address = format!("127.0.0.{number}");
            let node = run.node_with(|options| options.local_addr = Some(address)).await;
            nodes.push(node);
        }
        let first = meet(&nodes).await;
        let leader = first.iter().position(|info| info.rank == 0).unwrap();
        let address = |node: usize| format!("127.0.0.{}", node + 1);
        assert_eq!(first[0].bootstrap_store_info.master_addr, address(leader));
        kill(nodes.remove(leader));
        for survivor in &nodes {
            until_called(survivor).await;
        }
        let second = meet(&nodes).await;
        let now = second.iter().position(|info| info.rank == 0).unwrap();
        let now = if now < leader { now } else { now + 1 };
        for info in &second {
            assert_eq!(info.bootstrap_store_info.master_addr, address(now), "{second:?}");
        }
    })
    .await;
}

/// Stock's launcher crashes with an `AttributeError` when a redundant node is told to go.
#[tokio::test]
async fn d3_a_spare_leaves_with_graceful_exit() {
    on_both(async |endpoint| {
        let run = Run::new(endpoint, "d3", 1, 1);
        let [member, spare] = [run.node().await, run.node().await];
        meet([&member]).await;
        let meeting = enter(&spare);
        until_spare(&spare).await;
        assert!(member.shutdown().await);
        let error = meeting.await.unwrap().unwrap_err();
        assert!(matches!(error, RendezvousError::GracefulExit { .. }), "{error:?}");
        assert!(spare.shutdown().await);
    })
    .await;
}

/// Stock: Ctrl-C during the first rendezvous closes the job for everybody.
#[tokio::test]
async fn d4_giving_up_during_the_first_rendezvous_leaves_the_job_open() {
    on_both(async |endpoint| {
        let run = Run::new(endpoint, "d4", 3, 3);
        let nodes = run.nodes(5).await;
        // The first coordinates the round, and the second is in it.
        let meetings = [enter(&nodes[0]), enter(&nodes[1])];
        let round = until(&nodes[0], |status| status.view.round == 1);
        timeout(super::SOON, round).await.unwrap();
        for (meeting, node) in meetings.into_iter().zip(&nodes) {
            meeting.abort();
            assert!(meeting.await.unwrap_err().is_cancelled());
            assert!(node.shutdown().await);
        }
        let met = meet(&nodes[2..]).await;
        assert_eq!(met.len(), 3);
        for node in &nodes {
            assert!(!node.is_closed().await.unwrap());
        }
    })
    .await;
}

/// Who gives up may try again at once: the wish that was dropped is not held against the node.
#[tokio::test]
async fn d4_who_gave_up_may_enter_again_at_once() {
    let server = Embedded::memory().await;
    let run = Run::new(server.endpoint(), "d4", 2, 2);
    let [hasty, other] = [run.node().await, run.node().await];
    for _ in 0..20 {
        let gave_up = timeout(Duration::from_millis(5), hasty.next_rendezvous()).await;
        assert!(gave_up.is_err(), "{gave_up:?}");
    }
    let met = meet([&hasty, &other]).await;
    assert_eq!(met.len(), 2);
}

fn numbers_and_texts(value: &Value, numbers: &mut Vec<f64>, texts: &mut Vec<String>) {
    match value {
        Value::Number(number) => numbers.extend(number.as_f64()),
        Value::String(text) => texts.push(text.clone()),
        Value::Array(values) => {
            values.iter().for_each(|value| numbers_and_texts(value, numbers, texts));
        }
        Value::Object(fields) => {
            fields.values().for_each(|value| numbers_and_texts(value, numbers, texts));
        }
        Value::Null | Value::Bool(_) => {}
    }
}

/// Stock compares each node's wall clock with others'; when they differ, live nodes look dead. The same
/// cost others days (awsome-distributed-ai 180).
#[tokio::test]
async fn d6_awsome_180_no_document_holds_a_time_to_decide_by() {
    let server = Embedded::memory().await;
    let run = Run::new(server.endpoint(), "d6", 1, 2);
    let nodes = run.nodes(2).await;
    meet(&nodes).await;
    let [spare, joining] = [run.node().await, run.node().await];
    let _meeting = enter(&spare);
    until_spare(&spare).await;
    let late = Run::new(server.endpoint(), "d6-joining", 2, 2);
    let joins = late.node().await;
    let _joining = enter(&joins);
    until_waits_for(&joins, "1 of 2 nodes").await;
    joining.set_closed("for the document").await.unwrap();

    let mut found = documents(&nodes[0]).await;
    found.extend(documents(&joins).await);
    // The events of a run say when they happened, for people. No node reads them.
    let events = [nodes[0].keys().events(), joins.keys().events()];
    found.retain(|kv| !events.iter().any(|range| range.contains(&kv.key)));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    let (mut numbers, mut texts) = (Vec::new(), Vec::new());
    for kv in found.iter().filter(|kv| !kv.value.is_empty()) {
        let mut value: Value = serde_json::from_slice(&kv.value).unwrap();
        // These are for people too. Their type, `DisplayTime`, has no order by which a node could decide.
        if let Some(fields) = value.as_object_mut() {
            fields.retain(|name, _| !["joined", "since", "started"].contains(&name.as_str()));
        }
        numbers_and_texts(&value, &mut numbers, &mut texts);
    }
    assert!(numbers.len() > 20 && texts.len() > 10, "there is something to look at");
    for unit in [1.0, 1e3, 1e6, 1e9] {
        // Ten years around now, in any usual unit.
        let moments = (now - 1.5e8) * unit..(now + 1.5e8) * unit;
        assert!(!numbers.iter().any(|number| moments.contains(number)), "{numbers:?}");
    }
    let dated = |text: &String| text.contains("20") && text.matches(':').count() >= 2;
    assert!(!texts.iter().any(dated), "{texts:?}");
}

/// Stock rewrites the whole shared state with each heartbeat of each node.
#[tokio::test]
async fn d7_an_idle_group_writes_nothing() {
    on_both(async |endpoint| {
        let run = Run::new(endpoint, "d7", 3, 3);
        let nodes = run.nodes(3).await;
        meet(&nodes).await;
        let spare = run.node().await;
        let _meeting = enter(&spare);
        until_spare(&spare).await;
        let anything = KeyRange::key("nothing");
        let revision = async || nodes[0].client().range(anything.clone()).await.unwrap().revision;
        // The coordinator sweeps earlier rounds when it has formed a group; here there are none.
        let before = revision().await;
        sleep(TTL * 3).await;
        assert_eq!(revision().await, before, "somebody wrote");
        for node in &nodes {
            assert_eq!(node.num_nodes_waiting().await.unwrap(), 0);
            assert_eq!(node.status().fenced, None);
        }
    })
    .await;
}

/// Stock's `etcd-v2` leaves the keys of its stores for ever, and a run of the same name meets them.
#[tokio::test]
async fn d10_a_run_id_that_is_used_again_meets_nothing_of_the_old_run() {
    on_both(async |endpoint| {
        let run = Run::new(endpoint, "d10", 2, 2);
        let old = run.nodes(2).await;
        let met = meet(&old).await;
        met[0].store.set(b"MASTER_ADDR", "old".into()).await.unwrap();
        met[0].store.add(b"barrier", 2).await.unwrap();
        old[0].store_extra_data(met[0].round, "dashboard", "old").await.unwrap();
        let spare = run.node().await;
        let meeting = enter(&spare);
        until_spare(&spare).await;
        let unleased: Vec<_> =
            documents(&old[0]).await.into_iter().filter(|kv| kv.lease == 0).collect();
        assert!(unleased.is_empty(), "{unleased:?}");
        meeting.abort();
        let client = old[0].client().clone();
        let (keys, lease) = (old[0].keys().clone(), old[0].keys().run_lease());
        for node in old.iter().chain([&spare]) {
            node.leave().await;
        }
        let leases: BTreeSet<i64> = client.leases().await.unwrap().into_iter().collect();
        assert_eq!(leases, [lease].into(), "nodes that left leave no lease");

        // While the run's lease still lives …
        let again = run.nodes(2).await;
        let met = meet(&again).await;
        assert!(met[0].round > 1, "a round of its own");
        for key in ["MASTER_ADDR", "barrier"] {
            assert!(!met[0].store.check(&[key.as_bytes()]).await.unwrap(), "{key}");
        }
        // … and when it is gone, which takes two hours if nobody does it.
        for node in &again {
            node.leave().await;
        }
        client.lease_revoke(lease).await.unwrap();
        let left = client.range(KeyRange::prefix(keys.root().to_owned())).await.unwrap();
        assert_eq!(left.count, 0, "{left:?}");
        let third = run.nodes(2).await;
        let met = meet(&third).await;
        assert_eq!(met[0].round, 1);
        assert!(!met[0].store.check(&[b"MASTER_ADDR"]).await.unwrap());
    })
    .await;
}

/// Stock's `EtcdStore` raises `LookupError`, which is not caught, and names no key.
#[tokio::test]
async fn d11_the_time_out_of_the_store_is_its_own_error_and_names_the_keys() {
    on_both(async |endpoint| {
        let run = Run::new(endpoint, "d11", 1, 1);
        let node = run.node().await;
        let store = meet([&node]).await.remove(0).store;
        store.set(b"there", "".into()).await.unwrap();
        let wait = Duration::from_millis(200);
        let error = store.wait(&[b"there", b"rank1", b"rank2"], wait).await.unwrap_err();
        assert!(
            matches!(&error, StoreError::Timeout { missing, .. } if missing == &["rank1", "rank2"]),
            "{error:?}"
        );
        let words = "wait timeout after 200.0ms: these keys were still missing: rank1, rank2";
        assert_eq!(error.to_string(), words);
    })
    .await;
}

/// Stock's `etcd` and `etcd-v2` speak the v2 API, which is off unless it is asked for, and gone from 3.6 on.
#[tokio::test]
async fn d12_works_on_an_etcd_without_the_v2_api() {
    for version in Version::all() {
        let etcd = Etcd::start(version).await;
        let mut stream = TcpStream::connect(etcd.address()).await.unwrap();
        let request = "GET /v2/keys/ HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
        let run = Run::new(etcd.endpoint(), "d12", 2, 2);
        let nodes = run.nodes(2).await;
        meet(&nodes).await;
        let met = meet(&nodes).await;
        met[0].store.set(b"a", "1".into()).await.unwrap();
        assert_eq!(met[1].store.get(b"a").await.unwrap(), "1");
        assert!(nodes[0].shutdown().await);
        until(&nodes[1], |status| status.view.closed.is_some()).await;
    }
}
