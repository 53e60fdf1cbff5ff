//! Clients that mean harm.

use rallypoint::store::AgentStore;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpSocket;

use super::raw::{Raw, VALIDATE, add, number, ping, request, string, wait};
use super::{has_clients, start};

#[tokio::test]
async fn strangers_are_turned_away() {
    let store = start();
    let openings: [&[u8]; 7] = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\xff\xff\xff\xff\xff\xff\xff\xff",
        // Not first what comes first.
        b"\x0d\x01\0\0\0",
        b"\x01",
        // Not the right number.
        b"\x00\x01\x02\x03\x04",
    ];
    for opening in openings {
        let mut raw = Raw::stranger(store.address()).await;
        raw.say(opening).await;
        raw.is_closed().await;
    }
    // Once is enough.
    let mut raw = Raw::connect(store.address()).await;
    raw.say(VALIDATE).await;
    raw.is_closed().await;
    has_clients(&store, 0).await;
}

#[tokio::test]
async fn opcodes_that_do_not_exist_end_the_connection() {
    let store = start();
    for opcode in [19, 20, 100, 0xdf, 0xe2, 255] {
        let mut raw = Raw::connect(store.address()).await;
        // What came before it is still answered.
        raw.asks([ping(5), vec![opcode]].concat(), 5_u32.to_le_bytes()).await;
        raw.is_closed().await;
    }
}

/// Whatever comes, other clients are served.
#[tokio::test]
async fn noise_harms_no_other_client() {
    let store = start();
    let mut good = Raw::connect(store.address()).await;
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..300 {
        let mut raw = Raw::stranger(store.address()).await;
        let mut noise: Vec<u8> = VALIDATE.to_vec();
        while noise.len() < 200 {
            // Opcodes and small numbers, so that some of it makes sense.
            noise.push(random.u8(..20));
            noise.extend_from_slice(&number(random.i64(0..5)));
            noise.extend((0..random.usize(..8)).map(|_| b'k'));
        }
        let _ = raw.0.write_all(&noise).await;
        drop(raw);
        good.asks(add("/good", 1), number(round + 1)).await;
    }
    drop(good);
    has_clients(&store, 0).await;
}

#[tokio::test]
async fn half_a_request_is_not_executed() {
    let store = start();
    let mut good = Raw::connect(store.address()).await;
    let whole =
        request(11, &[&number(2), &string("/a"), &string("1"), &string("/b"), &string("2")]);
    for length in 1..whole.len() {
        let mut raw = Raw::connect(store.address()).await;
        raw.say(&whole[..length]).await;
        raw.0.shutdown().await.unwrap();
        raw.is_closed().await;
    }
    good.asks([7], number(0)).await;
}

#[tokio::test]
async fn the_port_is_held_from_the_first_moment_and_free_in_the_end() {
    let socket = super::bound();
    let address = socket.local_addr().unwrap();
    let taken = || TcpSocket::new_v4().unwrap().bind(address).is_err();
    assert!(taken(), "it is bound");
    let next = super::bound_too(&socket);
    let store = AgentStore::start(socket).unwrap();
    assert_eq!(store.address(), address);
    let mut raw = Raw::connect(address).await;
    raw.say(wait(&["/never"])).await;
    raw.settles().await;
    store.stop().await;
    raw.is_closed().await;
    // A new store knows nothing of the old one.
    let store = AgentStore::start(next).unwrap();
    let mut raw = Raw::connect(address).await;
    raw.asks([7], number(0)).await;
    drop(store);
    raw.is_closed().await;
}

#[tokio::test]
async fn a_socket_that_cannot_listen_is_an_error() {
    let socket = super::bound();
    let next = super::bound_too(&socket);
    let _store = AgentStore::start(socket).unwrap();
    assert!(AgentStore::start(next).is_err(), "the port is served already");
}
