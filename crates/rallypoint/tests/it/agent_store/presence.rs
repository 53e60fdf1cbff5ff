//! Nodes that say who they are, so that their end is noticed; byte by byte.

use std::time::Duration;

use rallypoint::core::rendezvous::documents::LivenessAddress;
use rallypoint::store::{AgentStore, ConnectionEnd, LostPeer, PeerReport, StoreOwner};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;

use super::raw::{Raw, VALIDATE, get, number, request, set, string, wait};
use super::{SOON, bound, has_clients, start};

const GOODBYE: [u8; 1] = [0xe1];
const TOKEN: &str = "0123456789abcdef";

/// A hello with these words (name, token, address, host and token of the liveness socket), and that one's port.
fn hello_of<T: AsRef<[u8]>>(words: [T; 5], port: u16) -> Vec<u8> {
    let words: Vec<u8> = words.iter().flat_map(string).collect();
    request(0xe0, &[&words, &port.to_le_bytes()])
}

/// A hello with the token, of a node without a liveness socket that does not say where it is.
fn hello(name: impl AsRef<[u8]>) -> Vec<u8> {
    hello_of([name.as_ref(), TOKEN.as_bytes(), b"", b"", b""], 0)
}

fn liveness() -> LivenessAddress {
    LivenessAddress { host: "10.0.0.1".into(), port: 4711, token: "s3cret".into() }
}

fn owner(liveness: Option<LivenessAddress>) -> StoreOwner {
    StoreOwner { node: "host-0".into(), token: TOKEN.into(), liveness, max_members: 4 }
}

fn start_as() -> (AgentStore, UnboundedReceiver<PeerReport>) {
    AgentStore::start_as(bound(), owner(None)).unwrap()
}

/// What the host says of itself.
fn reply(store: &AgentStore) -> Vec<u8> {
    let address = store.address().to_string();
    [string("host-0"), string(address), string(""), string(""), vec![0, 0]].concat()
}

/// The next lost node; reports of connected nodes are skipped.
async fn next(reports: &mut UnboundedReceiver<PeerReport>) -> LostPeer {
    loop {
        let report = timeout(SOON, reports.recv()).await.expect("in time");
        if let PeerReport::Lost(lost) = report.expect("the store lives") {
            return lost;
        }
    }
}

fn closed(node: &str) -> LostPeer {
    LostPeer { node: node.into(), how: ConnectionEnd::Closed, liveness: None }
}

/// No node was lost.
fn no_lost_peer(reports: &mut UnboundedReceiver<PeerReport>) {
    while let Ok(report) = reports.try_recv() {
        assert!(matches!(report, PeerReport::Connected { .. }), "{report:?}");
    }
}

/// A client that has said who it is.
async fn node(store: &AgentStore, name: &str) -> Raw {
    let mut raw = Raw::connect(store.address()).await;
    raw.asks(hello(name), reply(store)).await;
    raw
}

/// The same, which has a liveness socket and says that it has connected from `address`.
async fn node_from(store: &AgentStore, name: &str, address: Option<&str>) -> Raw {
    let mut raw = Raw::connect(store.address()).await;
    let own = raw.0.local_addr().unwrap().to_string();
    let LivenessAddress { host, port, token } = liveness();
    let words = [name, TOKEN, address.unwrap_or(&own), &host, &token];
    raw.asks(hello_of(words, port), reply(store)).await;
    raw
}

#[tokio::test]
async fn a_hello_is_answered_and_an_end_without_goodbye_is_told() {
    let (store, mut reports) = start_as();
    drop(node(&store, "host-1").await);
    assert_eq!(next(&mut reports).await, closed("host-1"));

    // A client that sent GOODBYE, or never sent HELLO, may disconnect.
    let mut polite = node(&store, "host-2").await;
    polite.say(GOODBYE).await;
    polite.settles().await;
    drop(polite);
    Raw::connect(store.address()).await.settles().await;
    has_clients(&store, 0).await;
    drop(node(&store, "host-3").await);
    assert_eq!(next(&mut reports).await, closed("host-3"));
    no_lost_peer(&mut reports);
}

#[tokio::test]
async fn a_goodbye_just_before_the_end_counts() {
    let (store, mut reports) = start_as();
    for _ in 0..50 {
        let mut raw = Raw::stranger(store.address()).await;
        raw.say([VALIDATE, &hello("host-1"), &GOODBYE].concat()).await;
    }
    // They may not have come in yet; this one comes after them.
    drop(node(&store, "host-2").await);
    assert_eq!(next(&mut reports).await, closed("host-2"));
    has_clients(&store, 0).await;
    no_lost_peer(&mut reports);
}

