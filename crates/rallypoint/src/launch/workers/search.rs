//! Looks up a program as a shell does, so that an error can name the searched places.

use std::ffi::OsStr;

use super::error::StartError;
use crate::util::program::{SearchError, candidates, first_executable};

/// Checks that the program can be executed. `path` is the value of `PATH`.
pub(super) fn check(program: &OsStr, path: Option<&OsStr>) -> Result<(), StartError> {
    match first_executable(candidates(program, path)) {
        Ok(_) => Ok(()),
        Err(SearchError::NotExecutable { path, source }) => {
            Err(StartError::NotExecutable { path, source })
        }
        Err(SearchError::NotFound { searched }) => {
            Err(StartError::NotFound { program: program.to_owned(), searched })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_program_is_found_or_the_error_says_where_it_was_searched() {
        let root = tempfile::tempdir().unwrap();
        for (name, mode) in [("a/plain", 0o644), ("b/plain", 0o755), ("a/text", 0o644)] {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::create_dir(root.path().join("b/folder")).unwrap();
        let path = env::join_paths(["a", "b"].map(|name| root.path().join(name))).unwrap();
        let search = |program: &OsStr| check(program, Some(&path));
        assert!(search("plain".as_ref()).is_ok());
        assert!(search(root.path().join("b/plain").as_ref()).is_ok());
        assert!(check("sh".as_ref(), None).is_ok());
        for (program, expected) in [
            ("none", &["no program \"none\"", "a/none\"", "b/none\""][..]),
            ("./none", &["no program", "searched: \"./none\""]),
            ("text", &["a/text", "cannot be executed", "chmod +x"]),
            ("folder", &["b/folder", "is a directory"]),
        ] {
            let error = search(program.as_ref()).unwrap_err().to_string();
            assert!(expected.iter().all(|words| error.contains(words)), "{error}");
        }
    }
}
