//! Where the data of the members lie.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::error::EtcdServerError;
use crate::process::TemporaryDirectory;

/// The file in a cluster's directory that says which port each member has for the others. They are part
/// of what a cluster agreed on, so they outlive its processes.
const PEER_PORTS: &str = "peer-ports";

/// A directory for one etcd, or for the members of a cluster.
#[derive(Debug)]
pub(super) struct Home {
    root: PathBuf,
    members: usize,
    /// Whether what is here is somebody's data. A cluster that never came to be has none.
    precious: bool,
    _temporary: Option<TemporaryDirectory>,
}

impl Home {
    /// The directory that was given, or a new temporary one.
    pub(super) fn open(given: Option<&Path>, members: usize) -> Result<Self, EtcdServerError> {
        let Some(root) = given else {
            let temporary = TemporaryDirectory::new("rallypoint-etcd-")
                .map_err(|source| unusable(&std::env::temp_dir(), source))?;
            let root = temporary.path().to_owned();
            return Ok(Self { root, members, precious: true, _temporary: Some(temporary) });
        };
        fs::create_dir_all(root).map_err(|source| unusable(root, source))?;
        let root = root.to_owned();
        let precious = members == 1 || root.join(PEER_PORTS).exists();
        let mut home = Self { root, members, precious, _temporary: None };
        let Some(stranger) = home.stranger() else { return Ok(home) };
        let fix =
            format!("{stranger:?} is not of an etcd of {members} members; give another directory");
        let error = EtcdServerError::invalid("data_dir", home.root.display(), fix);
        // None of it is ours to remove.
        home.keep();
        Err(error)
    }

    /// Something that would not be here if the same had been started here before, or nothing at all.
    fn stranger(&self) -> Option<PathBuf> {
        // etcd calls its own part of a data directory `member`.
        let mut strangers =
            vec![self.root.join(if self.members == 1 { PEER_PORTS } else { "member" })];
        if !self.precious {
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
    pub(super) fn keep_peer_ports(&self, ports: &[u16]) -> Result<(), EtcdServerError> {
        if self.members == 1 {
            return Ok(());
        }
        let path = self.root.join(PEER_PORTS);
        let text: Vec<String> = ports.iter().map(ToString::to_string).collect();
        fs::write(&path, text.join("\n") + "\n").map_err(|source| unusable(&path, source))
    }

    /// What is here stays, from now on.
    pub(super) fn keep(&mut self) {
        self.precious = true;
    }
}

impl Drop for Home {
    /// Undoes what a cluster that never came to be has left, so that it can be tried with other ports.
    fn drop(&mut self) {
        if !self.precious {
            let _ = fs::remove_file(self.root.join(PEER_PORTS));
            for index in 0..self.members {
                let _ = fs::remove_dir_all(self.data(index));
            }
        }
    }
}

fn unusable(path: &Path, source: io::Error) -> EtcdServerError {
    EtcdServerError::Directory { path: path.to_owned(), source }
}
