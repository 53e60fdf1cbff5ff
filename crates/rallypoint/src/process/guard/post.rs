//! The guard process: its loop until the parent is gone, and the cleanup after that.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use nix::sys::signal::SigSet;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, getppid, pidfd_open};

use super::ending::{self, Spared};
use super::fence::{Act, Fence};
use super::greeter::Greeter;
use super::message::{GuardEntry, GuardOrder, GuardReport};
use crate::process::link::{self, Received, Way};
use crate::util::clock::boot_time;

const DONE: u8 = 0;
const WRONG: u8 = 2;

/// Guards the parent process, which has this id, until it is gone.
pub(crate) fn stand(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    // A process name of its own, and handlers for signals that ask it to end. (Ignoring them would take `unsafe` code.)
    let _ = rustix::thread::set_name(c"rp-guard");
    let _ = SigSet::all().thread_block();
    let number = arguments.into_iter().next().and_then(|number| number.to_str()?.parse().ok());
    let Some(parent) = number.and_then(Pid::from_raw) else { return WRONG };
    let Ok(link) = io::stdin().as_fd().try_clone_to_owned() else { return WRONG };
    let parent_end = pidfd_open(parent, PidfdFlags::empty()).ok();
    let mut post = Post {
        is_orphan: getppid() != Some(parent),
        link,
        parent_end,
        spared: Spared::new(parent),
        entries: HashSet::new(),
        fence: Fence::default(),
        greeter: Greeter::default(),
    };
    post.tell(&GuardReport::Hello);
    while post.round() {}
    let Post { entries, spared, greeter, .. } = post;
    // The liveness sockets close when no process is left, and not before.
    ending::end(&entries, spared, move || drop(greeter));
    DONE
}

struct Post {
    /// The link. It closes with the parent, or with the last forked copy of it.
    link: OwnedFd,
    /// The parent's pidfd, where the kernel has them (Linux 5.3).
    parent_end: Option<OwnedFd>,
    is_orphan: bool,
    /// The parent. It may have executed another program, and is never killed.
    spared: Spared,
    entries: HashSet<GuardEntry>,
    fence: Fence,
    greeter: Greeter,
}

/// The events besides messages.
#[derive(Debug, Default)]
struct Woken {
    by_parent: bool,
    by_others: bool,
}

impl Post {
    /// Waits for events and handles them, until the parent is gone.
    fn round(&mut self) -> bool {
        let began = boot_time();
        let patience = self.fence.next_look(began);
        let woken = if self.is_orphan { Woken::default() } else { self.wait(patience) };
        self.is_orphan |= woken.by_parent;
        let is_there = self.listen();
        let due = patience.map(|patience| began + patience);
        if let Some(act) = self.fence.look(due, boot_time()) {
            self.act(act);
        }
        if woken.by_others {
            self.greeter.answer();
        }
        is_there && !self.is_orphan
    }

    /// Waits for a message or an event.
    fn wait(&self, patience: Option<Duration>) -> Woken {
        let watch = |descriptor| PollFd::new(descriptor, PollFlags::IN);
        let mut watched = vec![watch(&self.link)];
        watched.extend(self.parent_end.iter().map(watch));
        watched.extend(self.greeter.watched());
        let patience = patience.and_then(|patience| Timespec::try_from(patience).ok());
        let _ = poll(&mut watched, patience.as_ref());
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
            match link::receive(&self.link, Way::Look) {
                Received::Message(bytes, mut descriptors) => match GuardOrder::decode(&bytes) {
                    Some(GuardOrder::Add(entry)) => drop(self.entries.insert(entry)),
                    Some(GuardOrder::Drop(entry)) => drop(self.entries.remove(&entry)),
                    Some(GuardOrder::Fence(at)) => self.fence.set(at),
                    Some(GuardOrder::Close(token)) => self.greeter.close(&token),
                    Some(GuardOrder::Listen(token)) => {
                        if let Some(socket) = descriptors.pop() {
                            self.greeter.add(token, socket);
                        }
                    }
                    None => {}
                },
                Received::Nothing => return true,
                Received::End => return false,
            }
        }
    }

    fn act(&self, act: Act) {
        let signal = match act {
            Act::Hold => Signal::STOP,
            Act::Release => Signal::CONT,
            Act::Kill => Signal::KILL,
        };
        let is_fenced =
            |entry: &&GuardEntry| matches!(entry, GuardEntry::Workers(_) | GuardEntry::Marked(_));
        let fenced: Vec<&GuardEntry> = self.entries.iter().filter(is_fenced).collect();
        if fenced.is_empty() {
            return;
        }
        ending::signal(fenced, signal, self.spared);
        if let (Act::Kill, Some(at)) = (act, self.fence.at()) {
            self.tell(&GuardReport::Fenced(at));
        }
    }

    fn tell(&self, news: &GuardReport) {
        // Best effort: the parent may not read.
        let _ = link::send(&self.link, &news.encode(), &[]);
    }
}
