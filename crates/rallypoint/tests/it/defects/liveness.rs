//! Dead peers that are not detected, and live ones that are taken for dead.

use std::time::Duration;

use rallypoint::rendezvous::{RendezvousError, RendezvousHandler};
use tokio::time::{Instant, sleep};

use super::{
    Run, TTL, enter, kill, meet, on_both, until, until_called, until_listed, until_waits_for,
};
use crate::support::{Embedded, Etcd, Proxy, Version};

/// Stock: survivors of a dead node hang until a collective times out.
#[tokio::test]
async fn pytorch_111646_survivors_learn_of_a_dead_peer_by_its_lease() {
    on_both(async |endpoint| {
        let run = Run::new(endpoint, "111646", 2, 3);
        let mut nodes = run.nodes(3).await;
        meet(&nodes).await;
        for node in &nodes {
            assert_eq!(node.num_nodes_waiting().await.unwrap(), 0);
        }
        let dead = nodes.pop().unwrap();
        let name = dead.node_id().to_owned();
        kill(dead);
        let died = Instant::now();
        for node in &nodes {
            until_called(node).await;
        }
        // etcd may take twice its shortest lease; a collective takes ten minutes.
        assert!(died.elapsed() < TTL * 5, "told after {:?}", died.elapsed());
        let told = nodes.iter().any(|node| node.status().view.lost == [name.clone()]);
        let coordinator_died = nodes.iter().all(|node| node.status().view.round == 0);
        assert!(told || coordinator_died, "{:?}", nodes[0].status());
        let regrouping = Instant::now();
        assert_eq!(meet(&nodes).await.len(), 2);
        let took = regrouping.elapsed();
        assert!(took < run.options.last_call / 2, "all live nodes are there; took {took:?}");
    })
    .await;
}

/// Stock: node A hangs after B was killed, and when B comes again it may find the rendezvous closed.
#[tokio::test]
async fn pytorch_147064_a_node_that_was_killed_may_come_back() {
    on_both(async |endpoint| {
        let run = Run::new(endpoint, "147064", 1, 2);
        let [stays, killed] = [run.node().await, run.node().await];
        meet([&stays, &killed]).await;
        kill(killed);
        for _ in 0..2 {
            until_called(&stays).await;
            assert_eq!(meet([&stays]).await.len(), 1);
            let back = run.node().await;
            let meeting = enter(&back);
            until_called(&stays).await;
            let met = super::group([enter(&stays), meeting]).await;
            assert_eq!(met[0].rank, 0, "who stays keeps its rank");
            kill(back);
        }
    })
    .await;
}

/// Stock: the death of the node that hosts the store takes the other nodes with it.
#[tokio::test]
async fn pytorch_67742_the_others_go_on_without_the_host_of_rank_0() {
    on_both(async |endpoint| {
        let run = Run::new(endpoint, "67742", 2, 3);
        let mut nodes = run.nodes(3).await;
        let mut met = meet(&nodes).await;
        for generation in 0..3 {
            let leader = met.iter().position(|info| info.rank == 0).unwrap();
            let store = met[(leader + 1) % met.len()].store.clone();
            kill(nodes.remove(leader));
            // What they share is not on that host.
            store.set(b"still", "here".into()).await.unwrap();
            for node in &nodes {
                until_called(node).await;
                assert!(!node.is_closed().await.unwrap(), "generation {generation}");
            }
            let newcomer = run.node().await;
            let meeting = enter(&newcomer);
            until_listed(&newcomer).await;
            let mut meetings: Vec<_> = nodes.iter().map(enter).collect();
            meetings.push(meeting);
            nodes.push(newcomer);
            met = super::group(meetings).await;
        }
    })
    .await;
}

/// Stock: one transient error of etcd ends the renewal of a lease in silence, and the job with it.
#[tokio::test]
async fn pytorch_194870_transient_errors_do_not_end_the_renewal_of_a_lease() {
    for real in [false, true] {
        let (embedded, etcd);
        let endpoint = if real {
            etcd = Etcd::start(Version::V3_5).await;
            etcd.endpoint()
        } else {
            embedded = Embedded::memory().await;
            embedded.endpoint()
        };
        let direct = Run::new(endpoint.clone(), "194870", 2, 2);
        let proxy = Proxy::start(endpoint).await;
        let behind = Run::new(proxy.endpoint(), "194870", 2, 2);
        let ttl = Duration::from_secs(4);
        let [there, unlucky] = [
            direct.node_with(|options| options.lease_ttl = ttl).await,
            behind.node_with(|options| options.lease_ttl = ttl).await,
        ];
        meet([&there, &unlucky]).await;
        let begun = Instant::now();
        let connections = proxy.connections();
        while begun.elapsed() < ttl * 2 {
            proxy.refuse();
            sleep(Duration::from_millis(200)).await;
            proxy.heal();
            sleep(Duration::from_millis(600)).await;
            proxy.sever();
        }
        assert!(proxy.connections() > connections + 5, "it was cut off indeed");
        for node in [&there, &unlucky] {
            assert_eq!(node.status().fenced, None);
            assert_eq!(node.num_nodes_waiting().await.unwrap(), 0);
        }
        // It also still hears what happens.
        there.set_closed("enough").await.unwrap();
        until(&unlucky, |status| status.view.closed.is_some()).await;
    }
}

