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

/// Groups with and without observation take turns, so that a machine that becomes slower slows down both.
const TURNS: [bool; 4] = [false, true, true, false];

/// The nodes of one file. They share the thread that writes it, as they share the threads of the runtime: two cores
/// that switch between a thousand threads tell nothing of nodes that have a host each.
const NODES_OF_A_FILE: u32 = 64;

/// The time between two rounds.
const PAUSE: Duration = Duration::from_millis(500);

/// Compares groups with and without observation.
pub(super) async fn compare(bench: &RendezvousBench, endpoint: &str) -> Result<(), AnyError> {
    let mut turns = Vec::new();
    for observed in TURNS {
        let turn = Turn::measure(bench, endpoint, observed).await?;
        print(&serde_json::to_string(&turn)?);
        turns.push(turn);
    }
    let (on, off): (Vec<_>, Vec<_>) = turns.into_iter().partition(|turn| turn.observed);
    print(&format!("{:<36}{:>12}{:>12}{:>12}", "", "off", "on", "on / off"));
    for (what, value) in ROWS {
        let [off, on] = [&off, &on].map(|turns| median(turns.iter().flat_map(value).collect()));
        let ratio = if off == 0.0 { String::new() } else { format!("{:.3}", on / off) };
        print(&format!("{what:<36}{off:>12.4}{on:>12.4}{ratio:>12}"));
    }
    Ok(())
}

type Row = (&'static str, fn(&Turn) -> Vec<f64>);

const ROWS: [Row; 10] = [
    ("forming, s", |turn| turn.forming_seconds.clone()),
    ("forming: processor of nodes, s", |turn| vec![turn.forming_nodes]),
    ("forming: processor of the server, s", |turn| vec![turn.forming_server]),
    ("idle: processor of nodes, s", |turn| vec![turn.idle.nodes]),
    ("idle: processor of the server, s", |turn| vec![turn.idle.server]),
    ("idle: cores in use", |turn| vec![turn.idle.cores]),
    ("idle: messages of a node", |turn| vec![turn.idle.messages_per_node]),
    ("idle: renewals of leases", |turn| vec![turn.idle.renewals]),
    ("idle: other calls", |turn| vec![turn.idle.calls]),
    ("idle: revisions written", |turn| vec![turn.idle.revisions]),
];

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.get(middle), values.len() % 2) {
        (Some(value), 1) => *value,
        (Some(value), _) => (values.get(middle.saturating_sub(1)).unwrap_or(value) + value) / 2.0,
        (None, _) => 0.0,
    }
}

/// One group: its rounds, and how it idled.
#[derive(Debug, Serialize)]
struct Turn {
    observed: bool,
    /// The time of each round.
    forming_seconds: Vec<f64>,
    /// The processor time of all nodes in a round, on average, in seconds.
    forming_nodes: f64,
    /// The processor time of the server in a round, on average, in seconds.
    forming_server: f64,
    idle: Idle,
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
        observed: bool,
    ) -> Result<Self, AnyError> {
        let ObservedPlan { nodes, rounds, idle, scrape } = bench.plan();
        let server = endpoint.split(',').next().unwrap_or_default();
        let observation = match observed {
            true => Some(Observation::start(nodes, server, scrape)?),
            false => None,
        };
        let handlers = bench.open(endpoint, observation.as_ref()).await?;
        let look = async || -> Result<Costs, AnyError> {
            // The last messages are on their way, and the last lines to their files.
            tokio::time::sleep(Duration::from_secs(1)).await;
            let traffic = total(&handlers);
            let scraper = observation.as_ref().map_or(0.0, Observation::scraper_seconds);
            let server = server.to_owned();
            let page = blocking(move || get(&server)).await?;
            let nodes = seconds(ClockId::ProcessCPUTime) - scraper;
            let messages = (traffic.requests + traffic.messages) as f64;
            Ok(Costs { nodes, messages, ..Costs::of_server(&page) })
        };
        let begun = look().await?;
        let mut forming_seconds = Vec::new();
        for _ in 0..rounds {
            // What a round leaves to be done must not slow the next one down.
            tokio::time::sleep(PAUSE).await;
            forming_seconds.push(bench.measure(&handlers).await?.seconds);
        }
        let formed = look().await?;
        tokio::time::sleep(idle).await;
        let idled = look().await?;
        let (forming, idling) = (formed.since(&begun), idled.since(&formed));
        let idle = Idle {
            nodes: idling.nodes,
            server: idling.server,
            cores: (idling.nodes + idling.server) / idle.as_secs_f64(),
            messages_per_node: idling.messages / f64::from(nodes),
            renewals: idling.renewals,
            calls: idling.calls,
            revisions: idling.revision,
        };
        end(handlers).await?;
        if let Some(observation) = observation {
            observation.stop().await;
        }
        let forming_nodes = forming.nodes / f64::from(rounds);
        let forming_server = forming.server / f64::from(rounds);
        Ok(Self { observed, forming_seconds, forming_nodes, forming_server, idle })
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
    scraper: Scraper,
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
    fn start(nodes: u32, server: &str, scrape: Duration) -> Result<Self, AnyError> {
        let directory = TemporaryDirectory::new("rallypoint-bench-")?;
        let (mut files, mut recorders, mut pages) = (Vec::new(), Vec::new(), Vec::new());
        for node in 0..nodes {
            if node % NODES_OF_A_FILE == 0 {
                let path = directory.path().join(format!("{}.jsonl", files.len()));
                files.push(EventFile::append(&path)?);
            }
            let recorder = files.last_mut().ok_or("there is no file")?.recorder();
            let metrics = Arc::new(RunMetrics::new(RunFacts::default()));
            let observed = metrics.clone();
            recorder.observe(Box::new(move |event| observed.take(event)));
            recorders.push(recorder);
            let address = ([127, 0, 0, 1], 0).into();
            let options = HttpOptions { address, tls: None, credentials: None };
            let told = Pages { told: Arc::new(NodePages(metrics)), runs: None };
            pages.push(HttpServer::start(options, told)?);
        }
        let of_nodes = pages.iter().map(|page| page.url().trim_start_matches("http://"));
        let targets = std::iter::once(server).chain(of_nodes).map(str::to_owned).collect();
        let scraper = Scraper::start(targets, scrape)?;
        Ok(Self { _directory: directory, files, recorders, pages, scraper })
    }

    pub(super) fn recorder(&self, node: usize) -> Option<EventRecorder> {
        self.recorders.get(node).cloned()
    }

    /// The processor time of the scraper, which is no part of the group.
    fn scraper_seconds(&self) -> f64 {
        self.scraper.nanos.load(Ordering::Relaxed) as f64 * 1e-9
    }

    async fn stop(self) {
        let Self { _directory, files, pages, scraper, .. } = self;
        blocking(move || {
            scraper.stop();
            drop(pages);
        })
        .await;
        for file in files {
            file.close().await;
        }
    }
}

/// A thread that scrapes all targets, one after the other, each once in an interval; none if that is zero.
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
            if interval.is_zero() {
                return;
            }
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

    fn stop(self) {
        drop(self.stop);
        let _ = self.thread.join();
    }
}
