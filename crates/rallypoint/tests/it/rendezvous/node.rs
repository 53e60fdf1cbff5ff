//! A node as a process of its own: the example that shows how to write an agent.

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ChildStdin, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::process::{Directory, Process, Recipe};
use crate::support::tools::example;

/// Generous: other tests run beside this one, and each of them starts processes.
pub const PATIENCE: Duration = Duration::from_secs(40);

/// How to start the nodes of a run.
#[derive(Debug, Clone)]
pub struct Job {
    args: Vec<(&'static str, String)>,
}

impl Job {
    /// Nodes that meet at `endpoint` in groups of `nnodes`, as quickly as etcd's leases allow.
    pub fn new(endpoint: impl Into<String>, nnodes: &str) -> Self {
        let job = Self { args: Vec::new() };
        job.with("--endpoint", endpoint).with("--nnodes", nnodes).with("--lease-ttl", "2")
    }

    /// The same with another option, or another value for it.
    pub fn with(&self, option: &'static str, value: impl Into<String>) -> Self {
        let mut job = self.clone();
        job.args.retain(|(name, _)| *name != option);
        job.args.push((option, value.into()));
        job
    }

    /// Starts a node.
    pub fn node(&self) -> Node {
        let directory = Directory::new();
        let recipe = Recipe {
            program: example("node"),
            args: self.args.iter().flat_map(|(name, value)| [name.into(), value.into()]).collect(),
            env: Vec::new(),
            log: directory.path().join("log"),
        };
        let (process, input) = Process::start_with_input(&recipe);
        let log = recipe.log;
        Node { process, input, log, told: Vec::new(), next: 0, _directory: directory }
    }

    /// Starts some.
    pub fn nodes(&self, count: usize) -> Vec<Node> {
        (0..count).map(|_| self.node()).collect()
    }
}

/// A place in a group, as a node told it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub round: u64,
    pub rank: u64,
    pub world: u64,
    pub master: String,
}

/// A running node. Killed when it is dropped.
#[derive(Debug)]
pub struct Node {
    process: Process,
    input: ChildStdin,
    log: PathBuf,
    /// Everything that it has told so far.
    told: Vec<Value>,
    /// Up to here the test has heard it.
    next: usize,
    // After the process, which writes there.
    _directory: Directory,
}

impl Node {
    /// Gives it a command.
    pub fn command(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    /// Kills the node with SIGKILL.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Stops it in its tracks.
    pub fn pause(&mut self) {
        self.process.signal(Signal::STOP);
    }

    /// Lets it go on.
    pub fn resume(&mut self) {
        self.process.signal(Signal::CONT);
    }

    /// Asks it to end.
    pub fn terminate(&mut self) {
        self.process.signal(Signal::TERM);
    }

    fn read(&mut self) {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        // A line is whole when its end is there. The log has other lines too, for people.
        let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let events = whole.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        self.told = events.collect();
    }

    /// Everything that it has told so far, with or without having been heard.
    pub fn told(&mut self) -> &[Value] {
        self.read();
        &self.told
    }

    /// The next event for which `find` finds something; others before it are skipped.
    pub async fn hear<T>(&mut self, what: &str, find: impl Fn(&Value) -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            self.read();
            while let Some(event) = self.told.get(self.next) {
                self.next += 1;
                if let Some(found) = find(event) {
                    return found;
                }
                assert!(event["event"] != "error", "instead of {what}: {event}");
            }
            assert!(!self.process.has_ended() || self.more(), "ended without {what}: {self:#?}");
            assert!(begun.elapsed() < PATIENCE, "no {what} in {PATIENCE:?}: {:#?}", self.told);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn more(&mut self) -> bool {
        self.read();
        self.told.len() > self.next
    }

    /// The next event of this kind.
    pub async fn event(&mut self, kind: &str) -> Value {
        self.hear(kind, |event| (event["event"] == kind).then(|| event.clone())).await
    }

    /// Waits until it says that it waits for something like this.
    pub async fn waits_for(&mut self, text: &str) {
        let find =
            |event: &Value| event["for"].as_str().filter(|what| what.contains(text)).map(drop);
        self.hear(&format!("waiting for {text:?}"), find).await;
    }

    /// The id of the node.
    pub fn id(&mut self) -> String {
        let told = self.told().first().expect("it has told something");
        told["node"].as_str().unwrap().to_owned()
    }

    /// Every group that it has been in.
    pub fn places(&mut self) -> Vec<Place> {
        self.told().iter().filter_map(place).collect()
    }

    /// The group that it is in now, as far as it has told.
    pub fn place(&mut self) -> Option<Place> {
        let mut told = self.told().iter();
        let last = told.rfind(|event| event["event"] != "waiting")?;
        place(last)
    }

    /// How often it has written this into its log.
    pub fn logged(&self, text: &str) -> usize {
        let log = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&log).matches(text).count()
    }

    /// From here on only what it tells later is heard.
    pub fn forget(&mut self) {
        self.read();
        self.next = self.told.len();
    }

    /// Whether it has told anything since it was last heard, besides what it waits for.
    pub fn is_quiet(&mut self) -> bool {
        self.read();
        self.told[self.next..].iter().all(|event| event["event"] == "waiting")
    }

    /// How it ended. Waits until it has.
    pub async fn ended(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.process.exit_status() {
                assert_eq!(status.signal(), None);
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "still there: {:#?}", self.told());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn place(event: &Value) -> Option<Place> {
    let number = |name: &str| event[name].as_u64();
    (event["event"] == "formed").then_some(())?;
    let master = event["master"].as_str()?.to_owned();
    Some(Place { round: number("round")?, rank: number("rank")?, world: number("world")?, master })
}
