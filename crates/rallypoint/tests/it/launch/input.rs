//! Standard input of workers: somebody types at a worker's `breakpoint()`.

use std::io::Write;
use std::process::{ChildStdin, Command, Stdio};

use super::{Job, until_true};
use crate::support::process::Process;

/// A shell script on a terminal of its own, which `script` (util-linux) makes, and the keyboard of that.
struct Terminal {
    process: Process,
    keyboard: ChildStdin,
    path: std::path::PathBuf,
}

impl Terminal {
    /// `$RUN` is the launcher there.
    fn start(job: &Job, command: &str) -> Self {
        let path = job.path().join("terminal");
        let mut script = Command::new("script");
        script.args(["--quiet", "--flush", "--return", "--command", command]).arg(&path);
        script.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("TERM", "dumb");
        script.env("SHELL", "/bin/sh").env("JOB", job.path()).env("TMPDIR", job.path().join("tmp"));
        script.env("RUN", format!("{} run", env!("CARGO_BIN_EXE_rallypoint")));
        script.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let (process, keyboard) = Process::with_input(&mut script, vec![path.clone()]);
        Self { process, keyboard, path }
    }

    /// `script` writes the command down as well, so that must not contain the text.
    fn shows(&self, text: &str) {
        until_true(&format!("the terminal shows {text:?}"), || {
            String::from_utf8_lossy(&std::fs::read(&self.path).unwrap_or_default()).contains(text)
        });
    }

    fn types(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
        self.keyboard.flush().unwrap();
    }

    fn ends_with(&mut self, code: i32) {
        let status = super::until("the terminal closes", || self.process.exit_status());
        assert_eq!(status.code(), Some(code));
    }
}

const DEBUGGED: &str = r#"answer = 6 * 7
breakpoint()
print("went on with", answer)
"#;

/// And the terminal is whose it was before, when the launcher is gone.
#[test]
fn one_worker_on_a_terminal_can_be_debugged() {
    for options in ["", "--nproc-per-node 2 --stdin 1"] {
        let job = Job::new(&[]);
        let other = "import os, time\nif os.environ['LOCAL_RANK'] != os.environ['DEBUGGED']:\n    assert input.__call__ and not os.read(0, 1)\n    raise SystemExit\n";
        let script =
            if options.is_empty() { DEBUGGED.to_owned() } else { other.to_owned() + DEBUGGED };
        std::fs::write(job.path().join("debugged.py"), script).unwrap();
        let command = format!(
            "DEBUGGED=1 $RUN {options} $JOB/debugged.py; code=$?; echo shell a''sks; read word; echo \"shell read $word\"; exit $code"
        );
        let mut terminal = Terminal::start(&job, &command);
        terminal.shows("(Pdb)");
        terminal.types("p answer\n");
        terminal.shows("42");
        terminal.types("answer = 'more'\n");
        terminal.types("c\n");
        terminal.shows("went on with more");
        terminal.shows("shell asks");
        terminal.types("hello\n");
        terminal.shows("shell read hello");
        terminal.ends_with(0);
    }
}

/// Who types Ctrl-C means the job, as if there were no launcher between.
#[test]
fn an_interrupt_from_the_keyboard_ends_the_job() {
    let job = Job::new(&[]);
    let command = "$RUN --max-restarts 3 -- sh -c 'echo rea''dy; read word; echo read $word'; echo \"ended with $?\"";
    let mut terminal = Terminal::start(&job, command);
    terminal.shows("ready");
    terminal.types("\x03");
    terminal.shows("ended with 130");
    terminal.ends_with(0);
}

/// Without a terminal nothing is inherited unless that is asked for.
#[test]
fn a_pipe_is_inherited_on_demand() {
    for (option, expected) in [("", "read\n"), ("--stdin 0", "read words\n")] {
        let job = Job::new(&[]);
        let command =
            format!("echo words | $RUN {option} -- sh -c 'read word; echo read $word > $JOB/read'");
        let mut terminal = Terminal::start(&job, &command);
        terminal.ends_with(0);
        assert_eq!(std::fs::read_to_string(job.path().join("read")).unwrap(), expected);
    }
}

#[test]
fn a_worker_that_there_is_not_cannot_have_it() {
    let job = Job::new(&["--nproc-per-node", "2", "--stdin", "2"]);
    let ended = job.launcher().start().ends_with(2);
    assert!(
        ended.stderr.contains("--stdin") && ended.stderr.contains("0 to 1"),
        "{}",
        ended.stderr
    );
}
