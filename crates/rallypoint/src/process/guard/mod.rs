//! The guard: a process that ends what this one leaves behind, also when this one is killed.
//!
//! It is this program, [started again](super::reexecuted). It hears from us by a link whose end the kernel tells
//! it of, so it learns that we are gone however that came about. It is in a process group of its own, out of the
//! way of a terminal's signals, and hears none that ask. There is one for a program, started when the first thing
//! is to be guarded; if it is killed, another is told everything.
//!
//! - `message`: what is said.
//! - `post`, `fence`, `ending`, `greeter`: the process; when workers are fenced; how things end; liveness sockets.
//! - `watcher`: our thread that hears from it, and notices its end.

mod ending;
mod fence;
mod greeter;
mod message;
mod post;
mod watcher;

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rallypoint_core::kv::Time;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

pub(super) use self::greeter::Greeter;
pub(super) use self::message::GuardEntry;
use self::message::GuardOrder;
pub(super) use self::post::stand;
use super::entry::HelperRole;
use super::{link, program};

use crate::log_target::PROCESS;

/// How long a guard may take to begin, on a machine that is very busy.
const BEGINNING: Duration = Duration::from_secs(20);

/// One that has not listened for so long stands still, and is as good as none.
const DEAFNESS: Duration = Duration::from_secs(5);

/// What a program has to guard, and its guard.
#[derive(Debug)]
pub(super) struct GuardHandle {
    /// Whose it is. After a fork the copy needs one of its own.
    owner: u32,
    state: Mutex<GuardState>,
    /// A guard has begun, or ended.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GuardState {
    entries: HashSet<GuardEntry>,
    sockets: BTreeMap<String, Arc<TcpListener>>,
    fence: Option<Time>,
    /// The fence by which a guard has killed workers, the last time.
    fenced: Option<Time>,
    running: Option<RunningGuard>,
    starts: u64,
}

#[derive(Debug)]
struct RunningGuard {
    /// Which start it was.
    number: u64,
    pid: Pid,
    link: Arc<OwnedFd>,
    /// Wakes the thread that hears from it.
    wake: Arc<OwnedFd>,
    has_begun: bool,
    /// It is this program, so that nobody has to wait for its first word: it hears what was said before.
    is_known: bool,
    /// It could not be told of the last fence yet.
    owes_fence: bool,
}

static PROGRAM: Mutex<Option<Arc<GuardHandle>>> = Mutex::new(None);

/// That of this program.
pub(super) fn program() -> Arc<GuardHandle> {
    let mut program = PROGRAM.lock().unwrap_or_else(PoisonError::into_inner);
    let known = program.take().filter(|keeper| keeper.owner == std::process::id());
    program.insert(known.unwrap_or_else(GuardHandle::new)).clone()
}

impl GuardHandle {
    fn new() -> Arc<Self> {
        let (owner, state) = (std::process::id(), Mutex::default());
        Arc::new(Self { owner, state, changed: Condvar::new() })
    }

    /// Held for messages that nobody waits for, or for the start of a process.
    fn lock(&self) -> MutexGuard<'_, GuardState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sees to it that there is a guard.
    pub(super) fn begin(self: &Arc<Self>) -> io::Result<()> {
        let mut state = self.lock();
        if state.running.is_none() {
            self.start(&mut state)?;
        }
        self.until_begun(state)
    }

    /// From now on the guard ends `entry` if we do not. When this returns it will, whatever happens to us.
    pub(super) fn add(self: &Arc<Self>, entry: &GuardEntry) -> io::Result<()> {
        self.lock().entries.insert(entry.clone());
        let told = self.tell(&GuardOrder::Add(entry.clone()), None);
        if told.is_err() {
            self.lock().entries.remove(entry);
        }
        told
    }

    /// We have ended `entry` ourselves.
    pub(super) fn forget(self: &Arc<Self>, entry: &GuardEntry) {
        if !self.lock().entries.remove(entry) {
            return;
        }
        if let Err(error) = self.tell(&GuardOrder::Drop(entry.clone()), None) {
            tracing::warn!(
                target: PROCESS,
                %error, "what this process started may outlive it: there is no guard"
            );
        }
    }

