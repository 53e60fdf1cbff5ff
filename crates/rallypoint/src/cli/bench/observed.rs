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
use crate::rendezvous::EtcdRendezvousHandler;
use crate::util::blocking::blocking;
use crate::util::clock::boot_time;

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

/// The groups idle one after the other, so that a machine that becomes slower slows down all of them.
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
    let formings = Forming::measure(bench, endpoint).await?;
    for forming in &formings {
        print(&serde_json::to_string(forming)?);
    }
    let mut turns = Vec::new();
    if !bench.plan().idle.is_zero() {
        for observed in TURNS {
            let turn = IdleTurn::measure(bench, endpoint, observed).await?;
            print(&serde_json::to_string(&turn)?);
            turns.push(turn);
        }
    }
    let header = ["off", "on", "on / off", "records", "records / off"];
    print(&format!("{:<40}{}", "", header.map(|name| format!("{name:>14}")).concat()));
    let number = |value: Option<f64>| value.map_or_else(String::new, |it| format!("{it:.4}"));
    let row = |what: &str, [off, on, records]: [Vec<f64>; 3]| {
        let [on_ratio, records_ratio] = [&on, &records].map(|it| median(ratios(it, &off)));
        let [off, on, records] = [off, on, records].map(median);
        let columns = [off, on, on_ratio, records, records_ratio].map(number);
        print(&format!("{what:<40}{}", columns.map(|column| format!("{column:>14}")).concat()));
    };
    for (what, values) in FORMING {
        row(what, formings.each_ref().map(values));
    }
    for (what, values) in IDLE {
        row(
            what,
            KINDS.map(|kind| {
                turns.iter().filter(|turn| turn.observed == kind).flat_map(values).collect()
            }),
        );
    }
    Ok(())
}

/// What the values of a kind are to those of the same rounds, or turns, with nothing observed.
pub(super) fn ratios(values: &[f64], off: &[f64]) -> Vec<f64> {
    let pairs = values.iter().zip(off).filter(|(_, off)| **off > 0.0);
    pairs.map(|(value, off)| value / off).collect()
}

const KINDS: [Observed; 3] = [Observed::Off, Observed::On, Observed::Records];

