//! The guard process: its event loop until the parent has ended, and the cleanup after that.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use nix::sys::signal::SigSet;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, getppid, pidfd_open};

use super::cleanup::{self, ExemptProcess};
use super::fence::{Fence, FenceAction};
use super::message::{GuardEntry, GuardOrder, GuardReport};
use super::responder::LivenessResponder;
use crate::process::link::{self, ReceiveMode, Received};
use crate::util::clock::boot_time;

const DONE: u8 = 0;
const INVALID_START: u8 = 2;

/// Guards the parent process, whose id is the first argument, until it has ended.
pub(crate) fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    // A process name of its own, and handlers for signals that ask it to end. (Ignoring them would take `unsafe` code.)
    let _ = rustix::thread::set_name(c"rp-guard");
    let _ = SigSet::all().thread_block();
    let number = arguments.into_iter().next().and_then(|number| number.to_str()?.parse().ok());
    let Some(parent) = number.and_then(Pid::from_raw) else { return INVALID_START };
    let Ok(link) = io::stdin().as_fd().try_clone_to_owned() else { return INVALID_START };
    let parent_end = pidfd_open(parent, PidfdFlags::empty()).ok();
    let mut guard = GuardLoop {
        is_orphan: getppid() != Some(parent),
        link,
        parent_end,
        exempt: ExemptProcess::new(parent),
        entries: HashSet::new(),
        fence: Fence::default(),
        responder: LivenessResponder::default(),
    };
    guard.tell(&GuardReport::Hello);
    while guard.round() {}
    let GuardLoop { entries, exempt, responder, .. } = guard;
    // The liveness sockets close only when no process is left.
    cleanup::end(&entries, exempt, move || drop(responder));
    DONE
}

/// The state of the guard process.
struct GuardLoop {
    /// The link to the parent. It closes with the parent, or with the last forked copy of it.
    link: OwnedFd,
    /// The parent's pidfd, where the kernel has them (Linux 5.3).
    parent_end: Option<OwnedFd>,
    is_orphan: bool,
    /// The parent, which is never killed. It may have executed another program.
    exempt: ExemptProcess,
    entries: HashSet<GuardEntry>,
    fence: Fence,
    responder: LivenessResponder,
}

/// The events of a poll besides messages.
#[derive(Debug, Default)]
struct Woken {
    by_parent: bool,
    by_others: bool,
}

impl GuardLoop {
    /// Waits for events and handles them. Returns false when the parent has ended.
    fn round(&mut self) -> bool {
        let began = boot_time();
        let timeout = self.fence.next_check(began);
        let woken = if self.is_orphan { Woken::default() } else { self.wait(timeout) };
        self.is_orphan |= woken.by_parent;
        let is_there = self.listen();
        let due = timeout.map(|timeout| began + timeout);
        if let Some(act) = self.fence.check(due, boot_time()) {
            self.act(act);
        }
        if woken.by_others {
            self.responder.answer();
        }
        is_there && !self.is_orphan
    }

    /// Waits for a message or an event.
    fn wait(&self, timeout: Option<Duration>) -> Woken {
        let watch = |descriptor| PollFd::new(descriptor, PollFlags::IN);
        let mut watched = vec![watch(&self.link)];
        watched.extend(self.parent_end.iter().map(watch));
        watched.extend(self.responder.watched());
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let _ = poll(&mut watched, timeout.as_ref());
        let is_ready = |watched: &PollFd<'_>| !watched.revents().is_empty();
        let parents = 1 + usize::from(self.parent_end.is_some());
        Woken {
            by_parent: watched[1..parents].iter().any(is_ready),
            by_others: watched[parents..].iter().any(is_ready),
        }
    }

    /// Handles the messages. Returns whether the link is still open.
    fn listen(&mut self) -> bool {
        loop {
            match link::receive(&self.link, ReceiveMode::NonBlocking) {
                Received::Message(bytes, mut descriptors) => match GuardOrder::decode(&bytes) {
                    Some(GuardOrder::Add(entry)) => drop(self.entries.insert(entry)),
                    Some(GuardOrder::Drop(entry)) => drop(self.entries.remove(&entry)),
                    Some(GuardOrder::Fence(at)) => self.fence.set(at),
                    Some(GuardOrder::Close(token)) => self.responder.close(&token),
                    Some(GuardOrder::Listen(token)) => {
                        if let Some(socket) = descriptors.pop() {
                            self.responder.add(token, socket);
                        }
                    }
                    None => {}
                },
                Received::Nothing => return true,
                Received::End => return false,
            }
        }
    }

    fn act(&self, act: FenceAction) {
        let signal = match act {
            FenceAction::Stop => Signal::STOP,
            FenceAction::Continue => Signal::CONT,
            FenceAction::Kill => Signal::KILL,
        };
        let is_fenced =
            |entry: &&GuardEntry| matches!(entry, GuardEntry::Workers(_) | GuardEntry::Marked(_));
        let fenced: Vec<&GuardEntry> = self.entries.iter().filter(is_fenced).collect();
        if fenced.is_empty() {
            return;
        }
        cleanup::signal(fenced, signal, self.exempt);
        if let (FenceAction::Kill, Some(at)) = (act, self.fence.at()) {
            self.tell(&GuardReport::Fenced(at));
        }
    }

    fn tell(&self, news: &GuardReport) {
        // Best effort: the parent may not read.
        let _ = link::send(&self.link, &news.encode(), &[]);
    }
}