    /// Whether `entry` is ours to end. What a process knew before it forked is not its copy's.
    pub(super) fn knows(&self, entry: &GuardEntry) -> bool {
        self.lock().entries.contains(entry)
    }

    /// Whether this process is our child, and somebody waits for its end.
    pub(super) fn waits_for(&self, pid: Pid) -> bool {
        let state = self.lock();
        state.running.as_ref().is_some_and(|running| running.pid == pid)
            || [GuardEntry::Group(pid), GuardEntry::Workers(pid)]
                .iter()
                .any(|e| state.entries.contains(e))
    }

    /// The guard holds this socket from now on, if there is one or when there is.
    pub(super) fn listen(
        self: &Arc<Self>,
        token: &str,
        socket: Arc<TcpListener>,
    ) -> io::Result<()> {
        let mut state = self.lock();
        state.sockets.insert(token.to_owned(), socket.clone());
        let has_guard = state.running.is_some();
        drop(state);
        match has_guard {
            true => self.tell(&GuardOrder::Listen(token.to_owned()), Some(socket.as_fd())),
            false => Ok(()),
        }
    }

    /// Nobody holds it any more, but for the workers that were started with it.
    pub(super) fn close(self: &Arc<Self>, token: &str) {
        let mut state = self.lock();
        if state.sockets.remove(token).is_some() && state.running.is_some() {
            drop(state);
            // If there is no guard any more it does not hold it either.
            let _ = self.tell(&GuardOrder::Close(token.to_owned()), None);
        }
    }

    /// Whether a guard was started, and is not known to be gone.
    pub(super) fn has_guard(&self) -> bool {
        self.lock().running.is_some()
    }

    /// The number of the guard.
    #[cfg(test)]
    pub(super) fn running(&self) -> Option<Pid> {
        self.lock().running.as_ref().map(|running| running.pid)
    }

    /// For a child that is none of the workers.
    pub(super) fn unmark(&self, command: &mut Command) {
        self.lock().unmark(command);
    }

    /// What the workers are to hold.
    pub(super) fn sockets(&self) -> Vec<Arc<TcpListener>> {
        self.lock().sockets.values().cloned().collect()
    }

    /// Workers end at this moment, unless a later one is named before. Waits for nobody.
    pub(super) fn fence_at(&self, at: Option<Time>) {
        let mut state = self.lock();
        state.fence = at;
        state.tell_fence();
    }

    pub(super) fn fenced(&self) -> Option<Time> {
        self.lock().fenced
    }

    /// Says something to the guard. If there is none to hear it, or no longer, a new one hears of everything.
    fn tell(
        self: &Arc<Self>,
        order: &GuardOrder,
        socket: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let bytes = order.encode();
        let deadline = Instant::now() + DEAFNESS;
        loop {
            let mut state = self.lock();
            let Some(running) = &state.running else {
                if state.has_duties() {
                    self.start(&mut state)?;
                    return self.until_begun(state);
                }
                return Ok(());
            };
            match link::send(&running.link, &bytes, socket.as_slice()) {
                Ok(()) => return self.until_begun(state),
                Err(Errno::AGAIN) if Instant::now() < deadline => {
                    let link = running.link.clone();
                    drop(state);
                    until_room(&link);
                }
                Err(error) => {
                    tracing::warn!(
                        target: PROCESS,
                        %error, "the guard does not listen; starting another"
                    );
                    state.dismiss();
                }
            }
        }
    }

