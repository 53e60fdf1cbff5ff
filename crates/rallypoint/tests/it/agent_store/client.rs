//! The client in Rust.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rallypoint::store::{AgentStore, Store, StoreError, TcpStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};
use tokio::time::{Instant, timeout};

use super::raw::{Raw, get, number, ping, queue_push, set, string, wait};
use super::{A_WHILE, SOON, bound, bound_too, has_clients, start};
use crate::support::hostile::eventually;

async fn connect(store: &AgentStore) -> TcpStore {
    TcpStore::connect(&store.address().to_string(), SOON).await.unwrap()
}

#[tokio::test]
async fn its_keys_are_those_of_stock_clients() {
    let server = start();
    let (store, mut raw) = (connect(&server).await, Raw::connect(server.address()).await);
    raw.say(set("/theirs", "1")).await;
    raw.say(set("init/", "2")).await;
    raw.settles().await;
    store.set(b"ours", "3".into()).await.unwrap();
    raw.asks(get("/ours"), string("3")).await;
    assert_eq!(store.get(b"theirs").await.unwrap(), "1");
    assert_eq!(store.list_keys().await.unwrap(), ["ours", "theirs"]);
    assert_eq!(store.num_keys().await.unwrap(), 3);
}

/// When a write returns, everyone sees it, whichever connection they ask on.
#[tokio::test]
async fn a_write_that_returned_was_executed() {
    let server = start();
    let (one, other) = (connect(&server).await, connect(&server).await);
    for round in 0..200 {
        let key = format!("k{round}");
        one.set(key.as_bytes(), "".into()).await.unwrap();
        assert!(other.check(&[key.as_bytes()]).await.unwrap());
        one.append(b"log", "x".into()).await.unwrap();
        assert_eq!(other.get(b"log").await.unwrap().len(), round + 1);
        one.queue_push(b"q", "".into()).await.unwrap();
        assert_eq!(other.queue_len(b"q").await.unwrap(), round as u64 + 1);
        one.multi_set(&[(b"multi", key.clone().into())]).await.unwrap();
        assert_eq!(other.get(b"multi").await.unwrap(), key);
    }
}

#[tokio::test]
async fn a_call_that_waits_delays_no_other_call() {
    let server = start();
    let store = Arc::new(connect(&server).await);
    let waiting: Vec<_> = (0..20)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.get(b"late").await })
        })
        .collect();
    has_clients(&server, 20).await;
    assert_eq!(store.add(b"n", 1).await.unwrap(), 1);
    store.set(b"late", "now".into()).await.unwrap();
    for waiter in waiting {
        assert_eq!(waiter.await.unwrap().unwrap(), "now");
    }
    eventually("few connections are kept", SOON, async || server.connections() <= 4).await;
}

#[tokio::test]
async fn a_dropped_call_leaves_nothing() {
    let server = start();
    let store = connect(&server).await;
    for _ in 0..20 {
        assert!(timeout(A_WHILE / 10, store.get(b"never")).await.is_err());
        assert!(timeout(A_WHILE / 10, store.queue_pop(b"q", true)).await.is_err());
        assert!(timeout(A_WHILE / 10, store.barrier(b"b", 1 << 40, SOON)).await.is_err());
        assert_eq!(store.add(b"n", 0).await.unwrap(), 0);
    }
    has_clients(&server, 1).await;
    // A disconnected client takes no element that another client waits for.
    let other = connect(&server).await;
    let pop = tokio::spawn(async move { other.queue_pop(b"q", true).await });
    has_clients(&server, 2).await;
    store.queue_push(b"q", "x".into()).await.unwrap();
    assert_eq!(pop.await.unwrap().unwrap(), "x");
}

#[tokio::test]
async fn a_time_out_names_what_is_missing_and_keeps_the_connection() {
    let server = start();
    let store = connect(&server).await;
    store.set(b"there", "".into()).await.unwrap();
    store.queue_push(b"queue", "".into()).await.unwrap();
    let mut named = 0;
    for _ in 0..10 {
        let keys: [&[u8]; 4] = [b"there", b"a", b"queue", b"b"];
        let missed = store.wait(&keys, Duration::from_millis(1)).await.unwrap_err();
        let StoreError::Timeout { missing, waited } = missed else { panic!("{missed}") };
        assert_eq!(waited, Duration::from_millis(1));
        // If the machine has stalled, the server could not be asked.
        if missing != ["there", "a", "queue", "b"] {
            assert_eq!(missing, ["a", "b"]);
            named += 1;
        }
    }
    assert!(named > 0);
    store.set_timeout(Duration::from_millis(1));
    let missed = store.queue_pop(b"empty", true).await.unwrap_err();
    assert!(matches!(missed, StoreError::Timeout { .. }), "{missed}");
    let missed = store.barrier(b"b", 3, Duration::from_millis(1)).await.unwrap_err();
    let StoreError::Barrier { arrived: Some(1) | None, world_size: 3, .. } = missed else {
        panic!("{missed}")
    };
    has_clients(&server, 1).await;
    // What exists needs no time at all.
    store.wait(&[b"there"], Duration::ZERO).await.unwrap();
}

