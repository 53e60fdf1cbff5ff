//! Where the files of the workers lie: `attempt_<n>/<local rank>/` has those of one worker of one start. No
//! start has another's place, so nothing is ever written over.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::error::StartError;
use crate::cli::run::plan::LogDirectory;
use crate::process::TemporaryDirectory;

/// A place for files, or none.
#[derive(Debug)]
pub(super) enum Home {
    /// The user's.
    Kept(PathBuf),
    /// It goes with the launcher: there is nothing in it but what a worker says to the launcher.
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
    /// Where it is told that it will be stopped.
    pub(super) notice: PathBuf,
}

impl Home {
    /// Makes one. `has_logs` says whether any output goes there.
    pub(super) fn make(
        directory: &LogDirectory,
        run_id: &str,
        has_logs: bool,
    ) -> Result<Self, StartError> {
        let (run, random) = (plain(run_id), fastrand::u32(..));
        match directory {
            LogDirectory::Nowhere => Ok(Self::Nowhere),
            LogDirectory::At(logs) => Self::keep(logs, &format!("{run}_{random:08x}"), 0o777),
            LogDirectory::Temporary if has_logs => {
                let name = format!("rallypoint-{run}-{random:08x}");
                Self::keep(&std::env::temp_dir(), &name, 0o700)
            }
            LogDirectory::Temporary => match TemporaryDirectory::new("rallypoint-run-") {
                Ok(directory) => Ok(Self::Temporary(directory)),
                Err(source) => Err(StartError::Files { path: std::env::temp_dir(), source }),
            },
        }
    }

    fn keep(parent: &Path, name: &str, mode: u32) -> Result<Self, StartError> {
        let made = || -> io::Result<PathBuf> {
            // A worker may change its directory.
            let path = std::path::absolute(parent)?.join(name);
            fs::create_dir_all(parent)?;
            DirBuilder::new().mode(mode).create(&path)?;
            Ok(path)
        };
        let path = made().map_err(|source| {
            let path = parent.join(name);
            StartError::Files { path, source }
        })?;
        tracing::info!(?path, "the workers' files are here");
        Ok(Self::Kept(path))
    }

    /// The place of one worker.
    pub(super) fn files(&self, attempt: u64, local_rank: u32) -> Option<Files> {
        let root = match self {
            Self::Kept(path) => path,
            Self::Temporary(directory) => directory.path(),
            Self::Nowhere => return None,
        };
        let directory = root.join(format!("attempt_{attempt}")).join(local_rank.to_string());
        Some(Files {
            stdout: directory.join("stdout.log"),
            stderr: directory.join("stderr.log"),
            error: directory.join("error.json"),
            notice: directory.join("notice.json"),
            directory,
        })
    }
}

/// A name of a run as a part of a file's name.
fn plain(run_id: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    run_id.chars().take(100).map(plain).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_users_directory_gets_one_for_each_launcher() {
        let root = tempfile::tempdir().unwrap();
        let logs = LogDirectory::At(root.path().join("new/logs"));
        let make = || Home::make(&logs, "job/7", true).unwrap().files(3, 11).unwrap();
        let (first, second) = (make(), make());
        assert_ne!(first.directory, second.directory);
        let below = first.stdout.strip_prefix(root.path().join("new/logs")).unwrap();
        let below = below.to_str().unwrap();
        assert!(below.starts_with("job_7_") && below.ends_with("/attempt_3/11/stdout.log"));
        assert!(first.error.ends_with("attempt_3/11/error.json"));
    }

    #[test]
    fn a_temporary_one_is_private_and_stays_only_for_logs() {
        let make = |has_logs| Home::make(&LogDirectory::Temporary, "job", has_logs).unwrap();
        let root = |home: &Home| {
            home.files(0, 0).unwrap().directory.ancestors().nth(2).unwrap().to_owned()
        };
        for has_logs in [true, false] {
            let home = make(has_logs);
            let path = root(&home);
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            drop(home);
            let stayed = path.exists();
            let _ = fs::remove_dir_all(&path);
            assert_eq!((mode & 0o777, stayed), (0o700, has_logs), "{path:?}");
        }
    }

    #[test]
    fn nowhere_has_no_files() {
        assert_eq!(Home::make(&LogDirectory::Nowhere, "job", true).unwrap().files(0, 0), None);
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let logs = LogDirectory::At(file.path().join("logs"));
        let error = Home::make(&logs, "job", true).unwrap_err().to_string();
        assert!(error.contains(file.path().to_str().unwrap()), "{error}");
    }
}
