//! What clients cost: memory and descriptors, measured from outside.

use std::net::SocketAddr;
use std::process::ChildStdin;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::SOON;
use super::raw::{Raw, add, barrier, get, list, number, ping, request, set, string, wait};
use crate::support::hostile::eventually;
use crate::support::process::{Directory, Process, Recipe};
use crate::support::tools::example;

/// A store in a process of its own, whose memory can be measured.
struct Host {
    process: Process,
    _input: ChildStdin,
    address: SocketAddr,
    _directory: Directory,
}

impl Host {
    /// `shell` is said before it is started.
    async fn start(shell: &str) -> Self {
        let program = example("agent_store");
        let directory = Directory::new();
        let log = directory.path().join("log");
        let command = format!("{shell}\nexec \"$0\"").into();
        let args = vec!["-c".into(), command, program.into()];
        let recipe = Recipe { program: "sh".into(), args, env: Vec::new(), log: log.clone() };
        let (process, input) = Process::start_with_input(&recipe);
        let mut address = None;
        eventually("it listens", SOON, async || {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix("listening on "));
            address = line.map(|line| line.parse().unwrap());
            address.is_some()
        })
        .await;
        let address = address.unwrap();
        Self { process, _input: input, address, _directory: directory }
    }

    fn resident_bytes(&self) -> usize {
        let status = format!("/proc/{}/status", self.process.id());
        let status = std::fs::read_to_string(status).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
    }

    fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.process.id())).unwrap().count()
    }
}

/// Lengths are announced that never come.
#[tokio::test]
async fn memory_is_taken_for_bytes_not_for_words() {
    let host = Host::start("").await;
    let before = host.resident_bytes();
    let mut liars = Vec::new();
    for _ in 0..300 {
        let mut raw = Raw::connect(host.address).await;
        raw.settles().await;
        let half = request(1, &[&string("/k"), &number(8 << 20), b"the first of many bytes"]);
        raw.say(half).await;
        liars.push(raw);
        let mut raw = Raw::connect(host.address).await;
        raw.settles().await;
        raw.say(request(6, &[&number(131_072), &string("/k")])).await;
        liars.push(raw);
    }
    Raw::connect(host.address).await.settles().await;
    let grown = host.resident_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes for 600 half requests");
}

/// Replies that are not read are not piled up: their client's next requests wait.
#[tokio::test]
async fn requests_of_a_client_that_does_not_read_wait() {
    let host = Host::start("").await;
    let mut writer = Raw::connect(host.address).await;
    let value = vec![7; 1 << 20];
    writer.say(set("/large", &value)).await;
    writer.settles().await;
    let before = host.resident_bytes();
    let mut lazy = Vec::new();
    for number in 0..20_u8 {
        let mut raw = Raw::connect(host.address).await;
        // Ten thousand mebibytes in replies; and the value changes in between, so that they are not one.
        let asking = async {
            for _ in 0..100 {
                raw.0.write_all(&get("/large").repeat(100)).await.unwrap();
            }
        };
        let _ = tokio::time::timeout(Duration::from_millis(20), asking).await;
        writer.say(set("/large", vec![number; 1 << 20])).await;
        writer.settles().await;
        lazy.push(raw);
    }
    let grown = host.resident_bytes().saturating_sub(before);
    assert!(grown < 100 << 20, "{grown} bytes for 20 clients that do not read");
    // In the end each gets what it asked for.
    let mut raw = lazy.remove(0);
    raw.hears(string(&value)).await;
    drop(raw);
    drop(lazy);
    writer.settles().await;
}

/// One short request for a great deal.
#[tokio::test]
async fn many_large_values_are_sent_from_where_they_lie() {
    let host = Host::start("").await;
    let mut raw = Raw::connect(host.address).await;
    let value = vec![7; 1 << 20];
    raw.say(set("/large", &value)).await;
    raw.settles().await;
    let before = host.resident_bytes();
    raw.say(list(10, &["/large"; 1000])).await;
    raw.hears(string(&value)).await;
    let grown = host.resident_bytes().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes for a reply of a thousand mebibytes");
    for _ in 1..1000 {
        raw.hears(string(&value)).await;
    }
    raw.settles().await;
}

/// The same over and over takes no more memory than the first times.
#[tokio::test]
async fn memory_returns_to_a_plateau() {
    let host = Host::start("").await;
    let round = async || {
        let mut raw = Raw::connect(host.address).await;
        raw.say(set("/large", vec![1; 8 << 20])).await;
        raw.asks(get("/large"), string(vec![1; 8 << 20])).await;
        let mut waiters = Vec::new();
        for _ in 0..50 {
            let mut waiter = Raw::connect(host.address).await;
            waiter.say(wait(&["/a", "/b", "/c"])).await;
            waiter.settles().await;
            waiters.push(waiter);
        }
        let mut member = Raw::connect(host.address).await;
        member.say(barrier("/b", 1 << 40)).await;
        for key in ["/large", "/b"] {
            raw.say(request(8, &[&string(key)])).await;
            let _ = raw.0.read_i64_le().await.unwrap();
        }
    };
    for _ in 0..5 {
        round().await;
    }
    let (memory, descriptors) = (host.resident_bytes(), host.descriptors());
    for _ in 0..30 {
        round().await;
    }
    eventually("the connections are gone", SOON, async || host.descriptors() <= descriptors).await;
    let grown = host.resident_bytes().saturating_sub(memory);
    assert!(grown < 24 << 20, "{grown} bytes in thirty rounds");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::print_stdout, reason = "a figure for readers of the output")]
async fn ten_thousand_clients_wait_for_one_key() {
    const CLIENTS: usize = 10_000;
    let _alone = crate::connections::raise_own_limit().await;
    let host = Host::start("ulimit -n $(ulimit -H -n)").await;
    let before = host.resident_bytes();
    let connect = async |_| {
        let mut raw = Raw::connect(host.address).await;
        raw.settles().await;
        raw
    };
    let mut held: Vec<Raw> =
        stream::iter(0..CLIENTS).map(connect).buffer_unordered(64).collect().await;
    let each = host.resident_bytes().saturating_sub(before) / CLIENTS;
    println!("{each} bytes for each idle client");
    assert!(each < 2 << 10, "{each} bytes for each idle client");
    for raw in &mut held {
        raw.say(barrier("/all", CLIENTS as i64 + 1)).await;
    }
    Raw::connect(host.address).await.asks(barrier("/none", 1), [0]).await;
    eventually("all have come", SOON, async || {
        let mut raw = Raw::connect(host.address).await;
        raw.say(add("/all", 0)).await;
        raw.0.read_i64_le().await.unwrap() == CLIENTS as i64
    })
    .await;
    Raw::connect(host.address).await.asks(barrier("/all", CLIENTS as i64 + 1), [0]).await;
    for raw in &mut held {
        raw.hears([0]).await;
    }
}

/// When descriptors run out, those who are connected are served, and the others as soon as some are
/// given back.
#[tokio::test]
async fn a_lack_of_descriptors_passes() {
    let host = Host::start("ulimit -n 64").await;
    let mut held = Vec::new();
    for _ in 0..100 {
        held.push(Raw::connect(host.address).await);
    }
    held[0].settles().await;
    held[99].say(ping(1)).await;
    held[99].hears_nothing().await;
    held[0].settles().await;
    let mut last = held.pop().unwrap();
    held.truncate(1);
    last.hears(1_u32.to_le_bytes()).await;
    held[0].settles().await;
}