#[tokio::test]
async fn a_barrier_is_one_for_all() {
    let server = start();
    let members = (0..10).map(|_| async {
        let store = connect(&server).await;
        store.barrier(b"b", 10, SOON).await
    });
    for passed in futures_util::future::join_all(members).await {
        passed.unwrap();
    }
}

#[tokio::test]
async fn a_blocking_pop_waits_again_if_another_was_quicker() {
    let server = start();
    let stores = futures_util::future::join_all((0..8).map(|_| connect(&server))).await;
    let pop = |store: TcpStore| tokio::spawn(async move { store.queue_pop(b"q", true).await });
    let poppers: Vec<_> = stores.into_iter().map(pop).collect();
    let pusher = connect(&server).await;
    for element in 0..8_u8 {
        pusher.queue_push(b"q", vec![element].into()).await.unwrap();
        // A thief, now and then.
        if let Ok(stolen) = pusher.queue_pop(b"q", false).await {
            pusher.queue_push(b"q", stolen).await.unwrap();
        }
    }
    let mut popped = Vec::new();
    for popper in poppers {
        popped.extend(timeout(SOON, popper).await.unwrap().unwrap().unwrap());
    }
    popped.sort_unstable();
    assert_eq!(popped, [0, 1, 2, 3, 4, 5, 6, 7]);
}

/// A key with a value exists, so waiting for it would not end; and nothing that is read of it tells an
/// empty value from none.
#[tokio::test]
async fn a_blocking_pop_of_a_key_with_a_value_is_an_error_at_once() {
    let server = start();
    let store = connect(&server).await;
    for value in ["", "x"] {
        store.set(b"q", value.into()).await.unwrap();
        let error = timeout(SOON, store.queue_pop(b"q", true)).await.unwrap().unwrap_err();
        assert!(matches!(error, StoreError::QueueEmpty { .. }), "{error}");
        store.queue_push(b"q", "element".into()).await.unwrap();
        assert_eq!(store.queue_pop(b"q", true).await.unwrap(), "element");
    }
}

/// It is woken time and again, and there is never anything for it.
#[tokio::test]
async fn a_blocking_pop_ends_in_time_though_others_are_always_quicker() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let serve = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        greet(&mut stream).await;
        let mut request = [0; 100];
        while stream.read(&mut request).await.unwrap() > 0 {
            let reply = match request[0] {
                6 => vec![0],
                15 => number(0).to_vec(),
                // The queue has an element, though only for others.
                16 => [&number(1), [0].as_slice(), &number(1)].concat(),
                opcode => panic!("opcode {opcode}"),
            };
            stream.write_all(&reply).await.unwrap();
        }
    };
    let pop = async {
        let store = TcpStore::connect(&address, SOON).await.unwrap();
        store.set_timeout(A_WHILE);
        store.queue_pop(b"q", true).await.unwrap_err()
    };
    let (error, ()) = timeout(SOON, async { tokio::join!(pop, serve) }).await.unwrap();
    assert!(matches!(error, StoreError::Timeout { .. }), "{error}");
}

/// Answers what a client says first.
async fn greet(stream: &mut tokio::net::TcpStream) {
    let mut greeting = [0; 10];
    stream.read_exact(&mut greeting).await.unwrap();
    stream.write_all(&greeting[6..]).await.unwrap();
}

