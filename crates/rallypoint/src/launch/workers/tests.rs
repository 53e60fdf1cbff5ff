//! Worker groups of shells: how they end, and that nothing is left of them.

mod environment;
mod output;

use std::fs;
use std::path::Path;
use std::time::Duration;

use rallypoint_core::agent::placement::Placement;
use rallypoint_core::agent::{self, AgentSettings, SIGTERM};
use rallypoint_core::rendezvous::documents::Address;
use tempfile::TempDir;
use tokio::time::timeout;

use super::log_dir::{Files, LogDir};
use super::*;
use crate::embedded::{RendezvousConfig, ServerPlacement};
use crate::launch::console::Console;
use crate::launch::console::tests::Shown;
use crate::launch::job::{
    Environment, HandledSignals, JobSpec, LocalRanks, LogDirectory, Logs, PortsSpec,
    PrefixTemplate, ProgressSign, SignalList, StreamSelection, Streams,
};
use crate::rendezvous::RendezvousParameters;

/// Long enough for anything on any machine.
const LONG: Duration = Duration::from_secs(60);

/// Workers to be, with what can be seen of them.
struct Ground {
    spec: WorkerSpec,
    output: Shown,
    error: Shown,
    /// Where their files are.
    root: TempDir,
}

/// Shells with this script, one for each worker.
fn ground(local_workers: u32, script: &str) -> Ground {
    ground_of(local_workers, "sh", &["-c", script])
}

fn ground_of(local_workers: u32, path: &str, arguments: &[&str]) -> Ground {
    let root = tempfile::tempdir().unwrap();
    let program = Program {
        path: path.into(),
        arguments: arguments.iter().map(Into::into).collect(),
        placeholders: false,
    };
    let job = job(program, local_workers, LogDirectory::At(root.path().to_owned()));
    let (console, output, error) = Console::shown(false);
    let environment = job.environment("node-id", true);
    let copied = Arc::new(OutputCopiers::new().unwrap());
    let mut spec = WorkerSpec::new(&job, environment, Arc::new(console), copied).unwrap();
    spec.host = "node7".to_owned();
    Ground { spec, output, error, root }
}

/// A job of one node, with torchrun's defaults.
fn job(program: Program, local_workers: u32, directory: LogDirectory) -> JobSpec {
    let none = || StreamSelection::All(Streams::default());
    JobSpec {
        preflight: None,
        program,
        rendezvous: RendezvousConfig {
            parameters: RendezvousParameters::new("rallypoint", "", "job", 1, 1).unwrap(),
            server: ServerPlacement::Loopback,
            credentials: None,
            tls: None,
            warnings: Vec::new(),
            own_places: crate::embedded::OwnPlaces::default(),
            is_host: None,
        },
        etcd_member: None,
        agent: AgentSettings { local_workers, ..AgentSettings::default() },
        role: "default".to_owned(),
        max_restarts: 0,
        handled: HandledSignals { signals: SignalList::default(), named: false },
        progress: ProgressSign::default(),
        notice_signal: Signal::USR1.as_raw(),
        logs: Logs {
            directory,
            redirects: none(),
            tee: none(),
            prefix: PrefixTemplate::default(),
            console: LocalRanks::default(),
        },
        http: None,
        events: None,
        records: false,
        stdin: None,
        numa_binding: None,
        virtual_local_rank: false,
        ports: PortsSpec::default(),
        inherited: Environment::new(),
        remark: None,
        provenance: Vec::new(),
        warnings: Vec::new(),
    }
}

impl Ground {
    async fn start(&self, attempt: u64) -> WorkerGroup {
        let (workers, started) = WorkerGroup::start(&self.spec, &self.order(attempt)).await;
        started.unwrap();
        workers
    }

    fn order(&self, attempt: u64) -> Start {
        let store = Address { host: "127.0.0.1".to_owned(), port: 29500 };
        let group = agent::NodeGroup { round: 5 + attempt, rank: 1, nodes: 2, restarts: 0, store };
        let placement = Placement::identical(1, 2, self.spec.environment.local_workers);
        Start { attempt, group, placement }
    }

    /// A file of a worker.
    fn file(&self, attempt: u64, local_rank: u32, name: &str) -> String {
        fs::read_to_string(self.files(attempt, local_rank).directory.join(name)).unwrap()
    }

    /// Those of a worker of the first start in its round.
    fn files(&self, attempt: u64, local_rank: u32) -> Files {
        let rank = self.spec.environment.local_workers + local_rank;
        let host = only(&only(self.root.path()));
        Files::in_directory(host.join(format!("round_{}/rank_{rank}", 5 + attempt)))
    }

    /// Runs to the end, and tells who ended and how.
    async fn run(&self) -> Vec<Exited> {
        let workers = self.start(0).await;
        self.end(&workers).await
    }

    /// The ends of the last workers, when all of their output is written.
    async fn end(&self, workers: &WorkerGroup) -> Vec<Exited> {
        let exits = all_exits(workers).await;
        timeout(LONG, self.spec.output.finish()).await.unwrap();
        exits
    }
}

