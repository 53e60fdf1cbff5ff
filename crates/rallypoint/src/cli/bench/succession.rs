//! `rallypoint bench rendezvous --succession`: what it costs a group that hosts may succeed each other as servers.

use std::sync::Arc;
use std::time::Duration;

use rustix::time::ClockId;
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::super::AnyError;
use super::observed::{median, processor_seconds, ratios};
use super::print;
use super::rendezvous::{RendezvousBench, bytes, end, total};
use crate::config::{EtcdOptions, RALLYPOINT_BACKEND, RendezvousParameters};
use crate::embedded::{EmbeddedServer, RendezvousConfig, ThisHost};
use crate::rendezvous::{EtcdRendezvousHandler, reserve_port};
use crate::util::blocking::blocking;

/// Hosts that may serve, where they succeed each other.
const HOSTS: usize = 3;

/// How long the last messages of a phase are waited for.
const SETTLES: Duration = Duration::from_secs(1);

/// The time over which the nodes of a group come. They renew their leases as far apart, as nodes on hosts of their own do:
/// renewals that come together cost two cores fewer changes from one task to another.
const COMING: Duration = Duration::from_secs(2);

/// The groups idle one after the other.
const TURNS: [bool; 4] = [false, true, true, false];

/// What a group used, with its servers, which run in the same process.
#[derive(Debug, Serialize)]
struct Usage {
    succession: bool,
    phase: &'static str,
    /// Until the last rank, or for which the group idled.
    seconds: f64,
    /// Processor time of nodes and servers, in seconds.
    processor: f64,
    /// On average for a node.
    requests: f64,
    messages: f64,
    bytes: f64,
}

/// A group as launchers open it: each node has the endpoint, and the first ones are the hosts that it names.
struct ServedGroup {
    handlers: Vec<Arc<EtcdRendezvousHandler>>,
    servers: Vec<EmbeddedServer>,
    succession: bool,
}

/// Compares groups whose server has successors with groups whose server has none.
pub(super) async fn compare(bench: &RendezvousBench) -> Result<(), AnyError> {
    let (mut used, mut groups) = (Vec::new(), Vec::new());
    for succession in [false, true] {
        let group = ServedGroup::open(bench, succession).await?;
        bench.measure(&group.handlers).await?;
        groups.push(group);
    }
    for round in 0..bench.plan().rounds {
        let reverse = round % 2 == 1;
        for group in [&groups[usize::from(reverse)], &groups[usize::from(!reverse)]] {
            used.push(
                group
                    .uses("forming", async || Ok(bench.measure(&group.handlers).await?.seconds))
                    .await?,
            );
        }
    }
    for group in groups {
        group.end().await?;
    }
    let idle = bench.plan().idle;
    for succession in TURNS.into_iter().filter(|_| !idle.is_zero()) {
        let group = ServedGroup::open(bench, succession).await?;
        bench.measure(&group.handlers).await?;
        used.push(
            group
                .uses("idle", async || {
                    // With the time for the last messages, so that each node renews its lease equally often in all turns.
                    tokio::time::sleep(idle.saturating_sub(SETTLES)).await;
                    Ok(idle.as_secs_f64())
                })
                .await?,
        );
        group.end().await?;
    }
    for usage in &used {
        print(&serde_json::to_string(usage)?);
    }
    let header = ["off", "on", "on / off"];
    print(&format!("{:<40}{}", "", header.map(|name| format!("{name:>14}")).concat()));
    for (what, phase, value) in ROWS {
        let [off, on] = [false, true].map(|succession| -> Vec<f64> {
            let of_it =
                used.iter().filter(|one| one.phase == phase && one.succession == succession);
            of_it.map(value).collect()
        });
        let ratio = median(ratios(&on, &off));
        let columns = [median(off), median(on), ratio]
            .map(|value| value.map_or_else(String::new, |value| format!("{value:.4}")));
        print(&format!("{what:<40}{}", columns.map(|column| format!("{column:>14}")).concat()));
    }
    Ok(())
}