/// A client that only waits is woken for an element that it does not take.
#[tokio::test]
async fn a_wait_does_not_keep_an_element_from_those_who_pop() {
    let server = start();
    let (waits, mut pops) =
        (Arc::new(connect(&server).await), Raw::connect(server.address()).await);
    let mut pusher = Raw::connect(server.address()).await;
    let waiting = tokio::spawn({
        let waits = waits.clone();
        async move { waits.wait(&[b"q"], SOON).await }
    });
    // That it waits cannot be seen; if it comes second, the test shows less.
    tokio::time::sleep(A_WHILE).await;
    pops.say(wait(&["/q"])).await;
    pops.asks(ping(7), 7_u32.to_le_bytes()).await;
    pusher.say(queue_push("/q", "x")).await;
    pops.hears([0]).await;
    // Now the first in line has been woken, or is by what is taken.
    drop(pops);
    waiting.await.unwrap().unwrap();
    assert_eq!(waits.queue_pop(b"q", true).await.unwrap(), "x");
}

/// A server that cannot be asked is no reason to wait for longer than was wanted.
#[tokio::test]
async fn a_silent_server_does_not_prolong_a_wait() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    // It greets the first, and then says nothing any more.
    let serve = async {
        let mut silent = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            if silent.is_empty() {
                greet(&mut stream).await;
            }
            silent.push(stream);
        }
    };
    let ask = async {
        let store = TcpStore::connect(&address, SOON).await.unwrap();
        store.set_timeout(A_WHILE);
        let begun = Instant::now();
        let keys: [&[u8]; 2] = [b"a", b"b"];
        // The first of them has a connection, the remaining ones must connect.
        let (waited, got, popped, passed) = tokio::join!(
            store.wait(&keys, A_WHILE),
            store.get(b"a"),
            store.queue_pop(b"a", true),
            store.barrier(b"a", 2, A_WHILE),
        );
        let StoreError::Timeout { missing, waited } = waited.unwrap_err() else { panic!() };
        assert_eq!((missing, waited), (vec!["a".into(), "b".into()], A_WHILE));
        for error in [got.unwrap_err(), popped.unwrap_err()] {
            assert!(matches!(error, StoreError::Timeout { .. }), "{error}");
        }
        let error = passed.unwrap_err();
        assert!(matches!(error, StoreError::Barrier { arrived: None, .. }), "{error}");
        assert!(begun.elapsed() < SOON / 2, "{:?}", begun.elapsed());
    };
    tokio::select! {
        () = ask => {}
        () = serve => unreachable!(),
    }
}

#[tokio::test]
async fn what_cannot_be_added_to_is_told_from_a_lost_connection() {
    let server = start();
    let store = connect(&server).await;
    store.set(b"text", "seven".into()).await.unwrap();
    store.set(b"most", i64::MAX.to_string().into()).await.unwrap();
    for (key, word) in [(b"text", "seven"), (b"most", "64 bits")] {
        let error = store.add(key, 1).await.unwrap_err();
        assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
        assert!(error.to_string().contains(word), "{error}");
    }
    server.stop().await;
    let error = store.add(b"text", 1).await.unwrap_err();
    assert!(matches!(error, StoreError::Connection { .. }), "{error}");
}

#[tokio::test]
async fn what_the_server_would_not_take_is_not_sent() {
    let server = start();
    let store = connect(&server).await;
    let longest = vec![b'k'; 8191];
    store.set(&longest, "".into()).await.unwrap();
    let error = store.set(&vec![b'k'; 8192], "".into()).await.unwrap_err();
    assert!(matches!(error, StoreError::KeyTooLarge { size: 8192, limit: 8191 }), "{error}");
    let error = store.set(b"k", vec![0; (8 << 20) + 1].into()).await.unwrap_err();
    assert!(matches!(error, StoreError::TooLarge { .. }), "{error}");
    store.set(b"k", vec![0; 8 << 20].into()).await.unwrap();
    assert_eq!(store.get(b"k").await.unwrap().len(), 8 << 20);
    assert_eq!(server.connections(), 1);
}

/// More keys than one request may have.
#[tokio::test]
async fn any_number_of_keys_will_do() {
    let server = start();
    let store = connect(&server).await;
    let names: Vec<String> = (0..140_000).map(|number| number.to_string()).collect();
    let keys: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
    let pairs: Vec<_> = keys.iter().map(|key| (*key, (*key).to_vec().into())).collect();
    store.multi_set(&pairs).await.unwrap();
    assert!(store.check(&keys).await.unwrap());
    store.wait(&keys, SOON).await.unwrap();
    let values = store.multi_get(&keys).await.unwrap();
    assert!(values.iter().map(AsRef::as_ref).eq(keys.iter().copied()));
    assert_eq!(store.list_keys().await.unwrap().len(), keys.len());
}

