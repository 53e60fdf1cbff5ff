//! Which shell a worker is at its gate, so that it finds everything in its environment that we found in ours.
//!
//! Most shells drop variables whose names they could not write, such as the functions that a cluster's `module`
//! command is made of. Values never go by way of arguments: everybody on the host can read those.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use super::search;
use crate::process::Shell;

/// The one for our environment. If there is none, says what the workers will miss. Blocks on the disk.
pub(super) fn shell() -> Shell {
    let names = env::vars_os().map(|(name, _)| name).filter(|name| !is_shell_name(name));
    choose(&names.collect::<Vec<_>>(), env::var_os("PATH").as_deref())
}

/// `dropped` are the names that most shells drop, `path` is where another one is searched.
fn choose(dropped: &[OsString], path: Option<&OsStr>) -> Shell {
    if dropped.is_empty() {
        return Shell::Usual;
    }
    if search::check("bash".as_ref(), path).is_ok() {
        return Shell::Bash;
    }
    tracing::warn!(
        names = ?dropped,
        "the workers may not see these variables: without bash, only names of letters, digits and _ are handed on"
    );
    Shell::Usual
}

fn is_shell_name(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
        && !bytes.first().is_none_or(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::console::tests::said;

    #[test]
    fn names_that_a_shell_can_write() {
        for (name, expected) in
            [("A", true), ("_a1", true), ("", false), ("1a", false), ("a.b", false), ("f%%", false)]
        {
            assert_eq!(is_shell_name(name.as_ref()), expected, "{name}");
        }
    }

    #[test]
    fn without_bash_it_is_said_what_the_workers_miss() {
        let path = env::var_os("PATH");
        let odd = ["a.b".into(), "BASH_FUNC_module%%".into()];
        let quiet = said(|| {
            assert_eq!(choose(&[], Some("/nowhere".as_ref())), Shell::Usual);
            assert_eq!(choose(&odd, path.as_deref()), Shell::Bash);
        });
        assert_eq!(quiet, "");
        let text = said(|| assert_eq!(choose(&odd, Some("/nowhere".as_ref())), Shell::Usual));
        assert!(text.contains("a.b") && text.contains("BASH_FUNC_module%%"), "{text}");
    }
}
