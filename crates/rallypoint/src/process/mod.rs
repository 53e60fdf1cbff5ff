//! Child processes that never outlive us, and directories that do not either.
//!
//! Each child leads a process group of its own, which ends as a whole. A group is ours as long as its
//! leader was not reaped: until then the kernel gives its number to nobody else. So a group is signalled,
//! and forgotten by the [`guard`], only before we reap its leader.

mod directory;
mod guard;

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::sync::watch;

pub(crate) use self::directory::TemporaryDirectory;
use self::guard::Entry;

/// Waits for one line before it becomes the program: until then the guard may not have heard of it. If
/// we are killed first, the line never comes, and nothing was started.
const GATE: &str = r#"read -r go && exec "$0" "$@" </dev/null"#;

/// How long a process may take to be gone after SIGKILL before we go on without it.
const DEATH: Duration = Duration::from_secs(2);

/// A child and all of its descendants that did not leave its process group.
///
/// Dropping it kills all of them at once and waits until the child is gone: some milliseconds, and at
/// most two seconds if the kernel cannot end it. What is left then is left to the guard.
#[derive(Debug)]
pub(crate) struct Group {
    child: Child,
    pid: Pid,
    entry: Entry,
    exited: watch::Receiver<bool>,
    /// How it ended, once it was reaped.
    ended: Option<Result<ExitStatus, io::ErrorKind>>,
}

/// A command that [`Group::start`] can start: this program, with nothing on its standard input.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", GATE]).arg(program).stdin(Stdio::piped()).process_group(0);
    command
}

impl Group {
    /// Starts a command that [`command`] made.
    ///
    /// A program that cannot be executed is no error here: it ends at once with status 126 or 127.
    pub(crate) fn start(command: &mut Command) -> io::Result<Self> {
        let mut child = command.spawn()?;
        let gate = child.stdin.take();
        let pid = Pid::from_child(&child);
        let entry = Entry::group(pid);
        if let Err(error) = guard::add(&entry) {
            // It ends at its gate.
            drop(gate);
            let _ = child.wait();
            return Err(error);
        }
        let (sender, exited) = watch::channel(false);
        let group = Self { child, pid, entry, exited, ended: None };
        // A thread, since it works with every kernel and host: it needs neither a descriptor for a
        // process (Linux 5.3) nor a handler for SIGCHLD. It looks without reaping.
        let waiting = std::thread::Builder::new().name(format!("wait-{pid}"));
        waiting.spawn(move || {
            let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while matches!(waitid(WaitId::Pid(pid), look), Err(Errno::INTR)) {}
            sender.send_replace(true);
        })?;
        match gate.map(|mut gate| gate.write_all(b"go\n")) {
            Some(Ok(())) => Ok(group),
            Some(Err(error)) => Err(error),
            None => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// The number of the child, and of its group.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the whole group; to nobody if it has ended.
    pub(crate) fn signal(&self, signal: Signal) {
        if self.is_ours() {
            // There may be nobody who takes it any more.
            let _ = kill_process_group(self.pid, signal);
        }
    }

    fn is_ours(&self) -> bool {
        self.ended.is_none() && guard::knows(&self.entry)
    }

    /// Waits until the child has ended, and ends what it left of its group. Can be asked again, and
    /// dropping the future loses nothing.
    pub(crate) async fn exited(&mut self) -> io::Result<ExitStatus> {
        // An error is the end of the thread, and the thread ends with the child.
        let _ = self.exited.wait_for(|exited| *exited).await;
        self.reap()
    }

    fn reap(&mut self) -> io::Result<ExitStatus> {
        let ended = match self.ended {
            Some(ended) => ended,
            None => {
                self.signal(Signal::KILL);
                guard::forget(&self.entry);
                // It fails if the program has somebody else who reaps its children.
                *self.ended.insert(self.child.wait().map_err(|error| error.kind()))
            }
        };
        Ok(ended?)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.is_ours() {
            return;
        }
        self.signal(Signal::KILL);
        let killed = Instant::now();
        while !*self.exited.borrow() && self.exited.has_changed().is_ok() {
            if killed.elapsed() > DEATH {
                tracing::warn!(pid = self.id(), "a process is still there after SIGKILL");
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        if let Err(error) = self.reap() {
            tracing::warn!(pid = self.id(), %error, "a process ended, and how is not known");
        }
    }
}

#[cfg(test)]
mod tests;
