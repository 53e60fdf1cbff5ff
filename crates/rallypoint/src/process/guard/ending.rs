//! Ends what a guard knows: process groups, marked processes, directories.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpid, kill_process, kill_process_group};

use super::message::GuardEntry;
use crate::process::{survivors, table};

/// Between two looks at who is left.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LAST_PAUSE: Duration = Duration::from_millis(20);

/// How long those who were killed may take. Only the kernel can hold them up, with a disk or a device that does
/// not answer; as long as they are there, nobody is told that they are not.
const DEATH: Duration = Duration::from_secs(600);

/// A directory may be made again while it is removed, by somebody who is about to be gone.
const ATTEMPTS: u32 = 10;
const ATTEMPT_PAUSE: Duration = Duration::from_millis(100);

/// A process that is not to be touched, though it may have a mark.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spared {
    pid: Pid,
    begun: Option<u64>,
}

impl Spared {
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
    spared: Spared,
) {
    let mut marks = Vec::new();
    for entry in entries {
        match entry {
            GuardEntry::Group(leader) | GuardEntry::Workers(leader) => {
                // There may be nobody any more.
                let _ = kill_process_group(*leader, signal);
            }
            GuardEntry::Marked(mark) => marks.push(&mark[..]),
            GuardEntry::Directory(_) => {}
        }
    }
    // Again, for those who were started while the first look was taken.
    for _ in 0..if marks.is_empty() { 0 } else { 2 } {
        for pid in marked(&marks, spared) {
            let _ = kill_process(pid, signal);
        }
    }
}

/// Kills all of them, and waits until they are gone; then the directories are removed.
pub(super) fn end(entries: &HashSet<GuardEntry>, spared: Spared, gone: impl FnOnce()) {
    signal(entries, Signal::KILL, spared);
    let begun = Instant::now();
    let mut pause = FIRST_PAUSE;
    while is_left(entries, spared) && begun.elapsed() < DEATH {
        sleep(pause);
        pause = (pause * 2).min(LAST_PAUSE);
        signal(
            entries.iter().filter(|entry| matches!(entry, GuardEntry::Marked(_))),
            Signal::KILL,
            spared,
        );
    }
    gone();
    for entry in entries {
        if let GuardEntry::Directory(path) = entry {
            remove(path);
        }
    }
}

fn is_left(entries: &HashSet<GuardEntry>, spared: Spared) -> bool {
    entries.iter().any(|entry| match entry {
        GuardEntry::Group(leader) | GuardEntry::Workers(leader) => {
            survivors::anybody(*leader, *leader).is_some()
        }
        GuardEntry::Marked(mark) => !marked(&[mark], spared).is_empty(),
        GuardEntry::Directory(_) => false,
    })
}

/// Those who live and began with one of the marks, and their descendants; without those who are spared and what
/// is only theirs.
fn marked(marks: &[&[u8]], spared: Spared) -> HashSet<Pid> {
    let mut children: BTreeMap<i32, Vec<Pid>> = BTreeMap::new();
    let mut found = Vec::new();
    for pid in table::pids() {
        let Some(stat) = table::stat(pid) else { continue };
        if pid == getpid() || spared.is(pid, stat.begun) || stat.has_ended() {
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
