//! Temporary directories that the guard removes if this process cannot.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::guard::{self, GuardEntry};

use crate::log_target::PROCESS;

/// A new, empty directory that only this user can read. Dropping the value removes the directory with its content;
/// the guard does so if this process is killed.
#[derive(Debug)]
pub(crate) struct TemporaryDirectory {
    path: PathBuf,
    entry: GuardEntry,
}

impl TemporaryDirectory {
    /// Creates a directory below the system's temporary directory. Its name begins with `prefix`.
    pub(crate) fn new(prefix: &str) -> io::Result<Self> {
        // Absolute: the guard has another working directory.
        let parent = std::path::absolute(std::env::temp_dir())?;
        let name = format!("{prefix}{}-{:016x}", std::process::id(), fastrand::u64(..));
        let path = parent.join(name);
        // The guard is told first, so that no crash can leave the directory behind.
        let entry = GuardEntry::directory(&path)?;
        guard::program().add(&entry)?;
        let made = DirBuilder::new().mode(0o700).create(&path);
        if let Err(source) = made {
            // The directory belongs to another process.
            guard::program().forget(&entry);
            let text = format!("cannot make the directory {path:?}: {source}");
            return Err(io::Error::new(source.kind(), text));
        }
        Ok(Self { path, entry })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        if !guard::program().knows(&self.entry) {
            return;
        }
        match fs::remove_dir_all(&self.path) {
            Ok(()) => guard::program().forget(&self.entry),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                guard::program().forget(&self.entry)
            }
            // The guard tries again when this process has ended.
            Err(error) => {
                tracing::warn!(
                    target: PROCESS,
                    path = ?self.path, %error,
                    "cannot remove a temporary directory; the guard tries again when this process has ended"
                )
            }
        }
    }
}
