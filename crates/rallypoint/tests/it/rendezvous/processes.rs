//! Groups that form, shrink and grow, and nodes that there is no room for.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rallypoint::core::kv::KeyRange;
use rallypoint::core::rendezvous::documents::Address;

use super::node::{Job, Node};
use super::{Observer, group, on_each_server, on_old_etcd, ranks};

on_each_server!(
    eight_nodes_form_a_group,
    the_group_goes_on_without_a_killed_node_and_takes_a_new_one,
    a_group_grows_and_shrinks,
    a_spare_causes_no_restart_and_takes_a_dead_nodes_rank,
    jobs_do_not_mix,
);

on_old_etcd!(eight_nodes_form_a_group, a_group_grows_and_shrinks);

async fn eight_nodes_form_a_group(endpoint: String) {
    let mut nodes = Job::new(&endpoint, "8:8").nodes(8);
    let places = group(&mut nodes, 0).await;
    assert_eq!(ranks(&places).into_iter().collect::<BTreeSet<_>>(), (0..8).collect());
    assert!(places.iter().all(|place| (place.round, place.world) == (1, 8)), "{places:#?}");

    // Everyone has the address that rank 0 published when it confirmed.
    let observer = Observer::new(&endpoint).await;
    let leader = places.iter().position(|place| place.rank == 0).unwrap();
    let key = observer.keys.ready(1, &nodes[leader].id());
    let ready = observer.client.range(KeyRange::key(key)).await.unwrap();
    let Address { host, port } = serde_json::from_slice(&ready.kvs[0].value).unwrap();
    assert!(port > 0);
    assert!(places.iter().all(|place| place.master == format!("{host}:{port}")), "{places:#?}");
    // It keeps that port: nobody is given it who does not ask for it on purpose.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    let taken = socket.bind(places[0].master.parse().unwrap()).unwrap_err();
    assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
}

async fn the_group_goes_on_without_a_killed_node_and_takes_a_new_one(endpoint: String) {
    let job = Job::new(&endpoint, "7:8").with("--last-call", "1");
    let mut nodes = job.nodes(8);
    let before = group(&mut nodes, 0).await;
    let coordinator = Observer::new(&endpoint).await.coordinator(&mut nodes).await;
    nodes.iter_mut().for_each(Node::forget);
    let victim = (0..8).find(|index| *index != coordinator && before[*index].rank != 7).unwrap();
    let (id, hole) = (nodes[victim].id(), before[victim].rank);
    nodes[victim].kill();
    let killed = Instant::now();
    nodes.remove(victim);
    for node in &mut nodes {
        let told = node.event("changed").await;
        assert_eq!(told["nodes_waiting"], 1, "{told}");
        // Unless another has gone ahead already, it is also told who is gone.
        assert!(told["lost"] == serde_json::json!([id]) || told["lost"] == serde_json::json!([]));
    }
    assert!(killed.elapsed() < Duration::from_secs(15), "told after {:?}", killed.elapsed());
    let after = group(&mut nodes, before[0].round).await;
    let kept = before.iter().enumerate().filter(|(index, _)| *index != victim);
    for ((_, before), after) in kept.zip(&after) {
        // Who has the last rank must give it up in a smaller group, and gets the one that is free.
        let expected = if before.rank == 7 { hole } else { before.rank };
        assert_eq!(after.rank, expected);
    }
    nodes.push(job.node());
    let grown = group(&mut nodes, after[0].round).await;
    assert_eq!(ranks(&grown)[..7], ranks(&after), "who was there keeps its rank");
    assert_eq!(grown[7].rank, 7);
}

async fn a_group_grows_and_shrinks(endpoint: String) {
    let job = Job::new(&endpoint, "2:8").with("--last-call", "0.5");
    let mut nodes = job.nodes(2);
    let two = group(&mut nodes, 0).await;
    nodes.extend(job.nodes(6));
    let eight = group(&mut nodes, two[0].round).await;
    assert_eq!(ranks(&eight)[..2], ranks(&two), "who was there keeps its rank");
    let mut leaving = nodes.split_off(3);
    for (index, node) in leaving.iter_mut().enumerate() {
        // Some say goodbye and some do not.
        if index % 2 == 0 { node.terminate() } else { node.kill() }
    }
    group(&mut nodes, eight[0].round).await;
    assert!(leaving[0].ended().await.success());
}

async fn a_spare_causes_no_restart_and_takes_a_dead_nodes_rank(endpoint: String) {
    let job = Job::new(&endpoint, "3:3");
    let mut nodes = job.nodes(3);
    let before = group(&mut nodes, 0).await;
    nodes.iter_mut().for_each(Node::forget);
    let mut spare = job.node();
    spare.waits_for("a place to become free").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    for node in &mut nodes {
        assert!(node.is_quiet(), "disturbed: {:#?}", node.told());
    }

    nodes[1].kill();
    nodes[1] = spare;
    let after = group(&mut nodes, before[0].round).await;
    assert_eq!(ranks(&after), ranks(&before), "the spare has the rank of the dead node");

    let mut spare = job.node();
    spare.waits_for("a place to become free").await;
    nodes[2].command("close the work is done");
    let told = spare.event("graceful_exit").await;
    let reason = told["reason"].as_str().unwrap();
    assert!(reason.contains("the work is done") && reason.contains(&nodes[2].id()), "{reason}");
    assert!(spare.ended().await.success());
    for node in &mut nodes {
        assert_eq!(node.event("closed").await["reason"], "the work is done");
        assert!(node.ended().await.success());
    }
}

async fn jobs_do_not_mix(endpoint: String) {
    let job = Job::new(&endpoint, "2:2");
    let jobs = [
        job.with("--run-id", "a"),
        job.with("--run-id", "ab"),
        job.with("--prefix", "/x"),
        job.with("--prefix", "/x/y"),
    ];
    let mut first: Vec<Node> = jobs.iter().map(Job::node).collect();
    for node in &mut first {
        node.waits_for("1 of 2 nodes").await;
    }
    let mut masters = BTreeSet::new();
    for (job, node) in jobs.iter().zip(first) {
        let mut nodes = [node, job.node()];
        let places = group(&mut nodes, 0).await;
        assert_eq!(places[0].round, 1);
        masters.insert(places[0].master.clone());
        nodes[0].command("close enough");
        nodes[1].event("closed").await;
    }
    assert_eq!(masters.len(), jobs.len());
}
