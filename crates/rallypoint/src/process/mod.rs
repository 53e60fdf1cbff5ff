//! Child processes and temporary directories that never outlive this process.
//!
//! A program that starts children with this module begins with [`reexecuted`]. The rest is for nodes of a
//! job: [`LivenessSocket`], by which peers detect that no process of this node is left, and [`fence_at`], the time
//! at which the workers of a node are killed unless its lease is renewed.
//!
//! Each child leads a process group of its own. `ProcessGroup::start` is for a child whose group ends with it, as a
//! whole; `ProcessGroup::start_lasting` for a worker, whose group may outlive it. A group can be signalled safely until its
//! leader is reaped: until then the kernel does not reuse its number. The number of a lasting group
//! stays in use as long as a process is left in it. So a group is signalled, and the `guard` keeps it, only until its
//! leader is reaped or its last process is gone. If another part of the program reaps the leader, or the kernel does
//! because SIGCHLD is ignored, the group is dropped as soon as that is seen, and not signalled any more.
//!
//! - `entry`, `program`: the helper roles of this program, and how it starts itself again.
//! - `gate`: the process that later executes a child's program.
//! - `guard`: kills children if this process cannot.
//! - `link`: messages to gates and the guard.
//! - `input`: standard input of a child, and its terminal.
//! - `liveness`: the liveness socket.
//! - `mark`: workers that another program starts.
//! - `survivors`: processes that are left of a group.
//! - `table`: the process table.
//! - `reaper`: reaps orphans.
//! - `signals`: signals that were ignored at the start.
//! - `descriptors`: the limit of open descriptors, here and in the children.

mod descriptors;
mod directory;
mod entry;
mod gate;
mod guard;
mod input;
mod link;
mod liveness;
mod mark;
mod program;
#[cfg(feature = "cli")]
mod reaper;
pub(crate) mod signals;
mod survivors;
mod table;

use std::ffi::OsStr;
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rallypoint_core::kv::Time;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process, kill_process_group, waitid,
};
use tokio::sync::watch;

pub use self::descriptors::raise_descriptor_limit;
pub(crate) use self::directory::TemporaryDirectory;
pub use self::entry::{helper, reexecuted};
use self::gate::ExecGate;
use self::guard::GuardEntry;

pub(crate) use self::input::StandardInput;
pub use self::liveness::LivenessSocket;
pub use self::mark::Mark;
pub use self::program::register;
#[cfg(feature = "cli")]
pub(crate) use self::reaper::{adopts_orphans, reap_orphans};
#[cfg(feature = "cli")]
pub(crate) use self::table::{GroupMember, group_members, is_alive};
use crate::log_target::PROCESS;

/// How long a drop waits for the end of killed processes.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

/// A child and all of its descendants that did not leave its process group.
///
/// Dropping the group kills all of its processes and waits for their end: some milliseconds, and at most two
/// seconds if the kernel cannot end them. The guard kills processes that are left after that.
#[derive(Debug)]
pub(crate) struct ProcessGroup {
    pid: Pid,
    entry: GuardEntry,
    life: watch::Receiver<GroupLife>,
}

/// The state of a group. The leader's exit status is an error if another part of the program reaped it.
#[derive(Debug, Clone, Copy)]
enum GroupLife {
    /// The leader runs.
    Running,
    /// The leader has ended, and other processes may be left.
    LeaderEnded(Result<ExitStatus, Errno>),
    /// No process is left.
    Gone(Result<ExitStatus, Errno>),
}

impl GroupLife {
    fn ended(self) -> Option<Result<ExitStatus, Errno>> {
        match self {
            Self::Running => None,
            Self::LeaderEnded(ended) | Self::Gone(ended) => Some(ended),
        }
    }
}

/// The result of offering a signal to a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignalOffer {
    /// The signal was sent to the child.
    Sent,
    /// The child has no handler for the signal, so it was not sent.
    WouldKill,
    /// The child has ended.
    Ended,
}

/// The action on the other processes of a group when its leader ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnLeaderEnd {
    KillGroup,
    LeaveGroup,
}

impl OnLeaderEnd {
    fn entry(self, leader: Pid) -> GuardEntry {
        match self {
            Self::KillGroup => GuardEntry::Group(leader),
            Self::LeaveGroup => GuardEntry::Workers(leader),
        }
    }
}

