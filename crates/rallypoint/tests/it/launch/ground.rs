//! A job: what its launchers have in common, and what its workers have said.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use super::launcher::{Launcher, Line};
use super::processes::{listening, with_environment};
use super::workers::{SCRIPT, Worker};
use super::{until, until_true};
use crate::support::process::Directory;
use crate::support::tools::free_port;

/// What the launchers of a job have in common. Their files lie in a directory of its own.
#[derive(Debug)]
pub struct Job {
    directory: Directory,
    options: Vec<String>,
    launched: Cell<usize>,
}

impl Job {
    /// A job whose workers do what they are told.
    pub fn new(options: &[&str]) -> Self {
        let directory = Directory::new();
        for name in ["workers", "tmp"] {
            std::fs::create_dir(directory.path().join(name)).unwrap();
        }
        std::fs::write(directory.path().join("worker.sh"), SCRIPT).unwrap();
        let options = options.iter().map(ToString::to_string).collect();
        Self { directory, options, launched: Cell::new(0) }
    }

    /// A job of `nnodes` nodes at this endpoint, in which nothing happens by time: leases and last calls
    /// are long.
    pub fn at(endpoint: &str, nnodes: &str) -> Self {
        Self::with_conf(endpoint, nnodes, "lease_ttl=30,last_call_timeout=30")
    }

    /// The same with other options for the backend.
    pub fn with_conf(endpoint: &str, nnodes: &str, conf: &str) -> Self {
        let meeting = ["--rdzv-endpoint", endpoint, "--rdzv-id", "job", "--rdzv-conf", conf];
        Self::new(&[&["--nnodes", nnodes], &meeting[..]].concat())
    }

    /// The same under another name.
    #[must_use]
    pub fn named(mut self, run_id: &str) -> Self {
        self.options.extend(["--rdzv-id".to_owned(), run_id.to_owned()]);
        self
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The path of a file of the job, as an argument.
    pub fn file(&self, name: &str) -> String {
        self.path().join(name).to_str().unwrap().to_owned()
    }

    /// The next launcher, not started yet.
    pub fn launcher(&self) -> Line {
        let number = self.launched.get();
        self.launched.set(number + 1);
        let variable = |name: &str, value: String| (name.to_owned(), value);
        Line {
            before: Vec::new(),
            options: self.options.clone(),
            program: vec!["sh".to_owned(), self.file("worker.sh"), ":".to_owned()],
            environment: vec![
                variable("JOB", self.file("")),
                variable("LAUNCHER", number.to_string()),
                variable("TMPDIR", self.file("tmp")),
            ],
            output: self.path().join(format!("launcher-{number}")),
            number,
        }
    }

    pub fn launch(&self) -> Launcher {
        self.launcher().start()
    }

    /// The same with more options.
    pub fn launch_with(&self, options: &[&str]) -> Launcher {
        self.launcher().with(options).start()
    }

    /// Launchers with the same command line.
    pub fn launchers(&self, count: usize) -> Vec<Launcher> {
        (0..count).map(|_| self.launch()).collect()
    }

    /// All workers that were ever started, by round and rank.
    pub fn workers(&self) -> Vec<Worker> {
        let files = std::fs::read_dir(self.path().join("workers")).unwrap();
        let paths = files.map(|file| file.unwrap().path());
        let starts = paths.filter(|path| path.extension().is_some_and(|end| end == "start"));
        let mut workers: Vec<Worker> =
            starts.map(|path| Worker::read(self.path(), &path)).collect();
        workers.sort_by_key(|worker| (worker.round, worker.rank));
        workers
    }

    /// The rounds in which workers were started.
    pub fn rounds(&self) -> BTreeSet<u64> {
        self.workers().iter().map(|worker| worker.round).collect()
    }

    /// Waits until all live workers are one group of this size.
    pub fn group(&self, workers: usize) -> Group {
        self.group_without(workers, &BTreeSet::new())
    }

    /// Waits until they are the group after this one: none of its workers is left.
    pub fn group_after(&self, before: &Group, workers: usize) -> Group {
        let group = self.group_without(workers, &before.pids());
        let (old, new) = (before.round, group.round);
        assert!(new > old, "round {new} came after round {old}: they only grow");
        group
    }

    fn group_without(&self, workers: usize, before: &BTreeSet<u32>) -> Group {
        let mut looked = Instant::now();
        until(&format!("a group of {workers} workers"), || {
            if looked.elapsed() > Duration::from_secs(2) {
                looked = Instant::now();
                assert!(
                    !self.processes().is_empty(),
                    "a group of {workers} workers: all have ended"
                );
            }
            let living: Vec<Worker> = self.workers().into_iter().filter(Worker::lives).collect();
            let round = living.first()?.round;
            let is_new = |worker: &Worker| !before.contains(&worker.pid) && worker.round == round;
            let is_whole = living.len() == workers && living[0].number("WORLD_SIZE") == workers;
            (is_whole && living.iter().all(is_new)).then_some(Group { round, workers: living })
        })
        .checked()
    }

    /// The processes of the job: launchers, workers and all that they have started.
    pub fn processes(&self) -> BTreeSet<u32> {
        with_environment(self.path())
    }

    /// Waits until there are none, and no temporary files.
    pub fn nothing_is_left(&self) {
        until_true("no process of the job is left", || self.processes().is_empty());
        let temporary: Vec<_> = std::fs::read_dir(self.path().join("tmp")).unwrap().collect();
        assert!(temporary.is_empty(), "{temporary:?}");
    }
}

impl Drop for Job {
    #[expect(clippy::print_stderr, reason = "a test that fails shows what happened")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            for worker in self.workers() {
                let Worker { round, rank, attempt, pid, .. } = worker;
                let launcher = worker.launcher();
                eprintln!(
                    "round {round} rank {rank}: {pid}, launcher {launcher} attempt {attempt}"
                );
            }
        }
    }
}

