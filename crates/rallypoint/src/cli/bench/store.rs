//! `rallypoint bench store`.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use rallypoint_core::kv::LeaseId;
use serde::Serialize;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::super::AnyError;
use super::{BenchTarget, print};
use crate::client::{Client, ClientOptions};
use crate::store::{EtcdStore, Store as _};

pub(super) const AFTER_HELP: &str = "\
Times are of one call by one client, with others idle; those of adds by several clients at once run from the
first call to the last answer. Every client has a connection of its own.

Examples:
  rallypoint bench store
  rallypoint bench store --endpoint 127.0.0.1:2379 --json";

/// The number of clients that add concurrently.
const ADDING: [usize; 3] = [1, 32, 128];

/// The number of keys in the store when one of them is read.
const KEYS: [usize; 2] = [10, 1_000];

/// The time limit for every call of the benchmark.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Args)]
pub(in crate::cli) struct StoreBench {
    /// Servers of the store [default: a new server for this benchmark]
    #[arg(long, value_name = "HOST:PORT,…")]
    endpoint: Option<String>,
    /// Number of calls of each kind
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    calls: u32,
    /// Print one JSON object for each kind of call instead of a table
    #[arg(long)]
    json: bool,
}

/// The measurements of one kind of call.
#[derive(Debug, Serialize)]
struct StoreMeasurement {
    what: String,
    median_us: f64,
    p99_us: f64,
}

impl StoreMeasurement {
    fn new(what: impl Into<String>, mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |part: f64| {
            let index = (times.len() as f64 * part) as usize;
            times.get(index).map_or(0.0, |time| time.as_secs_f64() * 1e6)
        };
        Self { what: what.into(), median_us: at(0.5), p99_us: at(0.99) }
    }
}

impl StoreBench {
    pub(super) async fn run(self) -> Result<(), AnyError> {
        let target = BenchTarget::find(self.endpoint.as_deref()).await?;
        let client = Client::connect(ClientOptions::new(target.endpoint.split(','))).await?;
        // The lease deletes the keys, also if the benchmark is interrupted.
        let lease = client.lease_grant(600, None).await?.id;
        let run =
            Run { endpoint: target.endpoint, lease, name: fastrand::u64(..), calls: self.calls };
        if !self.json {
            print(&format!("{:<32}{:>14}{:>14}", "", "median, µs", "p99, µs"));
        }
        let report = |measured: StoreMeasurement| -> Result<(), AnyError> {
            if self.json {
                print(&serde_json::to_string(&measured)?);
            } else {
                let StoreMeasurement { what, median_us, p99_us } = measured;
                print(&format!("{what:<32}{median_us:>14.0}{p99_us:>14.0}"));
            }
            Ok(())
        };
        report(run.set().await?)?;
        for keys in KEYS {
            report(run.get(keys).await?)?;
        }
        report(run.wait_for_another().await?)?;
        for clients in ADDING {
            report(run.add(clients).await?)?;
        }
        client.lease_revoke(lease).await?;
        Ok(())
    }
}

/// One run of the benchmark, and the prefix of its stores.
struct Run {
    endpoint: String,
    lease: LeaseId,
    name: u64,
    calls: u32,
}

impl Run {
    /// A client of this store, with a connection of its own.
    async fn open(&self, store: &str) -> Result<EtcdStore, AnyError> {
        let options =
            ClientOptions { timeout: PATIENCE, ..ClientOptions::new(self.endpoint.split(',')) };
        let client = Client::connect(options).await?;
        let prefix = format!("/bench/{:016x}/{store}/", self.name);
        Ok(EtcdStore::new(client, prefix, self.lease, PATIENCE))
    }

    async fn set(&self) -> Result<StoreMeasurement, AnyError> {
        let store = self.open("set").await?;
        let mut times = Vec::new();
        for _ in 0..self.calls {
            let begun = Instant::now();
            store.set(b"key", "value".into()).await?;
            times.push(begun.elapsed());
        }
        Ok(StoreMeasurement::new("set", times))
    }

    /// Reads an existing key, in a store with several keys.
    async fn get(&self, keys: usize) -> Result<StoreMeasurement, AnyError> {
        let store = self.open(&format!("get {keys}")).await?;
        for number in 0..keys {
            store.set(format!("key {number}").as_bytes(), "value".into()).await?;
        }
        let mut times = Vec::new();
        for _ in 0..self.calls {
            let begun = Instant::now();
            store.get(b"key 0").await?;
            times.push(begun.elapsed());
        }
        Ok(StoreMeasurement::new(format!("get, {keys} keys"), times))
    }

    /// The time from a write by one client to the answer of another client's wait.
    async fn wait_for_another(&self) -> Result<StoreMeasurement, AnyError> {
        let (reader, writer) = (self.open("wait").await?, self.open("wait").await?);
        let mut times = Vec::new();
        for number in 0..self.calls.min(50) {
            let key = format!("key {number}").into_bytes();
            let waiting = tokio::spawn({
                let (reader, key) = (reader.clone(), key.clone());
                async move { reader.get(&key).await.map(|_| Instant::now()) }
            });
            // Usually the other client waits by now; if not, the measurement is no slower.
            tokio::time::sleep(Duration::from_millis(20)).await;
            let begun = Instant::now();
            writer.set(&key, "value".into()).await?;
            times.push(waiting.await??.duration_since(begun));
        }
        Ok(StoreMeasurement::new("get, set by another", times))
    }

    /// All clients add 1 to one counter concurrently.
    async fn add(&self, clients: usize) -> Result<StoreMeasurement, AnyError> {
        let name = format!("add {clients}");
        let mut stores = Vec::new();
        for _ in 0..clients {
            stores.push(self.open(&name).await?);
        }
        let mut times = Vec::new();
        for round in 0..self.calls.min(20) {
            times.push(add_once(&stores, format!("counter {round}").into_bytes()).await?);
        }
        Ok(StoreMeasurement::new(format!("add, {clients} at once"), times))
    }
}

async fn add_once(stores: &[EtcdStore], counter: Vec<u8>) -> Result<Duration, AnyError> {
    let start = Arc::new(Barrier::new(stores.len() + 1));
    let mut adding = JoinSet::new();
    for store in stores {
        let (store, counter, start) = (store.clone(), counter.clone(), start.clone());
        adding.spawn(async move {
            start.wait().await;
            store.add(&counter, 1).await
        });
    }
    start.wait().await;
    let begun = Instant::now();
    let mut sums = Vec::with_capacity(stores.len());
    while let Some(added) = adding.join_next().await {
        sums.push(added??);
    }
    let taken = begun.elapsed();
    sums.sort_unstable();
    if !sums.iter().copied().eq(1..=stores.len() as i64) {
        return Err(
            format!("{} clients added 1 each, and the sums were {sums:?}", stores.len()).into()
        );
    }
    Ok(taken)
}
