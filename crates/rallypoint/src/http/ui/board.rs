//! What viewers see: the runs of the server, or one run, as JSON. `docs/reference/page.md` documents it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use rallypoint_core::agent::FailureOutput;
use rallypoint_core::agent::stacks::HangDocument;
use rallypoint_core::events::RunEvent;
use rallypoint_core::kv::LeaseId;
use rallypoint_core::rendezvous::documents::DisplayTime;
use rallypoint_core::rendezvous::keys::Keys;
use rallypoint_core::status::{LeaseMargin, RunStatus, Sentence, explain};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::client::ClientError;
use crate::runs::{KeySpace, RunReader, ServerFacts, is_known, leases_of};
use crate::util::clock::display_time;

/// How often the margins of leases are read again. A thousand nodes are a thousand requests, so larger runs are read
/// less often: at most two hundred leases a second.
const MARGINS: Duration = Duration::from_secs(5);
const LEASES_A_SECOND: usize = 200;

/// What a viewer looks at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Topic {
    /// All runs.
    Runs,
    /// One run.
    Run(String),
}

impl Topic {
    fn run(&self) -> Option<&String> {
        match self {
            Self::Runs => None,
            Self::Run(run) => Some(run),
        }
    }
}

/// What a viewer is told: a frame of server-sent events.
#[derive(Debug, Clone)]
pub(super) enum Told {
    /// What there is to see.
    Board(Bytes),
    /// The server has no such run.
    Gone(Bytes),
    /// The server does not answer.
    Away(Bytes),
}

impl Told {
    pub(super) fn away(why: &str) -> Self {
        Self::Away(frame("away", &json!({ "why": why })))
    }

    pub(super) fn frame(&self) -> Bytes {
        let (Self::Board(frame) | Self::Gone(frame) | Self::Away(frame)) = self;
        frame.clone()
    }

    /// The JSON of the frame.
    pub(super) fn json(&self) -> Bytes {
        let frame = self.frame();
        let start = frame.windows(DATA.len()).position(|part| part == DATA.as_bytes());
        frame.slice(start.map_or(0, |start| start + DATA.len())..frame.len() - END.len())
    }
}

const DATA: &str = "\ndata: ";
const END: &str = "\n\n";

fn frame(event: &str, data: &impl Serialize) -> Bytes {
    // Names, numbers and texts are always JSON. It is one line: a line feed in a text is an escape.
    let data = serde_json::to_string(data).unwrap_or_default();
    Bytes::from(format!("event: {event}{DATA}{data}{END}"))
}

/// The runs, as far as they were read.
pub(super) struct Board<'a> {
    reader: &'a RunReader<dyn KeySpace>,
    /// All runs, while somebody looks at the list.
    runs: Option<BTreeMap<String, RunStatus>>,
    /// Runs that have changed since they were read.
    stale: BTreeSet<String>,
    margins: BTreeMap<String, Margins>,
}

/// The leases of a run.
struct Margins {
    known: BTreeMap<LeaseId, LeaseMargin>,
    read: Instant,
}

impl Margins {
    fn are_old(&self) -> bool {
        let seconds = (self.known.len() / LEASES_A_SECOND) as u64;
        self.read.elapsed() >= MARGINS.max(Duration::from_secs(seconds))
    }
}

impl<'a> Board<'a> {
    pub(super) fn new(reader: &'a RunReader<dyn KeySpace>) -> Self {
        Self { reader, runs: None, stale: BTreeSet::new(), margins: BTreeMap::new() }
    }

    /// A document of this run has changed.
    pub(super) fn changed(&mut self, run: &str) {
        if !self.stale.contains(run) {
            self.stale.insert(run.to_owned());
        }
    }

    /// Whether viewers of this topic see something else than before.
    pub(super) fn is_stale(&self, topic: &Topic) -> bool {
        match topic {
            Topic::Runs => !self.stale.is_empty(),
            Topic::Run(run) => self.stale.contains(run),
        }
    }

    /// Forgets what has no viewer. `topics` have viewers.
    pub(super) fn looked_at(&mut self, topics: &[Topic]) {
        self.margins.retain(|run, _| topics.contains(&Topic::Run(run.clone())));
        if !topics.contains(&Topic::Runs) {
            self.runs = None;
        }
    }