#[tokio::test]
async fn a_hello_may_come_byte_by_byte() {
    let (store, mut reports) = start_as();
    let mut raw = Raw::connect(store.address()).await;
    for byte in hello("host-1") {
        raw.0.write_u8(byte).await.unwrap();
    }
    raw.hears(reply(&store)).await;
    drop(raw);
    assert_eq!(next(&mut reports).await, closed("host-1"));
}

#[tokio::test]
async fn a_store_that_ends_says_goodbye_to_those_who_said_hello() {
    for waits in [true, false] {
        let (store, mut reports) = start_as();
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
        no_lost_peer(&mut reports);
        let end = timeout(SOON, reports.recv()).await.expect("it ends");
        assert_eq!(end, None, "no node was lost");
    }
}

#[tokio::test]
async fn stock_clients_notice_nothing() {
    let (store, _reports) = start_as();
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
    let (store, mut reports) = start_as();
    let long = "x".repeat(257);
    for name in ["", "a/b", "a\nb", &long] {
        let mut raw = Raw::connect(store.address()).await;
        raw.say(hello(name)).await;
        raw.is_closed().await;
    }
    let mut raw = Raw::connect(store.address()).await;
    raw.say(hello(b"\xff")).await;
    raw.is_closed().await;
    // Not before the greeting either, and not at a store whose owner did not ask, or has no token.
    let mut raw = Raw::stranger(store.address()).await;
    raw.say(hello("host-1")).await;
    raw.is_closed().await;
    let plain = start();
    let mut raw = Raw::connect(plain.address()).await;
    raw.say(hello("host-1")).await;
    raw.is_closed().await;
    let owner = StoreOwner { token: String::new(), ..owner(None) };
    let (open, _reports) = AgentStore::start_as(bound(), owner).unwrap();
    let mut raw = Raw::connect(open.address()).await;
    raw.say(hello_of(["host-1", "", "", "", ""], 0)).await;
    raw.is_closed().await;
    has_clients(&store, 0).await;
    assert!(reports.try_recv().is_err(), "somebody was noted");
}

#[tokio::test]
async fn the_longest_name_is_one() {
    let (store, mut reports) = start_as();
    let name = "x".repeat(256);
    drop(node(&store, &name).await);
    assert_eq!(next(&mut reports).await, closed(&name));
}

/// Seen: a client that reached the port could have any node of the group taken for dead.
#[tokio::test]
async fn a_hello_without_the_token_reports_no_node() {
    let (store, mut reports) = start_as();
    let token = |token| hello_of(["host-0", token, "", "", ""], 0);
    let hellos = [
        // As a build before tokens said it.
        request(0xe0, &[&string("host-0")]),
        token(""),
        token("0123456789abcdeF"),
        token("0123456789abcde"),
        token("0123456789abcdef0"),
    ];
    for (index, hello) in hellos.into_iter().enumerate() {
        let mut raw = Raw::connect(store.address()).await;
        raw.say(hello).await;
        if index > 0 {
            raw.is_closed().await;
        }
        drop(raw);
    }
    // This one comes after them.
    drop(node(&store, "host-1").await);
    assert_eq!(next(&mut reports).await, closed("host-1"));
    has_clients(&store, 0).await;
    assert!(reports.try_recv().is_err(), "somebody was reported");
}

/// Seen: each of them became a key on the server.
#[tokio::test]
async fn three_thousand_made_up_names_report_no_node() {
    let (store, mut reports) = start_as();
    for number in 0..3000 {
        let mut raw = Raw::stranger(store.address()).await;
        let name = format!("made-up-{number}");
        let hello = match number % 2 {
            0 => request(0xe0, &[&string(name)]),
            _ => hello_of([name.as_str(), "guessed", "", "", ""], 0),
        };
        let _ = raw.0.write_all(&[VALIDATE, &hello].concat()).await;
    }
    has_clients(&store, 0).await;
    assert!(reports.try_recv().is_err(), "somebody was reported");
}

#[tokio::test]
async fn no_more_nodes_than_the_run_has_are_noted() {
    let (store, mut reports) = start_as();
    let mut here = Vec::new();
    for number in 1..=4 {
        here.push(node(&store, &format!("host-{number}")).await);
    }
    let mut raw = Raw::connect(store.address()).await;
    raw.say(hello("host-5")).await;
    raw.is_closed().await;
    // Names are remembered only while their connection lives.
    here.pop().unwrap().say(GOODBYE).await;
    has_clients(&store, 3).await;
    here.push(node(&store, "host-5").await);
    no_lost_peer(&mut reports);
}

#[tokio::test]
async fn a_client_that_says_hello_twice_is_disconnected_and_no_node_is_lost() {
    let (store, mut reports) = start_as();
    for second in ["host-1", "host-2"] {
        let mut raw = node(&store, "host-1").await;
        raw.say(hello(second)).await;
        raw.is_closed().await;
        // Also after a goodbye.
        let mut raw = node(&store, "host-1").await;
        raw.say([&GOODBYE[..], &hello(second)].concat()).await;
        raw.is_closed().await;
    }
    has_clients(&store, 0).await;
    no_lost_peer(&mut reports);
}

