//! `rallypoint bench rendezvous`.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tokio::sync::{Barrier, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::super::AnyError;
use super::observed::{Observation, ObservedPlan, compare};
use super::{BenchTarget, print, succession};
use crate::client::{ClientOptions, Traffic};
use crate::rendezvous::{EtcdRendezvousHandler, HandlerOptions, RendezvousHandler, RunOutcome};

pub(super) const AFTER_HELP: &str = "\
Each node is a handler with a connection and a session of its own, over gRPC and TCP, all in one
process; the server is another. The handlers are made before the clock starts; it stops when the last node has its rank.
Without --stores they serve no store for workers: members connect to that only when the group has formed, and for many
thousands of them one process has too few descriptors.

--observed compares nodes that record events to files, keep those of the run in its keys, and serve
metrics over HTTP, with nodes that do none of it, and with nodes that also record what a replay needs.
They take turns in each round, and the ratios are medians of those within a round. Then they form anew,
one after the other, and each group idles for a while, and then once more with a scraper.

--succession compares groups whose endpoint names three hosts, which may succeed each other, with groups
whose endpoint names one. Nodes and servers are in one process. They take turns in the same way.

--idle alone tells what the group sends and receives while nothing happens. For that, give the lease and
the stores of a job: --lease-ttl 10 --stores.

Examples:
  rallypoint bench rendezvous --nodes 1024
  rallypoint bench rendezvous --nodes 1024 --rounds 5 --observed --idle 60
  rallypoint bench rendezvous --nodes 1024 --rounds 5 --succession --lease-ttl 10
  rallypoint bench rendezvous --nodes 1024 --idle 20 --lease-ttl 10 --stores
  rallypoint bench rendezvous --nodes 256 --endpoint 127.0.0.1:2379 --json";

#[derive(Args)]
pub(in crate::cli) struct RendezvousBench {
    /// Number of nodes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    nodes: u32,
    /// Rendezvous servers [default: a new server for this benchmark]
    #[arg(long, value_name = "HOST:PORT,…")]
    endpoint: Option<String>,
    /// Number of rounds; the nodes rejoin after each round
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Compare with and without events and metrics
    #[arg(long)]
    observed: bool,
    /// Compare with and without hosts that succeed each other as servers
    #[arg(long, conflicts_with_all = ["observed", "endpoint", "stores", "json"])]
    succession: bool,
    /// Time for which each group idles after its rounds [default with --observed or --succession: 60]
    #[arg(long, value_name = "SECONDS")]
    idle: Option<u64>,
    /// Lease of each node. A host that runs ten thousand nodes must not lose one to its own load
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(2..))]
    lease_ttl: u64,
    /// Serve a store for workers, to which each member connects
    #[arg(long)]
    stores: bool,
    /// Time between two scrapes of a node; 0 for no scraper
    #[arg(long, value_name = "SECONDS", default_value_t = 15, requires = "observed")]
    scrape: u64,
    /// Print one JSON object for each round instead of a table
    #[arg(long)]
    json: bool,
}

/// The measurements of one round.
#[derive(Debug, Serialize)]
pub(super) struct RoundMeasurement {
    nodes: u32,
    round: u64,
    /// The time from the first call to the last rank.
    pub(super) seconds: f64,
    /// Messages that a node sent, on average: calls, and requests on streams.
    requests_per_node: f64,
    /// Messages that a node received, on average.
    messages_per_node: f64,
    /// Bytes sent and received by a node, on average.
    bytes_per_node: f64,
    /// Of all nodes together.
    bytes: u64,
}

/// What all nodes of an idle group sent and received.
#[derive(Debug, Serialize)]
struct IdleMeasurement {
    nodes: u32,
    idle_seconds: f64,
    requests: u64,
    messages: u64,
    bytes: u64,
}

impl RendezvousBench {
    pub(super) async fn run(self) -> Result<(), AnyError> {
        if self.succession {
            return succession::compare(&self).await;
        }
        let target = BenchTarget::find(self.endpoint.as_deref()).await?;
        if self.observed {
            return compare(&self, &target.endpoint).await;
        }
        let handlers = self.open(&target.endpoint, None).await?;
        if !self.json {
            let header =
                ["nodes", "round", "seconds", "requests/node", "messages/node", "bytes/node"];
            print(&header.map(|name| format!("{name:>14}")).concat());
        }
        for _ in 0..self.rounds {
            let measured = self.measure(&handlers).await?;
            if self.json {
                print(&serde_json::to_string(&measured)?);
            } else {
                let RoundMeasurement { nodes, round, seconds, .. } = measured;
                let RoundMeasurement {
                    requests_per_node, messages_per_node, bytes_per_node, ..
                } = measured;
                print(&format!(
                    "{nodes:>14}{round:>14}{seconds:>14.4}{requests_per_node:>14.2}\
                     {messages_per_node:>14.2}{bytes_per_node:>14.0}"
                ));
            }
        }
        if let Some(idle) = self.idle {
            let IdleMeasurement { idle_seconds, requests, messages, bytes, .. } =
                self.idles(&handlers, Duration::from_secs(idle)).await?;
            if !self.json {
                print(&format!(
                    "idle for {idle_seconds:.1} s: {requests} requests, {messages} messages, {bytes} bytes"
                ));
            }
        }
        end(handlers).await
    }

