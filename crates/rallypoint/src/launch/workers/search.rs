//! Looks up a program as a shell does, so that an error can name the searched places.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::error::StartError;

/// The search path without `PATH`.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Checks that the program can be executed. `path` is the value of `PATH`.
pub(super) fn check(program: &OsStr, path: Option<&OsStr>) -> Result<(), StartError> {
    let candidates: Vec<PathBuf> = if program.as_bytes().contains(&b'/') {
        vec![program.into()]
    } else {
        let path = path.unwrap_or_else(|| OsStr::new(USUAL_PATH));
        env::split_paths(path).map(|directory| directory.join(program)).collect()
    };
    let mut refused = None;
    for candidate in candidates.iter().filter(|path| path.exists()) {
        match executable(candidate) {
            Ok(()) => return Ok(()),
            // Like a shell: a later directory may have an executable one.
            Err(source) => {
                let path = candidate.clone();
                refused.get_or_insert(StartError::NotExecutable { path, source });
            }
        }
    }
    let program = program.to_owned();
    Err(refused.unwrap_or(StartError::NotFound { program, searched: candidates }))
}

fn executable(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    Ok(access(path, Access::EXEC_OK)?)
}

#[cfg(test)]
mod tests {
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
