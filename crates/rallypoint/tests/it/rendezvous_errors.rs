//! Every way in which a meeting on etcd does not come about, by its kind and by its words.

use std::error::Error;
use std::time::Duration;

use rallypoint::client::{ClientOptions, Credentials, TlsOptions};
use rallypoint::core::kv::Put;
use rallypoint::core::rendezvous::ranks::RankPolicy;
use rallypoint::rendezvous::{
    ConfigError, EtcdRendezvousHandler, HandlerOptions, RegistryError, RendezvousError,
    RendezvousHandler, RendezvousHandlerRegistry, RendezvousParameters,
};
use tokio::time::{Instant, timeout};

use crate::defects::{Node, Run, SOON, enter, meet, on_both, until, until_spare, until_waits_for};
use crate::secure::Authority;
use crate::support::etcd::Tls;
use crate::support::process::Directory;
use crate::support::tools::free_port;
use crate::support::{Embedded, Etcd, Version};

const SHORT: Duration = Duration::from_secs(1);

/// How a node meets in vain.
async fn failure(node: &Node) -> RendezvousError {
    let met = timeout(SOON, node.next_rendezvous()).await.expect("an answer in time");
    met.unwrap_err()
}

/// How a node cannot even be opened, and how long it took to say so.
async fn refusal(client: ClientOptions, options: HandlerOptions) -> (RendezvousError, Duration) {
    let begun = Instant::now();
    let opened = timeout(SOON, EtcdRendezvousHandler::open(client, options)).await;
    (opened.expect("an answer in time").unwrap_err(), begun.elapsed())
}

fn hasty(options: &mut HandlerOptions) {
    options.timeout = SHORT;
}

#[tokio::test]
async fn a_time_out_says_who_was_there_and_how_many_were_missing() {
    on_both(async |endpoint| {
        let run = Run::new(endpoint, "late", 3, 4);
        let patient = run.node().await;
        let _meeting = enter(&patient);
        until_waits_for(&patient, "1 of 3 nodes, waiting for 2 more").await;
        let node = run.node_with(hasty).await;
        let error = failure(&node).await;
        assert!(matches!(&error, RendezvousError::Timeout { waited, .. } if *waited >= SHORT));
        let text = error.to_string();
        assert!(text.starts_with("no group of run \"late\" formed within 1."), "{text}");
        let mut names = [patient.node_id(), node.node_id()];
        names.sort_unstable();
        let missing = format!("round 1 has 2 of at least 3 nodes: {}, {}", names[0], names[1]);
        assert!(text.ends_with(&missing), "{text}");
        // It has left, and the other one waits on.
        until_waits_for(&patient, "1 of 3 nodes, waiting for 2 more").await;
    })
    .await;
}

