//! The guard: a process that kills the children and removes the temporary directories of this process when it ends,
//! even if it is killed.
//!
//! The guard is this program, [started again](super::reexecuted). The kernel closes the link between the two when this
//! process ends, for whatever reason. The guard is in a process group of its own, so that a terminal's signals do not
//! reach it, and blocks signals that would end it. A program has one guard, started with the first entry; if the guard
//! is killed, another one replaces it and gets all entries.
//!
//! - `message`: the messages between this process and the guard.
//! - `guard_loop`: the event loop of the guard process.
//! - `fence`: when the guard kills or stops workers.
//! - `cleanup`: kills processes and removes directories.
//! - `responder`: answers at liveness sockets.
//! - `watcher`: the thread of this process that reads from the guard, and replaces it when it ends.

mod cleanup;
mod fence;
mod guard_loop;
mod message;
mod responder;
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

pub(super) use self::guard_loop::run;
pub(super) use self::message::GuardEntry;
use self::message::GuardOrder;
pub(super) use self::responder::LivenessResponder;
use super::entry::HelperRole;
use super::{link, program};

use crate::log_target::PROCESS;

/// The time limit for the start of a guard, on a busy host.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// The time without reading after which a guard counts as hung, and is replaced.
const HUNG_AFTER: Duration = Duration::from_secs(5);

/// The entries that a program guards, and its guard.
#[derive(Debug)]
pub(super) struct GuardHandle {
    /// The id of the process that owns this handle. A forked child needs a handle of its own.
    owner: u32,
    state: Mutex<GuardState>,
    /// Signals the start or end of a guard.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GuardState {
    entries: HashSet<GuardEntry>,
    sockets: BTreeMap<String, Arc<TcpListener>>,
    fence: Option<Time>,
    /// The last fence at which a guard killed workers.
    fenced: Option<Time>,
    running: Option<RunningGuard>,
    starts: u64,
}

#[derive(Debug)]
struct RunningGuard {
    /// The number of this start.
    number: u64,
    pid: Pid,
    link: Arc<OwnedFd>,
    /// Wakes the thread that reads from the guard.
    wake: Arc<OwnedFd>,
    has_begun: bool,
    /// Whether the guard is known to be this program, so that messages need not wait for its first report.
    is_known: bool,
    /// Whether the last fence has not been sent yet.
    fence_unsent: bool,
}

static PROGRAM: Mutex<Option<Arc<GuardHandle>>> = Mutex::new(None);

/// The guard of this program.
pub(super) fn program() -> Arc<GuardHandle> {
    let mut program = PROGRAM.lock().unwrap_or_else(PoisonError::into_inner);
    let known = program.take().filter(|handle| handle.owner == std::process::id());
    program.insert(known.unwrap_or_else(GuardHandle::new)).clone()
}

impl GuardHandle {
    fn new() -> Arc<Self> {
        let (owner, state) = (std::process::id(), Mutex::default());
        Arc::new(Self { owner, state, changed: Condvar::new() })
    }

    /// Locks the state. Held for non-blocking messages, or for the start of a process.
    fn lock(&self) -> MutexGuard<'_, GuardState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the guard, unless one runs.
    pub(super) fn begin(self: &Arc<Self>) -> io::Result<()> {
        let mut state = self.lock();
        if state.running.is_none() {
            self.start(&mut state)?;
        }
        self.until_begun(state)
    }

    /// Guards `entry` from now on. After this returns, the guard kills it whatever happens to this process.
    pub(super) fn add(self: &Arc<Self>, entry: &GuardEntry) -> io::Result<()> {
        self.lock().entries.insert(entry.clone());
        let told = self.tell(&GuardOrder::Add(entry.clone()), None);
        if told.is_err() {
            self.lock().entries.remove(entry);
        }
        told
    }

    /// Stops guarding `entry`, which this process has ended itself.
    pub(super) fn forget(self: &Arc<Self>, entry: &GuardEntry) {
        if !self.lock().entries.remove(entry) {
            return;
        }
        if let Err(error) = self.tell(&GuardOrder::Drop(entry.clone()), None) {
            tracing::warn!(
                target: PROCESS,
                %error, "no guard runs: child processes may outlive this process"
            );
        }
    }

    /// Whether `entry` belongs to this process, and not to one that it was forked from.
    pub(super) fn knows(&self, entry: &GuardEntry) -> bool {
        self.lock().entries.contains(entry)
    }

    /// Whether another part of this process reaps this child.
    pub(super) fn waits_for(&self, pid: Pid) -> bool {
        let state = self.lock();
        state.running.as_ref().is_some_and(|running| running.pid == pid)
            || [GuardEntry::Group(pid), GuardEntry::Workers(pid)]
                .iter()
                .any(|e| state.entries.contains(e))
    }

    /// Gives this socket to the guard, now or when it is started.
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

    /// Closes the socket here and in the guard. Running workers hold their copies until they end.
    pub(super) fn close(self: &Arc<Self>, token: &str) {
        let mut state = self.lock();
        if state.sockets.remove(token).is_some() && state.running.is_some() {
            drop(state);
            // A guard that has ended does not hold it either.
            let _ = self.tell(&GuardOrder::Close(token.to_owned()), None);
        }
    }