type Row = (&'static str, &'static str, fn(&Usage) -> f64);

const ROWS: [Row; 9] = [
    ("forming, s", "forming", |usage| usage.seconds),
    ("forming: processor, s", "forming", |usage| usage.processor),
    ("forming: requests of a node", "forming", |usage| usage.requests),
    ("forming: messages to a node", "forming", |usage| usage.messages),
    ("forming: bytes of a node", "forming", |usage| usage.bytes),
    ("idle: processor, s", "idle", |usage| usage.processor),
    ("idle: requests of a node", "idle", |usage| usage.requests),
    ("idle: messages to a node", "idle", |usage| usage.messages),
    ("idle: bytes of a node", "idle", |usage| usage.bytes),
];

impl ServedGroup {
    async fn open(bench: &RendezvousBench, succession: bool) -> Result<Self, AnyError> {
        let nodes = bench.plan().nodes as usize;
        // Held until the servers listen, so that no other program is given a port of theirs.
        let held: Vec<_> =
            (0..HOSTS).map(|_| reserve_port("127.0.0.1", 0)).collect::<Result<_, _>>()?;
        let addresses: Vec<String> =
            held.iter().map(|(_, port)| format!("127.0.0.1:{port}")).collect();
        let endpoint = addresses[..if succession { HOSTS } else { 1 }].join(",");
        let run_id = format!("bench-{:016x}", fastrand::u64(..));
        let here = blocking(ThisHost::look).await;
        let (mut servers, mut opening) = (Vec::new(), JoinSet::new());
        let at_once = Arc::new(Semaphore::new(64));
        for node in 0..nodes {
            let mut parameters =
                RendezvousParameters::new(RALLYPOINT_BACKEND, &endpoint, &run_id, nodes, nodes)?
                    .with_local_addr("127.0.0.1")
                    .with("lease_ttl", bench.lease_ttl())
                    .with("timeout", 300)
                    .with("use_agent_store", false);
            if node > 0 && !succession {
                parameters = parameters.with("is_host", false);
            }
            let mut config = RendezvousConfig::from_parameters(parameters, &here, None)?;
            servers.extend(EmbeddedServer::start(&mut config).await?);
            let EtcdOptions { connection, handler } =
                EtcdOptions::from_parameters(&config.parameters)?;
            let at_once = at_once.clone();
            opening.spawn(async move {
                // The nodes of the hosts that may serve come first: all others wait for their server.
                let _turn = match node < HOSTS {
                    true => None,
                    false => {
                        tokio::time::sleep(COMING.mul_f64(fastrand::f64())).await;
                        Some(at_once.acquire_owned().await)
                    }
                };
                let client = connection.client_options();
                EtcdRendezvousHandler::open(client, handler).await.map(Arc::new)
            });
        }
        drop(held);
        let mut handlers = Vec::with_capacity(nodes);
        while let Some(opened) = opening.join_next().await {
            handlers.push(opened??);
        }
        Ok(Self { handlers, servers, succession })
    }

    /// What the group uses while something is done, for the time that this tells.
    async fn uses(
        &self,
        phase: &'static str,
        done: impl AsyncFnOnce() -> Result<f64, AnyError>,
    ) -> Result<Usage, AnyError> {
        let look = async || {
            tokio::time::sleep(SETTLES).await;
            (processor_seconds(ClockId::ProcessCPUTime), total(&self.handlers))
        };
        let (processor, before) = look().await;
        let seconds = done().await?;
        let (processor_after, after) = look().await;
        let per_node = |count: u64| count as f64 / self.handlers.len() as f64;
        Ok(Usage {
            succession: self.succession,
            phase,
            seconds,
            processor: processor_after - processor,
            requests: per_node(after.requests - before.requests),
            messages: per_node(after.messages - before.messages),
            bytes: per_node(bytes(&after) - bytes(&before)),
        })
    }

    async fn end(self) -> Result<(), AnyError> {
        end(self.handlers).await?;
        for server in self.servers {
            server.stop().await;
        }
        Ok(())
    }
}
