//! Servers that are killed under the nodes.

use std::time::Duration;

use super::node::{Job, Node};
use super::{Observer, bounded, group, ranks};
use crate::support::{Embedded, EtcdCluster, Version};

#[tokio::test]
async fn a_durable_server_killed_in_mid_round_goes_on_with_it() {
    bounded(async {
        let mut server = Embedded::disk().await;
        // Longer than a restart takes, so that no lease is lost.
        let job = Job::new(server.endpoint(), "3:3").with("--lease-ttl", "8");
        let mut nodes = job.nodes(2);
        Observer::new(&server.endpoint()).await.joined(1, 2).await;
        server.restart().await;
        nodes.push(job.node());
        let places = group(&mut nodes, 0).await;
        assert_eq!(places[0].round, 1, "the round should have gone on");
    })
    .await;
}

#[tokio::test]
async fn a_durable_server_killed_under_a_group_leaves_it_alone() {
    bounded(async {
        let mut server = Embedded::disk().await;
        let job = Job::new(server.endpoint(), "2:3").with("--lease-ttl", "5");
        let job = job.with("--last-call", "1");
        let mut nodes = job.nodes(3);
        let places = group(&mut nodes, 0).await;
        nodes.iter_mut().for_each(Node::forget);
        server.restart().await;
        // So long that a lease which was not renewed since would have ended.
        tokio::time::sleep(Duration::from_secs(7)).await;
        for node in &mut nodes {
            assert!(node.is_quiet(), "disturbed: {:#?}", node.told());
        }
        // It is still a group: it hears of losses.
        nodes.remove(0).kill();
        group(&mut nodes, places[0].round).await;
    })
    .await;
}

#[tokio::test]
async fn nodes_of_a_server_that_forgot_everything_form_a_later_round() {
    bounded(async {
        let mut server = Embedded::memory().await;
        let job = Job::new(server.endpoint(), "3:3").with("--last-call", "1");
        let mut nodes = job.nodes(3);
        let mut places = group(&mut nodes, 0).await;
        for _ in 0..3 {
            server.restart().await;
            let again = group(&mut nodes, places[0].round).await;
            assert_eq!(ranks(&again), ranks(&places), "everyone keeps its rank");
            places = again;
        }
    })
    .await;
}

#[tokio::test]
async fn nodes_of_a_server_that_forgot_everything_in_mid_round_meet_all_the_same() {
    bounded(async {
        let mut server = Embedded::memory().await;
        let job = Job::new(server.endpoint(), "3:3");
        let mut nodes = job.nodes(2);
        Observer::new(&server.endpoint()).await.joined(1, 2).await;
        server.restart().await;
        nodes.push(job.node());
        group(&mut nodes, 0).await;
    })
    .await;
}

#[tokio::test]
async fn a_round_survives_the_leader_of_a_cluster() {
    bounded(async {
        let mut cluster = EtcdCluster::start(Version::V3_5, 3).await;
        let endpoints = cluster.endpoints();
        let job = Job::new(endpoints.join(","), "3:3").with("--lease-ttl", "5");
        let mut nodes = job.nodes(2);
        let leader = cluster.leader_index().await;
        let observer = Observer::new(&endpoints[(leader + 1) % 3]).await;
        observer.joined(1, 2).await;
        cluster.kill(leader);
        nodes.push(job.node());
        let places = group(&mut nodes, 0).await;
        cluster.restart(leader).await;
        // And once more under the group, which stays or meets again, but never falls apart.
        cluster.kill(cluster.leader_index().await);
        tokio::time::sleep(Duration::from_secs(6)).await;
        nodes[0].command("again");
        group(&mut nodes, places[0].round).await;
    })
    .await;
}