    /// Whether a guard was started, and is not known to be gone.
    pub(super) fn has_guard(&self) -> bool {
        self.lock().running.is_some()
    }

    /// The process id of the guard.
    #[cfg(test)]
    pub(super) fn running(&self) -> Option<Pid> {
        self.lock().running.as_ref().map(|running| running.pid)
    }

    /// Removes the marks from the environment of a child that is not a worker.
    pub(super) fn unmark(&self, command: &mut Command) {
        self.lock().unmark(command);
    }

    /// The sockets that workers hold.
    pub(super) fn sockets(&self) -> Vec<Arc<TcpListener>> {
        self.lock().sockets.values().cloned().collect()
    }

    /// Sets the fence. Does not block.
    pub(super) fn fence_at(&self, at: Option<Time>) {
        let mut state = self.lock();
        state.fence = at;
        state.tell_fence();
    }

    pub(super) fn fenced(&self) -> Option<Time> {
        self.lock().fenced
    }

    /// Sends a message to the guard. A missing or hung guard is replaced by a new one, which gets all entries.
    fn tell(
        self: &Arc<Self>,
        order: &GuardOrder,
        socket: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let bytes = order.encode();
        let deadline = Instant::now() + HUNG_AFTER;
        loop {
            let mut state = self.lock();
            let Some(running) = &state.running else {
                if state.has_entries() {
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
                        %error, "the guard does not read its messages; starting another"
                    );
                    state.dismiss();
                }
            }
        }
    }

    /// Starts a guard, and sends it all entries.
    fn start(self: &Arc<Self>, state: &mut GuardState) -> io::Result<()> {
        let (ours, theirs) = link::pair()?;
        let mut command = program::command(HelperRole::Guard)?;
        state.unmark(&mut command);
        let child = command
            .arg(std::process::id().to_string())
            // So that it does not keep this process's directory busy.
            .current_dir("/")
            .process_group(0)
            // Children do not inherit this process's end, which is closed on exec.
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
            fence_unsent: false,
        };
        let mut told = watcher::watch(self, &running, child);
        for (order, socket) in state.messages() {
            told = told.and_then(|()| send_all(&running.link, &order, socket));
        }
        state.running = Some(running);
        if told.is_err() {
            state.dismiss();
        }
        told
    }

    /// Waits until a started guard has identified itself, unless it is known to be this program.
    fn until_begun(&self, mut state: MutexGuard<'_, GuardState>) -> io::Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
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
                Some(_) => "was not ready in time",
                None => "ended before it was ready",
            };
            let text = format!(
                "the guard {words}; name a rallypoint of version {} in RALLYPOINT_BINARY",
                env!("CARGO_PKG_VERSION")
            );
            return Err(io::Error::other(text));
        }
    }
}

impl GuardState {
    fn has_entries(&self) -> bool {
        !self.entries.is_empty() || !self.sockets.is_empty()
    }

    /// The messages with all entries, for a new guard.
    fn messages(&self) -> Vec<(GuardOrder, Option<BorrowedFd<'_>>)> {
        let sockets = self
            .sockets
            .iter()
            .map(|(token, socket)| (GuardOrder::Listen(token.clone()), Some(socket.as_fd())));
        let entries = self.entries.iter().map(|entry| (GuardOrder::Add(entry.clone()), None));
        // The fence first: workers that follow a passed fence are killed at once.
        [(GuardOrder::Fence(self.fence), None)].into_iter().chain(sockets).chain(entries).collect()
    }

    /// Removes the marks of this process's environment from a child's.
    fn unmark(&self, command: &mut Command) {
        for entry in &self.entries {
            if let GuardEntry::Marked(mark) = entry {
                let name = mark.split(|byte| *byte == b'=').next().unwrap_or_default();
                command.env_remove(OsStr::from_bytes(name));
            }
        }
    }

    /// Sends the current fence, or leaves it to the watcher if the guard is slow.
    fn tell_fence(&mut self) {
        let Some(running) = &mut self.running else { return };
        let order = GuardOrder::Fence(self.fence).encode();
        running.fence_unsent = link::send(&running.link, &order, &[]) == Err(Errno::AGAIN);
        if running.fence_unsent {
            let _ = rustix::io::write(&running.wake, &1u64.to_ne_bytes());
        }
    }

    /// Kills a guard that does not work. It cannot kill anything itself any more.
    fn dismiss(&mut self) {
        if let Some(running) = self.running.take() {
            // The watcher reaps it, so its number is not reused before.
            let _ = kill_process(running.pid, Signal::KILL);
        }
    }
}

fn send_all(link: &OwnedFd, order: &GuardOrder, socket: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let deadline = Instant::now() + HUNG_AFTER;
    loop {
        match link::send(link, &order.encode(), socket.as_slice()) {
            Err(Errno::AGAIN) if Instant::now() < deadline => until_room(link),
            sent => return Ok(sent?),
        }
    }
}

/// Waits until there may be room for another message, or 50 ms.
fn until_room(link: &OwnedFd) {
    let moment = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    let _ = poll(&mut [PollFd::new(link, PollFlags::OUT)], Some(&moment));
}

#[cfg(test)]
mod tests;
