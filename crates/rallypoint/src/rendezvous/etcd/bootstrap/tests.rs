//! What rank 0 makes of members that come and go.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::super::probe::tests::{A_WHILE, Guard, SOON};
use super::*;

/// Rank 0, where its store listens, and the token of the group.
fn hosting() -> (Bootstrap, SocketAddr, String) {
    let own = BootstrapNode {
        node: "node".into(),
        address: "127.0.0.1".into(),
        liveness: None,
        max_nodes: 4,
        ports: None,
    };
    let mut hosting = Bootstrap::new(own, true, HeldPort::default());
    let NodeInput::BootstrapStoreReady { round: 7, store } = hosting.begin(7, false) else {
        panic!("no port")
    };
    let address = SocketAddr::from(([127, 0, 0, 1], store.address.port));
    (hosting, address, store.token)
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

/// A member that has said hello, which claims to have connected from `claimed`, or from where it has.
async fn member(
    store: SocketAddr,
    token: &str,
    liveness: &LivenessAddress,
    claimed: Option<SocketAddr>,
) -> TcpStream {
    let mut stream = TcpStream::connect(store).await.unwrap();
    let address = claimed.unwrap_or_else(|| stream.local_addr().unwrap()).to_string();
    let words = ["member", token, &address, &liveness.host, &liveness.token];
    let words: Vec<u8> = words.iter().flat_map(|word| string(word)).collect();
    let port = liveness.port.to_le_bytes();
    let hello = [b"\x00\xce\xf7\x85\x3c\xe0", words.as_slice(), &port].concat();
    stream.write_all(&hello).await.unwrap();
    // The whole reply: what a dead process has not read would make its system send a reset.
    let mut reply = vec![0; 8 + 4 + 8 + store.to_string().len() + 8 + 8 + 2];
    stream.read_exact(&mut reply).await.unwrap();
    assert_eq!(reply[8..12], *b"node");
    stream
}

/// Lets the host do what it does until nothing happens for a while.
async fn is_quiet(hosting: &mut Bootstrap) {
    let event = timeout(A_WHILE, hosting.next()).await;
    assert!(event.is_err(), "{event:?}");
}

async fn next(hosting: &mut Bootstrap) -> PeerEvent {
    timeout(SOON, hosting.next()).await.unwrap()
}

fn suspect() -> PeerEvent {
    PeerEvent::Suspect { node: "member".into() }
}

#[tokio::test]
async fn a_store_that_ends_by_itself_is_a_reason_to_meet_again() {
    let (mut hosting, ..) = hosting();
    assert!(hosting.port.take().is_none(), "the port is in use");
    hosting.serving.as_ref().unwrap().0.tell_to_stop();
    assert_eq!(next(&mut hosting).await, PeerEvent::Suspect { node: "node".into() });
    assert!(hosting.serving.is_none());
}

#[tokio::test]
async fn each_round_has_a_token_of_its_own() {
    let (_first, _, first) = hosting();
    let (_second, _, second) = hosting();
    assert!(first.len() == 32 && second.len() == 32 && first != second);
}

#[tokio::test]
async fn members_learn_whether_rank_0_runs_the_server() {
    let (mut hosting, _, _) = hosting();
    for runs_server in [true, false] {
        let ready = hosting.begin(8, runs_server);
        let NodeInput::BootstrapStoreReady { store, .. } = ready else { panic!("no port") };
        assert_eq!(store.runs_server, runs_server);
    }
}

#[tokio::test]
async fn a_member_whose_processes_are_all_gone_is_suspected_and_then_dead() {
    let (mut hosting, store, token) = hosting();
    let guard = Guard::start().await;
    let connection = member(store, &token, &guard.address, None).await;
    is_quiet(&mut hosting).await;
    drop(connection);
    assert_eq!(next(&mut hosting).await, suspect());
    // Its launcher is dead, its workers are not. Another round has begun meanwhile.
    is_quiet(&mut hosting).await;
    hosting.begin(8, false);
    is_quiet(&mut hosting).await;
    drop(guard);
    assert_eq!(next(&mut hosting).await, PeerEvent::Dead { node: "member".into(), round: 7 });
    is_quiet(&mut hosting).await;
}

/// Which is what a firewall does: it ends the connection by a reset, and rejects others from then on.
#[tokio::test]
async fn a_member_whose_connection_is_reset_and_whose_port_is_refused_is_not_dead() {
    let (mut hosting, store, token) = hosting();
    let guard = Guard::start().await;
    let connection = member(store, &token, &guard.address, None).await;
    is_quiet(&mut hosting).await;
    rustix::net::sockopt::set_socket_linger(&connection, Some(Duration::ZERO)).unwrap();
    drop((connection, guard));
    assert_eq!(next(&mut hosting).await, suspect());
    is_quiet(&mut hosting).await;
}

/// A proxy that dies ends both connections in good order, and its ports are refused.
#[tokio::test]
async fn a_member_behind_a_proxy_that_dies_is_not_dead() {
    let (mut hosting, store, token) = hosting();
    let guard = Guard::start().await;
    let claimed = Some(SocketAddr::from(([10, 0, 0, 1], 4711)));
    let connection = member(store, &token, &guard.address, claimed).await;
    is_quiet(&mut hosting).await;
    drop((connection, guard));
    assert_eq!(next(&mut hosting).await, suspect());
    is_quiet(&mut hosting).await;
}

#[tokio::test]
async fn a_member_whose_socket_never_greeted_is_not_dead_when_it_is_refused() {
    let (mut hosting, store, token) = hosting();
    let guard = Guard::listen(0, false).await;
    let connection = member(store, &token, &guard.address, None).await;
    is_quiet(&mut hosting).await;
    drop((connection, guard));
    assert_eq!(next(&mut hosting).await, suspect());
    is_quiet(&mut hosting).await;
}

/// Also if it is gone at once: it lives, whatever becomes of its first connection.
#[tokio::test]
async fn a_member_that_comes_back_is_not_dead() {
    let (mut hosting, store, token) = hosting();
    let guard = Guard::start().await;
    let first = member(store, &token, &guard.address, None).await;
    is_quiet(&mut hosting).await;
    let _second = member(store, &token, &guard.address, None).await;
    drop(first);
    is_quiet(&mut hosting).await;
}

#[tokio::test]
async fn what_is_released_proves_nothing_any_more() {
    let (mut hosting, store, token) = hosting();
    let guard = Guard::start().await;
    let connection = member(store, &token, &guard.address, None).await;
    is_quiet(&mut hosting).await;
    drop(connection);
    assert_eq!(next(&mut hosting).await, suspect());
    hosting.release();
    drop(guard);
    sleep(A_WHILE).await;
    is_quiet(&mut hosting).await;
}
