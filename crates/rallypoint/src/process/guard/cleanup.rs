//! Kills the processes and removes the directories of a guard's entries.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpid, kill_process, kill_process_group};

use super::message::GuardEntry;
use crate::process::{survivors, table};
use crate::util::backoff::Backoff;

/// The pause between two checks for survivors.
const POLL: Backoff =
    Backoff::new(Duration::from_millis(1), Duration::from_millis(20)).without_jitter();

/// The time limit for the end of killed processes. Only the kernel can delay it, with a disk or a device that does
/// not answer; until then, the liveness socket stays open.
const KILL_TIMEOUT: Duration = Duration::from_secs(600);

/// The number of attempts to remove a directory, in which a dying process may still create files.
const ATTEMPTS: u32 = 10;
const ATTEMPT_PAUSE: Duration = Duration::from_millis(100);

/// A process that is not killed, though it may have a mark.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExemptProcess {
    pid: Pid,
    begun: Option<u64>,
}

impl ExemptProcess {
    pub(super) fn new(pid: Pid) -> Self {
        Self { pid, begun: table::stat(pid).map(|stat| stat.begun) }
    }

    fn is(&self, pid: Pid, begun: u64) -> bool {
        self.pid == pid && self.begun == Some(begun)
    }
}

/// Sends a signal to all processes of these entries.
pub(super) fn signal<'a>(
    entries: impl IntoIterator<Item = &'a GuardEntry>,
    signal: Signal,
    exempt: ExemptProcess,
) {
    let mut marks = Vec::new();
    for entry in entries {
        match entry {
            GuardEntry::Group(leader) | GuardEntry::Workers(leader) => {
                // The group may have ended.
                let _ = kill_process_group(*leader, signal);
            }
            GuardEntry::Marked(mark) => marks.push(&mark[..]),
            GuardEntry::Directory(_) => {}
        }
    }
    // Again, for processes that were started during the first pass.
    for _ in 0..if marks.is_empty() { 0 } else { 2 } {
        for pid in marked(&marks, exempt) {
            let _ = kill_process(pid, signal);
        }
    }
}

/// Kills all processes of these entries, waits for their end, calls `gone`, and removes the directories.
pub(super) fn end(entries: &HashSet<GuardEntry>, exempt: ExemptProcess, gone: impl FnOnce()) {
    signal(entries, Signal::KILL, exempt);
    let begun = Instant::now();
    let mut poll = POLL;
    while is_left(entries, exempt) && begun.elapsed() < KILL_TIMEOUT {
        sleep(poll.next_delay());
        signal(
            entries.iter().filter(|entry| matches!(entry, GuardEntry::Marked(_))),
            Signal::KILL,
            exempt,
        );
    }
    gone();
    for entry in entries {
        if let GuardEntry::Directory(path) = entry {
            remove(path);
        }
    }
}

fn is_left(entries: &HashSet<GuardEntry>, exempt: ExemptProcess) -> bool {
    entries.iter().any(|entry| match entry {
        GuardEntry::Group(leader) | GuardEntry::Workers(leader) => {
            survivors::find(*leader, *leader).is_some()
        }
        GuardEntry::Marked(mark) => !marked(&[mark], exempt).is_empty(),
        GuardEntry::Directory(_) => false,
    })
}

/// The live processes with one of the marks, and their descendants; without the exempt process and processes that
/// descend from it alone.
fn marked(marks: &[&[u8]], exempt: ExemptProcess) -> HashSet<Pid> {
    let mut children: BTreeMap<i32, Vec<Pid>> = BTreeMap::new();
    let mut found = Vec::new();
    for pid in table::pids() {
        let Some(stat) = table::stat(pid) else { continue };
        if pid == getpid() || exempt.is(pid, stat.begun) || stat.has_ended() {
            continue;
        }
        children.entry(stat.parent).or_default().push(pid);
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|entry| marks.contains(&entry)) {
            found.push(pid);
        }
    }
    let mut all = HashSet::new();
    while let Some(pid) = found.pop() {
        if all.insert(pid) {
            found.extend(children.remove(&pid.as_raw_nonzero().get()).unwrap_or_default());
        }
    }
    all
}

fn remove(path: &Path) {
    for _ in 0..ATTEMPTS {
        match fs::remove_dir_all(path) {
            Ok(()) => return,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(_) => sleep(ATTEMPT_PAUSE),
        }
    }
}
