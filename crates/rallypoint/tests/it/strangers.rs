//! Calls that their client never finishes: those of strangers, who have no token, and those of friends.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::stream::{self, Stream};
use rallypoint::proto::etcd as pb;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::Code;

use crate::support::hostile::{
    Frame, Target, eventually, frame, greet, kind, read_frame, request_headers,
};
use crate::support::process::Directory;
use crate::support::wire;

/// Many more than a connection may have at one time.
const CALLS: u32 = 30_000;

/// How many calls wait for their end at one time. More than the server allows would end the connection.
const WAITING: usize = 1_000;

/// What a connection and its calls may cost: before, it was 5 KiB for each call and no end.
const MOST_KIB: usize = 30 << 10;

/// A server that wants a password.
async fn guarded() -> Target {
    let directory = Directory::new();
    std::fs::write(directory.path().join("password"), "open sesame\n").unwrap();
    let args = ["--user", "root", "--password-file", "DIR/password"];
    Target::start_in(directory, "", &args).await
}

/// Begins so many calls and ends none. How many the server has ended when it has nothing more to say.
async fn begin(stream: &mut TcpStream, path: &str) -> usize {
    const END_STREAM: u8 = 1;
    const END_HEADERS: u8 = 4;
    let headers = request_headers(path);
    // By an answer, or by a reset if there were too many at one time.
    let mut ended = HashSet::new();
    let mut hear = |heard: &Frame| {
        let is_end = heard.kind == kind::RST_STREAM
            || heard.kind == kind::HEADERS && heard.flags & END_STREAM != 0;
        if is_end {
            ended.insert(heard.stream);
        }
        ended.len()
    };
    for batch in 0..CALLS / 100 {
        let mut bytes = Vec::new();
        for call in 0..100 {
            let id = 2 * (batch * 100 + call) + 1;
            bytes.extend(frame(kind::HEADERS, END_HEADERS, id, &headers));
        }
        bytes.extend(frame(kind::PING, 0, 0, b"rallying"));
        stream.write_all(&bytes).await.unwrap();
        let (begun, mut is_read) = ((batch + 1) * 100, false);
        loop {
            let heard = read_frame(stream).await.expect("the connection goes on");
            is_read |= heard.kind == kind::PING && heard.flags == 1;
            let waiting = begun as usize - hear(&heard);
            if is_read && waiting <= WAITING {
                break;
            }
        }
    }
    // It may have answered the ping before the calls.
    while let Ok(more) = timeout(Duration::from_millis(500), read_frame(stream)).await {
        hear(&more.expect("the connection goes on"));
    }
    ended.len()
}

/// 8 MB became 1.5 GB in 18 s: each stream was held open, and each of its watches refused.
#[tokio::test]
#[expect(clippy::print_stdout, reason = "a figure for readers of the output")]
async fn streams_of_strangers_cost_nothing() {
    let mut server = guarded().await;
    for path in [
        "/etcdserverpb.Watch/Watch",
        "/etcdserverpb.Lease/LeaseKeepAlive",
        "/etcdserverpb.Auth/Authenticate",
        "/etcdserverpb.Maintenance/Status",
        "/grpc.health.v1.Health/Check",
        "/grpc.health.v1.Health/Watch",
    ] {
        let before = server.resident_bytes();
        let mut connection = server.connect().await;
        greet(&mut connection).await.unwrap();
        let ended = begin(&mut connection, path).await;
        let grown = server.resident_bytes().saturating_sub(before) >> 10;
        println!("{CALLS} calls of {path}: {ended} ended, {grown} KiB");
        assert!(grown < MOST_KIB, "{grown} KiB for {CALLS} calls of {path}");
        // A few may wait for the rest of what they ask.
        assert!(ended >= CALLS as usize - 16, "{ended} of {CALLS} calls of {path} were ended");
    }
    server.assert_unharmed();
}

/// Requests that come when somebody sends them, until there is nobody who could.
fn open_ended<T: Send + 'static>() -> (mpsc::Sender<T>, impl Stream<Item = T> + Send + 'static) {
    let (sender, mut receiver) = mpsc::channel(1);
    (sender, stream::poll_fn(move |context| receiver.poll_recv(context)))
}

/// One call too many is refused by name, and no other call on the connection is affected.
#[tokio::test]
async fn one_stream_too_many_on_a_connection_is_told_why() {
    let mut server = Target::start(&[]).await;
    let channel = wire::channel(&server.endpoint());
    let mut watches = pb::watch_client::WatchClient::new(channel.clone());
    let mut leases = pb::lease_client::LeaseClient::new(channel.clone());
    let mut held = Vec::new();
    for _ in 0..1_000 {
        let (watching, requests) = open_ended();
        let (renewing, renewals) = open_ended();
        let watch = watches.watch(requests).await.unwrap();
        let renewed = leases.lease_keep_alive(renewals).await.unwrap();
        held.push((watching, watch, renewing, renewed));
    }
    let text = "rallypoint: 2000 watch and keep-alive streams are open on this connection, which is \
                the limit; put several watches on one stream, or use another connection";
    for _ in 0..3 {
        let refused = watches.watch(stream::pending()).await.unwrap_err();
        assert_eq!((refused.code(), refused.message()), (Code::ResourceExhausted, text));
        let refused = leases.lease_keep_alive(stream::pending()).await.unwrap_err();
        assert_eq!((refused.code(), refused.message()), (Code::ResourceExhausted, text));
    }
    let put = || pb::PutRequest { key: "k".into(), ..Default::default() };
    let mut kv = pb::kv_client::KvClient::new(channel);
    timeout(Duration::from_secs(5), kv.put(put())).await.unwrap().unwrap();
    let mut other = pb::watch_client::WatchClient::new(wire::channel(&server.endpoint()));
    other.watch(stream::pending()).await.unwrap();

    held.pop();
    eventually("there is room again", Duration::from_secs(5), async || {
        watches.watch(stream::pending()).await.is_ok()
    })
    .await;
    server.assert_unharmed();
}
