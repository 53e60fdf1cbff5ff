//! Child processes that never outlive us, and directories that do not either.
//!
//! A program that uses what starts children begins with [`reexecuted`]. The rest is for programs that meet
//! others: [`LivenessSocket`], by which others see that nobody of this node is left, and [`fence_at`], the moment
//! at which the workers of a node end that nobody has heard of any more.
//!
//! Each child leads a process group of its own. `ProcessGroup::start` is for a child whose group ends with it, as a
//! whole; `ProcessGroup::start_lasting` for a worker, whose group may need time of its own. A group is ours as long as its
//! leader was not reaped: until then the kernel gives its number to nobody else. Of a lasting group the number
//! is kept by whoever is left in it. So a group is signalled, and forgotten by the `guard`, only before its
//! leader is reaped or its last member is gone. Where others reap, or the kernel does since SIGCHLD is ignored,
//! it is forgotten as soon as that is seen, and not signalled any more.
//!
//! - `entry`, `program`: the parts that this program plays when it is started again, and how it is.
//! - `gate`: what every child is at first. `guard`: what ends it if we cannot. `link`: how we talk to both.
//! - `input`: standard input of a child, and its terminal.
//! - `liveness`: the socket. `mark`: workers that others start. `survivors`, `table`: who is left of a group; the list of processes.
//! - `reaper`, `signals`: children that were left to us; signals that were ignored before we began.
//! - `descriptors`: how many may be open, here and in the children.

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
pub(crate) use self::reaper::{is_needed, reap_strangers};
use crate::log_target::PROCESS;

/// How long a process may take to be gone after SIGKILL before we go on without it.
const DEATH: Duration = Duration::from_secs(2);

/// A child and all of its descendants that did not leave its process group.
///
/// Dropping it kills all of them at once and waits until they are gone: some milliseconds, and at most
/// two seconds if the kernel cannot end them. What is left then is left to the guard.
#[derive(Debug)]
pub(crate) struct ProcessGroup {
    pid: Pid,
    entry: GuardEntry,
    life: watch::Receiver<GroupLife>,
}

/// How much of a group there is. How its leader ended is an error if it was not left to us to reap it.
#[derive(Debug, Clone, Copy)]
enum GroupLife {
    Whole,
    /// The leader has ended, and others may be left.
    Headless(Result<ExitStatus, Errno>),
    Gone(Result<ExitStatus, Errno>),
}

impl GroupLife {
    fn ended(self) -> Option<Result<ExitStatus, Errno>> {
        match self {
            Self::Whole => None,
            Self::Headless(ended) | Self::Gone(ended) => Some(ended),
        }
    }
}

/// What a child makes of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offer {
    /// It was sent to the child.
    Taken,
    /// The child has no handler for it, so it was not sent.
    Deadly,
    /// The child has ended.
    Nobody,
}

/// What becomes of the others when the leader ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    IsKilled,
    IsLeft,
}

impl Rest {
    fn entry(self, leader: Pid) -> GuardEntry {
        match self {
            Self::IsKilled => GuardEntry::Group(leader),
            Self::IsLeft => GuardEntry::Workers(leader),
        }
    }
}

/// The workers of this process end at this moment, unless a later one is named before: the guard kills them then,
/// also if this process stands still. It is a moment of `CLOCK_BOOTTIME`. Waits for nobody.
///
/// A guard that finds that it has slept through that moment, as all of a suspended node does, holds the workers and
/// waits a second for a later one.
pub fn fence_at(moment: Option<Time>) {
    guard::program().fence_at(moment);
}

/// Tells the guard of each new fence, until whoever names them is gone.
pub async fn follow_fence(mut fence: watch::Receiver<Option<Time>>) {
    loop {
        fence_at(*fence.borrow_and_update());
        if fence.changed().await.is_err() {
            return;
        }
    }
}

/// The fence at which the guard has last killed workers, if it has.
pub fn fenced() -> Option<Time> {
    guard::program().fenced()
}

/// Starts the guard before there is anything to guard, so that nobody has to wait for it then.
///
/// # Errors
/// There is [no program](reexecuted) to start, or it is none of this version.
pub fn start_guard() -> io::Result<()> {
    guard::program().begin()
}

/// A command that a [`ProcessGroup`] can be started with: this program, with nothing on its standard input.
pub(crate) fn command(program: impl AsRef<OsStr>) -> io::Result<Command> {
    gate::command(program.as_ref().to_owned())
}

impl ProcessGroup {
    /// Starts a command that [`command`] made. What it leaves of its group is killed when it ends.
    ///
    /// A program that cannot be executed is no error here: it ends at once with status 126 or 127.
    pub(crate) fn start(command: &mut Command) -> io::Result<Self> {
        Self::start_with(command, Rest::IsKilled, None)
    }

    /// The same for a worker: it is fenced, and holds the liveness sockets. What it leaves of its group when it ends
    /// is left alone, and can still be signalled.
    pub(crate) fn start_lasting(command: &mut Command) -> io::Result<Self> {
        Self::start_with(command, Rest::IsLeft, None)
    }

    /// The same for a worker that somebody types at.
    pub(crate) fn start_with_input(
        command: &mut Command,
        input: &StandardInput,
    ) -> io::Result<Self> {
        Self::start_with(command, Rest::IsLeft, Some(input))
    }

