//! The gate: a process that waits for one word before it becomes the program that it was started for.
//!
//! Until then the guard may not have heard of it. If we are killed first, the word never comes, and nothing was
//! started. It hands on its environment as it is, and the descriptors that come with the word.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

use super::entry::HelperRole;
use super::link::{self, Received, Way};
use super::{descriptors, program, signals};

/// The word. What follows it is the limit of descriptors that the program is to have, if it is not the gate's.
const GO: &[u8] = b"go";

/// The end of the word, if the first descriptor that comes with it is the program's standard input.
const INPUT: &[u8] = b" input";

/// As with a shell: what is there cannot be executed; there is nothing.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Nobody has let it through.
const CLOSED: u8 = 1;

/// What a program expects to end it, or to tell of its children, and what a scheduler, a shell's `&` or Python
/// may have left ignored. Not SIGHUP: whoever uses `nohup` means the workers too.
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

/// The command of a gate before this program, whose arguments are to follow.
pub(super) fn command(program: OsString) -> io::Result<Command> {
    let mut command = program::command(HelperRole::Gate)?;
    command.arg(program).process_group(0);
    Ok(command)
}

/// Our side of a gate.
#[derive(Debug)]
pub(super) struct ExecGate(OwnedFd);

impl ExecGate {
    /// To be given to a command before it is started.
    pub(super) fn before(command: &mut Command) -> io::Result<Self> {
        let (ours, theirs) = link::pair()?;
        command.stdin(theirs);
        Ok(Self(ours))
    }

    /// Lets the process become its program, which has these descriptors open until it ends, and perhaps a standard
    /// input.
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

/// What the process itself does.
pub(super) fn stand(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let mut arguments = arguments.into_iter();
    let Some(program) = arguments.next() else { return CLOSED };
    // What comes with the word is open until this process is another program, and then that one's.
    let received = link::receive(io::stdin().as_fd(), Way::WaitAndHandOn);
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

/// Lets the program begin with the usual effect of those signals that are ignored and should not be.
///
/// A signal that has a handler has its usual effect again in the next program, and setting a handler is all
/// that can be done without `unsafe` code. Those that are not expected stay as they are.
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
