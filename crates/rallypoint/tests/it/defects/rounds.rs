//! How long a round takes nodes, and which number it has.

use rallypoint::rendezvous::RendezvousHandler;
use std::time::Duration;

use tokio::time::Instant;

use super::{Run, enter, group, kill, meet, on_both, until, until_called, until_listed};

/// Others wait the last call out when fewer nodes are left than the group could have.
#[tokio::test]
async fn dlrover_1534_the_last_call_ends_when_every_live_node_is_there() {
    on_both(async |endpoint| {
        let run = Run::new(endpoint, "1534", 1, 3);
        let mut nodes = run.nodes(3).await;
        meet(&nodes).await;
        kill(nodes.remove(1));
        for node in &nodes {
            until_called(node).await;
        }
        let begun = Instant::now();
        assert_eq!(meet(&nodes).await.len(), 2);
        assert!(begun.elapsed() < run.options.last_call / 2, "took {:?}", begun.elapsed());
    })
    .await;
}

/// Others need two rounds to take in two nodes.
#[tokio::test]
async fn dlrover_1534_a_group_grows_in_one_round() {
    on_both(async |endpoint| {
        let mut run = Run::new(endpoint, "1534", 2, 6);
        // A new group does not know who is to come, so it waits its last call out.
        run.options.last_call = Duration::from_secs(1);
        let nodes = run.nodes(2).await;
        let first = meet(&nodes).await;
        run.options.last_call = Duration::from_secs(30);
        let late = run.nodes(3).await;
        let mut meetings: Vec<_> = late.iter().map(enter).collect();
        for node in &nodes {
            until(node, |status| status.view.nodes_waiting == 3).await;
        }
        meetings.extend(nodes.iter().map(enter));
        let second = group(meetings).await;
        assert_eq!((second.len(), second[0].round), (5, first[0].round + 1));
    })
    .await;
}

/// Stock counts restarts for each agent alone, so no agent knows which attempt it is.
#[tokio::test]
async fn pytorch_108158_the_number_of_the_round_is_the_same_for_all() {
    on_both(async |endpoint| {
        let run = Run::new(endpoint, "108158", 2, 3);
        let nodes = run.nodes(3).await;
        let mut last = 0;
        for _ in 0..3 {
            let round = meet(&nodes).await[0].round;
            assert!(round > last);
            last = round;
        }
        nodes[0].leave().await;
        for node in &nodes[1..] {
            until_called(node).await;
        }
        let newcomer = run.node().await;
        let meeting = enter(&newcomer);
        until_listed(&newcomer).await;
        let met = group([enter(&nodes[1]), enter(&nodes[2]), meeting]).await;
        assert!(met[2].round > last, "a node that has just come knows as well");
    })
    .await;
}
