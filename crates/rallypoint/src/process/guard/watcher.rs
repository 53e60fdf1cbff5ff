//! Hears from a guard, sees its end at once, and sees to the next.

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
use crate::process::link::{self, Received, Way};

/// A guard that was killed is replaced at once, unless it has lived for no longer than this.
const SHORT_LIFE: Duration = Duration::from_secs(1);

/// Between attempts to have one again.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LAST_PAUSE: Duration = Duration::from_secs(5);

/// Watches over a guard, in a thread of its own that ends with it.
pub(super) fn watch(
    keeper: &Arc<GuardHandle>,
    running: &RunningGuard,
    mut child: Child,
) -> io::Result<()> {
    let (keeper, number) = (Arc::downgrade(keeper), running.number);
    let (link, wake) = (running.link.clone(), running.wake.clone());
    let thread = thread::Builder::new().name("guard".to_owned());
    let started = thread.spawn(move || {
        let begun = Instant::now();
        let is_ours = hear(&keeper, number, &link, &wake);
        // It is not to be there beside another, whatever it is.
        let _ = child.kill();
        let was_killed = child.wait().is_ok_and(|status| status.signal().is_some());
        let pause = begun.elapsed() < SHORT_LIFE;
        replace(&keeper, number, is_ours && was_killed, pause);
    });
    started.map(|_| ())
}

/// Until the guard is gone, or has said what no guard of ours says.
fn hear(keeper: &Weak<GuardHandle>, number: u64, link: &OwnedFd, wake: &OwnedFd) -> bool {
    loop {
        let owes = with(keeper, number, |_, running| running.owes_fence).unwrap_or_default();
        let wanted = if owes { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let mut watched = [PollFd::new(link, wanted), PollFd::new(wake, PollFlags::IN)];
        let _ = poll(&mut watched, None);
        let has_room = watched[0].revents().contains(PollFlags::OUT);
        let _ = rustix::io::read(wake, &mut [0; 8]);
        match link::receive(link, Way::Look) {
            Received::End => return true,
            Received::Message(bytes, _) => match GuardReport::decode(&bytes) {
                Some(news) => take(keeper, number, &news),
                None => return false,
            },
            Received::Nothing => {}
        }
        if has_room && let Some(keeper) = keeper.upgrade() {
            let mut state = keeper.lock();
            if state.running.as_ref().is_some_and(|running| running.number == number) {
                state.tell_fence();
            }
        }
    }
}

fn take(keeper: &Weak<GuardHandle>, number: u64, news: &GuardReport) {
    match news {
        GuardReport::Hello => {
            with(keeper, number, |keeper, running| {
                running.has_begun = true;
                keeper.changed.notify_all();
            });
        }
        GuardReport::Fenced(at) => {
            let Some(keeper) = keeper.upgrade() else { return };
            // It says so as long as it is so.
            if keeper.lock().fenced.replace(*at) != Some(*at) {
                tracing::error!(
                    target: PROCESS,
                    "the guard has killed the workers: this process did not say in time that its lease was \
                     renewed, because it stood still or could not reach the server"
                );
            }
        }
    }
}

/// If it is still the one in force.
fn with<T>(
    keeper: &Weak<GuardHandle>,
    number: u64,
    then: impl FnOnce(&GuardHandle, &mut RunningGuard) -> T,
) -> Option<T> {
    let keeper = keeper.upgrade()?;
    let mut state = keeper.lock();
    let running = state.running.as_mut().filter(|running| running.number == number)?;
    Some(then(&keeper, running))
}

/// Starts another in the place of one that is gone, unless somebody has. One that has ended by itself before it
/// began was none, and another would be none either.
fn replace(keeper: &Weak<GuardHandle>, number: u64, was_killed: bool, pauses: bool) {
    let was_one = {
        let Some(keeper) = keeper.upgrade() else { return };
        let mut state = keeper.lock();
        let gone = state.running.take_if(|running| running.number == number);
        keeper.changed.notify_all();
        gone.is_none_or(|running| running.has_begun || was_killed)
    };
    if !was_one {
        tracing::error!(
            target: PROCESS,
            "the guard ended before it began: what this process starts may outlive it"
        );
        return;
    }
    let mut pause = FIRST_PAUSE;
    if pauses {
        sleep(pause);
    }
    loop {
        let Some(keeper) = keeper.upgrade() else { return };
        let mut state = keeper.lock();
        // Whoever had something to say meanwhile has started one, or tried to, and then that is the last.
        if state.starts != number || !state.has_duties() {
            return;
        }
        tracing::warn!(target: PROCESS, "the guard was killed; starting another");
        match keeper.start(&mut state) {
            Ok(()) => return,
            Err(error) => {
                tracing::error!(
                    target: PROCESS,
                    %error, "there is no guard: what this process started may outlive it"
                );
            }
        }
        drop(state);
        sleep(pause);
        pause = (pause * 2).min(LAST_PAUSE);
    }
}
