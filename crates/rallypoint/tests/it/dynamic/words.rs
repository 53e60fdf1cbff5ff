//! What the errors say.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use rallypoint::client::{Client, ClientOptions};
use rallypoint::core::rendezvous::documents::Limits;
use rallypoint::rendezvous::dynamic::{
    DynamicHandlerOptions, DynamicRendezvousHandler, DynamicSettings, EtcdRendezvousBackend,
};
use rallypoint::rendezvous::{RendezvousError, RendezvousHandler};

use super::ground::{Ground, Run, grounds};
use super::{enter, until};
use crate::support::tools::free_port;

#[tokio::test]
async fn dynamic_a_timeout_says_who_was_missing() {
    let ground = Ground::memory();
    let mut run = Run::new(&ground, "late", Limits { min: 3, max: 4 });
    let first = enter(run.node(1));
    let backend = ground.backend("late");
    let state = until(&*backend, |state| state.participants.len() == 1).await;
    let name = state.participants.keys().next().unwrap().clone();
    run.settings.join = Duration::from_millis(700);
    let error = run.node(2).next_rendezvous().await.unwrap_err();
    assert!(matches!(&error, RendezvousError::Timeout { waited, .. } if waited.as_millis() >= 700));
    let text = error.to_string();
    assert!(text.starts_with("no group of run \"late\" formed within 7"), "{text}");
    let missing = format!("2 of 3 nodes, waiting for 1 more; joined besides this node: {name}");
    assert!(text.ends_with(&missing), "{text}");
    // It has left, and the other waits on.
    until(&*backend, |state| state.nodes.len() == 1).await;
    first.abort();
}

#[tokio::test]
async fn dynamic_a_corrupt_state_is_named_with_its_place() {
    for ground in grounds().await {
        let run = Run::new(&ground, "corrupt", Limits { min: 1, max: 1 });
        ground.backend("corrupt").set_state("gASVDw==".into(), None).await.unwrap();
        let node = run.node(1);
        let error = node.next_rendezvous().await.unwrap_err();
        assert!(matches!(&error, RendezvousError::State { source: Some(_), .. }), "{error:?}");
        let text = error.to_string();
        let place = match &ground.client {
            Some(_) => "key \"/torch/elastic/rendezvous/corrupt\"",
            None => "backend \"memory\"",
        };
        let expected = format!("the rendezvous state at {place} is unusable: it is not the JSON");
        assert!(text.starts_with(&expected), "{text}");
        assert!(node.is_closed().await.unwrap_err().to_string().starts_with(&expected));
        assert!(node.set_closed("x").await.unwrap_err().to_string().starts_with(&expected));
    }
}

#[tokio::test]
async fn dynamic_a_state_of_another_version_is_not_touched() {
    let ground = Ground::memory();
    let run = Run::new(&ground, "newer", Limits { min: 1, max: 1 });
    let backend = ground.backend("newer");
    backend.set_state(r#"{"format": 2}"#.into(), None).await.unwrap();
    let error = run.node(1).next_rendezvous().await.unwrap_err().to_string();
    assert!(error.contains("format 2, and this version reads format 1"), "{error}");
    assert_eq!(backend.get_state().await.unwrap().unwrap().0, r#"{"format": 2}"#);
}

#[tokio::test]
async fn dynamic_nodes_that_disagree_are_told_what_about() {
    let ground = Ground::memory();
    let run = Run::new(&ground, "sizes", Limits { min: 2, max: 2 });
    let first = enter(run.node(1));
    until(&*ground.backend("sizes"), |state| state.participants.len() == 1).await;
    let other = Run::new(&ground, "sizes", Limits { min: 3, max: 4 });
    let error = other.node(2).next_rendezvous().await.unwrap_err();
    assert!(matches!(error, RendezvousError::State { .. }), "{error:?}");
    assert_eq!(
        error.to_string(),
        "nodes of run \"sizes\" disagree on min_nodes:max_nodes: 3:4 here, 2:2 on other nodes; give \
         the same on all nodes, or start this one 2s after they ended"
    );
    first.abort();
}

#[tokio::test]
async fn dynamic_a_server_that_is_not_there_is_named() {
    let endpoint = format!("http://127.0.0.1:{}", free_port());
    let options =
        ClientOptions::new([&endpoint]).with(|options| options.timeout = Duration::from_secs(1));
    let client = Client::connect(options).await.unwrap();
    let backend = Arc::new(EtcdRendezvousBackend::create(client.clone(), "nobody").unwrap());
    let ground = Ground::memory();
    let run = Run::new(&ground, "nobody", Limits { min: 1, max: 1 });
    let node = DynamicRendezvousHandler::start(backend, run.options(1)).unwrap();
    for error in [
        node.next_rendezvous().await.unwrap_err(),
        node.is_closed().await.unwrap_err(),
        node.set_closed("x").await.unwrap_err(),
    ] {
        assert!(matches!(error, RendezvousError::Connection { .. }), "{error:?}");
        assert!(error.source().is_some());
        let text = error.to_string();
        let expected =
            "cannot read the rendezvous state at key \"/torch/elastic/rendezvous/nobody\"";
        assert!(text.starts_with(expected) && text.contains(&endpoint), "{text}");
    }
    let error = EtcdRendezvousBackend::create(client, "").unwrap_err().to_string();
    assert_eq!(error, "run_id \"\": give the name that all nodes of the job share");
}

#[tokio::test]
async fn dynamic_options_that_make_no_sense_are_named() {
    let ground = Ground::memory();
    let run = Run::new(&ground, "options", Limits { min: 1, max: 1 });
    let good = || run.options(1);
    let with = |change: fn(&mut DynamicSettings)| {
        let mut options = good();
        change(&mut options.settings);
        options
    };
    for (options, words) in [
        (DynamicHandlerOptions { run_id: String::new(), ..good() }, "run_id \"\": give the name"),
        (
            DynamicHandlerOptions { local_addr: " ".into(), ..good() },
            "local_addr \" \": give a name",
        ),
        (with(|settings| settings.limits.min = 0), "min_nodes 0: give at least 1"),
        (with(|settings| settings.join = Duration::ZERO), "join_timeout 0ns: give more than 0"),
        (with(|settings| settings.keep_alive_max_attempt = 1), "keep_alive_max_attempt 1: give at"),
    ] {
        let error = DynamicRendezvousHandler::start(ground.backend("options"), options);
        let text = error.unwrap_err().to_string();
        assert!(text.starts_with(words), "{text}");
    }
}
