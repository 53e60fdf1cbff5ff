//! The program of a guard or a gate: this one again, or a `rallypoint` command.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{PoisonError, RwLock};

use rustix::fs::{Access, access};

use super::entry::HelperRole;

/// The variable with the path of a `rallypoint` command, for other programs that use the library.
const VARIABLE: &str = "RALLYPOINT_BINARY";

/// The running program, even if its file was replaced or removed meanwhile.
const SELF: &str = "/proc/self/exe";

static REGISTERED: RwLock<Option<Vec<OsString>>> = RwLock::new(None);

/// Registers the command that starts this program again: a program with its first arguments, which calls
/// [`helper`](super::helper) with the arguments that follow.
///
/// A program that begins with [`reexecuted`](super::reexecuted) need not call this. Only a registered program,
/// or one named `rallypoint`, is ever started as a guard.
pub fn register(command: impl IntoIterator<Item = OsString>) {
    let command: Vec<OsString> = command.into_iter().collect();
    let known = (!command.is_empty()).then_some(command);
    *REGISTERED.write().unwrap_or_else(PoisonError::into_inner) = known;
}

/// Registers this program, which has just called [`reexecuted`](super::reexecuted).
pub(super) fn register_self() {
    register([SELF.into()]);
}

/// Whether the program is registered. One that was only found may have another version.
pub(super) fn is_registered() -> bool {
    REGISTERED.read().unwrap_or_else(PoisonError::into_inner).is_some()
}

/// The command of this helper role. The role's arguments follow.
pub(super) fn command(part: HelperRole) -> io::Result<Command> {
    let registered = REGISTERED.read().unwrap_or_else(PoisonError::into_inner).clone();
    let words = match registered {
        Some(words) => words,
        None => vec![find(&places())?.into_os_string()],
    };
    let mut command = Command::new(&words[0]);
    if words[0] == SELF {
        // Not `/proc/self/exe`, which means another file to other processes.
        command.arg0(part.name());
    }
    command.args(&words[1..]).arg(part.argument());
    Ok(command)
}

/// The paths where a `rallypoint` command may be, the most certain first.
fn places() -> Vec<PathBuf> {
    if let Some(named) = env::var_os(VARIABLE).filter(|named| !named.is_empty()) {
        return vec![named.into()];
    }
    // Beside this program, and above: cargo puts tests and examples into directories below its programs.
    let here = env::current_exe().unwrap_or_default();
    let beside = here.ancestors().skip(1).take(2).map(Path::to_owned);
    let path = env::var_os("PATH").unwrap_or_default();
    let searched = beside.chain(env::split_paths(&path));
    searched.filter(|place| place.is_absolute()).map(|place| place.join("rallypoint")).collect()
}

fn find(places: &[PathBuf]) -> io::Result<PathBuf> {
    let is_program = |path: &&PathBuf| path.is_file() && access(*path, Access::EXEC_OK).is_ok();
    if let Some(found) = places.iter().find(is_program) {
        return std::path::absolute(found);
    }
    let searched: Vec<String> = places.iter().map(|place| format!("{place:?}")).collect();
    let text = format!(
        "there is no program for the guard of child processes: a program that starts children calls \
         rallypoint::process::reexecuted() first in its main, or needs a `rallypoint` command, which was \
         searched as {}; name one in {VARIABLE}",
        searched.join(", ")
    );
    Err(io::Error::new(io::ErrorKind::NotFound, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_executable_is_skipped_and_the_error_names_the_remedies() {
        let root = tempfile::tempdir().unwrap();
        let text = root.path().join("rallypoint");
        std::fs::write(&text, "no program").unwrap();
        let error = find(&[text.clone(), "/nowhere/rallypoint".into()]).unwrap_err().to_string();
        for words in ["/nowhere/rallypoint", "reexecuted()", "RALLYPOINT_BINARY"] {
            assert!(error.contains(words), "{error}");
        }
        let program = find(&[text, "/bin/sh".into()]).unwrap();
        assert_eq!(program, Path::new("/bin/sh"));
    }
}
