//! The guard: a process that ends what this one leaves behind, also when this one is killed.
//!
//! It is a shell that reads from a pipe which only we write to, so it learns from the kernel that we are
//! gone. It is in a process group of its own, out of the way of a terminal's signals, and ignores those
//! that ask. There is one for a program, started when the first thing is to be guarded.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::Pid;

const SCRIPT: &str = include_str!("guard.sh");

/// Something that must not outlive us, in the words of the guard.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry(Vec<u8>);

impl Entry {
    /// A process group. It must be ours from now until it is forgotten: its leader not yet reaped.
    pub(super) fn group(leader: Pid) -> Self {
        Self(format!("group {leader}").into_bytes())
    }

    /// A directory with everything in it.
    pub(super) fn directory(path: &Path) -> io::Result<Self> {
        let bytes = path.as_os_str().as_bytes();
        if !path.is_absolute() || bytes.contains(&b'\n') {
            let fix = "it must begin with / and have no line break; TMPDIR names another place";
            let text = format!("cannot guard the directory {path:?}: {fix}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(Self([b"directory ", bytes].concat()))
    }
}

struct Guard {
    shell: Option<Shell>,
    entries: BTreeSet<Entry>,
}

struct Shell {
    child: Child,
    /// Who started it. After a fork the copy needs one of its own.
    owner: u32,
}

static GUARD: Mutex<Guard> = Mutex::new(Guard { shell: None, entries: BTreeSet::new() });

/// Held for a line to a pipe, or for the start of a shell.
fn lock() -> MutexGuard<'static, Guard> {
    let mut guard = GUARD.lock().unwrap_or_else(PoisonError::into_inner);
    if guard.shell.as_ref().is_some_and(|shell| shell.owner != std::process::id()) {
        *guard = Guard { shell: None, entries: BTreeSet::new() };
    }
    guard
}

/// From now on the guard ends `entry` if we do not. When this returns it will, whatever happens to us.
pub(super) fn add(entry: &Entry) -> io::Result<()> {
    let mut guard = lock();
    guard.entries.insert(entry.clone());
    let told = guard.tell("add", entry);
    if told.is_err() {
        guard.entries.remove(entry);
    }
    told
}

/// We have ended `entry` ourselves.
pub(super) fn forget(entry: &Entry) {
    let mut guard = lock();
    guard.entries.remove(entry);
    if let Err(error) = guard.tell("drop", entry) {
        tracing::warn!(%error, "what this process started may outlive it: there is no guard");
    }
}

/// Whether `entry` is ours to end. What a process knew before it forked is not its copy's.
pub(super) fn knows(entry: &Entry) -> bool {
    lock().entries.contains(entry)
}

impl Guard {
    /// Says one line. If there is no guard to hear it, or no longer, a new one hears of everything.
    fn tell(&mut self, word: &str, entry: &Entry) -> io::Result<()> {
        if let Some(shell) = &mut self.shell {
            match shell.tell(word, entry) {
                Ok(()) => return Ok(()),
                Err(error) => tracing::warn!(%error, "the guard was killed; starting another"),
            }
        }
        self.shell = None;
        if self.entries.is_empty() {
            return Ok(());
        }
        let mut shell = Shell::start()?;
        for entry in &self.entries {
            shell.tell("add", entry)?;
        }
        self.shell = Some(shell);
        Ok(())
    }
}

impl Shell {
    fn start() -> io::Result<Self> {
        let child = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "rallypoint-guard"])
            // Paths are bytes to it, and it keeps no directory of ours busy.
            .env("LC_ALL", "C")
            .current_dir("/")
            .process_group(0)
            // No child of ours inherits our end: it is closed on exec.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        tracing::debug!(pid = child.id(), "started the guard");
        Ok(Self { child, owner: std::process::id() })
    }

    fn tell(&mut self, word: &str, entry: &Entry) -> io::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            return Err(io::Error::other(format!("the guard ended: {status}")));
        }
        let Some(pipe) = &mut self.child.stdin else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        // In one piece: if we are killed in the middle, the guard sees all of it or nothing.
        let line = [word.as_bytes(), b" ", &entry.0, b"\n"].concat();
        pipe.write_all(&line)
    }
}

#[cfg(test)]
mod tests;