    /// Starts a guard, and tells it everything.
    fn start(self: &Arc<Self>, state: &mut GuardState) -> io::Result<()> {
        let (ours, theirs) = link::pair()?;
        let mut command = program::command(HelperRole::Guard)?;
        state.unmark(&mut command);
        let child = command
            .arg(std::process::id().to_string())
            // It keeps no directory of ours busy.
            .current_dir("/")
            .process_group(0)
            // No child of ours inherits our end: it is closed on exec.
            .stdin(theirs)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let pid = Pid::from_child(&child);
        tracing::debug!(target: PROCESS, %pid, "started the guard");
        state.starts += 1;
        let running = RunningGuard {
            number: state.starts,
            pid,
            link: Arc::new(ours),
            wake: Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?),
            has_begun: false,
            is_known: program::is_registered(),
            owes_fence: false,
        };
        let mut told = watcher::watch(self, &running, child);
        for (order, socket) in state.duties() {
            told = told.and_then(|()| send_all(&running.link, &order, socket));
        }
        state.running = Some(running);
        if told.is_err() {
            state.dismiss();
        }
        told
    }

    /// Waits for a guard that was started, so that it is known to be one, unless it is for sure.
    fn until_begun(&self, mut state: MutexGuard<'_, GuardState>) -> io::Result<()> {
        let deadline = Instant::now() + BEGINNING;
        let Some(number) = state.running.as_ref().map(|running| running.number) else {
            return Ok(());
        };
        loop {
            let words = match &state.running {
                Some(running) if running.has_begun || running.is_known => return Ok(()),
                Some(running) if running.number != number => return Ok(()),
                Some(_) if Instant::now() < deadline => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    let waited = self.changed.wait_timeout(state, left);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                    continue;
                }
                Some(_) => "did not begin in time",
                None => "ended before it began",
            };
            let text = format!(
                "the guard {words}; if it is no rallypoint of version {}, RALLYPOINT_BINARY names one",
                env!("CARGO_PKG_VERSION")
            );
            return Err(io::Error::other(text));
        }
    }
}

impl GuardState {
    fn has_duties(&self) -> bool {
        !self.entries.is_empty() || !self.sockets.is_empty()
    }

    /// All that a new guard has to know.
    fn duties(&self) -> Vec<(GuardOrder, Option<BorrowedFd<'_>>)> {
        let sockets = self
            .sockets
            .iter()
            .map(|(token, socket)| (GuardOrder::Listen(token.clone()), Some(socket.as_fd())));
        let entries = self.entries.iter().map(|entry| (GuardOrder::Add(entry.clone()), None));
        // The fence first: what comes after it has passed is killed at once.
        [(GuardOrder::Fence(self.fence), None)].into_iter().chain(sockets).chain(entries).collect()
    }

    /// For a child that is not to end by a mark which is in our environment.
    fn unmark(&self, command: &mut Command) {
        for entry in &self.entries {
            if let GuardEntry::Marked(mark) = entry {
                let name = mark.split(|byte| *byte == b'=').next().unwrap_or_default();
                command.env_remove(OsStr::from_bytes(name));
            }
        }
    }

    /// Says what is in force, or leaves it to the watcher.
    fn tell_fence(&mut self) {
        let Some(running) = &mut self.running else { return };
        let order = GuardOrder::Fence(self.fence).encode();
        running.owes_fence = link::send(&running.link, &order, &[]) == Err(Errno::AGAIN);
        if running.owes_fence {
            let _ = rustix::io::write(&running.wake, &1u64.to_ne_bytes());
        }
    }

    /// Ends the guard, which is of no use. It ends nothing itself then.
    fn dismiss(&mut self) {
        if let Some(running) = self.running.take() {
            // Its thread waits for its end, so its number is its own.
            let _ = kill_process(running.pid, Signal::KILL);
        }
    }
}

fn send_all(link: &OwnedFd, order: &GuardOrder, socket: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let deadline = Instant::now() + DEAFNESS;
    loop {
        match link::send(link, &order.encode(), socket.as_slice()) {
            Err(Errno::AGAIN) if Instant::now() < deadline => until_room(link),
            sent => return Ok(sent?),
        }
    }
}

/// Until there may be room for another message, or for a moment.
fn until_room(link: &OwnedFd) {
    let moment = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    let _ = poll(&mut [PollFd::new(link, PollFlags::OUT)], Some(&moment));
}

#[cfg(test)]
mod tests;