/// Stock: when one agent fails, the other agents get `RendezvousClosedError`.
#[tokio::test]
async fn pytorch_67616_who_fails_does_not_close_the_run_for_the_others() {
    on_both(async |endpoint| {
        let run = Run::new(endpoint, "67616", 2, 3);
        let mut nodes = run.nodes(3).await;
        meet(&nodes).await;
        // Each of them once, so also the coordinator and rank 0.
        for _ in 0..3 {
            kill(nodes.remove(0));
            for node in &nodes {
                until_called(node).await;
            }
            assert_eq!(meet(&nodes).await.len(), 2);
            assert!(!nodes[0].is_closed().await.unwrap());
            let newcomer = run.node().await;
            let meeting = enter(&newcomer);
            for node in &nodes {
                until_called(node).await;
            }
            let mut meetings: Vec<_> = nodes.iter().map(enter).collect();
            meetings.push(meeting);
            assert_eq!(super::group(meetings).await.len(), 3);
            nodes.push(newcomer);
        }
    })
    .await;
}

/// Stock counts slots of groups that died: a node alone took itself for a group.
#[tokio::test]
async fn nvrx_391_ghosts_of_a_dead_group_are_not_counted() {
    on_both(async |endpoint| {
        let run = Run::new(endpoint, "391", 2, 3);
        let nodes = run.nodes(3).await;
        meet(&nodes).await;
        nodes.into_iter().for_each(kill);
        // While their leases still live it comes in time for nothing; then it is alone.
        let first = run.node().await;
        let meeting = enter(&first);
        until_waits_for(&first, "1 of 2 nodes, waiting for 1 more").await;
        let second = run.node_with(|options| options.last_call = Duration::ZERO).await;
        let begun = Instant::now();
        let third = run.node().await;
        let met = super::group([meeting, enter(&second), enter(&third)]).await;
        assert_eq!((met.len(), met[0].world_size), (3, 3));
        assert!(begun.elapsed() < run.options.last_call / 2, "no node waits for dead nodes");
    })
    .await;
}

/// Stock and others: an error of one node alone closes the job for all.
#[tokio::test]
async fn nvrx_421_a_local_error_closes_nothing() {
    on_both(async |endpoint| {
        let run = Run::new(endpoint.clone(), "421", 2, 3);
        let mut nodes = run.nodes(3).await;
        meet(&nodes).await;
        // A node that was given the wrong size.
        let odd = Run::new(endpoint, "421", 2, 4).node().await;
        let error = odd.next_rendezvous().await.unwrap_err();
        assert!(matches!(error, RendezvousError::State { .. }), "{error:?}");
        assert!(odd.shutdown().await);
        for node in &nodes {
            assert_eq!(node.num_nodes_waiting().await.unwrap(), 0, "it caused no re-rendezvous");
        }
        // A late node that has no patience with the group.
        kill(nodes.pop().unwrap());
        for node in &nodes {
            until_called(node).await;
        }
        meet(&nodes).await;
        let hasty = run.node_with(|options| options.timeout = Duration::from_secs(1)).await;
        let error = enter(&hasty).await.unwrap().unwrap_err();
        assert!(matches!(error, RendezvousError::Timeout { .. }), "{error:?}");
        assert!(hasty.shutdown().await);
        // A member that gives up on the next group.
        let impatient = run.node_with(|options| options.timeout = Duration::from_secs(1)).await;
        let meeting = enter(&impatient);
        for node in &nodes {
            until_called(node).await;
        }
        let mut meetings: Vec<_> = nodes.iter().map(enter).collect();
        meetings.push(meeting);
        super::group(meetings).await;
        nodes.pop().unwrap().leave().await;
        until_called(&impatient).await;
        let error = enter(&impatient).await.unwrap().unwrap_err();
        assert!(matches!(error, RendezvousError::Timeout { .. }), "{error:?}");
        assert!(impatient.shutdown().await);
        assert!(!nodes[0].is_closed().await.unwrap());
        let back = run.node().await;
        assert_eq!(meet([&nodes[0], &back]).await.len(), 2);
    })
    .await;
}

/// On Kubernetes, groups of a hundred never met again in time: each learns of the loss at another moment.
#[tokio::test]
async fn kubeflow_2000_a_large_group_that_lost_a_node_meets_again_in_one_round() {
    let server = Embedded::memory().await;
    let run = Run::new(server.endpoint(), "2000", 16, 32);
    let mut nodes = run.nodes(32).await;
    let first = meet(&nodes).await;
    kill(nodes.remove(17));
    for node in &nodes {
        until_called(node).await;
    }
    let begun = Instant::now();
    let second = meet(&nodes).await;
    assert_eq!((second.len(), second[0].round), (31, first[0].round + 1));
    assert!(begun.elapsed() < run.options.last_call / 2, "took {:?}", begun.elapsed());
    for (number, info) in second.iter().enumerate() {
        let before = first[if number < 17 { number } else { number + 1 }].rank;
        let moved = info.rank != before;
        assert!(!moved || before == 31, "only the last rank moves: {before} to {}", info.rank);
    }
}
