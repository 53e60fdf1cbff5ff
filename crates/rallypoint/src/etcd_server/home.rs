//! Where the data of the members lie.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::error::EtcdServerError;
use crate::process::TemporaryDirectory;
use crate::util::file_lock::try_lock;

/// The file in a cluster's directory that says which port each member has for the others. They are part
/// of what a cluster agreed on, so they outlive its processes.
const PEER_PORTS: &str = "peer-ports";

/// A directory for one etcd, or for the members of a cluster.
#[derive(Debug)]
pub(super) struct Home {
    root: PathBuf,
    members: usize,
    stage: Stage,
    claim: Option<Claim>,
    _temporary: Option<TemporaryDirectory>,
}

/// How far the cluster in a directory has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing of it is here.
    New,
    /// All of it was made by us, and it may still come to nothing.
    Tried,
    /// It is somebody's data.
    Lasting,
}

impl Home {
    /// The directory that was given, or a new temporary one.
    pub(super) fn open(given: Option<&Path>, members: usize) -> Result<Self, EtcdServerError> {
        let Some(root) = given else {
            let temporary = TemporaryDirectory::new("rallypoint-etcd-")
                .map_err(|source| unusable(&std::env::temp_dir(), source))?;
            let root = temporary.path().to_owned();
            let (stage, _temporary) = (Stage::Lasting, Some(temporary));
            return Ok(Self { root, members, stage, claim: None, _temporary });
        };
        fs::create_dir_all(root).map_err(|source| unusable(root, source))?;
        // Before the first look: what is seen here must be true until we are done.
        let claim = Some(Claim::new(root)?);
        let begun = members == 1 || root.join(PEER_PORTS).exists();
        let stage = if begun { Stage::Lasting } else { Stage::New };
        let home = Self { root: root.to_owned(), members, stage, claim, _temporary: None };
        let Some(stranger) = home.stranger() else { return Ok(home) };
        let fix =
            format!("{stranger:?} is not of an etcd of {members} members; give another directory");
        Err(EtcdServerError::invalid("data_dir", root.display(), fix))
    }

    /// Something that would not be here if the same had been started here before, or nothing at all.
    fn stranger(&self) -> Option<PathBuf> {
        // etcd calls its own part of a data directory `member`.
        let mut strangers =
            vec![self.root.join(if self.members == 1 { PEER_PORTS } else { "member" })];
        if self.stage == Stage::New {
            strangers.extend((0..self.members).map(|index| self.data(index)));
        }
        strangers.into_iter().find(|path| path.exists())
    }

    /// The data directory of one member.
    pub(super) fn data(&self, index: usize) -> PathBuf {
        match self.members {
            1 => self.root.clone(),
            _ => self.root.join(format!("member-{index}")),
        }
    }

    /// The ports that an earlier cluster used here; zeros if there was none.
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

    /// Notes down the ports of a cluster that is about to start for the first time.
    pub(super) fn keep_peer_ports(&mut self, ports: &[u16]) -> Result<(), EtcdServerError> {
        if self.stage != Stage::New {
            return Ok(());
        }
        let path = self.root.join(PEER_PORTS);
        // A lock may not reach to another host. Whoever makes this file is the one who may undo.
        let mut file = File::create_new(&path).map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => EtcdServerError::InUse { path: self.root.clone() },
            _ => unusable(&path, source),
        })?;
        self.stage = Stage::Tried;
        let text: Vec<String> = ports.iter().map(ToString::to_string).collect();
        let text = text.join("\n") + "\n";
        file.write_all(text.as_bytes()).map_err(|source| unusable(&path, source))
    }

    /// What is here stays, from now on.
    pub(super) fn keep(&mut self) {
        self.stage = Stage::Lasting;
    }
}

impl Drop for Home {
    /// Undoes what a cluster that never came to be has left, so that it can be tried with other ports.
    fn drop(&mut self) {
        let ours = self.claim.as_ref().is_some_and(Claim::is_ours);
        if ours && self.stage == Stage::Tried {
            let _ = fs::remove_file(self.root.join(PEER_PORTS));
            for index in 0..self.members {
                let _ = fs::remove_dir_all(self.data(index));
            }
        }
    }
}

/// A directory that no other cluster uses for as long as this is there. The lock is on the directory
/// itself, so that there is no file of ours among etcd's.
#[derive(Debug)]
struct Claim {
    directory: File,
    owner: u32,
}

impl Claim {
    fn new(path: &Path) -> Result<Self, EtcdServerError> {
        let directory = File::open(path).map_err(|source| unusable(path, source))?;
        match try_lock(&directory) {
            Ok(()) => Ok(Self { directory, owner: std::process::id() }),
            Err(TryLockError::WouldBlock) => Err(EtcdServerError::InUse { path: path.to_owned() }),
            Err(TryLockError::Error(source)) => Err(unusable(path, source)),
        }
    }

    /// A copy of this process made by `fork` has no part in it.
    fn is_ours(&self) -> bool {
        self.owner == std::process::id()
    }
}

impl Drop for Claim {
    /// Closing it would not do at once: what another thread has just forked has it open too, until it
    /// becomes a program of its own.
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
    fn what_another_has_made_meanwhile_is_not_undone() {
        let root = tempfile::tempdir().unwrap();
        let mut home = Home::open(Some(root.path()), 2).unwrap();
        // As one on another host would, which sees no lock of ours.
        fs::write(root.path().join(PEER_PORTS), "1\n2\n").unwrap();
        fs::create_dir(home.data(0)).unwrap();
        let error = home.keep_peer_ports(&[3, 4]).unwrap_err();
        assert!(matches!(error, EtcdServerError::InUse { .. }), "{error}");
        let theirs = home.data(0);
        drop(home);
        assert!(theirs.is_dir());
        assert_eq!(fs::read_to_string(root.path().join(PEER_PORTS)).unwrap(), "1\n2\n");
    }
}
