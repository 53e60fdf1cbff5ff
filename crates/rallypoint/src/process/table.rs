//! The process table of this host, from `/proc`.

#[cfg(feature = "cli")]
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use rustix::process::Pid;

/// The fields of `/proc/<pid>/stat` that this module uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) state: u8,
    pub(super) parent: i32,
    pub(super) group: i32,
    /// The start time, which tells processes with the same number apart.
    pub(super) begun: u64,
}

impl Stat {
    /// Whether the process is a zombie.
    pub(super) fn has_ended(self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }
}

/// All process ids, in no order.
pub(super) fn pids() -> Vec<Pid> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let pid = |entry: fs::DirEntry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?);
    processes.flatten().filter_map(pid).collect()
}

/// The state of a process, if it exists.
pub(super) fn stat(pid: Pid) -> Option<Stat> {
    parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// Parses the fields after the process name, which may contain any character.
fn parse(stat: &[u8]) -> Option<Stat> {
    let name_ends = stat.iter().rposition(|byte| *byte == b')')?;
    let mut fields = str::from_utf8(&stat[name_ends + 1..]).ok()?.split_ascii_whitespace();
    Some(Stat {
        state: *fields.next()?.as_bytes().first()?,
        parent: fields.next()?.parse().ok()?,
        group: fields.next()?.parse().ok()?,
        begun: fields.nth(16)?.parse().ok()?,
    })
}

/// Whether there is a process with this id that has not ended.
#[cfg(feature = "cli")]
pub(crate) fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.and_then(stat).is_some_and(|stat| !stat.has_ended())
}

/// A live process of a process group.
#[cfg(feature = "cli")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupMember {
    pub(crate) pid: u32,
    pub(crate) parent: u32,
}

/// The live processes of these groups, by group.
#[cfg(feature = "cli")]
pub(crate) fn group_members(groups: &BTreeSet<u32>) -> BTreeMap<u32, Vec<GroupMember>> {
    let mut members: BTreeMap<u32, Vec<GroupMember>> = BTreeMap::new();
    for pid in pids() {
        let Some(stat) = stat(pid).filter(|stat| !stat.has_ended()) else { continue };
        let group = stat.group.unsigned_abs();
        if groups.contains(&group) {
            let pid = pid.as_raw_nonzero().get().unsigned_abs();
            let member = GroupMember { pid, parent: stat.parent.unsigned_abs() };
            members.entry(group).or_default().push(member);
        }
    }
    members
}

#[cfg(test)]
mod tests {
    use rustix::process::{getpgrp, getpid, getppid};

    use super::*;

    #[test]
    fn the_fields_after_the_process_name_are_parsed() {
        let stat = b"4 (a) Z 9) \xff) S 1 4321 17 0 -1 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20";
        let expected = Stat { state: b'S', parent: 1, group: 4321, begun: 777 };
        assert_eq!(parse(stat), Some(expected));
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"4 (a) S 1 2"), None);
    }

    #[test]
    fn this_process_is_in_the_table() {
        let here = stat(getpid()).unwrap();
        let raw = |pid: Pid| pid.as_raw_nonzero().get();
        assert_eq!((here.parent, here.group), (getppid().map_or(0, raw), raw(getpgrp())));
        assert!(!here.has_ended() && here.begun > 0 && pids().contains(&getpid()));
    }
}