    /// What the viewers of these topics see now.
    pub(super) async fn tell(
        &mut self,
        shown: &[Topic],
    ) -> Result<Vec<(Topic, Told)>, ClientError> {
        let mut told = Vec::new();
        let is_list_shown = shown.contains(&Topic::Runs);
        if is_list_shown && self.runs.is_none() {
            self.stale.extend(self.reader.runs().await?);
            self.runs = Some(BTreeMap::new());
        }
        let looked_at: BTreeSet<&String> = shown.iter().filter_map(Topic::run).collect();
        let listed: Vec<String> = self.stale.iter().filter(|_| is_list_shown).cloned().collect();
        let mut wanted: BTreeSet<&String> = listed.iter().collect();
        wanted.extend(&looked_at);
        for run in wanted {
            let status = self.read(run, looked_at.contains(run)).await?;
            self.stale.remove(run);
            if looked_at.contains(run) {
                told.push((Topic::Run(run.clone()), one(&status)));
            }
            if let Some(runs) = &mut self.runs {
                match is_known(&status) {
                    true => drop(runs.insert(run.clone(), without_nodes(status))),
                    false => drop(runs.remove(run)),
                }
            }
        }
        match &self.runs {
            Some(runs) if is_list_shown => {
                let facts = self.reader.keys.facts(Keys::runs(&self.reader.prefix, None)).await;
                told.push((Topic::Runs, all(&facts, runs.values())));
            }
            Some(_) => {}
            // The other runs have no viewer.
            None => self.stale.clear(),
        }
        Ok(told)
    }

    async fn read(&mut self, run: &str, with_leases: bool) -> Result<RunStatus, ClientError> {
        let keys = self.reader.of(run);
        let kvs = self.reader.documents(&keys).await?;
        let none = BTreeMap::new();
        let known = match with_leases {
            true => self.margins(run, leases_of(&keys, &kvs).collect()).await?,
            false => &none,
        };
        Ok(RunStatus::new(run, &keys, &kvs, known))
    }

    /// The leases of a run: all of them from time to time, and in between those of new nodes.
    async fn margins(
        &mut self,
        run: &str,
        leases: Vec<LeaseId>,
    ) -> Result<&BTreeMap<LeaseId, LeaseMargin>, ClientError> {
        let before = self.margins.remove(run).filter(|margins| !margins.are_old());
        let mut margins =
            before.unwrap_or_else(|| Margins { known: BTreeMap::new(), read: Instant::now() });
        let unknown: Vec<LeaseId> =
            leases.into_iter().filter(|lease| !margins.known.contains_key(lease)).collect();
        margins.known.extend(self.reader.leases(unknown).await?);
        Ok(&self.margins.entry(run.to_owned()).or_insert(margins).known)
    }
}

/// The JSON of all runs.
#[derive(Serialize)]
struct RunsBoard<'a> {
    format: u32,
    now_unix_ms: DisplayTime,
    server: &'a ServerFacts,
    runs: Vec<Value>,
}

/// A run for the list, which shows no nodes.
fn without_nodes(status: RunStatus) -> RunStatus {
    RunStatus { nodes: Vec::new(), events: Vec::new(), ..status }
}

/// All runs, without their nodes.
fn all<'a>(server: &ServerFacts, runs: impl Iterator<Item = &'a RunStatus>) -> Told {
    let short = |run: &RunStatus| {
        let mut value = json!(run);
        if let Some(fields) = value.as_object_mut() {
            fields.remove("nodes");
        }
        value
    };
    let runs = runs.map(short).collect();
    Told::Board(frame("runs", &RunsBoard { format: 1, now_unix_ms: display_time(), server, runs }))
}

/// The JSON of one run.
#[derive(Serialize)]
struct RunBoard<'a> {
    format: u32,
    now_unix_ms: DisplayTime,
    status: &'a RunStatus,
    explain: Vec<Sentence>,
    events: &'a [RunEvent],
    failure: Option<&'a FailureOutput>,
    hang: Option<&'a HangDocument>,
}

/// One run, with its explanation, its last events, and its last failure and hang.
fn one(status: &RunStatus) -> Told {
    if !is_known(status) {
        let why = format!("the server has no run {:?}", status.run);
        return Told::Gone(frame("gone", &json!({ "why": why })));
    }
    let now_unix_ms = display_time();
    let (failure, hang) = (status.failure.as_ref(), status.last_hang.as_ref());
    let explain = explain(status, now_unix_ms);
    let events = status.events.as_slice();
    let board = RunBoard { format: 1, now_unix_ms, status, explain, events, failure, hang };
    Told::Board(frame("run", &board))
}
