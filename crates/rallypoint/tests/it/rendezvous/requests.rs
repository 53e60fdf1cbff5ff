//! What a group costs: a constant number of requests for each node, however many nodes there are.

use rallypoint::client::Traffic;
use rallypoint::core::kv::{KeyRange, Put, Range, Txn};
use rallypoint::rendezvous::RendezvousHandler;
use tokio::task::JoinSet;

use super::handlers::{handler, meet, met, options};
use super::{Observer, bounded};
use crate::support::{Embedded, Etcd, Version};

/// What a round cost its nodes.
#[derive(Debug, Default)]
struct Cost {
    /// For each node, on average.
    requests: f64,
    messages: f64,
    /// The most that a node had to hear which did not coordinate.
    most_requests: u64,
    most_messages: u64,
    most_received: u64,
}

/// Forms a group of `count` nodes twice, first from nothing and then from the nodes of the first.
async fn form(endpoint: &str, count: usize) -> [Cost; 2] {
    let mut opening = JoinSet::new();
    for _ in 0..count {
        let endpoint = endpoint.to_owned();
        opening.spawn(async move { handler(&endpoint, options(count, count)).await });
    }
    let handlers = opening.join_all().await;
    let observer = Observer::new(endpoint).await;
    let mut costs = Vec::new();
    for _ in 0..2 {
        let before: Vec<Traffic> = handlers.iter().map(|node| node.client().traffic()).collect();
        for meeting in handlers.iter().map(meet).collect::<Vec<_>>() {
            assert_eq!(met(meeting).await.world_size as usize, count);
        }
        let coordinator = observer.active().await.unwrap().coordinator.id;
        let mut cost = Cost::default();
        for (node, before) in handlers.iter().zip(before) {
            let after = node.client().traffic();
            let (requests, messages) =
                (after.requests - before.requests, after.messages - before.messages);
            cost.requests += requests as f64 / count as f64;
            cost.messages += messages as f64 / count as f64;
            if node.node_id() != coordinator {
                let received = after.bytes_received - before.bytes_received;
                cost.most_requests = cost.most_requests.max(requests);
                cost.most_messages = cost.most_messages.max(messages);
                cost.most_received = cost.most_received.max(received);
            }
        }
        costs.push(cost);
    }
    for node in &handlers {
        node.leave().await;
    }
    // The next group has other limits, and may have them once this one is over.
    handlers[0].set_closed("measured").await.unwrap();
    assert!(handlers[0].reopen().await.unwrap());
    costs.try_into().unwrap_or_else(|_| unreachable!("two rounds"))
}

/// The same bounds for any number of nodes. They leave room for the few requests by which a node may
/// be luckier than another: who comes second when a round begins is refused once, and joins then.
async fn costs_do_not_grow(endpoint: String) {
    for count in [8, 32, 128] {
        for cost in form(&endpoint, count).await {
            let told = format!("{count} nodes: {cost:?}");
            assert!(cost.requests < 6.0 && cost.messages < 12.0, "{told}");
            assert!(cost.most_requests <= 6 && cost.most_messages <= 10, "{told}");
            // The names alone of 128 nodes would be more.
            assert!(cost.most_received < 4 << 10, "{told}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_costs_the_same_in_any_group_embedded() {
    let server = Embedded::memory().await;
    bounded(costs_do_not_grow(server.endpoint())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_costs_the_same_in_any_group_etcd_3_5() {
    let server = Etcd::start(Version::V3_5).await;
    bounded(costs_do_not_grow(server.endpoint())).await;
}

/// Nodes cancel what they have asked for whenever it does not matter any more. A server must survive it.
#[tokio::test]
async fn reads_that_are_cancelled_do_no_harm() {
    let server = Etcd::start(Version::V3_5).await;
    let client = crate::client::client([server.endpoint()]).await;
    for number in 0..64 {
        let value = vec![b'x'; 16 << 10];
        client.put(Put::new(format!("k/{number}"), value)).await.unwrap();
    }
    let reading = || Txn::reading((0..16).map(|_| Range::new(KeyRange::prefix("k/"))));
    for number in 0..300 {
        let little = std::time::Duration::from_micros(number * 20);
        let _ = tokio::time::timeout(little, client.txn(reading())).await;
    }
    let found = client.txn(reading()).await.unwrap();
    assert!(found.succeeded && found.results.len() == 16);
}