    /// Measures a group in which nothing happens.
    async fn idles(
        &self,
        handlers: &[Arc<EtcdRendezvousHandler>],
        time: Duration,
    ) -> Result<IdleMeasurement, AnyError> {
        // The last messages of the round are on their way.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (before, begun) = (total(handlers), Instant::now());
        tokio::time::sleep(time).await;
        let (after, idle_seconds) = (total(handlers), begun.elapsed().as_secs_f64());
        let measured = IdleMeasurement {
            nodes: self.nodes,
            idle_seconds,
            requests: after.requests - before.requests,
            messages: after.messages - before.messages,
            bytes: bytes(&after) - bytes(&before),
        };
        if self.json {
            print(&serde_json::to_string(&measured)?);
        }
        Ok(measured)
    }

    pub(super) fn lease_ttl(&self) -> u64 {
        self.lease_ttl
    }

    /// How groups that are compared are measured.
    pub(super) fn plan(&self) -> ObservedPlan {
        ObservedPlan {
            nodes: self.nodes,
            rounds: self.rounds,
            idle: Duration::from_secs(self.idle.unwrap_or(60)),
            scrape: Duration::from_secs(self.scrape),
        }
    }

    /// Opens the handlers in batches, so that the server's queue of new connections suffices.
    pub(super) async fn open(
        &self,
        endpoint: &str,
        observation: Option<&Observation>,
    ) -> Result<Vec<Arc<EtcdRendezvousHandler>>, AnyError> {
        let nodes = self.nodes as usize;
        let run_id = format!("bench-{:016x}", fastrand::u64(..));
        let at_once = Arc::new(Semaphore::new(64));
        let mut opening = JoinSet::new();
        for node in 0..nodes {
            let options = HandlerOptions {
                recorder: observation.and_then(|observation| observation.recorder(node)),
                keeps_events: !self.observed || observation.is_some(),
                local_addr: Some("127.0.0.1".to_owned()),
                timeout: Duration::from_secs(300),
                lease_ttl: Duration::from_secs(self.lease_ttl),
                use_agent_store: self.stores,
                ..HandlerOptions::new(run_id.clone(), nodes, nodes)
            };
            let client = ClientOptions {
                connect_timeout: Duration::from_secs(30),
                timeout: Duration::from_secs(60),
                attempt_timeout: Duration::from_secs(30),
                keep_alive_interval: Duration::from_secs(60),
                keep_alive_timeout: Duration::from_secs(60),
                ..ClientOptions::new(endpoint.split(','))
            };
            let at_once = at_once.clone();
            opening.spawn(async move {
                let _turn = at_once.acquire_owned().await;
                EtcdRendezvousHandler::open(client, options).await.map(Arc::new)
            });
        }
        let mut handlers = Vec::with_capacity(nodes);
        while let Some(opened) = opening.join_next().await {
            handlers.push(opened??);
        }
        Ok(handlers)
    }

    pub(super) async fn measure(
        &self,
        handlers: &[Arc<EtcdRendezvousHandler>],
    ) -> Result<RoundMeasurement, AnyError> {
        let before = total(handlers);
        let start = Arc::new(Barrier::new(handlers.len() + 1));
        let mut meeting = JoinSet::new();
        for handler in handlers {
            let (handler, start) = (handler.clone(), start.clone());
            meeting.spawn(async move {
                start.wait().await;
                handler.next_rendezvous().await
            });
        }
        start.wait().await;
        let begun = Instant::now();
        let mut ranks = vec![false; handlers.len()];
        let mut round = 0;
        while let Some(met) = meeting.join_next().await {
            let group = met??;
            round = group.round;
            let rank = ranks.get_mut(group.rank as usize).filter(|taken| !**taken);
            *rank
                .ok_or_else(|| format!("rank {} was given twice or is too large", group.rank))? =
                true;
        }
        let seconds = begun.elapsed().as_secs_f64();
        let after = total(handlers);
        let per_node = |count: u64| count as f64 / handlers.len() as f64;
        let bytes = bytes(&after) - bytes(&before);
        Ok(RoundMeasurement {
            nodes: self.nodes,
            round,
            seconds,
            requests_per_node: per_node(after.requests - before.requests),
            messages_per_node: per_node(after.messages - before.messages),
            bytes_per_node: per_node(bytes),
            bytes,
        })
    }
}

/// Ends the run, and all of its nodes leave.
pub(super) async fn end(handlers: Vec<Arc<EtcdRendezvousHandler>>) -> Result<(), AnyError> {
    // Closed first, so that no node starts another round while others leave.
    if let Some(handler) = handlers.first() {
        handler.close(RunOutcome::Succeeded, "the benchmark is over").await?;
    }
    let mut leaving = JoinSet::new();
    for handler in handlers {
        leaving.spawn(async move { handler.leave().await });
    }
    leaving.join_all().await;
    Ok(())
}

pub(super) fn bytes(traffic: &Traffic) -> u64 {
    traffic.bytes_sent + traffic.bytes_received
}

/// The traffic of all handlers so far.
pub(super) fn total(handlers: &[Arc<EtcdRendezvousHandler>]) -> Traffic {
    handlers.iter().map(|handler| handler.client().traffic()).fold(
        Traffic::default(),
        |sum, one| Traffic {
            requests: sum.requests + one.requests,
            messages: sum.messages + one.messages,
            bytes_sent: sum.bytes_sent + one.bytes_sent,
            bytes_received: sum.bytes_received + one.bytes_received,
        },
    )
}
