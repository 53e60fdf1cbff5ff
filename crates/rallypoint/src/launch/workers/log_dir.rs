//! The directory of the workers' files: `<run>/<host>/round_<n>/rank_<r>/` has the files of one worker of one start, in
//! the user's directory, which hosts may share. Each start has directories of its own, so no file is overwritten.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::error::StartError;
use crate::launch::job::LogDirectory;
use crate::process::TemporaryDirectory;

/// The directory of this node's workers' files, or none.
#[derive(Debug)]
pub(super) enum LogDir {
    /// The directory stays.
    Kept(PathBuf),
    /// The directory is removed with the launcher: it has error and notice files only.
    Temporary(TemporaryDirectory),
    Nowhere,
}

/// The files of one worker of one start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Files {
    pub(super) directory: PathBuf,
    pub(super) stdout: PathBuf,
    pub(super) stderr: PathBuf,
    pub(super) error: PathBuf,
    /// The notice file.
    pub(super) notice: PathBuf,
}

impl LogDir {
    /// Creates the directory. `has_logs`: whether any output goes there.
    pub(super) fn make(
        directory: &LogDirectory,
        (run_id, host): (&str, &str),
        has_logs: bool,
    ) -> Result<Self, StartError> {
        let run = plain(run_id);
        match directory {
            LogDirectory::Nowhere => Ok(Self::Nowhere),
            LogDirectory::At(logs) => {
                let path = logs.join(run).join(plain(host));
                Self::keep(path, |path| fs::create_dir_all(path))
            }
            // Mode 0700: other users of this host must not be able to replace files in it.
            LogDirectory::Temporary if has_logs => {
                let name = format!("rallypoint-{run}-{:08x}", fastrand::u32(..));
                let path = std::env::temp_dir().join(name);
                Self::keep(path, |path| DirBuilder::new().mode(0o700).create(path))
            }
            LogDirectory::Temporary => match TemporaryDirectory::new("rallypoint-run-") {
                Ok(directory) => Ok(Self::Temporary(directory)),
                Err(source) => Err(StartError::Files { path: std::env::temp_dir(), source }),
            },
        }
    }

    fn keep(path: PathBuf, make: impl Fn(&Path) -> io::Result<()>) -> Result<Self, StartError> {
        // Absolute, since a worker may change its working directory.
        let made = std::path::absolute(&path).and_then(|path| make(&path).map(|()| path));
        made.map(Self::Kept).map_err(|source| StartError::Files { path, source })
    }

    fn root(&self) -> Option<&Path> {
        match self {
            Self::Kept(path) => Some(path),
            Self::Temporary(directory) => Some(directory.path()),
            Self::Nowhere => None,
        }
    }

    /// Whether the files stay after the launcher has exited.
    pub(super) fn is_kept(&self) -> bool {
        matches!(self, Self::Kept(_))
    }

    /// Creates the directory of one worker of a round. If it exists, because an earlier run with the same id had the same
    /// round, the name gets the next free number.
    pub(super) fn claim(&self, round: u64, rank: u32) -> Result<Option<Files>, StartError> {
        let Some(root) = self.root() else { return Ok(None) };
        let parent = root.join(format!("round_{round}"));
        let failed = |path: &Path, source| StartError::Files { path: path.to_owned(), source };
        fs::create_dir_all(&parent).map_err(|source| failed(&parent, source))?;
        let mut directory = parent.join(format!("rank_{rank}"));
        for number in 1_u64.. {
            match fs::create_dir(&directory) {
                Ok(()) => break,
                Err(error)
                    if error.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() =>
                {
                    directory = parent.join(format!("rank_{rank}.{number}"));
                }
                Err(source) => return Err(failed(&directory, source)),
            }
        }
        Ok(Some(Files::in_directory(directory)))
    }
}

impl Files {
    pub(super) fn in_directory(directory: PathBuf) -> Self {
        Self {
            stdout: directory.join("stdout.log"),
            stderr: directory.join("stderr.log"),
            error: directory.join("error.json"),
            notice: directory.join("notice.json"),
            directory,
        }
    }
}

/// A run id or host name as a directory name.
fn plain(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let plain: String = name.chars().take(100).map(plain).collect();
    match plain.as_str() {
        "" | "." | ".." => "_".to_owned(),
        _ => plain,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Two launchers of one host, or one that was started again, share a directory, and no file.
    #[test]
    fn files_are_named_by_run_host_round_and_rank_and_nothing_is_written_over() {
        let root = tempfile::tempdir().unwrap();
        let logs = LogDirectory::At(root.path().join("new/logs"));
        let claim = |host, rank| {
            let home = LogDir::make(&logs, ("job/7", host), true).unwrap();
            let files = home.claim(3, rank).unwrap().unwrap();
            let below = files.stdout.strip_prefix(root.path().join("new/logs")).unwrap().to_owned();
            below.to_str().unwrap().to_owned()
        };
        for (host, rank, expected) in [
            ("node1", 11, "job_7/node1/round_3/rank_11/stdout.log"),
            ("node1", 12, "job_7/node1/round_3/rank_12/stdout.log"),
            ("node2", 11, "job_7/node2/round_3/rank_11/stdout.log"),
            ("node1", 11, "job_7/node1/round_3/rank_11.1/stdout.log"),
            ("node1", 11, "job_7/node1/round_3/rank_11.2/stdout.log"),
            ("..", 0, "job_7/_/round_3/rank_0/stdout.log"),
        ] {
            assert_eq!(claim(host, rank), expected);
        }
    }

    #[test]
    fn a_temporary_one_is_private_and_stays_only_for_logs() {
        for has_logs in [true, false] {
            let home = LogDir::make(&LogDirectory::Temporary, ("job", "host"), has_logs).unwrap();
            let path = home.root().unwrap().to_owned();
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            drop(home);
            let stayed = path.exists();
            let _ = fs::remove_dir_all(&path);
            assert_eq!((mode & 0o777, stayed), (0o700, has_logs), "{path:?}");
        }
    }

    #[test]
    fn nowhere_has_no_files() {
        let home = LogDir::make(&LogDirectory::Nowhere, ("job", "host"), true).unwrap();
        assert_eq!(home.claim(0, 0).unwrap(), None);
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let logs = LogDirectory::At(file.path().join("logs"));
        let error = LogDir::make(&logs, ("job", "host"), true).unwrap_err().to_string();
        assert!(error.contains(file.path().to_str().unwrap()), "{error}");
    }
}