#[tokio::test]
async fn the_server_may_come_later() {
    let socket = bound();
    let address = socket.local_addr().unwrap();
    let connecting = tokio::spawn(async move {
        TcpStore::connect(&address.to_string(), SOON).await.unwrap().add(b"n", 1).await
    });
    tokio::time::sleep(A_WHILE).await;
    let _server = AgentStore::start(socket).unwrap();
    assert_eq!(connecting.await.unwrap().unwrap(), 1);
}

#[tokio::test]
async fn an_address_without_a_store_is_named() {
    let socket = bound();
    let nobody = socket.local_addr().unwrap().to_string();
    let short = Duration::from_millis(100);
    let error = TcpStore::connect(&nobody, short).await.unwrap_err();
    assert!(matches!(error, StoreError::Connect { .. }), "{error}");
    assert!(error.to_string().contains(&nobody), "{error}");
    for wrong in ["", "127.0.0.1", "127.0.0.1:port", "127.0.0.1:99999"] {
        let error = TcpStore::connect(wrong, SOON).await.unwrap_err();
        assert!(matches!(error, StoreError::Connect { .. }), "{error}");
    }
    // Somebody is there, but it is no store: it says nothing, or something else.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let error = TcpStore::connect(&address, short).await.unwrap_err();
    assert!(error.to_string().contains(&address), "{error}");
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = other.local_addr().unwrap().to_string();
    let answer = async {
        loop {
            let (mut stream, _) = other.accept().await.unwrap();
            stream.write_all(b"SSH-2.0-x").await.unwrap();
        }
    };
    let error = tokio::select! {
        error = TcpStore::connect(&address, short) => error.unwrap_err(),
        () = answer => unreachable!(),
    };
    assert!(error.to_string().contains("is it a TCPStore?"), "{error}");
}

#[tokio::test]
async fn names_and_both_kinds_of_addresses_will_do() {
    let server = start();
    let port = server.address().port();
    let store = TcpStore::connect(&format!("localhost:{port}"), SOON).await.unwrap();
    store.set(b"k", "v".into()).await.unwrap();
    let socket = TcpSocket::new_v6().unwrap();
    socket.bind("[::1]:0".parse::<SocketAddr>().unwrap()).unwrap();
    let server = AgentStore::start(socket).unwrap();
    let store = TcpStore::connect(&server.address().to_string(), SOON).await.unwrap();
    assert_eq!(store.address(), server.address().to_string());
    store.set(b"k", "v".into()).await.unwrap();
}

/// Dead connections that were kept are noticed before they are used.
#[tokio::test]
async fn a_connection_that_ended_while_idle_is_not_used() {
    let socket = bound();
    let next = bound_too(&socket);
    let server = AgentStore::start(socket).unwrap();
    let store = connect(&server).await;
    server.stop().await;
    let _server = AgentStore::start(next).unwrap();
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(store.add(b"n", 1).await.unwrap(), 1);
}

#[tokio::test]
async fn a_clone_has_connections_and_a_time_out_of_its_own() {
    let server = start();
    let store = connect(&server).await;
    let clone = store.try_clone().await.unwrap();
    assert_eq!(server.connections(), 2);
    clone.set_timeout(Duration::from_millis(5));
    assert_eq!(store.timeout(), Duration::from_secs(300));
    clone.set(b"k", "v".into()).await.unwrap();
    assert_eq!(store.get(b"k").await.unwrap(), "v");
    Raw::connect(server.address()).await.asks([7], number(1)).await;
}

/// A host that vanishes is noticed by the system, on both sides.
#[tokio::test]
async fn idle_connections_are_kept_alive() {
    let server = start();
    let store = connect(&server).await;
    let port = format!(":{:04X}", server.address().port());
    // The two ends, and what the system does with each next: 02 is a probe, some hundredths away.
    let timers = || {
        let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
        let ends = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let ends = ends
            .filter(|end| end[3] == "01" && (end[1].ends_with(&port) || end[2].ends_with(&port)));
        ends.map(|end| end[5].to_owned()).collect::<Vec<_>>()
    };
    let soon = |timer: &String| {
        let (kind, when) = timer.split_once(':').unwrap();
        kind == "02" && u64::from_str_radix(when, 16).unwrap() <= 6000
    };
    eventually("both ends are probed", SOON, async || {
        let timers = timers();
        timers.len() == 2 && timers.iter().all(soon)
    })
    .await;
    drop(store);
}
