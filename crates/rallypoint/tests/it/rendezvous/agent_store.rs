//! The store that rank 0's node serves for the workers of its group.

use std::time::Duration;

use rallypoint::rendezvous::{RendezvousHandler, RendezvousInfo};
use rallypoint::store::{Store, TcpStore};
use tokio::net::TcpStream;

use super::handlers::{handler, meet, met, options};
use super::on_each_server;
use crate::support::hostile::eventually;

on_each_server!(
    workers_find_a_store_where_they_are_told,
    each_round_has_another_store,
    the_store_moves_to_the_node_that_has_rank_0,
    who_cannot_serve_any_more_makes_the_group_meet_again,
    without_it_the_port_is_kept_for_others,
);

const LONG: Duration = Duration::from_secs(30);

fn address(group: &RendezvousInfo) -> String {
    let master = &group.bootstrap_store_info;
    format!("{}:{}", master.master_addr, master.master_port)
}

/// A worker's way to the store of its group.
async fn worker(group: &RendezvousInfo) -> TcpStore {
    TcpStore::connect(&address(group), LONG).await.unwrap()
}

async fn is_gone(address: &str) {
    let gone = async || TcpStream::connect(address).await.is_err();
    eventually("the store is gone", LONG, gone).await;
}

async fn workers_find_a_store_where_they_are_told(endpoint: String) {
    let (one, two) =
        (handler(&endpoint, options(2, 2)).await, handler(&endpoint, options(2, 2)).await);
    assert!(one.use_agent_store());
    let (first, second) = tokio::join!(met(meet(&one)), met(meet(&two)));
    assert_eq!(address(&first), address(&second));
    // It listens from before it was told to anybody: no client has to retry.
    drop(TcpStream::connect(address(&second)).await.unwrap());
    let (here, there) = (worker(&first).await, worker(&second).await);
    let both = [&here, &there].map(|store| store.barrier(b"start", 2, LONG));
    for done in futures_util::future::join_all(both).await {
        done.unwrap();
    }
    here.set(b"key", "value".into()).await.unwrap();
    assert_eq!(there.get(b"key").await.unwrap(), "value");
    // No other process can bind this port.
    assert!([&one, &two].iter().all(|handler| handler.take_port().is_none()));
}

async fn each_round_has_another_store(endpoint: String) {
    let (one, two) =
        (handler(&endpoint, options(2, 2)).await, handler(&endpoint, options(2, 2)).await);
    let (first, _) = tokio::join!(met(meet(&one)), met(meet(&two)));
    worker(&first).await.set(b"default_pg/0//cpu//0/0", "stale".into()).await.unwrap();
    let (second, _) = tokio::join!(met(meet(&one)), met(meet(&two)));
    assert_ne!(address(&first), address(&second));
    assert_eq!(worker(&second).await.num_keys().await.unwrap(), 0);
    is_gone(&address(&first)).await;
    // No store is served for a group without members.
    one.leave().await;
    two.leave().await;
    is_gone(&address(&second)).await;
}

async fn the_store_moves_to_the_node_that_has_rank_0(endpoint: String) {
    let (one, two) =
        (handler(&endpoint, options(1, 2)).await, handler(&endpoint, options(1, 2)).await);
    let (first, second) = tokio::join!(met(meet(&one)), met(meet(&two)));
    assert_eq!((first.world_size, second.world_size), (2, 2));
    let (leaves, stays) = if first.rank == 0 { (one, two) } else { (two, one) };
    leaves.leave().await;
    is_gone(&address(&first)).await;
    let alone = met(meet(&stays)).await;
    assert_eq!((alone.rank, alone.world_size), (0, 1));
    worker(&alone).await.set(b"key", "value".into()).await.unwrap();
    drop(stays);
    is_gone(&address(&alone)).await;
}

/// That is how a node reports that its own store has ended.
async fn who_cannot_serve_any_more_makes_the_group_meet_again(endpoint: String) {
    let (one, two) =
        (handler(&endpoint, options(2, 2)).await, handler(&endpoint, options(2, 2)).await);
    let (first, _) = tokio::join!(met(meet(&one)), met(meet(&two)));
    let host = if first.rank == 0 { &one } else { &two };
    host.suspect(host.node_id());
    for handler in [&one, &two] {
        let told = async || handler.num_nodes_waiting().await.unwrap() > 0;
        eventually("told to meet again", LONG, told).await;
    }
    let (second, _) = tokio::join!(met(meet(&one)), met(meet(&two)));
    assert_eq!((second.round > first.round, second.world_size), (true, 2));
}

async fn without_it_the_port_is_kept_for_others(endpoint: String) {
    let options = options(1, 1).with(|options| options.use_agent_store = false);
    let handler = handler(&endpoint, options).await;
    assert!(!handler.use_agent_store());
    let group = met(meet(&handler)).await;
    assert!(TcpStream::connect(address(&group)).await.is_err(), "no process listens yet");
    let listener = handler.take_port().unwrap().listen(1).unwrap();
    assert_eq!(listener.local_addr().unwrap().to_string(), address(&group));
    let (client, server) = tokio::join!(TcpStream::connect(address(&group)), listener.accept());
    assert!(client.is_ok() && server.is_ok());
}
