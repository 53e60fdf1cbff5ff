//! What a group costs: so many requests for each node, however many nodes there are.

use rallypoint::client::Traffic;
use tokio::task::JoinSet;

use super::handlers::{handler, meet, met, options};
use super::{Observer, bounded};
use crate::support::{Embedded, Etcd, Version};

/// What a round cost its nodes.
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
        let coordinator = observer.active().await.unwrap().author.id;
        let mut cost = Cost {
            requests: 0.0,
            messages: 0.0,
            most_requests: 0,
            most_messages: 0,
            most_received: 0,
        };
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
    let closer = &handlers[0];
    rallypoint::rendezvous::RendezvousHandler::set_closed(&**closer, "measured").await.unwrap();
    closer.reopen().await.unwrap();
    costs.try_into().unwrap_or_else(|_| unreachable!("two rounds"))
}

async fn costs_do_not_grow(endpoint: String) {
    let small = form(&endpoint, 8).await;
    for count in [32, 128] {
        let large = form(&endpoint, count).await;
        for (small, large) in small.iter().zip(large) {
            let told = format!(
                "{count} nodes: {:.1} requests, {:.1} messages; at most {}, {}, {} bytes (with 8: \
                 {:.1}, {:.1}; {}, {}, {})",
                large.requests,
                large.messages,
                large.most_requests,
                large.most_messages,
                large.most_received,
                small.requests,
                small.messages,
                small.most_requests,
                small.most_messages,
                small.most_received,
            );
            println!("{told}");
            assert!(large.requests < 8.0 && large.messages < 16.0, "{told}");
            assert!(large.requests < small.requests + 2.0, "{told}");
            assert!(large.messages < small.messages + 3.0, "{told}");
            assert!(large.most_requests <= 8 && large.most_messages <= 16, "{told}");
            assert!(large.most_received < 8 << 10, "{told}");
            assert!(large.most_received < small.most_received * 3 / 2, "{told}");
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
