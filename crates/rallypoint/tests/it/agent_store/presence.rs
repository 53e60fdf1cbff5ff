//! Nodes that say who they are, so that their end is noticed; byte by byte.

use rallypoint::store::AgentStore;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;

use super::raw::{Raw, VALIDATE, get, number, request, set, string, wait};
use super::{SOON, bound, has_clients, start};

const GOODBYE: [u8; 1] = [0xe1];

fn hello(name: impl AsRef<[u8]>) -> Vec<u8> {
    request(0xe0, &[&string(name)])
}

fn start_as(host: &str) -> (AgentStore, UnboundedReceiver<String>) {
    AgentStore::start_as(bound(), host).unwrap()
}

async fn next(lost: &mut UnboundedReceiver<String>) -> String {
    timeout(SOON, lost.recv()).await.expect("in time").expect("the store lives")
}

/// A client that has said who it is.
async fn node(store: &AgentStore, name: &str) -> Raw {
    let mut raw = Raw::connect(store.address()).await;
    raw.asks(hello(name), string("host-0")).await;
    raw
}

#[tokio::test]
async fn a_hello_is_answered_and_an_end_without_goodbye_is_told() {
    let (store, mut lost) = start_as("host-0");
    drop(node(&store, "host-1").await);
    assert_eq!(next(&mut lost).await, "host-1");

    // Whoever says goodbye, or never said hello, may go.
    let mut polite = node(&store, "host-2").await;
    polite.say(GOODBYE).await;
    polite.settles().await;
    drop(polite);
    Raw::connect(store.address()).await.settles().await;
    has_clients(&store, 0).await;
    drop(node(&store, "host-3").await);
    assert_eq!(next(&mut lost).await, "host-3");
    assert!(lost.try_recv().is_err());
}

#[tokio::test]
async fn a_goodbye_just_before_the_end_counts() {
    let (store, mut lost) = start_as("host-0");
    for _ in 0..50 {
        let mut raw = Raw::stranger(store.address()).await;
        raw.say([VALIDATE, &hello("host-1"), &GOODBYE].concat()).await;
    }
    // They may not have come in yet; this one comes after them.
    drop(node(&store, "host-2").await);
    assert_eq!(next(&mut lost).await, "host-2");
    has_clients(&store, 0).await;
    assert!(lost.try_recv().is_err());
}

#[tokio::test]
async fn a_hello_may_come_byte_by_byte() {
    let (store, mut lost) = start_as("host-0");
    let mut raw = Raw::connect(store.address()).await;
    for byte in hello("host-1") {
        raw.0.write_u8(byte).await.unwrap();
    }
    raw.hears(string("host-0")).await;
    drop(raw);
    assert_eq!(next(&mut lost).await, "host-1");
}

#[tokio::test]
async fn a_store_that_ends_says_goodbye_to_those_who_said_hello() {
    for waits in [true, false] {
        let (store, mut lost) = start_as("host-0");
        let mut known = node(&store, "host-1").await;
        let mut gone = node(&store, "host-2").await;
        gone.say(GOODBYE).await;
        gone.settles().await;
        let mut stock = Raw::connect(store.address()).await;
        stock.settles().await;
        if waits {
            store.stop().await;
        } else {
            drop(store);
        }
        known.hears(GOODBYE).await;
        for mut raw in [known, gone, stock] {
            raw.is_closed().await;
        }
        assert_eq!(timeout(SOON, lost.recv()).await.expect("it ends"), None, "nobody was lost");
    }
}

#[tokio::test]
async fn stock_clients_notice_nothing() {
    let (store, _lost) = start_as("host-0");
    let mut stock = Raw::connect(store.address()).await;
    stock.say(set("/k", "v")).await;
    let mut known = node(&store, "host-1").await;
    stock.asks([7], number(1)).await;
    stock.asks([17], [number(1).to_vec(), string("/k")].concat()).await;
    stock.say(wait(&["/later"])).await;
    known.say(GOODBYE).await;
    drop(node(&store, "host-2").await);
    stock.hears_nothing().await;
    // Also one who said hello may use the store.
    known.asks(get("/k"), string("v")).await;
    known.say(set("/later", "")).await;
    stock.hears([0]).await;
}

#[tokio::test]
async fn what_is_no_node_is_cut_off() {
    let (store, mut lost) = start_as("host-0");
    let long = "x".repeat(256);
    for name in ["", "a/b", "a\nb", &long] {
        let mut raw = Raw::connect(store.address()).await;
        raw.say(hello(name)).await;
        raw.is_closed().await;
    }
    let mut raw = Raw::connect(store.address()).await;
    raw.say(hello(b"\xff")).await;
    raw.is_closed().await;
    // Not before the greeting either, and not at a store whose owner did not ask.
    let mut raw = Raw::stranger(store.address()).await;
    raw.say(hello("host-1")).await;
    raw.is_closed().await;
    let plain = start();
    let mut raw = Raw::connect(plain.address()).await;
    raw.say(hello("host-1")).await;
    raw.is_closed().await;
    has_clients(&store, 0).await;
    assert!(lost.try_recv().is_err());
}
