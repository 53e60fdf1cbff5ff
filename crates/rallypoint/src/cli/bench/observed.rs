//! `rallypoint bench rendezvous --observed`: what events and metrics cost a group that forms, and one that idles.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use prometheus::proto::MetricFamily;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use super::super::AnyError;
use super::print;
use super::rendezvous::{RendezvousBench, end, total};
use crate::events::{EventFile, EventRecorder};
use crate::http::{HttpOptions, HttpServer, Pages, Told};
use crate::launch::{RunFacts, RunMetrics};
use crate::process::TemporaryDirectory;
use crate::util::blocking::blocking;

/// How a group is measured.
pub(super) struct ObservedPlan {
    pub(super) nodes: u32,
    pub(super) rounds: u32,
    /// The time for which the group idles.
    pub(super) idle: Duration,
    /// The time between two scrapes of a node; zero for no scraper.
    pub(super) scrape: Duration,
}

/// How much of a group is observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Observed {
    /// Nothing.
    Off,
    /// Events, metrics, pages.
    On,
    /// The same, and the records of a replay.
    Records,
}

/// The groups take turns, so that a machine that becomes slower slows down all of them.
const TURNS: [Observed; 6] = [
    Observed::Off,
    Observed::On,
    Observed::Records,
    Observed::Records,
    Observed::On,
    Observed::Off,
];

/// The nodes of one file. They share the thread that writes it, as they share the threads of the runtime: two cores
/// that switch between a thousand threads tell nothing of nodes that have a host each.
const NODES_OF_A_FILE: u32 = 64;

/// Compares groups with and without observation.
pub(super) async fn compare(bench: &RendezvousBench, endpoint: &str) -> Result<(), AnyError> {
    let mut turns = Vec::new();
    for observed in TURNS {
        let turn = Turn::measure(bench, endpoint, observed).await?;
        print(&serde_json::to_string(&turn)?);
        turns.push(turn);
    }
    let header = ["off", "on", "on / off", "records", "records / off"];
    print(&format!("{:<40}{}", "", header.map(|name| format!("{name:>14}")).concat()));
    for (what, value) in ROWS {
        let [off, on, records] = [Observed::Off, Observed::On, Observed::Records].map(|observed| {
            let turns = turns.iter().filter(|turn| turn.observed == observed);
            median(turns.flat_map(value).collect())
        });
        let number = |value: Option<f64>| value.map_or_else(String::new, |it| format!("{it:.4}"));
        let ratio = |value: Option<f64>| Some(value? / off.filter(|off| *off > 0.0)?);
        let columns = [off, on, ratio(on), records, ratio(records)];
        let columns = columns.map(|value| format!("{:>14}", number(value)));
        print(&format!("{what:<40}{}", columns.concat()));
    }
    Ok(())
}

