//! The directories that a launcher writes to: whether it may, and how much room there is.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access, statvfs};

use super::finding::Finding;

const CHECK: &str = "disk";

/// Less room than this fails.
const LEAST: u64 = 64 << 20;

/// Less room than this is worth a warning.
const FEW: u64 = 1 << 30;

/// A directory and its use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Directory {
    pub(crate) used_for: &'static str,
    pub(crate) path: PathBuf,
    /// The option or variable that names another.
    pub(crate) named_by: &'static str,
}

/// What was found about a directory: free bytes and free files.
pub(super) type Room = io::Result<(u64, u64)>;

/// The room in a directory, or in the first one above it that exists. Blocks on the file system.
pub(super) fn measure(path: &Path) -> Room {
    let mut there = path;
    while !there.exists() {
        there = match there.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
    }
    access(there, Access::WRITE_OK | Access::EXEC_OK)?;
    let found = statvfs(there)?;
    // A file system without a count of files has 0 in all.
    let files = if found.f_files == 0 { u64::MAX } else { found.f_favail };
    Ok((found.f_bavail.saturating_mul(found.f_frsize), files))
}

/// Whether there is room for the files of a job.
pub(super) fn judge(directory: &Directory, room: &Room) -> Finding {
    let Directory { used_for, path, named_by } = directory;
    let what = format!("{} ({used_for})", path.display());
    let elsewhere = format!("Make room there, or name another directory by {named_by}");
    match room {
        Err(error) => Finding::fail(
            CHECK,
            format!("{what} cannot be written: {error}."),
            format!("Let this user write there, or name another directory by {named_by}"),
        ),
        Ok((_, 0)) => {
            Finding::fail(CHECK, format!("{what} has no free file (inode) left."), elsewhere)
        }
        Ok((free, _)) if *free < LEAST => {
            Finding::fail(CHECK, format!("{what} has {} left.", size(*free)), elsewhere)
        }
        Ok((free, _)) if *free < FEW => {
            Finding::warn(CHECK, format!("{what} has {} left.", size(*free)), elsewhere)
        }
        Ok((free, _)) => Finding::ok(CHECK, format!("{what} has {} left.", size(*free))),
    }
}

fn size(bytes: u64) -> String {
    match bytes >> 20 {
        mebibytes @ 0..10_240 => format!("{mebibytes} MiB"),
        mebibytes => format!("{} GiB", mebibytes >> 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;

    #[test]
    fn a_directory_needs_room_and_must_be_writable() {
        let directory =
            Directory { used_for: "log files", path: "/logs".into(), named_by: "--log-dir" };
        for (room, verdict, words) in [
            (Ok((20 << 30, 9)), Verdict::Ok, "/logs (log files) has 20 GiB left."),
            (Ok((500 << 20, 9)), Verdict::Warn, "500 MiB left"),
            (Ok((1 << 20, 9)), Verdict::Fail, "1 MiB left"),
            (Ok((20 << 30, 0)), Verdict::Fail, "no free file"),
            (
                Err(io::ErrorKind::PermissionDenied.into()),
                Verdict::Fail,
                "cannot be written: permission denied",
            ),
        ] {
            let found = judge(&directory, &room);
            assert_eq!(found.verdict, verdict, "{}", found.message);
            assert!(found.message.contains(words), "{}", found.message);
            assert!(found.remedy.is_none_or(|remedy| remedy.contains("--log-dir")));
        }
    }

    #[test]
    fn a_directory_that_is_not_there_yet_is_measured_above() {
        let root = tempfile::tempdir().unwrap();
        assert!(measure(&root.path().join("a/b")).is_ok());
        assert!(measure(Path::new("relative/to/here")).is_ok());
    }
}
