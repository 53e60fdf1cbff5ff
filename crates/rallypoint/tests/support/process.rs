//! Child processes that never outlive the test.
//!
//! A dropped [`Process`] is killed and reaped. For a test process that is itself killed there is a
//! watchdog: one shell that reads what we started from a pipe, and when the pipe ends, which the
//! kernel sees to, kills what is left and removes its directories. (A parent-death signal would be
//! sent when the *thread* ends that started the child, and tests share servers between threads.)

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::process::{Pid, Signal, kill_process};

const WATCHDOG: &str = r#"
trap '' INT TERM HUP QUIT
pids=
while IFS=' ' read -r what rest; do
    case $what in
    run) pids="$pids $rest" ;;
    gone)
        left=
        for pid in $pids; do [ "$pid" = "$rest" ] || left="$left $pid"; done
        pids=$left
        ;;
    remove) set -- "$@" "$rest" ;;
    esac
done
[ -z "$pids" ] || kill -9 $pids 2>/dev/null
[ $# = 0 ] || { sleep 0.1; rm -rf -- "$@"; }
"#;

/// Tells the watchdog what to do when this process is no more.
fn tell_watchdog(line: &str) {
    static PIPE: OnceLock<Mutex<ChildStdin>> = OnceLock::new();
    let pipe = PIPE.get_or_init(|| {
        #[expect(clippy::zombie_processes, reason = "it outlives us: that is what it is for")]
        let mut shell = Command::new("sh")
            .args(["-c", WATCHDOG])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("every machine that runs these tests has a shell");
        Mutex::new(shell.stdin.take().unwrap())
    });
    let mut pipe = pipe.lock().unwrap_or_else(PoisonError::into_inner);
    writeln!(pipe, "{line}").expect("the watchdog lives as long as we do");
}

/// A directory that is removed at the end, come what may.
#[derive(Debug)]
pub struct Directory(tempfile::TempDir);

impl Directory {
    /// A new, empty one.
    pub fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("rallypoint-test-").tempdir().unwrap();
        tell_watchdog(&format!("remove {}", directory.path().display()));
        Self(directory)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

/// Gives a program a place for its temporary files that goes with this test process, unless the command names one. A
/// server in memory that is killed leaves a note for the next one there, and a launcher that is killed may leave logs.
pub fn own_temporary_files(command: &mut Command) -> &mut Command {
    static SHARED: OnceLock<Directory> = OnceLock::new();
    if command.get_envs().all(|(name, _)| name != "TMPDIR") {
        // The watchdog removes it, since nothing drops a static.
        command.env("TMPDIR", SHARED.get_or_init(Directory::new).path());
    }
    command.env_remove("XDG_RUNTIME_DIR")
}

/// How to start a program.
#[derive(Debug, Clone)]
pub struct Recipe {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Environment variables that it sees besides ours.
    pub env: Vec<(String, String)>,
    /// The file that its output goes to, after what is there already.
    pub log: PathBuf,
}

/// A running program.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// Where its output goes.
    logs: Vec<PathBuf>,
}

impl Process {
    /// Starts it.
    pub fn start(recipe: &Recipe) -> Self {
        Self::spawn(recipe, Stdio::null())
    }

    /// The same, with a way to tell it something.
    pub fn start_with_input(recipe: &Recipe) -> (Self, ChildStdin) {
        let mut process = Self::spawn(recipe, Stdio::piped());
        let input = process.child.stdin.take().unwrap();
        (process, input)
    }

    fn spawn(recipe: &Recipe, stdin: Stdio) -> Self {
        let log = File::options().create(true).append(true).open(&recipe.log).unwrap();
        let mut command = Command::new(&recipe.program);
        command
            .args(&recipe.args)
            .envs(recipe.env.iter().map(|(name, value)| (name, value)))
            .stdin(stdin)
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        Self::of(&mut command, vec![recipe.log.clone()])
    }

    /// Starts what a command says, to the last detail. Its output goes to `logs`, which a test that fails
    /// shows.
    pub fn of(command: &mut Command, logs: Vec<PathBuf>) -> Self {
        own_temporary_files(command);
        let child =
            command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        tell_watchdog(&format!("run {}", child.id()));
        Self { child, logs }
    }

    /// The same, with a way to tell it something. Its standard input is to be piped.
    pub fn with_input(command: &mut Command, logs: Vec<PathBuf>) -> (Self, ChildStdin) {
        let mut process = Self::of(command, logs);
        let input = process.child.stdin.take().expect("its standard input is piped");
        (process, input)
    }

    /// The same, and with what it says. Its standard output is to be piped, too.
    pub fn with_pipes(
        command: &mut Command,
        logs: Vec<PathBuf>,
    ) -> (Self, ChildStdin, ChildStdout) {
        let (mut process, input) = Self::with_input(command, logs);
        let output = process.child.stdout.take().expect("its standard output is piped");
        (process, input, output)
    }

    /// The number that the kernel knows it by.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, once it has.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Whether it ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Sends it a signal.
    pub fn signal(&mut self, signal: Signal) {
        if !self.has_ended() {
            kill_process(Pid::from_child(&self.child), signal).unwrap();
        }
    }

    /// Kills it with SIGKILL and waits until it is gone.
    pub fn kill(&mut self) {
        // Before it is reaped: from then on its number may belong to someone else.
        tell_watchdog(&format!("gone {}", self.child.id()));
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// The end of what it printed.
    pub fn log_tail(&self) -> String {
        self.logs.iter().map(|log| log_tail(log)).collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for log in &self.logs {
                eprintln!("---- {}\n{}", log.display(), log_tail(log));
            }
        }
        self.kill();
    }
}

/// The last lines of a log.
pub fn log_tail(log: &Path) -> String {
    let text = String::from_utf8_lossy(&std::fs::read(log).unwrap_or_default()).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(100)..].join("\n")
}