/// Sets the fence: the guard kills the workers of this process at this time, unless a later one is set before. It does so
/// also if this process is stopped. The time is of `CLOCK_BOOTTIME`. Does not block.
///
/// A guard that was suspended past the fence, as on a suspended node, stops the workers and
/// waits a second for a later fence before it kills them.
pub fn fence_at(moment: Option<Time>) {
    guard::program().fence_at(moment);
}

/// Forwards each new fence to the guard, until the sender is dropped.
pub async fn follow_fence(mut fence: watch::Receiver<Option<Time>>) {
    loop {
        fence_at(*fence.borrow_and_update());
        if fence.changed().await.is_err() {
            return;
        }
    }
}

/// The last fence at which the guard killed workers, if there is one.
pub fn fenced() -> Option<Time> {
    guard::program().fenced()
}

/// Starts the guard ahead of the first child, so that the child need not wait for it.
///
/// # Errors
/// There is [no program](reexecuted) to start, or it has another version.
pub fn start_guard() -> io::Result<()> {
    guard::program().begin()
}

/// A command for a [`ProcessGroup`]: this program behind an exec gate, without standard input.
pub(crate) fn command(program: impl AsRef<OsStr>) -> io::Result<Command> {
    gate::command(program.as_ref().to_owned())
}

impl ProcessGroup {
    /// Starts a command from [`command`]. When the child ends, the rest of its group is killed.
    ///
    /// A program that cannot be executed is not an error here: the child ends at once with status 126 or 127.
    pub(crate) fn start(command: &mut Command) -> io::Result<Self> {
        Self::start_with(command, OnLeaderEnd::KillGroup, None)
    }

    /// Starts a worker: it is fenced, and holds the liveness sockets. When it ends, the rest of its group
    /// lives on, and can still be signalled.
    pub(crate) fn start_lasting(command: &mut Command) -> io::Result<Self> {
        Self::start_with(command, OnLeaderEnd::LeaveGroup, None)
    }

    /// Starts a worker with this standard input.
    pub(crate) fn start_with_input(
        command: &mut Command,
        input: &StandardInput,
    ) -> io::Result<Self> {
        Self::start_with(command, OnLeaderEnd::LeaveGroup, Some(input))
    }

    fn start_with(
        command: &mut Command,
        rest: OnLeaderEnd,
        input: Option<&StandardInput>,
    ) -> io::Result<Self> {
        let handle = guard::program();
        if rest == OnLeaderEnd::KillGroup {
            handle.unmark(command);
        }
        let gate = ExecGate::before(command)?;
        let started = command.spawn();
        // Otherwise the gate's end of the link would stay open here as long as the command.
        command.stdin(Stdio::null());
        let mut child = started?;
        let pid = Pid::from_child(&child);
        let entry = rest.entry(pid);
        let watched = handle.add(&entry).and_then(|()| watch_life(pid, entry.clone(), rest));
        let life = match watched {
            Ok(life) => life,
            Err(error) => {
                // The child ends at its gate.
                drop(gate);
                handle.forget(&entry);
                let _ = child.wait();
                return Err(error);
            }
        };
        let group = Self { pid, entry, life };
        // Peers detect live workers by the liveness sockets that they hold.
        let sockets = if rest == OnLeaderEnd::LeaveGroup { handle.sockets() } else { Vec::new() };
        let held: Vec<BorrowedFd<'_>> = sockets.iter().map(|socket| socket.as_fd()).collect();
        if let Some(input) = input {
            input.give_to(pid)?;
        }
        gate.open(&held, input.map(StandardInput::as_fd))?;
        Ok(group)
    }

