//! On a terminal: one live line while something is waited for, and colours.

use std::process::{Command, Stdio};

use super::{Job, free_endpoint, until};
use crate::support::process::Process;

/// Takes the live line away.
const CLEAR: &str = "\r\x1b[K";

/// A launcher on a terminal of its own, which `script` (util-linux) makes.
struct Terminal {
    process: Process,
    path: std::path::PathBuf,
}

impl Terminal {
    fn start(job: &Job, command: &str, variables: &[(&str, &str)]) -> Self {
        let path = job.path().join("terminal");
        let mut script = Command::new("script");
        let command = format!("exec '{}' run {command}", env!("CARGO_BIN_EXE_rallypoint"));
        script.args(["--quiet", "--flush", "--return", "--command", &command]).arg(&path);
        script.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("TERM", "xterm");
        script.env("SHELL", "/bin/sh").env("JOB", job.path()).env("LAUNCHER", "99");
        script.envs(variables.iter().copied());
        script.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Self { process: Process::of(&mut script, vec![path.clone()]), path }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.path).unwrap_or_default()).into_owned()
    }

    fn ends(&mut self) -> String {
        let status = until("the terminal closes", || self.process.exit_status());
        assert_eq!(status.code(), Some(0));
        self.text()
    }
}

#[test]
fn a_live_line_says_who_is_missing_and_goes_when_they_come() {
    let endpoint = free_endpoint();
    let job = Job::at(&endpoint, "2");
    let options = format!(
        "--nnodes 2 --rdzv-endpoint {endpoint} --rdzv-id job --rdzv-conf lease_ttl=30,timeout=77 \
         -- sh {}/worker.sh :",
        job.path().display()
    );
    let mut terminal = Terminal::start(&job, &options, &[]);
    // Drawn again and again, with the time.
    until("a live line", || {
        let text = terminal.text();
        let live: Vec<&str> = text.split(CLEAR).filter(|line| line.contains("waiting: ")).collect();
        (live.len() >= 3).then_some(()).filter(|()| {
            live.iter().all(|line| line.contains(" s, 1 min ") && line.contains(" left)"))
                && live.iter().any(|line| line.contains("1 of 2 nodes, waiting for 1 more"))
        })
    });
    let mut other = job.launch();
    job.group(2).tell("exit 0");
    other.ends_with(0);
    let text = terminal.ends();
    let lines = text.lines().filter(|line| line.contains("waiting: "));
    // Nothing of it is left above another line.
    for line in lines {
        let (_, after) = line.rsplit_once("waiting: ").unwrap();
        assert!(after.contains(CLEAR), "{line:?}");
    }
    assert!(!text.contains("INFO waiting"), "who looks at the live line has seen it: {text}");
}

#[test]
fn the_names_of_workers_are_coloured_and_their_words_are_not() {
    for (variables, coloured) in [(&[][..], true), (&[("NO_COLOR", "1")], false)] {
        let job = Job::new(&[]);
        let options = "--tee 3 --log-dir /dev/null -- sh -c 'echo words'";
        let text = Terminal::start(&job, options, variables).ends();
        let is_it = |line: &&str| line.contains("default0") && line.ends_with("words");
        let line = text.lines().find(is_it).unwrap_or_else(|| panic!("{text:?}"));
        assert_eq!(line.contains("\x1b["), coloured, "{line:?}");
    }
}
