//! The data directory of an etcd or of a cluster: its lock, and the directories of the members.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::error::EtcdServerError;
use crate::process::TemporaryDirectory;
use crate::util::file_lock::try_lock;

/// The name of the file with the peer port of each member. The ports are part of the cluster's
/// configuration in etcd, so a restarted cluster must use the same ones.
const PEER_PORTS: &str = "peer-ports";

/// The data directory of one etcd, or of all members of a cluster.
#[derive(Debug)]
pub(super) struct EtcdDataDir {
    root: PathBuf,
    members: usize,
    stage: DataStage,
    lock: Option<DirectoryLock>,
    _temporary: Option<TemporaryDirectory>,
}

/// Whether the data directory has a cluster, and whether a failed start may remove it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DataStage {
    /// The directory has no cluster.
    New,
    /// This start made the cluster, and removes it if it fails.
    Provisional,
    /// The cluster has served requests, or was there before. Its data are kept.
    Permanent,
}

impl EtcdDataDir {
    /// Opens and locks the given directory, or makes a temporary one.
    pub(super) fn open(given: Option<&Path>, members: usize) -> Result<Self, EtcdServerError> {
        let Some(root) = given else {
            let temporary = TemporaryDirectory::new("rallypoint-etcd-")
                .map_err(|source| unusable(&std::env::temp_dir(), source))?;
            let root = temporary.path().to_owned();
            let (stage, _temporary) = (DataStage::Permanent, Some(temporary));
            return Ok(Self { root, members, stage, lock: None, _temporary });
        };
        fs::create_dir_all(root).map_err(|source| unusable(root, source))?;
        // Locked before the checks, so that their results stay true until the lock is released.
        let lock = Some(DirectoryLock::new(root)?);
        let begun = members == 1 || root.join(PEER_PORTS).exists();
        let stage = if begun { DataStage::Permanent } else { DataStage::New };
        let directory = Self { root: root.to_owned(), members, stage, lock, _temporary: None };
        let Some(foreign) = directory.foreign_file() else { return Ok(directory) };
        let fix = format!(
            "{foreign:?} does not belong to an etcd of {members} members; give another directory"
        );
        Err(EtcdServerError::invalid("data_dir", root.display(), fix))
    }

    /// A file that belongs to a cluster of another size, or to another program.
    fn foreign_file(&self) -> Option<PathBuf> {
        // etcd calls its own part of a data directory `member`.
        let mut foreign =
            vec![self.root.join(if self.members == 1 { PEER_PORTS } else { "member" })];
        if self.stage == DataStage::New {
            foreign.extend((0..self.members).map(|index| self.data(index)));
        }
        foreign.into_iter().find(|path| path.exists())
    }

    /// The data directory of one member.
    pub(super) fn data(&self, index: usize) -> PathBuf {
        match self.members {
            1 => self.root.clone(),
            _ => self.root.join(format!("member-{index}")),
        }
    }

    /// The peer ports of the cluster in this directory; zeros if there is none.
    pub(super) fn peer_ports(&self) -> Result<Vec<u16>, EtcdServerError> {
        let path = self.root.join(PEER_PORTS);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(vec![0; self.members]);
            }
            Err(source) => return Err(unusable(&path, source)),
        };
        let ports: Result<Vec<u16>, _> = text.split_whitespace().map(str::parse).collect();
        match ports {
            Ok(ports) if ports.len() == self.members => Ok(ports),
            Ok(ports) => {
                let fix = format!("{} has a cluster of {}", self.root.display(), ports.len());
                Err(EtcdServerError::invalid("members", self.members, fix))
            }
            Err(source) => Err(unusable(&path, io::Error::new(io::ErrorKind::InvalidData, source))),
        }
    }

    /// Writes the peer ports of a cluster before its first start.
    pub(super) fn keep_peer_ports(&mut self, ports: &[u16]) -> Result<(), EtcdServerError> {
        if self.stage != DataStage::New {
            return Ok(());
        }
        let path = self.root.join(PEER_PORTS);
        // On a network file system the lock may not reach other hosts. Only the process that creates this
        // file may remove the cluster after a failed start.
        let mut file = File::create_new(&path).map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => EtcdServerError::InUse { path: self.root.clone() },
            _ => unusable(&path, source),
        })?;
        self.stage = DataStage::Provisional;
        let text: Vec<String> = ports.iter().map(ToString::to_string).collect();
        let text = text.join("\n") + "\n";
        file.write_all(text.as_bytes()).map_err(|source| unusable(&path, source))
    }

    /// Marks the data as permanent: a later failure does not remove them.
    pub(super) fn keep(&mut self) {
        self.stage = DataStage::Permanent;
    }
}

impl Drop for EtcdDataDir {
    /// Removes the files of a cluster whose first start failed, so that another attempt can use other ports.
    fn drop(&mut self) {
        let ours = self.lock.as_ref().is_some_and(DirectoryLock::is_ours);
        if ours && self.stage == DataStage::Provisional {
            let _ = fs::remove_file(self.root.join(PEER_PORTS));
            for index in 0..self.members {
                let _ = fs::remove_dir_all(self.data(index));
            }
        }
    }
}

/// An exclusive lock on a data directory. It locks the directory itself, so that no lock file lies among
/// etcd's files.
#[derive(Debug)]
struct DirectoryLock {
    directory: File,
    owner: u32,
}

impl DirectoryLock {
    fn new(path: &Path) -> Result<Self, EtcdServerError> {
        let directory = File::open(path).map_err(|source| unusable(path, source))?;
        match try_lock(&directory) {
            Ok(()) => Ok(Self { directory, owner: std::process::id() }),
            Err(TryLockError::WouldBlock) => Err(EtcdServerError::InUse { path: path.to_owned() }),
            Err(TryLockError::Error(source)) => Err(unusable(path, source)),
        }
    }

    /// Whether this process took the lock. A forked child shares the descriptor but does not own the lock.
    fn is_ours(&self) -> bool {
        self.owner == std::process::id()
    }
}

impl Drop for DirectoryLock {
    /// Unlocks explicitly, because closing may not release the lock at once: a child that another thread has
    /// just forked holds the descriptor until it executes its program.
    fn drop(&mut self) {
        if self.is_ours() {
            let _ = self.directory.unlock();
        }
    }
}

fn unusable(path: &Path, source: io::Error) -> EtcdServerError {
    EtcdServerError::Directory { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_another_process_created_are_not_removed() {
        let root = tempfile::tempdir().unwrap();
        let mut directory = EtcdDataDir::open(Some(root.path()), 2).unwrap();
        // A process on another host, which does not see the lock, would do this.
        fs::write(root.path().join(PEER_PORTS), "1\n2\n").unwrap();
        fs::create_dir(directory.data(0)).unwrap();
        let error = directory.keep_peer_ports(&[3, 4]).unwrap_err();
        assert!(matches!(error, EtcdServerError::InUse { .. }), "{error}");
        let theirs = directory.data(0);
        drop(directory);
        assert!(theirs.is_dir());
        assert_eq!(fs::read_to_string(root.path().join(PEER_PORTS)).unwrap(), "1\n2\n");
    }
}