    /// The process id of the child, which is also the id of its group.
    pub(crate) fn id(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Sends a signal to all processes that are left in the group.
    pub(crate) fn signal(&self, signal: Signal) {
        // The leader is reaped only after its end is published, which this borrow blocks.
        let life = self.life.borrow();
        if self.is_ours(*life) {
            // The group may be gone.
            let _ = kill_process_group(self.pid, signal);
        }
    }

    /// Sends a signal to the child alone, unless it would kill the child.
    pub(crate) fn offer(&self, signal: Signal) -> SignalOffer {
        let life = self.life.borrow();
        if !matches!(*life, GroupLife::Running) || !self.is_ours(*life) {
            return SignalOffer::Ended;
        }
        if !signals::is_expected(self.pid, signal) {
            return SignalOffer::WouldKill;
        }
        let _ = kill_process(self.pid, signal);
        SignalOffer::Sent
    }

    /// Whether the group still has its number, and is a child of this process and not of one that it was forked from.
    fn is_ours(&self, life: GroupLife) -> bool {
        match life {
            GroupLife::Running => wait_without_reaping(self.pid, WaitIdOptions::NOHANG).is_ok(),
            GroupLife::LeaderEnded(_) => guard::program().knows(&self.entry),
            GroupLife::Gone(_) => false,
        }
    }

    /// Waits until the child has ended. Can be called again. Cancel-safe.
    ///
    /// The exit status is an error if another part of the program reaps its children.
    pub(crate) fn exited(&self) -> impl Future<Output = io::Result<ExitStatus>> + Send + use<> {
        let mut life = self.life.clone();
        async move {
            // The thread publishes the end before it exits.
            let life = life.wait_for(|life| life.ended().is_some()).await;
            let ended = life.map_or(None, |life| life.ended());
            Ok(ended.unwrap_or(Err(Errno::CHILD))?)
        }
    }

    /// Whether processes of the group may be left.
    pub(crate) fn is_left(&self) -> bool {
        !matches!(*self.life.borrow(), GroupLife::Gone(_))
    }

    /// Waits until no process of the group is left. Can be called again. Cancel-safe.
    pub(crate) fn gone(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut life = self.life.clone();
        async move {
            let _ = life.wait_for(|life| matches!(life, GroupLife::Gone(_))).await;
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        let killed = Instant::now();
        while self.is_ours(*self.life.borrow()) {
            if killed.elapsed() > KILL_TIMEOUT {
                tracing::warn!(
                    target: PROCESS,
                    pid = self.id(), "a process still runs after SIGKILL"
                );
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Checks whether a child has ended, without reaping it. Fails if it is not a child of this process, or was reaped.
fn wait_without_reaping(pid: Pid, how: WaitIdOptions) -> Result<Option<WaitIdStatus>, Errno> {
    wait(pid, how | WaitIdOptions::NOWAIT)
}

fn wait(pid: Pid, how: WaitIdOptions) -> Result<Option<WaitIdStatus>, Errno> {
    loop {
        match waitid(WaitId::Pid(pid), how | WaitIdOptions::EXITED) {
            Err(Errno::INTR) => {}
            seen => return seen,
        }
    }
}

/// Waits for the end of a child, without reaping it.
fn end_of(leader: Pid) -> Result<ExitStatus, Errno> {
    let status = wait_without_reaping(leader, WaitIdOptions::empty())?.ok_or(Errno::CHILD)?;
    let raw = match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => code << 8,
        (None, signal) => signal.unwrap_or_default() | if status.dumped() { 0x80 } else { 0 },
    };
    Ok(ExitStatus::from_raw(raw))
}

/// Publishes the end of the leader and of the group, kills the other processes if `rest` says so, and removes the
/// group from the guard.
///
/// A thread works with every kernel and runtime: it needs neither a pidfd (Linux 5.3) nor a SIGCHLD handler. It acts
/// at once and not when a caller asks: until then another part of the program could reap the leader, and the kernel
/// could reuse its number.
fn watch_life(
    leader: Pid,
    entry: GuardEntry,
    rest: OnLeaderEnd,
) -> io::Result<watch::Receiver<GroupLife>> {
    let (sender, life) = watch::channel(GroupLife::Running);
    let thread = std::thread::Builder::new().name(format!("wait-{leader}"));
    thread.spawn(move || {
        let ended = end_of(leader);
        match rest {
            OnLeaderEnd::KillGroup if ended.is_ok() => {
                let _ = kill_process_group(leader, Signal::KILL);
            }
            OnLeaderEnd::LeaveGroup if ended.is_ok() => {
                sender.send_replace(GroupLife::LeaderEnded(ended));
                let _ = wait(leader, WaitIdOptions::empty());
                survivors::wait_until_gone(leader);
            }
            _ => {}
        }
        guard::program().forget(&entry);
        sender.send_replace(GroupLife::Gone(ended));
        if rest == OnLeaderEnd::KillGroup {
            let _ = wait(leader, WaitIdOptions::empty());
        }
    })?;
    Ok(life)
}

#[cfg(test)]
mod tests;
