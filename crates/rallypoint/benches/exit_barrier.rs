//! What a job's exit barrier costs its server: rank 0 waits for a key of each of the others, each of which
//! puts one.
//!
//! `cargo bench --bench exit_barrier`. First the store alone, which is what the server's one lock is held
//! for; then a real server and our own client on this machine, where the server's processor time counts
//! gRPC and the kernel as well.

#![allow(clippy::print_stdout, reason = "a table on standard output is what this program is for")]
#![allow(clippy::unwrap_used, reason = "a measurement that fails should stop")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use rallypoint::client::{Client, ClientOptions};
use rallypoint::core::kv::{Put, Watch};
use rallypoint::core::mvcc::Mvcc;
use rallypoint::core::rendezvous::keys::StoreKeys;
use rallypoint::store::{EtcdStore, Store};

use self::support::Embedded;

const WAITERS: [u32; 2] = [10_000, 50_000];

fn main() {
    println!(
        "{:<46}{:>12}{:>12}",
        "µs for each put, with so many waited for", WAITERS[0], WAITERS[1]
    );
    row("store: put, publish, and the watch is told", WAITERS.map(|count| in_store(count, 1)));
    row(
        "store: the same, told of all puts at the end",
        WAITERS.map(|count| in_store(count, count)),
    );
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let served = WAITERS.map(|count| runtime.block_on(on_a_server(count)));
    row("server: its processor time", served.map(|(processor, _)| processor));
    row("server: from the first put to the end", served.map(|(_, wall)| wall));
}

fn row(name: &str, values: [f64; 2]) {
    println!("{name:<46}{:>12.1}{:>12.1}", values[0], values[1]);
}

fn name(rank: u32) -> Vec<u8> {
    format!("exit_barrier/done/{rank}").into_bytes()
}

/// The stream asks for what there is to hear after so many puts.
fn in_store(waiters: u32, puts: u32) -> f64 {
    let keys = StoreKeys::new("/rallypoint/run_bench/rdzv/v_1/kv/");
    let mut store = Mvcc::default();
    let stream = store.open_stream();
    for rank in 0..waiters {
        let watch = Watch { no_delete: true, ..Watch::new(keys.of(&name(rank)).value_and_queue()) };
        store.watch(stream, None, watch).unwrap();
    }
    let mut told = 0;
    let begun = Instant::now();
    for rank in 0..waiters {
        store.put(Put::new(keys.of(&name(rank)).value(), "1")).unwrap();
        store.publish_all();
        if (rank + 1) % puts == 0 {
            while store.next_message(stream).is_some() {
                told += 1;
            }
        }
    }
    let elapsed = begun.elapsed();
    assert_eq!(told, waiters);
    micros(elapsed, waiters)
}

/// Processor time of the server and time that passed, for each put.
async fn on_a_server(waiters: u32) -> (f64, f64) {
    let server = Embedded::memory().await;
    let open = async || {
        let options = ClientOptions::new([server.address()]);
        let client = Client::connect(options).await.unwrap();
        EtcdStore::new(client, "/bench/", 0, Duration::from_secs(600))
    };
    let (waiting, putting) = (open().await, open().await);
    let all_done = tokio::spawn(async move {
        let names: Vec<Vec<u8>> = (0..waiters).map(name).collect();
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        waiting.wait(&names, Duration::from_secs(600)).await.unwrap();
    });
    // Watches are not counted where a client can see it: wait until the server has nothing more to do.
    let mut before = f64::NAN;
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = processor_seconds(server.id());
        if now == before {
            break;
        }
        before = now;
    }
    let begun = Instant::now();
    let put = async |rank| putting.set(&name(rank), "1".into()).await.unwrap();
    stream::iter(0..waiters).map(put).buffer_unordered(256).collect::<Vec<()>>().await;
    all_done.await.unwrap();
    let wall = begun.elapsed();
    let processor = Duration::from_secs_f64(processor_seconds(server.id()) - before);
    (micros(processor, waiters), micros(wall, waiters))
}

fn micros(elapsed: Duration, puts: u32) -> f64 {
    elapsed.as_secs_f64() * 1e6 / f64::from(puts)
}

/// User and system time of a process so far, in the kernel's hundredths of a second.
fn processor_seconds(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let fields: Vec<&str> = fields.split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}
