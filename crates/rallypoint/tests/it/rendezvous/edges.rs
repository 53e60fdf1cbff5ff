//! What a handler owes its caller when things end at the wrong moment: an answer.

use std::time::Duration;

use rallypoint::client::{ClientOptions, Credentials};
use rallypoint::core::kv::Put;
use rallypoint::rendezvous::{
    EtcdRendezvousHandler, HandlerOptions, RendezvousError, RendezvousHandler,
};
use tokio::time::{sleep, timeout};

use super::handlers::{handler, meet, met, options};
use super::node::PATIENCE;
use super::on_each_server;
use crate::client::client;
use crate::support::{Embedded, Etcd, Version};

on_each_server!(
    who_leaves_while_it_waits_is_answered,
    an_answer_is_confirmed_by_what_the_handler_says_next,
);

async fn who_leaves_while_it_waits_is_answered(endpoint: String) {
    for shuts_down in [false, true] {
        let first = handler(&endpoint, options(2, 2)).await;
        let meeting = meet(&first);
        while first.status().view.waits_for.is_none() {
            sleep(Duration::from_millis(5)).await;
        }
        if shuts_down {
            assert!(first.shutdown().await);
        } else {
            first.leave().await;
        }
        let answer = timeout(PATIENCE, meeting).await.expect("an answer").unwrap();
        let error = answer.unwrap_err();
        assert!(matches!(error, RendezvousError::State { .. }), "{error:?}");
        assert!(error.to_string().contains("given up"), "{error}");
        // And it may begin another.
        meet(&first).abort();
        first.leave().await;
    }
}

async fn an_answer_is_confirmed_by_what_the_handler_says_next(endpoint: String) {
    let first = handler(&endpoint, options(1, 1)).await;
    for _ in 0..50 {
        let group = first.next_rendezvous().await.unwrap();
        assert_eq!(first.status().view.member_of, Some(group.round));
        first.set_closed("enough").await.unwrap();
        assert!(first.is_closed().await.unwrap());
        assert!(first.reopen().await.unwrap());
        assert!(!first.is_closed().await.unwrap());
    }
}

fn hasty(min: usize, max: usize) -> HandlerOptions {
    let (timeout, lease_ttl) = (Duration::from_secs(8), Duration::from_secs(2));
    options(min, max).with(|options| {
        options.timeout = timeout;
        options.lease_ttl = lease_ttl;
    })
}

/// A spare has all the time there is, but only as long as it has a server.
#[tokio::test]
async fn a_spare_whose_server_is_gone_is_told_in_time() {
    let mut server = Embedded::memory().await;
    let first = handler(&server.endpoint(), hasty(1, 1)).await;
    met(meet(&first)).await;
    let second = handler(&server.endpoint(), hasty(1, 1)).await;
    let meeting = meet(&second);
    let spare = |text: &String| text.contains("a place to become free");
    while !second.status().view.waits_for.as_ref().is_some_and(spare) {
        sleep(Duration::from_millis(5)).await;
    }
    server.kill();
    let error = timeout(PATIENCE, meeting).await.expect("an answer").unwrap().unwrap_err();
    assert!(matches!(error, RendezvousError::Connection { .. }), "{error:?}");
}

/// A real etcd that was wiped has the same identity as before, so that only its answers give it away.
#[tokio::test]
async fn nodes_of_an_etcd_that_was_wiped_meet_again() {
    let mut server = Etcd::start(Version::V3_5).await;
    let writer = client([server.endpoint()]).await;
    for number in 0..300 {
        writer.put(Put::new(format!("x{number}"), "")).await.unwrap();
    }
    let options = hasty(2, 2).with(|options| options.timeout = Duration::from_secs(60));
    let first = handler(&server.endpoint(), options.clone()).await;
    let second = handler(&server.endpoint(), options).await;
    let (one, _) = tokio::join!(met(meet(&first)), met(meet(&second)));
    server.kill();
    std::fs::remove_dir_all(server.directory().join("data")).unwrap();
    server.restart().await;
    timeout(PATIENCE, async { tokio::join!(first.fenced(), second.fenced()) }).await.unwrap();
    let before = first.client().traffic().requests;
    let (again, _) = tokio::join!(met(meet(&first)), met(meet(&second)));
    assert!(again.round > one.round, "{} after {}", again.round, one.round);
    let requests = first.client().traffic().requests - before;
    assert!(requests < 200, "{requests} requests for one round");
}

/// The password was changed. The coordinator's task must live on, or its node would never be fenced.
#[tokio::test]
async fn a_server_that_refuses_everything_does_not_silence_the_handler() {
    let mut server = Embedded::start_with(true, &["--user", "u", "--password", "p"]).await;
    let credentials = Some(Credentials::new("u", "p"));
    let servers =
        ClientOptions::new([server.endpoint()]).with(|options| options.credentials = credentials);
    let first = EtcdRendezvousHandler::open(servers, hasty(1, 1)).await.unwrap();
    first.next_rendezvous().await.unwrap();
    server.restart_with("p", "q").await;
    timeout(PATIENCE, first.fenced()).await.expect("to be fenced");
    assert!(first.num_nodes_waiting().await.unwrap() > 0);
    assert!(first.status().refused.is_some());
    let error = first.next_rendezvous().await.unwrap_err();
    assert!(matches!(error, RendezvousError::Connection { .. }), "{error:?}");
}