type Row = (&'static str, fn(&Turn) -> Vec<f64>);

const ROWS: [Row; 14] = [
    ("forming, s", |turn| turn.forming_seconds.clone()),
    ("forming: processor of nodes, s", |turn| turn.forming_nodes.clone()),
    ("forming: processor of the server, s", |turn| turn.forming_server.clone()),
    ("forming: processor of both, s", |turn| {
        turn.forming_nodes.iter().zip(&turn.forming_server).map(|(a, b)| a + b).collect()
    }),
    ("idle: processor of nodes, s", |turn| vec![turn.idle.nodes]),
    ("idle: processor of the server, s", |turn| vec![turn.idle.server]),
    ("idle: cores in use", |turn| vec![turn.idle.cores]),
    ("idle: messages of a node", |turn| vec![turn.idle.messages_per_node]),
    ("idle: renewals of leases", |turn| vec![turn.idle.renewals]),
    ("idle: other calls", |turn| vec![turn.idle.calls]),
    ("idle: revisions written", |turn| vec![turn.idle.revisions]),
    ("scraped: processor of nodes, s", |turn| scraped(turn, |idle| idle.nodes)),
    ("scraped: other calls", |turn| scraped(turn, |idle| idle.calls)),
    ("scraped: revisions written", |turn| scraped(turn, |idle| idle.revisions)),
];

fn scraped(turn: &Turn, value: fn(&Idle) -> f64) -> Vec<f64> {
    turn.scraped.iter().map(value).collect()
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    Some(match values.len() % 2 {
        1 => upper,
        _ => (values.get(middle.saturating_sub(1)).unwrap_or(&upper) + upper) / 2.0,
    })
}

/// One group: its rounds, and how it idled.
#[derive(Debug, Serialize)]
struct Turn {
    observed: Observed,
    /// The time of each round.
    forming_seconds: Vec<f64>,
    /// The processor time of all nodes in each round, in seconds.
    forming_nodes: Vec<f64>,
    /// The processor time of the server in each round, in seconds.
    forming_server: Vec<f64>,
    idle: Idle,
    /// The same while the nodes are scraped. They are not scraped while they form: a thousand nodes of one host would
    /// be scraped within the time that they take.
    scraped: Option<Idle>,
}

/// What an idle group costs.
#[derive(Debug, Serialize)]
struct Idle {
    /// The processor time of all nodes, in seconds, without the scraper's.
    nodes: f64,
    /// The processor time of the server, in seconds.
    server: f64,
    /// Both, by the time for which the group idled.
    cores: f64,
    /// Messages that a node sent or received, on average.
    messages_per_node: f64,
    /// Leases that were renewed.
    renewals: f64,
    /// Calls of the server, other than those that renew leases.
    calls: f64,
    /// Revisions of the store, each of which is a write.
    revisions: f64,
}

impl Turn {
    async fn measure(
        bench: &RendezvousBench,
        endpoint: &str,
        observed: Observed,
    ) -> Result<Self, AnyError> {
        let ObservedPlan { nodes, rounds, idle, scrape } = bench.plan();
        let server = endpoint.split(',').next().unwrap_or_default();
        let observation = match observed {
            Observed::Off => None,
            _ => Some(Observation::start(nodes, observed == Observed::Records)?),
        };
        let handlers = bench.open(endpoint, observation.as_ref()).await?;
        let look = async |scraper: Option<&Scraper>| -> Result<Costs, AnyError> {
            // The last messages are on their way, and the last lines to their files.
            tokio::time::sleep(Duration::from_secs(1)).await;
            let traffic = total(&handlers);
            let scraper = scraper.map_or(0.0, Scraper::seconds);
            let server = server.to_owned();
            let page = blocking(move || get(&server)).await?;
            let nodes = seconds(ClockId::ProcessCPUTime) - scraper;
            let messages = (traffic.requests + traffic.messages) as f64;
            Ok(Costs { nodes, messages, ..Costs::of_server(&page) })
        };
        let (mut forming_seconds, mut forming_nodes) = (Vec::new(), Vec::new());
        let mut forming_server = Vec::new();
        let mut before = look(None).await?;
        for _ in 0..rounds {
            forming_seconds.push(bench.measure(&handlers).await?.seconds);
            // What a round leaves to be done belongs to it.
            let after = look(None).await?;
            let forming = after.since(&before);
            forming_nodes.push(forming.nodes);
            forming_server.push(forming.server);
            before = after;
        }
        tokio::time::sleep(idle).await;
        let idled = Idle::new(&look(None).await?.since(&before), nodes, idle);
        let scraped = match &observation {
            Some(observation) if !scrape.is_zero() => {
                let scraper = Scraper::start(observation.targets(server), scrape)?;
                let before = look(Some(&scraper)).await?;
                tokio::time::sleep(idle).await;
                let costs = look(Some(&scraper)).await?.since(&before);
                blocking(move || scraper.stop()).await;
                Some(Idle::new(&costs, nodes, idle))
            }
            _ => None,
        };
        end(handlers).await?;
        if let Some(observation) = observation {
            observation.stop().await;
        }
        let idle = idled;
        Ok(Self { observed, forming_seconds, forming_nodes, forming_server, idle, scraped })
    }
}

impl Idle {
    fn new(costs: &Costs, nodes: u32, time: Duration) -> Self {
        Self {
            nodes: costs.nodes,
            server: costs.server,
            cores: (costs.nodes + costs.server) / time.as_secs_f64(),
            messages_per_node: costs.messages / f64::from(nodes),
            renewals: costs.renewals,
            calls: costs.calls,
            revisions: costs.revision,
        }
    }
}

fn seconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// What nodes and server have used and done so far.
#[derive(Debug, Default)]
struct Costs {
    /// Processor time in seconds.
    nodes: f64,
    server: f64,
    messages: f64,
    renewals: f64,
    calls: f64,
    revision: f64,
}

impl Costs {
    /// What a server tells of itself, under etcd's names.
    fn of_server(page: &str) -> Self {
        let sum = |name: &str| -> f64 {
            // Streams of renewals are begun when the first of them is due.
            let is_it = |line: &&str| {
                line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
                    && !line.contains("LeaseKeepAlive")
            };
            let value = |line: &str| line.rsplit(' ').next()?.parse::<f64>().ok();
            page.lines().filter(is_it).filter_map(value).sum()
        };
        Self {
            server: sum("process_cpu_seconds_total"),
            renewals: sum("etcd_debugging_lease_renewed_total"),
            calls: sum("grpc_server_started_total"),
            revision: sum("etcd_debugging_mvcc_current_revision"),
            ..Self::default()
        }
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            nodes: self.nodes - before.nodes,
            server: self.server - before.server,
            messages: self.messages - before.messages,
            renewals: self.renewals - before.renewals,
            calls: self.calls - before.calls,
            revision: self.revision - before.revision,
        }
    }
}

