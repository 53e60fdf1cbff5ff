//! Reads from a guard, detects its end, and replaces it.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::sync::{Arc, Weak};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use super::message::GuardReport;
use super::{GuardHandle, RunningGuard};
use crate::log_target::PROCESS;
use crate::process::link::{self, ReceiveMode, Received};
use crate::util::backoff::Backoff;

/// A killed guard is replaced at once, unless it lived no longer than this.
const SHORT_LIFE: Duration = Duration::from_secs(1);

/// The backoff between attempts to replace a guard.
const RESTART_BACKOFF: Backoff =
    Backoff::new(Duration::from_millis(20), Duration::from_secs(5)).without_jitter();

/// Watches a guard, in a thread that ends with it.
pub(super) fn watch(
    handle: &Arc<GuardHandle>,
    running: &RunningGuard,
    mut child: Child,
) -> io::Result<()> {
    let (handle, number) = (Arc::downgrade(handle), running.number);
    let (link, wake) = (running.link.clone(), running.wake.clone());
    let thread = thread::Builder::new().name("guard".to_owned());
    let started = thread.spawn(move || {
        let begun = Instant::now();
        let is_ours = read_reports(&handle, number, &link, &wake);
        // The guard must not run beside its replacement.
        let _ = child.kill();
        let was_killed = child.wait().is_ok_and(|status| status.signal().is_some());
        let pause = begun.elapsed() < SHORT_LIFE;
        replace(&handle, number, is_ours && was_killed, pause);
    });
    started.map(|_| ())
}

/// Reads reports until the guard has ended, which returns true, or sends an unknown one, which returns false.
fn read_reports(handle: &Weak<GuardHandle>, number: u64, link: &OwnedFd, wake: &OwnedFd) -> bool {
    loop {
        let owes = with(handle, number, |_, running| running.fence_unsent).unwrap_or_default();
        let wanted = if owes { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let mut watched = [PollFd::new(link, wanted), PollFd::new(wake, PollFlags::IN)];
        let _ = poll(&mut watched, None);
        let has_room = watched[0].revents().contains(PollFlags::OUT);
        let _ = rustix::io::read(wake, &mut [0; 8]);
        match link::receive(link, ReceiveMode::NonBlocking) {
            Received::End => return true,
            Received::Message(bytes, _) => match GuardReport::decode(&bytes) {
                Some(news) => take(handle, number, &news),
                None => return false,
            },
            Received::Nothing => {}
        }
        if has_room && let Some(handle) = handle.upgrade() {
            let mut state = handle.lock();
            if state.running.as_ref().is_some_and(|running| running.number == number) {
                state.tell_fence();
            }
        }
    }
}

fn take(handle: &Weak<GuardHandle>, number: u64, news: &GuardReport) {
    match news {
        GuardReport::Hello => {
            with(handle, number, |handle, running| {
                running.has_begun = true;
                handle.changed.notify_all();
            });
        }
        GuardReport::Fenced(at) => {
            let Some(handle) = handle.upgrade() else { return };
            // The guard repeats the report while the fence is in the past.
            if handle.lock().fenced.replace(*at) != Some(*at) {
                tracing::error!(
                    target: PROCESS,
                    "the guard has killed the workers: this process did not renew its lease in time, because it \
                     was suspended or could not reach the server"
                );
            }
        }
    }
}

/// Calls `then` with the running guard, if it is still the guard of this start.
fn with<T>(
    handle: &Weak<GuardHandle>,
    number: u64,
    then: impl FnOnce(&GuardHandle, &mut RunningGuard) -> T,
) -> Option<T> {
    let handle = handle.upgrade()?;
    let mut state = handle.lock();
    let running = state.running.as_mut().filter(|running| running.number == number)?;
    Some(then(&handle, running))
}

/// Replaces a guard that has ended, unless it was replaced already. A program that exits before it has identified
/// itself is not a guard, and is not started again.
fn replace(handle: &Weak<GuardHandle>, number: u64, was_killed: bool, pauses: bool) {
    let was_one = {
        let Some(handle) = handle.upgrade() else { return };
        let mut state = handle.lock();
        let gone = state.running.take_if(|running| running.number == number);
        handle.changed.notify_all();
        gone.is_none_or(|running| running.has_begun || was_killed)
    };
    if !was_one {
        tracing::error!(
            target: PROCESS,
            "the guard ended before it was ready: child processes may outlive this process"
        );
        return;
    }
    let mut backoff = RESTART_BACKOFF;
    if pauses {
        sleep(RESTART_BACKOFF.delay(0, 0.0));
    }
    loop {
        let Some(handle) = handle.upgrade() else { return };
        let mut state = handle.lock();
        // A message has meanwhile started a guard, or failed to, which ends the attempts.
        if state.starts != number || !state.has_entries() {
            return;
        }
        tracing::warn!(target: PROCESS, "the guard was killed; starting another");
        match handle.start(&mut state) {
            Ok(()) => return,
            Err(error) => {
                tracing::error!(
                    target: PROCESS,
                    %error, "cannot start a guard: child processes may outlive this process"
                );
            }
        }
        drop(state);
        sleep(backoff.next_delay());
    }
}
