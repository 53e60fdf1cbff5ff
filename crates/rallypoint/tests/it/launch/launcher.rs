//! A launcher: `rallypoint run …` as a child of the test.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::until;
use crate::support::process::Process;

/// Five seconds, and what a busy machine adds to them.
const SOON: Duration = Duration::from_secs(10);

/// How a launcher is to be started.
#[derive(Debug, Clone)]
pub struct Line {
    /// What starts it in its turn, such as `ip netns exec`.
    pub(super) before: Vec<String>,
    pub(super) options: Vec<String>,
    pub(super) program: Vec<String>,
    pub(super) environment: Vec<(String, String)>,
    /// Its output goes to files that begin like this.
    pub(super) output: PathBuf,
    pub(super) number: usize,
}

impl Line {
    /// With more options.
    #[must_use]
    pub fn with(mut self, options: &[&str]) -> Self {
        self.options.extend(options.iter().map(ToString::to_string));
        self
    }

    /// With a variable in its environment, which has little else.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With another program for its workers.
    #[must_use]
    pub fn program(mut self, words: &[&str]) -> Self {
        self.program = words.iter().map(ToString::to_string).collect();
        self
    }

    /// Started by another program, which becomes it.
    #[must_use]
    pub fn by(mut self, words: &[&str]) -> Self {
        self.before = words.iter().map(ToString::to_string).collect();
        self
    }

    /// Starts it.
    pub fn start(self) -> Launcher {
        let ours = [env!("CARGO_BIN_EXE_rallypoint"), "run"].map(str::to_owned);
        // A test run may have inherited signals as ignored (`nohup`, a shell's `&`). What is started here has not.
        let heard = ["env", "--default-signal=HUP,INT,QUIT,TERM,USR1,USR2"].map(str::to_owned);
        let words = heard.iter().chain(&self.before).chain(&ours).chain(&self.options);
        let words: Vec<&String> = words.collect();
        let file = |stream: &str| {
            let path = self.output.with_extension(stream);
            (File::create(&path).unwrap(), path)
        };
        let ((stdout, stdout_path), (stderr, stderr_path)) = (file("stdout"), file("stderr"));
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        if !self.program.is_empty() {
            command.arg("--").args(&self.program);
        }
        // Nothing of a scheduler or another launcher that the test itself may run under.
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        command.envs(self.environment).stdin(Stdio::null()).stdout(stdout).stderr(stderr);
        let process = Process::of(&mut command, vec![stdout_path.clone(), stderr_path.clone()]);
        Launcher { process, stdout: stdout_path, stderr: stderr_path, number: self.number }
    }
}

/// A running launcher. Killed when it is dropped, and its workers with it.
#[derive(Debug)]
pub struct Launcher {
    process: Process,
    stdout: PathBuf,
    stderr: PathBuf,
    /// Which of its job it is.
    pub number: usize,
}

/// What is left of a launcher.
#[derive(Debug)]
pub struct Ended {
    /// Unless it was killed.
    pub code: Option<i32>,
    /// What killed it.
    pub signal: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Launcher {
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Sends it a signal.
    pub fn signal(&mut self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Kills the launcher with SIGKILL.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    pub fn has_ended(&mut self) -> bool {
        self.process.has_ended()
    }

    /// What its workers, and it, have said so far.
    pub fn stdout(&self) -> String {
        read(&self.stdout)
    }

    pub fn stderr(&self) -> String {
        read(&self.stderr)
    }

    /// Waits until it says something, on standard error.
    pub fn says(&self, text: &str) {
        until(&format!("launcher {} says {text:?}", self.number), || {
            self.stderr().contains(text).then_some(())
        });
    }

    /// The same, and it may take about as long as users are left alone with a wait.
    pub fn says_soon(&self, text: &str) {
        let begun = Instant::now();
        self.says(text);
        assert!(begun.elapsed() < SOON, "launcher {} said {text:?} too late", self.number);
    }

    /// Waits for its end.
    pub fn ended(&mut self) -> Ended {
        let what = format!("launcher {} ends", self.number);
        let status = until(&what, || self.process.exit_status());
        let (code, signal) = (status.code(), status.signal());
        Ended { code, signal, stdout: self.stdout(), stderr: self.stderr() }
    }

    /// Waits for its end, which must be this.
    pub fn ends_with(&mut self, code: i32) -> Ended {
        let ended = self.ended();
        assert_eq!((ended.code, ended.signal), (Some(code), None), "launcher {}", self.number);
        ended
    }
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}
