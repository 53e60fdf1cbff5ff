//! The exec gate: a process that waits for a go message before it executes the program that it was started for.
//!
//! Before the message, the guard may not know the process. If the launcher is killed first, the message never arrives,
//! and the program never starts. The program inherits the gate's environment, and the descriptors in the message.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

use super::entry::HelperRole;
use super::link::{self, ReceiveMode, Received};
use super::{descriptors, program, signals};

/// The go message. The program's descriptor limit follows it, if it differs from the gate's.
const GO: &[u8] = b"go";

/// The end of the message, if its first descriptor is the program's standard input.
const INPUT: &[u8] = b" input";

/// A shell's exit codes for a file that cannot be executed, and for no file.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// The exit code without a go message.
const CLOSED: u8 = 1;

/// Signals that programs rely on, and that a scheduler, a shell's `&` or Python may have left ignored. Not SIGHUP:
/// `nohup` is meant for the workers too.
const EXPECTED: [Signal; 8] = [
    Signal::INT,
    Signal::QUIT,
    Signal::TERM,
    Signal::CHILD,
    Signal::ALARM,
    Signal::USR1,
    Signal::USR2,
    Signal::XFSZ,
];

/// The command of a gate before this program. The program's arguments follow.
pub(super) fn command(program: OsString) -> io::Result<Command> {
    let mut command = program::command(HelperRole::Gate)?;
    command.arg(program).process_group(0);
    Ok(command)
}

/// The launcher's side of a gate.
#[derive(Debug)]
pub(super) struct ExecGate(OwnedFd);

impl ExecGate {
    /// Attaches a gate to a command that is not started yet.
    pub(super) fn before(command: &mut Command) -> io::Result<Self> {
        let (ours, theirs) = link::pair()?;
        command.stdin(theirs);
        Ok(Self(ours))
    }

    /// Lets the process execute its program, which keeps these descriptors open until it ends, and gets a standard
    /// input if there is one.
    pub(super) fn open(
        self,
        descriptors: &[BorrowedFd<'_>],
        input: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let limit = descriptors::of_children().map(|soft| soft.to_string()).unwrap_or_default();
        let input_word = if input.is_some() { INPUT } else { b"" };
        let word = [GO, limit.as_bytes(), input_word].concat();
        let all: Vec<BorrowedFd<'_>> =
            input.into_iter().chain(descriptors.iter().copied()).collect();
        Ok(link::send(self.0, &word, &all)?)
    }
}

/// The body of the gate process.
pub(super) fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let mut arguments = arguments.into_iter();
    let Some(program) = arguments.next() else { return CLOSED };
    // The descriptors of the message stay open in the program.
    let received = link::receive(io::stdin().as_fd(), ReceiveMode::BlockAndInherit);
    let Received::Message(word, mut held) = received else { return CLOSED };
    let Some(limit) = word.strip_prefix(GO) else { return CLOSED };
    let (limit, input) = match limit.strip_suffix(INPUT) {
        Some(limit) if !held.is_empty() => (limit, Stdio::from(held.remove(0))),
        _ => (limit, Stdio::null()),
    };
    if let Some(soft) = std::str::from_utf8(limit).ok().and_then(|limit| limit.parse().ok()) {
        descriptors::lower_to(soft);
    }
    let _handled = expect_signals();
    let error = Command::new(&program).args(arguments).stdin(input).exec();
    let _ = writeln!(io::stderr(), "rallypoint: cannot execute {program:?}: {error}");
    match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    }
}

/// Restores the default action of signals that should not be ignored.
///
/// `exec` resets a signal with a handler to its default action, and setting a handler is all
/// that is possible without `unsafe` code. Other signals stay as they are.
fn expect_signals() -> Option<impl Sized> {
    let wanted: Vec<Signal> =
        EXPECTED.into_iter().filter(|one| signals::is_ignored(*one)).collect();
    if wanted.is_empty() {
        return None;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().ok()?;
    let entered = runtime.enter();
    let handled: Vec<_> =
        wanted.into_iter().map(|one| signal(SignalKind::from_raw(one.as_raw()))).collect();
    drop(entered);
    Some((runtime, handled))
}
