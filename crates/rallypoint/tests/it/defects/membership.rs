//! Who leaves, who closes, and what a run that was closed is good for.

use std::time::Duration;

use rallypoint::core::kv::Put;
use rallypoint::rendezvous::{RendezvousError, RendezvousHandler, RendezvousStoreInfo};
use rallypoint::store::StoreError;
use tokio::time::Instant;

use super::{Run, enter, group, meet, on_both, until, until_called};
use crate::support::Embedded;

/// Stock: a worker that leaves in good order closed the rendezvous for all.
#[tokio::test]
async fn pytorch_123678_who_leaves_does_not_close_the_run_for_the_others() {
    on_both(async |endpoint| {
        let run = Run::new(endpoint, "123678", 1, 3);
        let mut nodes = run.nodes(3).await;
        meet(&nodes).await;
        while nodes.len() > 1 {
            let leaves = nodes.remove(0);
            let left = Instant::now();
            leaves.leave().await;
            for node in &nodes {
                until_called(node).await;
            }
            assert!(left.elapsed() < Duration::from_secs(10), "a goodbye needs no lease to lapse");
            assert_eq!(meet(&nodes).await.len(), nodes.len());
            assert!(!nodes[0].is_closed().await.unwrap());
            // A node that has left may shut down without harm as well.
            assert!(leaves.shutdown().await);
            assert!(!nodes[0].is_closed().await.unwrap());
        }
    })
    .await;
}

/// Stock: a run id cannot be used again once it was closed, for two hours.
#[tokio::test]
async fn elastic_151_a_closed_run_can_be_opened_again() {
    on_both(async |endpoint| {
        let run = Run::new(endpoint, "151", 2, 2);
        let nodes = run.nodes(2).await;
        let before = meet(&nodes).await;
        before[0].store.set(b"stale", "".into()).await.unwrap();
        assert!(!nodes[0].reopen().await.unwrap(), "it is open");
        for node in &nodes {
            assert!(node.shutdown().await);
        }
        let again = run.nodes(2).await;
        let error = again[0].next_rendezvous().await.unwrap_err();
        assert!(matches!(error, RendezvousError::Closed { .. }), "{error:?}");
        assert!(again[0].reopen().await.unwrap());
        for node in &again {
            until(node, |status| status.view.closed.is_none()).await;
        }
        let after = meet(&again).await;
        assert!(after[0].round > before[0].round);
        assert!(!after[0].store.check(&[b"stale"]).await.unwrap());
        assert!(!again[1].reopen().await.unwrap());
    })
    .await;
}

/// Who opened a run again knows that it is open, whether its watch has told it yet or not.
#[tokio::test]
async fn elastic_151_who_opened_a_run_again_may_enter_at_once() {
    let server = Embedded::memory().await;
    let run = Run::new(server.endpoint(), "151", 1, 1);
    let node = run.node().await;
    for _ in 0..100 {
        meet([&node]).await;
        node.set_closed("for now").await.unwrap();
        assert!(node.reopen().await.unwrap());
    }
}

/// Stock never implemented the time-out of `load_extra_data`.
#[tokio::test]
async fn elastic_12_load_extra_data_honours_its_time_out() {
    on_both(async |endpoint| {
        let run = Run::new(endpoint, "12", 2, 2);
        let nodes = run.nodes(2).await;
        let round = meet(&nodes).await[0].round;
        let (begun, short) = (Instant::now(), Duration::from_millis(300));
        let error = nodes[0].load_extra_data(round, "dashboard", short).await.unwrap_err();
        assert!(matches!(error, StoreError::Timeout { .. }), "{error:?}");
        let took = begun.elapsed();
        assert!((short..Duration::from_secs(10)).contains(&took), "took {took:?}");
        nodes[1].store_extra_data(round, "dashboard", "here").await.unwrap();
        assert_eq!(nodes[0].load_extra_data(round, "dashboard", short).await.unwrap(), "here");
    })
    .await;
}

/// Stock crashes with `KeyNotFound` when a worker reads before rank 0 wrote, and closes the run for good.
#[tokio::test]
async fn pytorch_132950_a_node_that_reads_before_rank_0_wrote_waits() {
    on_both(async |endpoint| {
        let run = Run::new(endpoint, "132950", 2, 2);
        let nodes = run.nodes(2).await;
        let mut met = meet(&nodes).await;
        met.sort_by_key(|info| info.rank);
        let [leader, other] = [met[0].store.clone(), met[1].store.clone()];
        let early =
            tokio::spawn(
                async move { RendezvousStoreInfo::build(1, &*other, None, super::SOON).await },
            );
        // The watch of the early one is under way or stands; either way it must not fail.
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!early.is_finished());
        let listens = Some(("10.0.0.1", 29500));
        let wrote = RendezvousStoreInfo::build(0, &*leader, listens, super::SOON).await.unwrap();
        assert_eq!(early.await.unwrap().unwrap(), wrote);
        assert!(!nodes[0].is_closed().await.unwrap());
    })
    .await;
}

/// Others' late nodes wrote into slots of rounds that were over, and were counted there.
#[tokio::test]
async fn nvrx_300_what_a_late_node_writes_into_a_finished_round_changes_nothing() {
    on_both(async |endpoint| {
        let run = Run::new(endpoint, "300", 2, 3);
        let nodes = run.nodes(3).await;
        meet(&nodes).await;
        nodes[2].leave().await;
        for node in &nodes[..2] {
            until_called(node).await;
        }
        let second = meet(&nodes[..2]).await;
        let (client, keys) = (nodes[0].client(), nodes[0].keys());
        let lease = client.lease_grant(60, None).await.unwrap().id;
        for round in [1, second[0].round] {
            for (key, value) in [
                (keys.member(round, "ghost"), r#"{"arrived":1,"seat":{"round":1,"rank":0}}"#),
                (keys.rank(round, "ghost"), r#"{"rank":0,"world":3}"#),
                (keys.ready(round, "ghost"), r#"{"host":"10.9.9.9","port":1}"#),
            ] {
                client.put(Put::new(key, value).on_lease(lease)).await.unwrap();
            }
        }
        client.lease_revoke(lease).await.unwrap();
        // A node that really comes is seen after all of that, and is the only one that counts.
        let late = run.node().await;
        let meeting = enter(&late);
        for node in &nodes[..2] {
            let status = until_called(node).await;
            assert_eq!((status.view.nodes_waiting, status.view.lost.len()), (1, 0));
        }
        let met = group([enter(&nodes[0]), enter(&nodes[1]), meeting]).await;
        assert_eq!(met.iter().map(|info| info.rank).collect::<Vec<_>>()[..2], {
            [second[0].rank, second[1].rank]
        });
        assert_ne!(met[0].bootstrap_store_info.master_addr, "10.9.9.9");
    })
    .await;
}