/// What alone is in a directory.
fn only(directory: &Path) -> PathBuf {
    let mut entries = fs::read_dir(directory).unwrap();
    let (first, second) = (entries.next().unwrap().unwrap().path(), entries.next());
    assert!(second.is_none(), "{first:?} {second:?}");
    first
}

async fn all_exits(workers: &WorkerGroup) -> Vec<Exited> {
    timeout(LONG, workers.gone()).await.unwrap();
    let mut exits = Vec::new();
    while exits.len() < workers.workers.len() {
        exits.push(timeout(LONG, workers.next_exit()).await.unwrap());
    }
    exits.sort_by_key(|exited| exited.local_rank);
    exits
}

/// Waits until a file is there, and has a whole line; the line.
async fn line_of(path: &Path) -> String {
    let line = async {
        loop {
            let text = fs::read_to_string(path).unwrap_or_default();
            if let Some((line, _)) = text.split_once('\n') {
                return line.to_owned();
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(LONG, line).await.unwrap()
}

/// Whether there is such a process, other than as a memory of one.
fn lives(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().and_then(|rest| rest.trim().chars().next()).is_some_and(|c| c != 'Z')
}

#[tokio::test]
async fn each_worker_tells_once_how_it_ended() {
    let script = "case $LOCAL_RANK in 0) exit 0 ;; 1) exit 7 ;; 2) kill -SEGV $$ ;; esac";
    let ground = ground(3, script);
    let workers = ground.start(4).await;
    let exits = all_exits(&workers).await;
    let exited = |local_rank, exit| Exited { attempt: 4, local_rank, exit, message: None };
    let expected =
        [exited(0, Exit::Code(0)), exited(1, Exit::Code(7)), exited(2, Exit::Signal(11))];
    assert_eq!(exits, expected);
    assert_eq!(workers.attempt(), 4);
    let patience = Duration::from_millis(20);
    assert!(timeout(patience, workers.next_exit()).await.is_err(), "no worker is left");
    let record = workers.exit_records()[1].clone();
    assert!(record.pid > 0 && record.ended().is_some());
    assert_eq!(workers.exit_records().len(), 3);
}

#[tokio::test]
async fn one_that_ends_is_told_while_others_run_and_waiting_can_be_given_up() {
    let ground = ground(2, "[ $LOCAL_RANK = 1 ] || exec sleep 100; exit 3");
    let workers = ground.start(0).await;
    let exited = timeout(LONG, workers.next_exit()).await.unwrap();
    assert_eq!((exited.local_rank, exited.exit), (1, Exit::Code(3)));
    let patience = Duration::from_millis(20);
    assert!(timeout(patience, workers.next_exit()).await.is_err());
    assert!(timeout(patience, workers.gone()).await.is_err());
    workers.signal(SIGTERM);
    let exited = timeout(LONG, workers.next_exit()).await.unwrap();
    assert_eq!((exited.local_rank, exited.exit), (0, Exit::Signal(15)));
    timeout(LONG, workers.gone()).await.unwrap();
}

#[tokio::test]
async fn what_an_error_file_says_is_told() {
    let script = r#"case $LOCAL_RANK in
0) echo '{"message": {"message": "ValueError: no", "extraInfo": {"py_callstack": "Traceback"}}}' ;;
1) echo '{"message": "plain", "timestamp": 3}' ;;
2) echo 'half {' ;;
esac >"$TORCHELASTIC_ERROR_FILE"
[ $LOCAL_RANK = 3 ] && rm "$TORCHELASTIC_ERROR_FILE"
[ $LOCAL_RANK = 4 ] && rm "$TORCHELASTIC_ERROR_FILE" && mkfifo "$TORCHELASTIC_ERROR_FILE"
exit 1"#;
    let ground = ground(5, script);
    let workers = ground.start(0).await;
    let exits = all_exits(&workers).await;
    let messages: Vec<_> = exits.iter().map(|exited| exited.message.as_deref()).collect();
    assert_eq!(messages, [Some("ValueError: no"), Some("plain"), None, None, None]);
    let record = workers.exit_records()[0].clone();
    let error = record.ended().unwrap().error.as_ref().unwrap();
    assert_eq!(error.said.traceback.as_deref(), Some("Traceback"));
    assert!(error.text.ends_with("}}}\n"));
    assert_eq!(record.error_file, Some(ground.files(0, 0).error));
}

/// As a script that starts a training: the shell dies of the signal at once, its child saves its work.
#[tokio::test]
async fn a_child_that_takes_its_time_is_waited_for_when_its_shell_is_gone() {
    let script = "sh -c 'trap \"sleep 0.3; echo saved >$0/saved; exit 0\" TERM
echo ready >$0/ready; while :; do sleep 0.01; done' \"${TORCHELASTIC_ERROR_FILE%/*}\" & wait";
    let ground = ground(2, script);
    let workers = ground.start(0).await;
    for local_rank in 0..2 {
        let files = ground.files(0, local_rank);
        line_of(&files.directory.join("ready")).await;
    }
    workers.signal(SIGTERM);
    let exits = all_exits(&workers).await;
    for local_rank in 0..2 {
        assert_eq!(exits[local_rank as usize].exit, Exit::Signal(15));
        assert_eq!(ground.file(0, local_rank, "saved"), "saved\n");
    }
}

