//! Ten thousand connections at one time, from a shell with the usual limit of descriptors.

use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use rallypoint::proto::etcd as pb;
use tokio::sync::{Mutex, MutexGuard};

use crate::support::hostile::{Target, eventually, greet};
use crate::support::process::Directory;
use crate::support::wire;

const CONNECTIONS: usize = 10_000;

/// The test holds the other end of every connection. There are enough descriptors for one such test.
pub async fn raise_own_limit() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());
    let alone = ONE_AT_A_TIME.lock().await;
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    let enough = limit.maximum.is_none_or(|maximum| maximum > CONNECTIONS as u64 + 1000);
    assert!(enough, "the hard limit of descriptors is too low for this test: {limit:?}");
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    alone
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::print_stdout, reason = "a figure for readers of the output")]
async fn ten_thousand_connections_are_held_while_others_are_answered() {
    let _alone = raise_own_limit().await;
    let mut server = Target::start_in(Directory::new(), "ulimit -S -n 1024", &[]).await;
    let mut kv = wire::kv(&server.endpoint());
    let put = || pb::PutRequest { key: "k".into(), ..Default::default() };
    kv.put(put()).await.unwrap();
    let (descriptors, memory) = (server.descriptors(), server.resident_bytes());

    let connect = async |_| {
        let mut stream = server.connect().await;
        greet(&mut stream).await.unwrap();
        stream
    };
    let held: Vec<_> =
        stream::iter(0..CONNECTIONS).map(connect).buffer_unordered(64).collect().await;
    assert_eq!(server.descriptors(), descriptors + held.len());
    let each = (server.resident_bytes() - memory) / held.len();
    println!("{each} bytes for each connection");
    assert!(each < 64 << 10, "{each} bytes for each connection");

    let started = Instant::now();
    kv.put(put()).await.unwrap();
    wire::kv(&server.endpoint()).put(put()).await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());

    drop(held);
    eventually("all descriptors are back", Duration::from_secs(20), async || {
        server.descriptors() <= descriptors + 1
    })
    .await;
    server.assert_unharmed();
}

/// Connections must not take the descriptors that the log needs to be rewritten, and whoever finds no
/// room must hear of it.
#[tokio::test]
async fn connections_leave_descriptors_for_the_server_itself() {
    let args = ["--data-dir", "DIR/data", "--keep-revisions", "4"];
    let mut server = Target::start_in(Directory::new(), "ulimit -n 200", &args).await;
    let mut kv = wire::kv(&server.endpoint());
    let value: bytes::Bytes = vec![7; 1 << 20].into();
    let put = || pb::PutRequest { key: "k".into(), value: value.clone(), ..Default::default() };
    kv.put(put()).await.unwrap();
    let mut held = Vec::new();
    let refusal = loop {
        assert!(held.len() < 300, "more connections than descriptors");
        let mut stream = server.connect().await;
        match tokio::time::timeout(Duration::from_secs(5), greet(&mut stream)).await {
            Ok(Ok(())) => held.push(stream),
            Ok(Err(refusal)) => break refusal,
            Err(_) => panic!("connection {} hears nothing", held.len()),
        }
    };
    assert!(refusal.contains("connections are open, which is the limit"), "{refusal:?}");
    // Enough for the log to be rewritten.
    for _ in 0..80 {
        kv.put(put()).await.unwrap();
    }
    server.assert_unharmed();
}