    fn start_with(
        command: &mut Command,
        rest: Rest,
        input: Option<&StandardInput>,
    ) -> io::Result<Self> {
        let keeper = guard::program();
        if rest == Rest::IsKilled {
            keeper.unmark(command);
        }
        let gate = ExecGate::before(command)?;
        let started = command.spawn();
        // Or else it would be open here as long as there is the command.
        command.stdin(Stdio::null());
        let mut child = started?;
        let pid = Pid::from_child(&child);
        let entry = rest.entry(pid);
        let watched = keeper.add(&entry).and_then(|()| watch_life(pid, entry.clone(), rest));
        let life = match watched {
            Ok(life) => life,
            Err(error) => {
                // It ends at its gate.
                drop(gate);
                keeper.forget(&entry);
                let _ = child.wait();
                return Err(error);
            }
        };
        let group = Self { pid, entry, life };
        // Others know of workers by them.
        let sockets = if rest == Rest::IsLeft { keeper.sockets() } else { Vec::new() };
        let held: Vec<BorrowedFd<'_>> = sockets.iter().map(|socket| socket.as_fd()).collect();
        if let Some(input) = input {
            input.give_to(pid)?;
        }
        gate.open(&held, input.map(StandardInput::as_fd))?;
        Ok(group)
    }

    /// The number of the child, and of its group.
    pub(crate) fn id(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Sends a signal to the whole group, or what is left of it; to nobody if it has ended.
    pub(crate) fn signal(&self, signal: Signal) {
        // While we hold this, no end can be told, and a leader is reaped only after that.
        let life = self.life.borrow();
        if self.is_ours(*life) {
            // There may be nobody who takes it any more.
            let _ = kill_process_group(self.pid, signal);
        }
    }

    /// Sends a signal to the child alone, unless it would die of it.
    pub(crate) fn offer(&self, signal: Signal) -> Offer {
        let life = self.life.borrow();
        if !matches!(*life, GroupLife::Whole) || !self.is_ours(*life) {
            return Offer::Nobody;
        }
        if !signals::is_expected(self.pid, signal) {
            return Offer::Deadly;
        }
        let _ = kill_process(self.pid, signal);
        Offer::Taken
    }

    /// Whether its number is still its own, and it is not the child of what we are a copy of.
    fn is_ours(&self, life: GroupLife) -> bool {
        match life {
            GroupLife::Whole => look(self.pid, WaitIdOptions::NOHANG).is_ok(),
            GroupLife::Headless(_) => guard::program().knows(&self.entry),
            GroupLife::Gone(_) => false,
        }
    }

    /// Waits until the child has ended. Can be asked again, and dropping the future loses nothing.
    ///
    /// How it ended is an error if the program has somebody else who reaps its children.
    pub(crate) fn exited(&self) -> impl Future<Output = io::Result<ExitStatus>> + Send + use<> {
        let mut life = self.life.clone();
        async move {
            // The thread says so before it ends.
            let life = life.wait_for(|life| life.ended().is_some()).await;
            let ended = life.map_or(None, |life| life.ended());
            Ok(ended.unwrap_or(Err(Errno::CHILD))?)
        }
    }

    /// Whether anything may be left of the group.
    pub(crate) fn is_left(&self) -> bool {
        !matches!(*self.life.borrow(), GroupLife::Gone(_))
    }

    /// Waits until nothing is left of the group. Can be asked again, and dropping the future loses nothing.
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
            if killed.elapsed() > DEATH {
                tracing::warn!(
                    target: PROCESS,
                    pid = self.id(), "a process is still there after SIGKILL"
                );
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Looks for the end of a child without reaping it. It fails if it is no child of ours, or no longer.
fn look(pid: Pid, how: WaitIdOptions) -> Result<Option<WaitIdStatus>, Errno> {
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

/// Waits for the end of a child, and leaves it to be reaped.
fn end_of(leader: Pid) -> Result<ExitStatus, Errno> {
    let status = look(leader, WaitIdOptions::empty())?.ok_or(Errno::CHILD)?;
    let raw = match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => code << 8,
        (None, signal) => signal.unwrap_or_default() | if status.dumped() { 0x80 } else { 0 },
    };
    Ok(ExitStatus::from_raw(raw))
}

/// Tells when the leader ends, and when the group is gone; sees to the rest, and forgets it.
///
/// A thread, since it works with every kernel and host: it needs neither a descriptor for a process
/// (Linux 5.3) nor a handler for SIGCHLD. And it does so at once, not when somebody comes to ask: until
/// then the leader may have been reaped behind our back, and its number given to a stranger.
fn watch_life(
    leader: Pid,
    entry: GuardEntry,
    rest: Rest,
) -> io::Result<watch::Receiver<GroupLife>> {
    let (sender, life) = watch::channel(GroupLife::Whole);
    let thread = std::thread::Builder::new().name(format!("wait-{leader}"));
    thread.spawn(move || {
        let ended = end_of(leader);
        match rest {
            Rest::IsKilled if ended.is_ok() => {
                let _ = kill_process_group(leader, Signal::KILL);
            }
            Rest::IsLeft if ended.is_ok() => {
                sender.send_replace(GroupLife::Headless(ended));
                let _ = wait(leader, WaitIdOptions::empty());
                survivors::wait_until_gone(leader);
            }
            _ => {}
        }
        guard::program().forget(&entry);
        sender.send_replace(GroupLife::Gone(ended));
        if rest == Rest::IsKilled {
            let _ = wait(leader, WaitIdOptions::empty());
        }
    })?;
    Ok(life)
}

#[cfg(test)]
mod tests;