#[tokio::test]
async fn what_does_not_end_when_asked_is_killed() {
    let script = "trap '' TERM; sleep 100 & echo $! >\"${TORCHELASTIC_ERROR_FILE%/*}/child\"; wait";
    let ground = ground(1, script);
    let workers = ground.start(0).await;
    let child = line_of(&ground.files(0, 0).directory.join("child")).await;
    workers.signal(SIGTERM);
    assert!(timeout(Duration::from_millis(100), workers.gone()).await.is_err());
    assert_eq!(workers.left(), [workers.exit_records()[0].pid]);
    workers.signal(SIGKILL);
    assert_eq!(all_exits(&workers).await[0].exit, Exit::Signal(9));
    assert!(workers.left().is_empty());
    assert!(!lives(&child));
}

#[tokio::test]
async fn nothing_is_left_when_a_crew_is_dropped() {
    let script = "trap '' TERM; sleep 100 & echo $$ $! >\"${TORCHELASTIC_ERROR_FILE%/*}/ids\"
[ $LOCAL_RANK = 0 ] && exit 0; wait";
    let mut ground = ground(2, script);
    // With a pipe to be read, besides.
    ground.spec.logs.tee = "3".parse().unwrap();
    let workers = ground.start(0).await;
    let mut ids = Vec::new();
    for local_rank in 0..2 {
        let file = ground.files(0, local_rank).directory.join("ids");
        ids.extend(line_of(&file).await.split(' ').map(str::to_owned));
    }
    // The first one has lost its leader.
    assert_eq!(timeout(LONG, workers.next_exit()).await.unwrap().exit, Exit::Code(0));
    drop(workers);
    assert_eq!(ids.iter().filter(|id| lives(id)).count(), 0, "{ids:?}");
}

#[tokio::test]
async fn a_program_that_is_not_there_is_named_and_nothing_is_started() {
    let ground = ground_of(2, "no-such-program", &[]);
    let (workers, started) = WorkerGroup::start(&ground.spec, &ground.order(0)).await;
    let error = started.unwrap_err();
    assert!(matches!(error, StartError::NotFound { .. }), "{error:?}");
    assert!(error.to_string().contains("no-such-program"), "{error}");
    timeout(LONG, workers.gone()).await.unwrap();
    assert!(workers.workers.is_empty());
}

#[tokio::test]
async fn workers_before_one_that_cannot_be_started_are_in_the_crew() {
    let ground = ground(3, "exec sleep 100");
    // Its place is taken.
    let third = ground.files(0, 2).directory;
    fs::create_dir_all(third.parent().unwrap()).unwrap();
    fs::write(&third, "").unwrap();
    let (workers, started) = WorkerGroup::start(&ground.spec, &ground.order(0)).await;
    let error = started.unwrap_err().to_string();
    assert!(error.contains(third.to_str().unwrap()) && error.contains("--log-dir"), "{error}");
    workers.signal(SIGTERM);
    assert_eq!(all_exits(&workers).await.len(), 2);
}

#[tokio::test]
async fn every_start_keeps_its_files() {
    let mut ground = ground(1, "echo attempt $RALLYPOINT_ATTEMPT");
    ground.spec.logs.redirects = "3".parse().unwrap();
    for attempt in 0..2 {
        let workers = ground.start(attempt).await;
        all_exits(&workers).await;
    }
    for attempt in 0..2 {
        assert_eq!(ground.file(attempt, 0, "stdout.log"), format!("attempt {attempt}\n"));
        assert_eq!(ground.file(attempt, 0, "stderr.log"), "");
    }
    // And what is there already is not written over.
    let workers = ground.start(0).await;
    all_exits(&workers).await;
    assert!(
        workers.exit_records()[0].stdout.as_ref().unwrap().ends_with("round_5/rank_1.1/stdout.log")
    );
    assert_eq!(ground.file(0, 0, "stdout.log"), "attempt 0\n");
}

#[tokio::test]
async fn a_worker_is_bound_to_its_processors() {
    let own = rustix::thread::sched_getaffinity(None).unwrap();
    let one = (0..).find(|processor| own.is_set(*processor)).unwrap();
    let mut set = rustix::thread::CpuSet::new();
    set.set(one);
    let mut ground = ground(2, "grep Cpus_allowed_list: /proc/self/status");
    ground.spec.logs.redirects = "1".parse().unwrap();
    ground.spec.processors = vec![set];
    ground.run().await;
    assert!(ground.file(0, 0, "stdout.log").ends_with(&format!("\t{one}\n")));
    assert!(ground.file(0, 1, "stdout.log").starts_with("Cpus_allowed_list:"));
}