#[tokio::test]
async fn a_node_that_comes_back_is_not_lost_with_its_first_connection() {
    let (store, mut reports) = start_as();
    let first = node(&store, "host-1").await;
    let second = node(&store, "host-1").await;
    drop(first);
    has_clients(&store, 1).await;
    no_lost_peer(&mut reports);
    drop(second);
    assert_eq!(next(&mut reports).await, closed("host-1"));
}

#[tokio::test]
async fn an_orderly_end_and_a_reset_are_told_apart() {
    let (store, mut reports) = start_as();
    drop(node_from(&store, "host-1", None).await);
    let lost = LostPeer { liveness: Some(liveness()), ..closed("host-1") };
    assert_eq!(next(&mut reports).await, lost);
    let reset = node_from(&store, "host-1", None).await;
    rustix::net::sockopt::set_socket_linger(&reset.0, Some(Duration::ZERO)).unwrap();
    drop(reset);
    assert_eq!(next(&mut reports).await, LostPeer { how: ConnectionEnd::Reset, ..lost });
}

/// Whatever is between them may end the connection in good order, without anybody having died.
#[tokio::test]
async fn the_end_of_a_connection_with_other_addresses_is_no_ground_for_a_proof() {
    let (store, mut reports) = start_as();
    for address in ["", "10.0.0.1:4711", "127.0.0.1:1", "nowhere"] {
        drop(node_from(&store, "host-1", Some(address)).await);
        assert_eq!(next(&mut reports).await, closed("host-1"));
    }
}

#[tokio::test]
async fn the_host_tells_its_liveness_socket_and_hears_of_those_that_come() {
    let (store, mut reports) = AgentStore::start_as(bound(), owner(Some(liveness()))).unwrap();
    let mut raw = Raw::connect(store.address()).await;
    let LivenessAddress { host, port, token } = liveness();
    let address = store.address().to_string();
    let port_bytes = port.to_le_bytes().to_vec();
    let reply = [string("host-0"), string(address), string(&host), string(&token), port_bytes];
    raw.asks(hello_of(["host-1", TOKEN, "", &host, &token], port), reply.concat()).await;
    let came = PeerReport::Connected { node: "host-1".into(), liveness: Some(liveness()) };
    assert_eq!(timeout(SOON, reports.recv()).await.expect("in time"), Some(came));
}

#[tokio::test]
async fn half_a_hello_registers_no_node() {
    let (store, mut reports) = start_as();
    let whole = hello("host-1");
    for length in 1..whole.len() {
        let mut raw = Raw::connect(store.address()).await;
        raw.say(&whole[..length]).await;
        raw.0.shutdown().await.unwrap();
        raw.is_closed().await;
    }
    has_clients(&store, 0).await;
    assert!(reports.try_recv().is_err(), "somebody was noted");
}

/// At once: the store does not wait until the announced bytes have arrived.
#[tokio::test]
async fn a_hello_of_enormous_strings_is_cut_off() {
    let (store, mut reports) = start_as();
    for length in [257, 8192, 1 << 32, u64::MAX] {
        for before in 0..5 {
            let mut raw = Raw::connect(store.address()).await;
            let strings: Vec<u8> = std::iter::repeat_n(string("x"), before).flatten().collect();
            raw.say(request(0xe0, &[&strings, &length.to_le_bytes()])).await;
            raw.is_closed().await;
        }
    }
    has_clients(&store, 0).await;
    assert!(reports.try_recv().is_err(), "somebody was noted");
}

/// Whatever follows the opcode, no node is registered without the token, and other clients are served.
#[tokio::test]
async fn noise_after_a_hello_registers_no_node() {
    let (store, mut reports) = start_as();
    let mut random = fastrand::Rng::with_seed(11);
    for _ in 0..300 {
        let mut raw = Raw::stranger(store.address()).await;
        let mut noise = VALIDATE.to_vec();
        while noise.len() < 300 {
            noise.push(if random.bool() { 0xe0 } else { 0xe1 });
            noise.extend_from_slice(&number(random.i64(0..9)));
            noise.extend((0..random.usize(..9)).map(|_| random.u8(..)));
        }
        let _ = raw.0.write_all(&noise).await;
        let _ = timeout(SOON, raw.0.shutdown()).await.expect("in time");
        let _ = timeout(SOON, raw.0.read_to_end(&mut Vec::new())).await.expect("in time");
    }
    drop(node(&store, "host-1").await);
    assert_eq!(next(&mut reports).await, closed("host-1"));
    has_clients(&store, 0).await;
    assert!(reports.try_recv().is_err(), "somebody was noted");
}
