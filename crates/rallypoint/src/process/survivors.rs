//! Processes that are left in a process group after its leader was reaped.

use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process_group};

use super::table;
use crate::util::backoff::Backoff;

/// The pause between two checks. The processes are not children of this process, so there is no event to wait for.
const POLL: Backoff =
    Backoff::new(Duration::from_millis(1), Duration::from_millis(50)).without_jitter();

/// Blocks until no process is left in the group of this leader, which was reaped.
///
/// The kernel does not reuse a group's number while the group exists, and assigns numbers in turn, so the number is not
/// reused between two checks.
pub(super) fn wait_until_gone(leader: Pid) {
    let mut poll = POLL;
    let mut member = leader;
    while let Some(found) = find(leader, member) {
        member = found;
        std::thread::sleep(poll.next_delay());
    }
}

/// A live process of the group, if there is one; preferably `last`, the one that was found before.
///
/// For the kernel, zombies belong to the group, and in many containers nothing reaps them. So each process is
/// checked: first `last` alone, and all processes of the host only when it is gone.
pub(super) fn find(leader: Pid, last: Pid) -> Option<Pid> {
    if test_kill_process_group(leader) == Err(Errno::SRCH) {
        return None;
    }
    if is_member(leader, last) {
        return Some(last);
    }
    table::pids().into_iter().find(|pid| is_member(leader, *pid))
}

/// Whether the process lives and belongs to this group.
fn is_member(leader: Pid, pid: Pid) -> bool {
    let group = leader.as_raw_nonzero().get();
    table::stat(pid).is_some_and(|stat| !stat.has_ended() && stat.group == group)
}
