//! The search for a program in `PATH`, as a shell does it, so that an error can name what was searched.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// The value of `PATH` where it is not set.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Why no program can be executed.
#[derive(Debug)]
pub(crate) enum SearchError {
    /// A candidate exists, and cannot be executed.
    NotExecutable {
        /// The candidate.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// No candidate exists.
    NotFound {
        /// The candidates.
        searched: Vec<PathBuf>,
    },
}

/// The files that may be the program `name`, `path` being the variable: the name itself if it has a slash in it, and
/// otherwise that name in each directory of `path`.
pub(crate) fn candidates(name: &OsStr, path: Option<&OsStr>) -> Vec<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return vec![name.into()];
    }
    let path = path.unwrap_or_else(|| OsStr::new(DEFAULT_PATH));
    env::split_paths(path).map(|directory| directory.join(name)).collect()
}

/// The first candidate that can be executed. A candidate that cannot be is skipped, as in a shell; it is the error
/// if no other can. A directory is the error only if there is no such file either.
pub(crate) fn first_executable(candidates: Vec<PathBuf>) -> Result<PathBuf, SearchError> {
    let mut refused: Option<(PathBuf, io::Error)> = None;
    for path in candidates.iter().filter(|path| path.exists()) {
        let Err(source) = executable(path) else { return Ok(path.clone()) };
        let replaces = refused.as_ref().is_none_or(|(before, _)| before.is_dir() && path.is_file());
        if replaces {
            refused = Some((path.clone(), source));
        }
    }
    Err(match refused {
        Some((path, source)) => SearchError::NotExecutable { path, source },
        None => SearchError::NotFound { searched: candidates },
    })
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
    fn a_program_is_found_or_the_error_names_what_was_searched() {
        let root = tempfile::tempdir().unwrap();
        for (name, mode) in [("a/plain", 0o644), ("b/plain", 0o755), ("b/text", 0o644)] {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        for folder in ["a/text", "b/folder"] {
            fs::create_dir(root.path().join(folder)).unwrap();
        }
        let path = env::join_paths(["a", "b"].map(|name| root.path().join(name))).unwrap();
        let search = |name: &str| first_executable(candidates(name.as_ref(), Some(&path)));
        assert_eq!(search("plain").unwrap(), root.path().join("b/plain"));
        assert!(first_executable(candidates("sh".as_ref(), None)).is_ok());
        for (name, expected) in [("text", "b/text"), ("folder", "b/folder")] {
            match search(name) {
                Err(SearchError::NotExecutable { path, .. }) => {
                    assert_eq!(path, root.path().join(expected));
                }
                other => panic!("{other:?}"),
            }
        }
        match search("./none") {
            Err(SearchError::NotFound { searched }) => assert_eq!(searched, [Path::new("./none")]),
            other => panic!("{other:?}"),
        }
    }
}
