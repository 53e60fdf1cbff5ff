//! The rendezvous over one shared document: in memory, on our own server, and on real etcd.

mod backend;
mod ground;
mod words;

use std::collections::BTreeSet;
use std::time::Duration;

use rallypoint::core::rendezvous::documents::Limits;
use rallypoint::core::rendezvous::dynamic::SharedState;
use rallypoint::rendezvous::dynamic::{DynamicRendezvousHandler, RendezvousBackend};
use rallypoint::rendezvous::{RendezvousError, RendezvousHandler, RendezvousInfo};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use self::ground::{Ground, Run, grounds};
use crate::support::Embedded;

/// Longer than anything here takes.
const SOON: Duration = Duration::from_secs(30);

type Meeting = JoinHandle<(DynamicRendezvousHandler, Result<RendezvousInfo, RendezvousError>)>;

/// Lets a node meet in the background.
fn enter(handler: DynamicRendezvousHandler) -> Meeting {
    tokio::spawn(async move {
        let met = timeout(SOON, handler.next_rendezvous()).await.expect("an answer in time");
        (handler, met)
    })
}

async fn all(
    meetings: impl IntoIterator<Item = Meeting>,
) -> Vec<(DynamicRendezvousHandler, RendezvousInfo)> {
    let mut met = Vec::new();
    for meeting in meetings {
        let (handler, info) = meeting.await.unwrap();
        met.push((handler, info.unwrap()));
    }
    let ranks: BTreeSet<u32> = met.iter().map(|(_, info)| info.rank).collect();
    assert!(ranks.into_iter().eq(0..met.len() as u32), "each rank once: {met:?}");
    for (_, info) in &met {
        assert_eq!(info.world_size as usize, met.len());
        assert_eq!(info.round, met[0].1.round);
        assert_eq!(info.bootstrap_store_info, met[0].1.bootstrap_store_info);
    }
    met
}

/// Waits until the shared state is as wanted.
async fn until(
    backend: &dyn RendezvousBackend,
    wanted: impl Fn(&SharedState) -> bool,
) -> SharedState {
    let begun = Instant::now();
    loop {
        let state = backend.get_state().await.unwrap();
        let state = state.map(|(bytes, _)| SharedState::from_json(&bytes).unwrap());
        match state {
            Some(state) if wanted(&state) => return state,
            state => assert!(begun.elapsed() < SOON, "still {state:?}"),
        }
        sleep(Duration::from_millis(20)).await;
    }
}

