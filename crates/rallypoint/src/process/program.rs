//! Which program is started for a guard or a gate: this one again, or a `rallypoint` that was found.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{PoisonError, RwLock};

use rustix::fs::{Access, access};

use super::entry::HelperRole;

/// Names a `rallypoint` command for programs that are none themselves.
const VARIABLE: &str = "RALLYPOINT_BINARY";

/// The program that runs, even if its file was replaced or removed meanwhile.
const SELF: &str = "/proc/self/exe";

static REGISTERED: RwLock<Option<Vec<OsString>>> = RwLock::new(None);

/// Says how this program is started again: a program with its first arguments, such that it comes to
/// [`helper`](super::helper) with those that follow.
///
/// A program that begins with [`reexecuted`](super::reexecuted) need not. Nothing that was not registered,
/// or found under the name of `rallypoint`, is ever started for a guard.
pub fn register(command: impl IntoIterator<Item = OsString>) {
    let command: Vec<OsString> = command.into_iter().collect();
    let known = (!command.is_empty()).then_some(command);
    *REGISTERED.write().unwrap_or_else(PoisonError::into_inner) = known;
}

/// This program, which has just called [`reexecuted`](super::reexecuted).
pub(super) fn register_self() {
    register([SELF.into()]);
}

/// Whether it is known what is started. What was only found may be of another version.
pub(super) fn is_registered() -> bool {
    REGISTERED.read().unwrap_or_else(PoisonError::into_inner).is_some()
}

/// The command that plays this part. The arguments of the part are to follow.
pub(super) fn command(part: HelperRole) -> io::Result<Command> {
    let registered = REGISTERED.read().unwrap_or_else(PoisonError::into_inner).clone();
    let words = match registered {
        Some(words) => words,
        None => vec![find(&places())?.into_os_string()],
    };
    let mut command = Command::new(&words[0]);
    if words[0] == SELF {
        // Not the name of a file that is none to others.
        command.arg0(part.name());
    }
    command.args(&words[1..]).arg(part.argument());
    Ok(command)
}

/// Where a `rallypoint` may be, the most certain place first.
fn places() -> Vec<PathBuf> {
    if let Some(named) = env::var_os(VARIABLE).filter(|named| !named.is_empty()) {
        return vec![named.into()];
    }
    // Beside us, and above: cargo has its tests and examples in directories beside its programs.
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
        "there is no program to guard children with: a program that starts any either calls \
         rallypoint::process::reexecuted() first in its main, or needs a `rallypoint` command, which was \
         searched as {}; {VARIABLE} names another",
        searched.join(", ")
    );
    Err(io::Error::new(io::ErrorKind::NotFound, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_program_is_not_taken_and_the_error_names_the_remedies() {
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