/// An endpoint on this host without a listener.
pub fn free_endpoint() -> String {
    format!("127.0.0.1:{}", free_port())
}

/// Waits until one of the launchers runs the server. Which?
pub fn host_of(launchers: &[Launcher], endpoint: &str) -> usize {
    let address: SocketAddr = endpoint.parse().unwrap();
    until(&format!("a launcher listens on {endpoint}"), || {
        launchers.iter().position(|launcher| listening(launcher.id()).contains(&address))
    })
}

/// The workers of one round, by rank.
#[derive(Debug)]
pub struct Group {
    pub round: u64,
    pub workers: Vec<Worker>,
}

impl Group {
    /// The numbers of its workers' processes.
    pub fn pids(&self) -> BTreeSet<u32> {
        self.workers.iter().map(|worker| worker.pid).collect()
    }

    /// They are one group: each rank once, and all of them told the same.
    fn checked(self) -> Self {
        let first = &self.workers[0];
        let mut places = BTreeSet::new();
        for (rank, worker) in self.workers.iter().enumerate() {
            assert_eq!(worker.rank, rank, "{self:?}");
            for name in ["WORLD_SIZE", "GROUP_WORLD_SIZE", "TORCHELASTIC_RUN_ID"] {
                assert_eq!(worker.get(name), first.get(name), "{name} of rank {rank}");
            }
            assert_eq!(worker.master(), first.master(), "rank {rank}");
            let place = (worker.number("GROUP_RANK"), worker.number("LOCAL_RANK"));
            assert!(places.insert(place), "two workers are {place:?}");
            assert!(place.1 < worker.number("LOCAL_WORLD_SIZE"));
        }
        let nodes: BTreeSet<usize> = places.into_iter().map(|(node, _)| node).collect();
        assert!(nodes.into_iter().eq(0..first.number("GROUP_WORLD_SIZE")), "{self:?}");
        self
    }

    /// Tells all of them to run some shell.
    pub fn tell(&self, order: &str) {
        self.workers.iter().for_each(|worker| worker.tell(order));
    }

    /// The same, and waits until they have.
    pub fn does(&self, order: &str) {
        self.workers.iter().for_each(|worker| worker.does(order));
    }

    /// The launchers of its workers, each once.
    pub fn launchers(&self) -> BTreeSet<usize> {
        self.workers.iter().map(Worker::launcher).collect()
    }

    /// The workers of one launcher.
    pub fn of(&self, launcher: &Launcher) -> Vec<&Worker> {
        self.workers.iter().filter(|worker| worker.launcher() == launcher.number).collect()
    }

    pub fn lives(&self) -> bool {
        self.workers.iter().all(Worker::lives)
    }
}
