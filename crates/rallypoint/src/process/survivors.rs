//! Who is left in a process group without its leader.

use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process_group};

use super::table;

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
pub(super) fn anybody(leader: Pid, last: Pid) -> Option<Pid> {
    if test_kill_process_group(leader) == Err(Errno::SRCH) {
        return None;
    }
    if is_member(leader, last) {
        return Some(last);
    }
    table::pids().into_iter().find(|pid| is_member(leader, *pid))
}

/// Whether the process lives, and in this group.
fn is_member(leader: Pid, pid: Pid) -> bool {
    let group = leader.as_raw_nonzero().get();
    table::stat(pid).is_some_and(|stat| !stat.has_ended() && stat.group == group)
}
