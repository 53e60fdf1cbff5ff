//! The parts that this program plays for itself when it is started again.

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use super::{gate, guard, program};

/// A part, by its name in a list of processes and its place on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HelperRole {
    /// Ends what its parent leaves behind.
    Guard,
    /// Waits to be guarded, and becomes another program.
    Gate,
}

impl HelperRole {
    /// Short, and not that of the program: whoever ends all `rallypoint` by their name does not mean it.
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

/// To be called first in `main`, by a program that starts children with this library.
///
/// The library starts the same program again for two small tasks: a *guard*, which ends the children when the
/// program is killed, and a *gate* before each child. This sees by the first argument whether the process is
/// one of them. Then it does that task to its end, and `main` is to return what it returns. Otherwise it
/// returns nothing, at once, and the program goes on.
///
/// A program that does not call it needs a `rallypoint` command of the same version to play those parts: named
/// by `RALLYPOINT_BINARY`, beside the program, in the directory above, or in the `PATH`.
///
/// ```
/// use std::process::ExitCode;
///
/// fn main() -> ExitCode {
///     if let Some(code) = rallypoint::process::reexecuted() {
///         return code;
///     }
///     // What the program is for.
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

/// The same for a program that has its arguments from elsewhere, and was [registered](super::register): those
/// after the program's name. The exit code is a number.
pub fn helper(arguments: impl IntoIterator<Item = OsString>) -> Option<u8> {
    let mut arguments = arguments.into_iter();
    let first = arguments.next()?;
    let is = |part: HelperRole| first == OsStr::new(part.argument());
    if is(HelperRole::Guard) {
        return Some(guard::stand(arguments));
    }
    is(HelperRole::Gate).then(|| gate::stand(arguments))
}