type Row<T> = (&'static str, fn(&T) -> Vec<f64>);

const FORMING: [Row<Forming>; 4] = [
    ("forming, s", |forming| forming.forming_seconds.clone()),
    ("forming: processor of nodes, s", |forming| forming.forming_nodes.clone()),
    ("forming: processor of the server, s", |forming| forming.forming_server.clone()),
    ("forming: processor of both, s", |forming| {
        forming.forming_nodes.iter().zip(&forming.forming_server).map(|(a, b)| a + b).collect()
    }),
];

const IDLE: [Row<IdleTurn>; 10] = [
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

fn scraped(turn: &IdleTurn, value: fn(&Idle) -> f64) -> Vec<f64> {
    turn.scraped.iter().map(value).collect()
}

pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    Some(match values.len() % 2 {
        1 => upper,
        _ => (values.get(middle.saturating_sub(1)).unwrap_or(&upper) + upper) / 2.0,
    })
}

/// How one group formed, round by round.
#[derive(Debug, Serialize)]
struct Forming {
    observed: Observed,
    /// The time of each round.
    forming_seconds: Vec<f64>,
    /// The processor time of all nodes in each round, in seconds.
    forming_nodes: Vec<f64>,
    /// The processor time of the server in each round, in seconds.
    forming_server: Vec<f64>,
}

/// How one group idled.
#[derive(Debug, Serialize)]
struct IdleTurn {
    observed: Observed,
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

/// A group, and what observes it.
struct ObservedGroup {
    handlers: Vec<Arc<EtcdRendezvousHandler>>,
    observation: Option<Observation>,
    server: String,
}

impl ObservedGroup {
    async fn open(
        bench: &RendezvousBench,
        endpoint: &str,
        observed: Observed,
    ) -> Result<Self, AnyError> {
        let observation = match observed {
            Observed::Off => None,
            _ => Some(Observation::start(bench.plan().nodes, observed == Observed::Records)?),
        };
        let handlers = bench.open(endpoint, observation.as_ref()).await?;
        let server = endpoint.split(',').next().unwrap_or_default().to_owned();
        Ok(Self { handlers, observation, server })
    }

    /// What this process and the server have used so far. All groups of this process count.
    async fn costs(&self, scraper: Option<&Scraper>) -> Result<Costs, AnyError> {
        // The last messages are on their way, and the last lines to their files.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let traffic = total(&self.handlers);
        let scraper = scraper.map_or(0.0, Scraper::seconds);
        let server = self.server.clone();
        let page = blocking(move || get(&server)).await?;
        let nodes = processor_seconds(ClockId::ProcessCPUTime) - scraper;
        let messages = (traffic.requests + traffic.messages) as f64;
        Ok(Costs { nodes, messages, ..Costs::of_server(&page) })
    }

    async fn end(self) -> Result<(), AnyError> {
        end(self.handlers).await?;
        if let Some(observation) = self.observation {
            observation.stop().await;
        }
        Ok(())
    }
}

impl Forming {
    /// Forms a group of each kind in each round, forwards and backwards in turns: what disturbs a round disturbs all of
    /// them.
    async fn measure(bench: &RendezvousBench, endpoint: &str) -> Result<[Self; 3], AnyError> {
        let mut groups = Vec::new();
        for observed in KINDS {
            groups.push(ObservedGroup::open(bench, endpoint, observed).await?);
        }
        let mut formings = KINDS.map(|observed| Self {
            observed,
            forming_seconds: Vec::new(),
            forming_nodes: Vec::new(),
            forming_server: Vec::new(),
        });
        // The first round of a group reads what later ones remember.
        for group in &groups {
            bench.measure(&group.handlers).await?;
        }
        for round in 0..bench.plan().rounds {
            let mut order: Vec<_> = groups.iter().zip(&mut formings).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for (group, forming) in order {
                let before = group.costs(None).await?;
                forming.forming_seconds.push(bench.measure(&group.handlers).await?.seconds);
                // What a round leaves to be done belongs to it.
                let costs = group.costs(None).await?.since(&before);
                forming.forming_nodes.push(costs.nodes);
                forming.forming_server.push(costs.server);
            }
        }
        for group in groups {
            group.end().await?;
        }
        Ok(formings)
    }
}

impl IdleTurn {
    async fn measure(
        bench: &RendezvousBench,
        endpoint: &str,
        observed: Observed,
    ) -> Result<Self, AnyError> {
        let ObservedPlan { nodes, idle, scrape, .. } = bench.plan();
        let group = ObservedGroup::open(bench, endpoint, observed).await?;
        bench.measure(&group.handlers).await?;
        let before = group.costs(None).await?;
        tokio::time::sleep(idle).await;
        let idled = Idle::new(&group.costs(None).await?.since(&before), nodes, idle);
        let scraped = match &group.observation {
            Some(observation) if !scrape.is_zero() => {
                let scraper = Scraper::start(observation.targets(&group.server), scrape)?;
                let before = group.costs(Some(&scraper)).await?;
                tokio::time::sleep(idle).await;
                let costs = group.costs(Some(&scraper)).await?.since(&before);
                blocking(move || scraper.stop()).await;
                Some(Idle::new(&costs, nodes, idle))
            }
            _ => None,
        };
        group.end().await?;
        Ok(Self { observed, idle: idled, scraped })
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

pub(super) fn processor_seconds(clock: ClockId) -> f64 {
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
        self.0.families(boot_time(), None)
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
                spent.store(
                    (processor_seconds(ClockId::ThreadCPUTime) * 1e9) as u64,
                    Ordering::Relaxed,
                );
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
