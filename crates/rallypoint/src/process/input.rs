//! The standard input of a child, which may be a terminal.
//!
//! A child leads a process group of its own, and the kernel stops a background group that reads from its terminal. So
//! the child's group is put into the foreground before it starts, and this process's group when it has ended. Meanwhile
//! Ctrl-C reaches the child alone. Ctrl-Z is turned off: nothing would resume a stopped child.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::sys::signal::{SigSet, Signal};
use rustix::process::{Pid, getpgrp};
use rustix::termios::{
    OptionalActions, SpecialCodeIndex, Termios, isatty, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp,
};

use crate::log_target::PROCESS;

/// A character that no key produces.
const DISABLED: u8 = 0;

/// This process's standard input, for a child. Dropping it takes the terminal back.
#[derive(Debug)]
pub(crate) struct StandardInput {
    input: OwnedFd,
    /// The terminal's settings before, if this process was in its foreground.
    terminal: Option<Termios>,
}

impl StandardInput {
    /// The standard input of this process.
    pub(crate) fn inherited() -> io::Result<Self> {
        let input = io::stdin().as_fd().try_clone_to_owned()?;
        let is_ours = isatty(&input) && tcgetpgrp(&input).is_ok_and(|group| group == getpgrp());
        let terminal = if is_ours { tcgetattr(&input).ok() } else { None };
        Ok(Self { input, terminal })
    }

    /// Whether the input is a terminal with this process in its foreground.
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal.is_some()
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.input.as_fd()
    }

    /// Puts a group into the foreground of the terminal.
    pub(super) fn give_to(&self, group: Pid) -> io::Result<()> {
        let Some(before) = &self.terminal else { return Ok(()) };
        let mut termios = before.clone();
        termios.special_codes[SpecialCodeIndex::VSUSP] = DISABLED;
        with_ttou_blocked(|| {
            tcsetattr(&self.input, OptionalActions::Now, &termios)?;
            Ok(tcsetpgrp(&self.input, group)?)
        })
    }

    /// Puts this process's group into the foreground again and restores the terminal's settings, which a killed child
    /// has not restored.
    pub(crate) fn take_back(&self) {
        let Some(before) = &self.terminal else { return };
        let taken = with_ttou_blocked(|| {
            tcsetpgrp(&self.input, getpgrp())?;
            Ok(tcsetattr(&self.input, OptionalActions::Now, before)?)
        });
        if let Err(error) = taken {
            tracing::debug!(target: PROCESS, %error, "cannot restore the terminal");
        }
    }
}

impl Drop for StandardInput {
    fn drop(&mut self) {
        self.take_back();
    }
}

/// Changes a terminal with SIGTTOU blocked, which would otherwise stop a background process.
fn with_ttou_blocked<T>(work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let stop = SigSet::from(Signal::SIGTTOU);
    let before = stop.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK)?;
    let done = work();
    before.thread_set_mask()?;
    done
}
