//! Who is left in a process group without its leader.

use std::fs;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process_group};

/// Between two looks: there is nothing to watch, since they are children of somebody else now.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LAST_PAUSE: Duration = Duration::from_millis(50);

/// Blocks until nobody is left in the group of this leader, which was reaped.
///
/// A number is not given away while a group has it, and they are given in turn, so that it does not come
/// round between two looks.
pub(super) fn wait_until_gone(leader: Pid) {
    let mut pause = FIRST_PAUSE;
    let mut member = leader;
    while let Some(found) = anybody(leader, member) {
        member = found;
        std::thread::sleep(pause);
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

/// A living member of the group, if there is one; the one that was seen last, if it is still there.
///
/// The kernel counts those that have ended and wait to be reaped. In many containers nobody does, so they
/// are told apart: by a look at that one, and at all processes only when it is gone.
fn anybody(leader: Pid, last: Pid) -> Option<Pid> {
    if test_kill_process_group(leader) == Err(Errno::SRCH) {
        return None;
    }
    if is_member(leader, last) {
        return Some(last);
    }
    let Ok(processes) = fs::read_dir("/proc") else { return Some(last) };
    let pid = |entry: fs::DirEntry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?);
    processes.flatten().filter_map(pid).find(|pid| is_member(leader, *pid))
}

/// Whether the process lives, and in this group.
fn is_member(leader: Pid, pid: Pid) -> bool {
    let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    state_and_group(&stat).is_some_and(|(state, group)| {
        !matches!(state, "Z" | "X") && group == leader.as_raw_nonzero().get()
    })
}

/// What stands behind the name, which may hold anything: the state, the parent, the group.
fn state_and_group(stat: &[u8]) -> Option<(&str, i32)> {
    let name_ends = stat.iter().rposition(|byte| *byte == b')')?;
    let mut fields = str::from_utf8(&stat[name_ends + 1..]).ok()?.split_ascii_whitespace();
    Some((fields.next()?, fields.nth(1)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_what_follows_its_name() {
        let stat = b"4 (a) Z 9) \xff) S 1 4321 17 0";
        assert_eq!(state_and_group(stat), Some(("S", 4321)));
        assert_eq!(state_and_group(b""), None);
        assert_eq!(state_and_group(b"4 (a) S"), None);
    }
}