#[tokio::test]
async fn a_time_out_names_the_node_that_did_not_confirm() {
    on_both(async |endpoint| {
        let run = Run::new(endpoint, "silent", 2, 2);
        let node = run
            .node_with(|options| {
                options.timeout = Duration::from_secs(3);
                options.lease_ttl = Duration::from_secs(60);
            })
            .await;
        let meeting = enter(&node);
        until_waits_for(&node, "1 of 2 nodes").await;
        // A node that joins and then is not heard of.
        let (client, keys) = (node.client(), node.keys());
        let lease = client.lease_grant(60, None).await.unwrap().id;
        let member = Put::new(keys.member(1, "mute"), r#"{"format":1}"#).on_lease(lease);
        client.put(member).await.unwrap();
        let error = meeting.await.unwrap().unwrap_err();
        assert!(matches!(error, RendezvousError::Timeout { .. }), "{error:?}");
        let words = "round 1: 1 of 2 nodes confirmed, missing mute";
        assert!(error.to_string().ends_with(words), "{error}");
    })
    .await;
}

#[tokio::test]
async fn a_time_out_names_the_group_that_did_not_meet_again() {
    on_both(async |endpoint| {
        let mut run = Run::new(endpoint, "runs", 1, 3);
        run.options.last_call = Duration::ZERO;
        let member = run.node().await;
        meet([&member]).await;
        let late = run.node_with(hasty).await;
        let error = failure(&late).await;
        assert!(matches!(error, RendezvousError::Timeout { .. }), "{error:?}");
        let words = "round 1 runs with 1 of at most 3 nodes and did not meet again";
        assert!(error.to_string().ends_with(words), "{error}");
        // It no longer counts as waiting.
        until(&member, |status| status.view.nodes_waiting == 0).await;
    })
    .await;
}

#[tokio::test]
async fn a_closed_run_says_by_whom_and_why() {
    on_both(async |endpoint| {
        let run = Run::new(endpoint, "over", 2, 2);
        let [closes, waits, comes] = [run.node().await, run.node().await, run.node().await];
        let meeting = enter(&waits);
        until_waits_for(&waits, "1 of 2 nodes").await;
        closes.set_closed("the data are exhausted").await.unwrap();
        // The first closer is named, also if another node closes it later.
        comes.set_closed("another reason").await.unwrap();
        let by = format!("node {} (127.0.0.1)", closes.node_id());
        let words = format!(
            "run \"over\" was closed by {by}: failed: the data are exhausted; a new job needs another run id (--rdzv-id)"
        );
        for error in [meeting.await.unwrap().unwrap_err(), failure(&comes).await] {
            assert!(
                matches!(&error, RendezvousError::Closed { by: who, .. } if *who == by),
                "{error:?}"
            );
            assert_eq!(error.to_string(), words);
        }
    })
    .await;
}

#[tokio::test]
async fn a_spare_that_was_not_needed_is_told_how_the_run_ended() {
    on_both(async |endpoint| {
        let run = Run::new(endpoint, "full", 1, 1);
        let [member, spare] = [run.node().await, run.node().await];
        meet([&member]).await;
        let meeting = enter(&spare);
        until_spare(&spare).await;
        member.set_closed("trained").await.unwrap();
        let error = meeting.await.unwrap().unwrap_err();
        assert!(matches!(error, RendezvousError::GracefulExit { .. }), "{error:?}");
        let by = format!("node {} (127.0.0.1)", member.node_id());
        let words =
            format!("this node was not needed by run \"full\": {by} closed it: failed: trained");
        assert_eq!(error.to_string(), words);
    })
    .await;
}

#[tokio::test]
async fn nodes_that_disagree_are_told_on_what_and_with_whom() {
    on_both(async |endpoint| {
        let run = Run::new(endpoint.clone(), "sizes", 2, 2);
        let first = run.node().await;
        let _meeting = enter(&first);
        until_waits_for(&first, "1 of 2 nodes").await;
        let other = format!("node {} (127.0.0.1)", first.node_id());
        let fix = "give every node of run \"sizes\" the same";
        let larger = Run::new(endpoint, "sizes", 2, 4).node().await;
        let error = failure(&larger).await;
        assert!(matches!(error, RendezvousError::State { .. }), "{error:?}");
        let words = format!("this node has min:max nodes 2:4, but {other} has 2:2: {fix}");
        assert_eq!(error.to_string(), words);
        let odd = run.node_with(|options| options.rank_policy = RankPolicy::Hint).await;
        let error = failure(&odd).await;
        assert!(matches!(error, RendezvousError::State { .. }), "{error:?}");
        let words = format!("this node has rank_policy hint, but {other} has stable: {fix}");
        assert_eq!(error.to_string(), words);
        // Other nodes are unaffected.
        assert!(!first.is_closed().await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn a_corrupt_document_is_named_by_its_key() {
    on_both(async |endpoint| {
        let run = Run::new(endpoint.clone(), "corrupt", 1, 1);
        let node = run.node().await;
        let key = node.keys().active();
        let values = ["gASVDw==", "", r#"{"format":1,"round":1}"#, r#"{"format":1,"status":"asleep"}"#];
        for value in values {
            node.client().put(Put::new(key.clone(), value)).await.unwrap();
            let fresh = run.node().await;
            let error = failure(&fresh).await;
            assert!(matches!(&error, RendezvousError::State { source: Some(_), .. }), "{error:?}");
            let text = error.to_string();
            let words = format!(
                "the state of run \"corrupt\" cannot be used: the document at {key} cannot be read: "
            );
            assert!(text.starts_with(&words), "{text}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_corrupt_member_is_named_and_the_next_round_goes_on_without_it() {
    on_both(async |endpoint| {
        let run = Run::new(endpoint, "stranger", 2, 2);
        let nodes = run.nodes(3).await;
        let meeting = enter(&nodes[0]);
        until_waits_for(&nodes[0], "1 of 2 nodes").await;
        let key = nodes[0].keys().member(1, "stranger");
        nodes[0].client().put(Put::new(key.clone(), "nonsense")).await.unwrap();
        let error = meeting.await.unwrap().unwrap_err();
        assert!(matches!(&error, RendezvousError::State { source: Some(_), .. }), "{error:?}");
        let words = format!("the document at {key} cannot be read: ");
        assert!(error.to_string().contains(&words), "{error}");
        assert_eq!(meet(&nodes[1..]).await.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn a_second_rendezvous_at_the_same_time_is_refused() {
    let server = Embedded::memory().await;
    let run = Run::new(server.endpoint(), "twice", 2, 2);
    let [node, other] = [run.node().await, run.node().await];
    let meeting = enter(&node);
    until_waits_for(&node, "1 of 2 nodes").await;
    let error = failure(&node).await;
    assert!(matches!(error, RendezvousError::State { source: None, .. }), "{error:?}");
    let words =
        "a rendezvous of this handler is already in progress; wait for it, or drop it first";
    assert_eq!(error.to_string(), words);
    // The first one goes on.
    assert_eq!(crate::defects::group([meeting, enter(&other)]).await.len(), 2);
}

#[tokio::test]
async fn options_that_make_no_sense_are_named() {
    let good = || HandlerOptions::new("job", 1, 2);
    for (options, words) in [
        (
            good().with(|options| options.run_id = "a/b".into()),
            "run_id \"a/b\": give a name without slashes and control characters",
        ),
        (
            good().with(|options| options.run_id = "a\n".into()),
            "run_id \"a\\n\": give a name without slashes and control characters",
        ),
        (
            good().with(|options| options.run_id = String::new()),
            "run_id \"\": give a name that only the nodes of this job share, for example the job's id",
        ),
        (
            good().with(|options| options.min_nodes = 0),
            "min_nodes \"0\": a group has at least 1 node",
        ),
        (
            good().with(|options| options.min_nodes = 3),
            "max_nodes \"2\": give at least min_nodes, which is 3",
        ),
        (good().with(|options| options.lease_ttl = SHORT), "lease_ttl \"1s\": give at least 2s"),
        (
            good().with(|options| options.lease_ttl = Duration::from_millis(500)),
            "lease_ttl \"500ms\": give at least 2s",
        ),
        (
            good().with(|options| options.timeout = Duration::ZERO),
            "timeout \"0s\": give the time that a group may take to form",
        ),
    ] {
        // No process listens there, and no request is sent.
        let (error, took) = refusal(ClientOptions::new(["127.0.0.1:1"]), options).await;
        assert!(matches!(error, RendezvousError::State { .. }), "{error:?}");
        assert_eq!(error.to_string(), words);
        assert!(took < SHORT, "took {took:?}");
    }
}

#[tokio::test]
async fn an_unknown_option_suggests_the_right_one() {
    let registry = RendezvousHandlerRegistry::with_builtin();
    let parameters = || RendezvousParameters::new("etcd", "127.0.0.1:1", "job", 1, 2).unwrap();
    for (option, value, words) in [
        (
            "last_call",
            "5",
            "unknown option \"last_call\" of backend \"etcd\": did you mean last_call_timeout?",
        ),
        (
            "lease_tll",
            "5",
            "unknown option \"lease_tll\" of backend \"etcd\": did you mean lease_ttl?",
        ),
        ("colour", "5", "unknown option \"colour\" of backend \"etcd\". It knows: timeout, "),
        ("lease_ttl", "1", "lease_ttl \"1\": give a whole number from 2 to "),
        ("rank_policy", "hints", "rank_policy \"hints\": give stable, hint, topology or arrival"),
        ("timeout", "soon", "timeout \"soon\": give seconds from 0.001 to "),
    ] {
        let error = registry.create_handler(parameters().with(option, value)).await;
        let error = error.err().unwrap();
        assert!(matches!(error, RegistryError::Parameter(_)), "{error:?}");
        assert!(error.to_string().starts_with(words), "{error}");
    }
    let error = registry.create_handler(parameters().with("timout", 5)).await.err().unwrap();
    let suggested = matches!(
        &error,
        RegistryError::Parameter(ConfigError::UnknownOption { suggestion: Some(name), .. })
            if name == "timeout"
    );
    assert!(suggested, "{error:?}");
}

#[tokio::test]
async fn servers_that_cannot_be_reached_are_all_named() {
    let dead = [(); 2].map(|()| format!("127.0.0.1:{}", free_port()));
    let options = HandlerOptions::new("job", 1, 1).with(|options| options.timeout = SHORT);
    let (error, took) = refusal(ClientOptions::new(dead.clone()), options).await;
    assert!(matches!(error, RendezvousError::Connection { .. }), "{error:?}");
    assert!(error.source().is_some());
    let text = error.to_string();
    let words = format!("the rendezvous servers ({}, {}) cannot be used: ", dead[0], dead[1]);
    assert!(text.starts_with(&words) && text.contains("onnection refused"), "{text}");
    assert!(took < SHORT * 5, "it was given 1 s and took {took:?}");

    // The same through the registry, whose default for one request is longer than the time-out.
    let parameters = RendezvousParameters::new("etcd", dead.join(","), "job", 1, 1).unwrap();
    let registry = RendezvousHandlerRegistry::with_builtin();
    let error = registry.create_handler(parameters.with("timeout", 1)).await.err().unwrap();
    let connection = matches!(error, RegistryError::Rendezvous(RendezvousError::Connection { .. }));
    assert!(connection, "{error:?}");
    for endpoint in &dead {
        assert!(error.to_string().contains(endpoint), "{error}");
    }
}

#[tokio::test]
async fn a_wrong_password_is_told_at_once() {
    let server = Embedded::start_with(false, &["--user", "trainer", "--password", "hidden"]).await;
    let open = async |credentials: Option<Credentials>| {
        let client = ClientOptions::new([server.endpoint()])
            .with(|options| options.credentials = credentials);
        refusal(client, HandlerOptions::new("job", 1, 1)).await
    };
    let (error, took) = open(Some(Credentials::new("trainer", "guessed"))).await;
    assert!(matches!(error, RendezvousError::Connection { .. }), "{error:?}");
    let text = error.to_string();
    let words = format!("{} did not accept the password of user \"trainer\"", server.endpoint());
    assert!(text.contains(&words) && !text.contains("guessed"), "{text}");
    assert!(took < SHORT * 10, "took {took:?}");
    let (error, took) = open(None).await;
    assert!(error.to_string().contains("the server asks for a user and a password"), "{error}");
    assert!(took < SHORT * 10, "took {took:?}");
}

#[tokio::test]
async fn a_wrong_authority_is_told_at_once() {
    let directory = Directory::new();
    let [authority, other] = [Authority::new(), Authority::new()];
    let (cert, key) = authority.sign(directory.path(), "127.0.0.1");
    let tls = Tls { cert: &cert, key: &key, client_ca: None };
    let etcd = Etcd::start_tls(Version::V3_5, tls, &[]).await;
    let tls = Some(TlsOptions::new(other.ca()));
    let client = ClientOptions::new([etcd.endpoint()]).with(|options| options.tls = tls);
    let options = HandlerOptions::new("job", 1, 1).with(|options| options.timeout = SOON);
    let (error, took) = refusal(client, options).await;
    assert!(matches!(error, RendezvousError::Connection { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("the server's certificate is not signed by the given CA"), "{text}");
    assert!(text.contains(&etcd.endpoint()), "{text}");
    assert!(took < SHORT * 10, "certificates do not become good by waiting, but it took {took:?}");
}

#[tokio::test]
async fn a_server_that_is_gone_during_the_wait_is_named_after_the_time_out() {
    let mut server = Embedded::memory().await;
    let run = Run::new(server.endpoint(), "gone", 2, 2);
    let node = run.node_with(|options| options.timeout = Duration::from_secs(3)).await;
    let begun = Instant::now();
    let meeting = enter(&node);
    until_waits_for(&node, "1 of 2 nodes").await;
    server.kill();
    let error = meeting.await.unwrap().unwrap_err();
    assert!(matches!(error, RendezvousError::Connection { .. }), "{error:?}");
    let text = error.to_string();
    let words = format!("the rendezvous servers ({}) cannot be used: ", server.endpoint());
    assert!(text.starts_with(&words), "{text}");
    assert!(begun.elapsed() < Duration::from_secs(15), "took {:?}", begun.elapsed());
    // Nothing hangs afterwards either.
    let ended = Instant::now();
    timeout(SOON, node.shutdown()).await.expect("an end");
    assert!(ended.elapsed() < Duration::from_secs(25), "took {:?}", ended.elapsed());
}

/// How many requests a node makes in half a second in which nothing happens.
async fn restlessness(node: &Node) -> u64 {
    let before = node.client().traffic().requests;
    tokio::time::sleep(Duration::from_millis(500)).await;
    node.client().traffic().requests - before
}

#[tokio::test]
async fn closing_over_a_corrupt_document_ends() {
    let server = Embedded::memory().await;
    let run = Run::new(server.endpoint(), "corrupt", 1, 1);
    let node = run.node_with(hasty).await;
    node.client().put(Put::new(node.keys().active(), "nonsense")).await.unwrap();
    node.set_closed("enough").await.unwrap();
    assert!(restlessness(&node).await < 20, "still asking");
    let error = node.next_rendezvous().await.unwrap_err();
    assert!(matches!(error, RendezvousError::Closed { .. }), "{error:?}");
    assert!(error.to_string().contains("enough"), "{error}");
}

#[tokio::test]
async fn a_corrupt_number_of_the_last_round_is_named() {
    let server = Embedded::memory().await;
    let run = Run::new(server.endpoint(), "corrupt", 1, 1);
    let node = run.node_with(hasty).await;
    node.client().put(Put::new(node.keys().round(), "nonsense")).await.unwrap();
    let meeting = enter(&node);
    let requests = restlessness(&node).await;
    let error = meeting.await.unwrap().unwrap_err();
    assert!(requests < 20, "{requests} requests in half a second, and then: {error}");
    assert!(matches!(error, RendezvousError::State { .. }), "{error:?}");
    assert!(error.to_string().contains(&node.keys().round()), "{error}");
}
