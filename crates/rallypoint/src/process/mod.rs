//! Child processes that never outlive us, and directories that do not either.
//!
//! Each child leads a process group of its own, which ends as a whole. A group is ours as long as its
//! leader was not reaped: until then the kernel gives its number to nobody else. So a group is signalled,
//! and forgotten by the [`guard`], only before we reap its leader. Where others reap, or the kernel does
//! since SIGCHLD is ignored, it is forgotten as soon as that is seen, and not signalled any more.

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
    /// Whether its end was seen, and if so, whether it is left to us to reap it.
    exited: watch::Receiver<Option<Result<(), Errno>>>,
    /// How it ended, once it was reaped.
    ended: Option<Result<ExitStatus, Errno>>,
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
        let watched = guard::add(&entry).and_then(|()| watch_end(pid, entry.clone()));
        let exited = match watched {
            Ok(exited) => exited,
            Err(error) => {
                // It ends at its gate.
                drop(gate);
                guard::forget(&entry);
                let _ = child.wait();
                return Err(error);
            }
        };
        let group = Self { child, pid, exited, ended: None };
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

    /// Whether its number is still its own, and it is not the child of what we are a copy of.
    fn is_ours(&self) -> bool {
        self.exited.borrow().is_none() && look(self.pid, WaitIdOptions::NOHANG).is_ok()
    }

    /// Waits until the child has ended; what it left of its group is ended then. Can be asked again, and
    /// dropping the future loses nothing.
    ///
    /// How it ended is an error if the program has somebody else who reaps its children.
    pub(crate) async fn exited(&mut self) -> io::Result<ExitStatus> {
        // The thread says so before it ends.
        let _ = self.exited.wait_for(Option::is_some).await;
        self.reap()
    }

    fn reap(&mut self) -> io::Result<ExitStatus> {
        let ended = match self.ended {
            Some(ended) => ended,
            None => {
                let left_to_us = self.exited.borrow().unwrap_or(Err(Errno::CHILD));
                let wait = |child: &mut Child| {
                    child
                        .wait()
                        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::CHILD))
                };
                *self.ended.insert(left_to_us.and_then(|()| wait(&mut self.child)))
            }
        };
        Ok(ended?)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        let killed = Instant::now();
        while self.is_ours() {
            if killed.elapsed() > DEATH {
                tracing::warn!(pid = self.id(), "a process is still there after SIGKILL");
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // Nobody asks how it ended.
        let _ = self.reap();
    }
}

/// Looks for the end of a child without reaping it. It fails if it is no child of ours, or no longer.
fn look(pid: Pid, how: WaitIdOptions) -> Result<(), Errno> {
    loop {
        match waitid(WaitId::Pid(pid), how | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Err(Errno::INTR) => {}
            seen => return seen.map(drop),
        }
    }
}

/// Ends and forgets the group when its leader ends, and tells then.
///
/// A thread, since it works with every kernel and host: it needs neither a descriptor for a process
/// (Linux 5.3) nor a handler for SIGCHLD. And it does so at once, not when somebody comes to ask: until
/// then the leader may have been reaped behind our back, and its number given to a stranger.
fn watch_end(leader: Pid, entry: Entry) -> io::Result<watch::Receiver<Option<Result<(), Errno>>>> {
    let (sender, exited) = watch::channel(None);
    let thread = std::thread::Builder::new().name(format!("wait-{leader}"));
    thread.spawn(move || {
        let seen = look(leader, WaitIdOptions::empty());
        if seen.is_ok() {
            let _ = kill_process_group(leader, Signal::KILL);
        }
        guard::forget(&entry);
        sender.send_replace(Some(seen));
    })?;
    Ok(exited)
}

#[cfg(test)]
mod tests;
