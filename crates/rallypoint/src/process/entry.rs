//! The helper roles of this program when it starts itself again.

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use super::{gate, guard, program};

/// A helper role, with its process name and its command-line argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HelperRole {
    /// Kills the processes that its parent leaves behind.
    Guard,
    /// Waits until it is guarded, and then executes another program.
    Gate,
}

impl HelperRole {
    /// The process name. Not `rallypoint`, so that `pkill rallypoint` does not kill the guard.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Guard => "rp-guard",
            Self::Gate => "rp-gate",
        }
    }

    pub(super) fn argument(self) -> &'static str {
        match self {
            Self::Guard => "__guard",
            Self::Gate => "__gate",
        }
    }
}

/// Runs a helper role, if this process was started for one. Call it first in `main`, in a program that starts children
/// with this library.
///
/// The library starts the same program again for two small tasks: a *guard*, which ends the children when the
/// program is killed, and a *gate* before each child. The first argument tells whether this process is
/// one of them. If so, this function completes the task, and `main` must return its exit code. Otherwise it
/// returns `None` at once.
///
/// A program that does not call it needs a `rallypoint` command of the same version for these roles: named
/// by `RALLYPOINT_BINARY`, beside the program, in the directory above, or in the `PATH`.
///
/// ```
/// use std::process::ExitCode;
///
/// fn main() -> ExitCode {
///     if let Some(code) = rallypoint::process::reexecuted() {
///         return code;
///     }
///     // The program's own work.
///     ExitCode::SUCCESS
/// }
/// ```
#[must_use = "main is to return it"]
pub fn reexecuted() -> Option<ExitCode> {
    let done = helper(std::env::args_os().skip(1));
    if done.is_none() {
        program::register_self();
    }
    done.map(ExitCode::from)
}

/// [`reexecuted`] for a [registered](super::register) program that gets its arguments from elsewhere: `arguments` are
/// those after the program's name. The exit code is a number.
pub fn helper(arguments: impl IntoIterator<Item = OsString>) -> Option<u8> {
    let mut arguments = arguments.into_iter();
    let first = arguments.next()?;
    let is = |part: HelperRole| first == OsStr::new(part.argument());
    if is(HelperRole::Guard) {
        return Some(guard::run(arguments));
    }
    is(HelperRole::Gate).then(|| gate::run(arguments))
}