async fn until_somebody_waits(handler: &DynamicRendezvousHandler) {
    let begun = Instant::now();
    while handler.num_nodes_waiting().await.unwrap() == 0 {
        assert!(begun.elapsed() < SOON, "no node waits");
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn dynamic_four_nodes_meet_and_a_spare_is_sent_home_when_the_run_is_closed() {
    for ground in grounds().await {
        let run = Run::new(&ground, "four", Limits { min: 4, max: 4 });
        let met = all((1..=4).map(|host| enter(run.node(host))).collect::<Vec<_>>()).await;
        met[0].1.store.set(b"greeting", "hello".into()).await.unwrap();
        assert_eq!(met[3].1.store.get(b"greeting").await.unwrap(), "hello");

        let spare = enter(run.node(5));
        let backend = ground.backend("four");
        until(&*backend, |state| state.redundancy_list.len() == 1).await;
        let late = run.node(6);
        for (handler, _) in &met {
            assert_eq!(handler.num_nodes_waiting().await.unwrap(), 0, "no node must re-rendezvous");
            assert!(!handler.is_closed().await.unwrap());
        }

        met[2].0.set_closed("the loss is low enough").await.unwrap();
        met[1].0.set_closed("only the first reason counts").await.unwrap();
        let closer = met[2].0.node();
        let (_, sent_home) = spare.await.unwrap();
        let error = sent_home.unwrap_err();
        assert!(matches!(error, RendezvousError::GracefulExit { .. }), "{error:?}");
        let words = "closed by {}: failed: the loss is low enough".replace("{}", closer);
        let expected = format!("this node was not needed by run \"four\": it was {words}");
        assert_eq!(error.to_string(), expected);
        let error = late.next_rendezvous().await.unwrap_err();
        assert!(matches!(error, RendezvousError::Closed { .. }), "{error:?}");
        let fix = "a new job needs another run id (--rdzv-id)";
        assert_eq!(error.to_string(), format!("run \"four\" was {words}; {fix}"));
        assert!(late.is_closed().await.unwrap());
        for (handler, _) in &met {
            assert!(handler.shutdown().await, "{} on {}", handler.node(), ground.name);
        }
    }
}

/// D2, D6: the dead one is found by its silence and replaced, and everybody learns the new address.
#[tokio::test]
async fn dynamic_a_silent_rank_0_is_replaced_and_master_addr_follows() {
    for ground in grounds().await {
        let run = Run::new(&ground, "replace", Limits { min: 2, max: 3 });
        let met = all((1..=3).map(|host| enter(run.node(host))).collect::<Vec<_>>()).await;
        let spare = enter(run.node(4));
        until(&*ground.backend("replace"), |state| state.redundancy_list.len() == 1).await;
        let mut members: Vec<_> = met.into_iter().collect();
        members.sort_by_key(|(_, info)| info.rank);
        let (dead, before) = members.remove(0);
        let ranks: Vec<_> =
            members.iter().map(|(node, info)| (node.node().to_owned(), info.rank)).collect();
        // Without a word, as if its host had vanished.
        drop(dead);
        let mut meetings = vec![spare];
        for (handler, _) in members {
            until_somebody_waits(&handler).await;
            meetings.push(enter(handler));
        }
        let met = all(meetings).await;
        assert_eq!(met.len(), 3);
        for (node, rank) in ranks {
            let kept = met.iter().find(|(handler, _)| handler.node() == node).unwrap();
            assert_eq!(kept.1.rank, rank, "members keep their ranks");
        }
        let (spare, info) = &met[0];
        assert_eq!((info.rank, info.round), (0, before.round + 1));
        assert_eq!(info.bootstrap_store_info.master_addr, "127.0.0.4");
        assert_ne!(info.bootstrap_store_info, before.bootstrap_store_info);
        // The published port is kept, and the process that serves it gets it.
        let port = info.bootstrap_store_info.master_port;
        assert_eq!(spare.take_port().unwrap().local_addr().unwrap().port(), port);
    }
}

#[tokio::test]
async fn dynamic_a_member_that_joins_again_makes_the_other_members_join() {
    for ground in grounds().await {
        let run = Run::new(&ground, "again", Limits { min: 1, max: 3 });
        let mut met = all([enter(run.node(1)), enter(run.node(2))]).await;
        for _ in 0..3 {
            let round = met[0].1.round;
            let (first, _) = met.remove(0);
            let (second, _) = met.remove(0);
            let first = enter(first);
            until_somebody_waits(&second).await;
            met = all([first, enter(second)]).await;
            assert_eq!(met[0].1.round, round + 1);
        }
        // A late node is seen by the members, which make room for it.
        let late = enter(run.node(3));
        until_somebody_waits(&met[0].0).await;
        let meetings: Vec<_> = met.into_iter().map(|(handler, _)| enter(handler)).collect();
        assert_eq!(all(meetings.into_iter().chain([late])).await.len(), 3);
    }
}

#[tokio::test]
async fn dynamic_dropping_the_future_takes_the_node_out_of_the_round() {
    for ground in grounds().await {
        let run = Run::new(&ground, "drop", Limits { min: 2, max: 2 });
        let backend = ground.backend("drop");
        let first = run.node(1);
        {
            let mut meeting = Box::pin(first.next_rendezvous());
            let joined = until(&*backend, |state| !state.participants.is_empty());
            tokio::select! {
                met = &mut meeting => panic!("{met:?}"),
                state = joined => assert!(state.participants.contains_key(first.node())),
            }
        }
        until(&*backend, |state| state.participants.is_empty() && state.nodes.is_empty()).await;
        all([enter(first), enter(run.node(2))]).await;
    }
}

#[tokio::test]
async fn dynamic_a_node_that_shuts_down_while_it_waits_does_not_affect_other_nodes() {
    let ground = Ground::memory();
    let run = Run::new(&ground, "quit", Limits { min: 2, max: 2 });
    let waiting = std::sync::Arc::new(run.node(1));
    let meeting = tokio::spawn({
        let waiting = waiting.clone();
        async move { waiting.next_rendezvous().await }
    });
    let backend = ground.backend("quit");
    until(&*backend, |state| state.participants.len() == 1).await;
    assert!(waiting.shutdown().await);
    let error = meeting.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("this node's handler was shut down"), "{error}");
    until(&*backend, |state| state.nodes.is_empty() && state.closed.is_none()).await;
    let met = all([enter(run.node(2)), enter(run.node(3))]).await;
    // A member's part of the job is over with it.
    assert!(met[0].0.shutdown().await);
    let state = until(&*backend, |state| state.closed.is_some()).await;
    assert_eq!(state.closed.unwrap().by, met[0].0.node());
    assert_eq!(met[1].0.num_nodes_waiting().await.unwrap(), 0, "it may finish its own part");
}

/// All of them write one key, and each has to get its turn.
#[tokio::test]
async fn dynamic_a_node_that_leaves_while_it_waits_is_answered() {
    for ground in grounds().await {
        let run = Run::new(&ground, "leave", Limits { min: 2, max: 2 });
        let backend = ground.backend("leave");
        let first = run.node(1);
        let leaves = async {
            until(&*backend, |state| !state.participants.is_empty()).await;
            first.leave().await;
        };
        let (met, ()) = tokio::join!(first.next_rendezvous(), leaves);
        let error = met.unwrap_err();
        assert!(matches!(error, RendezvousError::State { .. }), "{error:?}");
        assert_eq!(error.to_string(), "the rendezvous was given up: this node left");
    }
}

#[tokio::test]
async fn dynamic_a_crowd_meets_over_one_key() {
    let server = Embedded::memory().await;
    let embedded = Ground::server("embedded", server.endpoint(), ()).await;
    for ground in [Ground::memory(), embedded] {
        let mut run = Run::new(&ground, "crowd", Limits { min: 32, max: 32 });
        run.settings.keep_alive_interval = Duration::from_secs(5);
        let met = all((1..=32).map(|host| enter(run.node(host))).collect::<Vec<_>>()).await;
        assert_eq!(met.len(), 32);
    }
}

/// No node could write, so no node counts as dead; failed heartbeats are not errors.
#[tokio::test]
async fn dynamic_a_server_that_was_away_costs_no_member() {
    let mut server = Embedded::memory().await;
    let ground = Ground::server("embedded", server.endpoint(), ()).await;
    let mut run = Run::new(&ground, "away", Limits { min: 2, max: 2 });
    run.settings.heartbeat = Duration::from_millis(300);
    let met = all([enter(run.node(1)), enter(run.node(2))]).await;
    server.pause();
    let begun = Instant::now();
    let error = loop {
        match met[0].0.num_nodes_waiting().await {
            Err(error) => break error,
            Ok(waiting) => assert_eq!(waiting, 0),
        }
        assert!(begun.elapsed() < SOON, "it should know that it knows nothing");
        sleep(Duration::from_millis(50)).await;
    };
    let text = error.to_string();
    assert!(text.contains("so the other nodes consider this node dead: cannot"), "{text}");
    sleep(run.settings.silence()).await;
    server.resume();
    let before = until(&*ground.backend("away"), |state| state.nodes.len() == 2).await;
    let beats =
        |state: &SharedState| state.nodes.values().map(|node| node.heartbeat).collect::<Vec<_>>();
    let after = until(&*ground.backend("away"), |state| {
        beats(state).iter().zip(beats(&before)).all(|(now, then)| *now > then + 2)
    })
    .await;
    assert_eq!((after.round, after.live_participants()), (1, 2));
    for (handler, _) in &met {
        assert_eq!(handler.num_nodes_waiting().await.unwrap(), 0);
    }
}

/// D6, A5: what cannot be read cannot be compared.
#[tokio::test]
async fn dynamic_no_moment_of_any_clock_is_in_the_document() {
    let ground = Ground::memory();
    let run = Run::new(&ground, "clocks", Limits { min: 2, max: 3 });
    let _met = all([enter(run.node(1)), enter(run.node(2))]).await;
    let (bytes, _) = ground.backend("clocks").get_state().await.unwrap().unwrap();
    let document: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    let fields: Vec<&str> = document.as_object().unwrap().keys().map(String::as_str).collect();
    let mut expected = vec![
        "format",
        "sequence",
        "writer",
        "limits",
        "round",
        "complete",
        "closed",
        "last_call",
        "participants",
        "wait_list",
        "redundancy_list",
        "nodes",
        "group",
    ];
    expected.sort_unstable();
    let mut sorted = fields.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, expected, "a new field must not be a moment");
    for node in document["nodes"].as_object().unwrap().values() {
        let fields: Vec<&str> = node.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(fields.len(), 2, "{fields:?}");
        assert!(node["heartbeat"].as_u64().unwrap() < 1000, "a count, not a time: {node}");
        assert!(node["arrived"].as_u64().unwrap() < 1000, "a count, not a time: {node}");
    }
}