/// The metrics at an address, or an error if they do not come.
fn get(address: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")?;
    let mut page = Vec::new();
    stream.read_to_end(&mut page)?;
    let page = String::from_utf8_lossy(&page).into_owned();
    match page.starts_with("HTTP/1.1 200 ") {
        true => Ok(page),
        false => Err(io::Error::other(format!("{address} does not tell its metrics"))),
    }
}

/// All that observes the nodes of a group.
pub(super) struct Observation {
    _directory: TemporaryDirectory,
    files: Vec<EventFile>,
    recorders: Vec<EventRecorder>,
    pages: Vec<HttpServer>,
}

/// What a node tells. Those of the process are left out: they count the descriptors of all nodes of this one.
struct NodePages(Arc<RunMetrics>);

impl Told for NodePages {
    fn readiness(&self) -> Result<(), String> {
        Ok(())
    }

    fn metrics(&self) -> Vec<MetricFamily> {
        self.0.families()
    }
}

impl Observation {
    fn start(nodes: u32, records: bool) -> Result<Self, AnyError> {
        let directory = TemporaryDirectory::new("rallypoint-bench-")?;
        let (mut files, mut recorders, mut pages) = (Vec::new(), Vec::new(), Vec::new());
        for node in 0..nodes {
            if node % NODES_OF_A_FILE == 0 {
                let path = directory.path().join(format!("{}.jsonl", files.len()));
                files.push(EventFile::append(&path, records)?);
            }
            let recorder = files.last().ok_or("there is no file")?.recorder();
            let metrics = Arc::new(RunMetrics::new(RunFacts::default()));
            let observed = metrics.clone();
            recorder.observe(Box::new(move |now, event| observed.take(now, event)));
            recorders.push(recorder);
            let address = ([127, 0, 0, 1], 0).into();
            let options = HttpOptions { address, tls: None, credentials: None };
            let told = Pages { told: Arc::new(NodePages(metrics)), runs: None };
            pages.push(HttpServer::start(options, told)?);
        }
        Ok(Self { _directory: directory, files, recorders, pages })
    }

    /// What a scraper asks: the server, and all nodes.
    fn targets(&self, server: &str) -> Vec<String> {
        let of_nodes = self.pages.iter().map(|page| page.url().trim_start_matches("http://"));
        std::iter::once(server).chain(of_nodes).map(str::to_owned).collect()
    }

    pub(super) fn recorder(&self, node: usize) -> Option<EventRecorder> {
        self.recorders.get(node).cloned()
    }

    async fn stop(self) {
        let Self { _directory, files, pages, .. } = self;
        blocking(move || drop(pages)).await;
        for file in files {
            file.close().await;
        }
    }
}

/// A thread that scrapes all targets, one after the other, each once in an interval.
struct Scraper {
    nanos: Arc<AtomicU64>,
    stop: SyncSender<()>,
    thread: JoinHandle<()>,
}

impl Scraper {
    fn start(targets: Vec<String>, interval: Duration) -> io::Result<Self> {
        let nanos = Arc::new(AtomicU64::new(0));
        let spent = nanos.clone();
        let (stop, stopped) = sync_channel::<()>(0);
        let thread = std::thread::Builder::new().name("scraper".to_owned()).spawn(move || {
            let step = interval / u32::try_from(targets.len()).unwrap_or(u32::MAX).max(1);
            let mut next = Instant::now();
            for target in targets.iter().cycle() {
                next += step;
                let left = next.saturating_duration_since(Instant::now());
                if stopped.recv_timeout(left) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
                // A node that is busy is scraped again later.
                let _ = get(target);
                spent.store((seconds(ClockId::ThreadCPUTime) * 1e9) as u64, Ordering::Relaxed);
            }
        })?;
        Ok(Self { nanos, stop, thread })
    }

    /// Its processor time, which is no part of the group's.
    fn seconds(&self) -> f64 {
        self.nanos.load(Ordering::Relaxed) as f64 * 1e-9
    }

    fn stop(self) {
        drop(self.stop);
        let _ = self.thread.join();
    }
}
