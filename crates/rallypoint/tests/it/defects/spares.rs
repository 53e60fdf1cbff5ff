//! More nodes than a group can have.

use std::sync::Arc;
use std::time::Duration;

use rallypoint::core::kv::KeyRange;
use rallypoint::rendezvous::{RendezvousError, RendezvousHandler};
use tokio::time::{Instant, sleep};

use super::{Meeting, Node, Run, enter, group, kill, meet, on_both, until_called, until_spare};

/// Waits until so many of the nodes have met and all the others are spares. Returns the members and, with
/// their meetings, the spares.
async fn sort_out(
    entered: Vec<(Node, Meeting)>,
    members: usize,
) -> (Vec<Node>, Vec<(Node, Meeting)>) {
    let begun = Instant::now();
    while entered.iter().filter(|(_, meeting)| meeting.is_finished()).count() < members {
        assert!(begun.elapsed() < super::SOON, "no group of {members}");
        sleep(Duration::from_millis(5)).await;
    }
    for (node, meeting) in &entered {
        if !meeting.is_finished() {
            until_spare(node).await;
        }
    }
    let (met, spares): (Vec<_>, Vec<_>) =
        entered.into_iter().partition(|(_, meeting)| meeting.is_finished());
    let (nodes, meetings): (Vec<_>, Vec<_>) = met.into_iter().unzip();
    assert_eq!(group(meetings).await.len(), members);
    (nodes, spares)
}

/// Stock's first protocol counts a surplus node as waiting, so that all agents restart, over and over.
#[tokio::test]
async fn v1_a_surplus_node_disturbs_nobody() {
    on_both(async |endpoint| {
        let run = Run::new(endpoint, "surplus", 1, 2);
        let nodes = run.nodes(2).await;
        meet(&nodes).await;
        let surplus = run.node().await;
        let meeting = enter(&surplus);
        until_spare(&surplus).await;
        let active = KeyRange::key(nodes[0].keys().active());
        let before = nodes[0].client().range(active.clone()).await.unwrap();
        meeting.abort();
        surplus.leave().await;
        // The document that every member watches is unchanged: no member was told.
        let after = nodes[0].client().range(active).await.unwrap();
        assert_eq!(before.kvs, after.kvs);
        for node in &nodes {
            assert_eq!(node.num_nodes_waiting().await.unwrap(), 0);
        }
    })
    .await;
}

/// Stock's spare hosts fail when a member is killed; others' spares tore down the whole job (nvrx 348).
#[tokio::test]
async fn pytorch_114097_nvrx_348_of_many_spares_exactly_one_takes_a_dead_members_place() {
    on_both(async |endpoint| {
        let run = Run::new(endpoint, "114097", 2, 2);
        let mut entered = Vec::new();
        // All at once, so that most of them ask for the same round.
        for node in run.nodes(10).await {
            let meeting = enter(&node);
            entered.push((node, meeting));
        }
        let (mut members, mut spares) = sort_out(entered, 2).await;
        assert_eq!(spares.len(), 8);
        for node in &members {
            assert_eq!(node.num_nodes_waiting().await.unwrap(), 0);
        }
        let survivor = members.pop().unwrap();
        members.into_iter().for_each(kill);
        until_called(&survivor).await;
        let meeting = enter(&survivor);
        spares.push((survivor.clone(), meeting));
        let (members, spares) = sort_out(spares, 2).await;
        let stays = members.iter().any(|node| Arc::ptr_eq(node, &survivor));
        assert!(stays, "a member goes before spares");
        assert_eq!(spares.len(), 7);
        // No other spare was promoted, and no member joins again.
        for node in &members {
            assert_eq!(node.num_nodes_waiting().await.unwrap(), 0);
        }
        assert!(members[0].shutdown().await);
        for (_, meeting) in spares {
            let error = meeting.await.unwrap().unwrap_err();
            assert!(matches!(error, RendezvousError::GracefulExit { .. }), "{error:?}");
        }
    })
    .await;
}

/// Others' spares, who have nothing else to do, were quicker than the members that came back.
#[tokio::test]
async fn nvrx_325_returning_members_go_before_spares_that_were_quicker() {
    on_both(async |endpoint| {
        let run = Run::new(endpoint, "325", 2, 2);
        let nodes = run.nodes(2).await;
        let first = meet(&nodes).await;
        let spares = run.nodes(3).await;
        let waiting: Vec<Meeting> = spares.iter().map(enter).collect();
        for spare in &spares {
            until_spare(spare).await;
        }
        let quick = enter(&nodes[0]);
        // All of the spares are in the round before the second member comes.
        super::until_waits_for(&nodes[0], "4 nodes joined, waiting for 1 of the last group").await;
        let second = group([quick, enter(&nodes[1])]).await;
        for (before, after) in first.iter().zip(&second) {
            assert_eq!(before.rank, after.rank);
        }
        for spare in &spares {
            until_spare(spare).await;
        }
        assert!(waiting.iter().all(|meeting| !meeting.is_finished()));
    })
    .await;
}
