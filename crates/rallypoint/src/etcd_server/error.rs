//! What can go wrong with an etcd of our own.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use thiserror::Error;

use super::search::VARIABLE;
use crate::client::ClientError;
use crate::config::ConfigError;

/// Why there is no etcd, or no longer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EtcdServerError {
    /// An option or an argument is wrong. Nothing was started.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There is no etcd in any of the places where one may be.
    #[error(
        "found no etcd; there is none at {}; install one, or set {VARIABLE} to its path",
        join(.searched)
    )]
    NotFound {
        /// Every place, in the order of the search.
        searched: Vec<PathBuf>,
    },
    /// The environment names an etcd that is not there. Another one is not taken in its place: whoever
    /// set the variable meant that one.
    #[error(
        "{VARIABLE} is {value:?}, and that is no file; correct it, or unset it to search elsewhere"
    )]
    Variable {
        /// What the variable is set to.
        value: PathBuf,
    },
    /// The file is there, and this user may not execute it.
    #[error("etcd at {path:?} cannot be executed: {source}; chmod +x, or name another")]
    NotExecutable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The directory for the data cannot be used.
    #[error("the data directory {path:?} cannot be used: {source}")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Another etcd or cluster that was started from here, or from another program, uses the directory.
    #[error(
        "the data directory {path:?} is in use by another cluster; stop it, or give another directory"
    )]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// The file for etcd's output cannot be opened.
    #[error("the output file {path:?} cannot be opened: {source}")]
    Output {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// An address that was asked for is not to be had.
    #[error(
        "cannot listen on {address}: {source}; is another server there? Port 0 takes a free one"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The system did not start a process, for etcd or for the guard that ends it with us.
    #[error("cannot start {binary:?}: {source}")]
    Start {
        /// The etcd that was to be started.
        binary: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// etcd ended by itself.
    #[error("etcd at {endpoint} (pid {pid}) ended by itself, {status}; {}", last_lines(.lines))]
    Exited {
        /// Where it listened, or was to listen.
        endpoint: String,
        /// The number it had.
        pid: u32,
        /// Its exit code, or the signal that ended it.
        status: ExitStatus,
        /// The last that it said.
        lines: Vec<String>,
    },
    /// etcd ended by itself, and something else in this program learned how.
    #[error("etcd at {endpoint} (pid {pid}) ended by itself, and how is not known: {source}")]
    Lost {
        /// Where it listened, or was to listen.
        endpoint: String,
        /// The number it had.
        pid: u32,
        /// What the system says.
        source: io::Error,
    },
    /// etcd runs and does not answer.
    #[error(
        "etcd at {endpoint} (pid {pid}) was not ready after {waited:.1?}: {}; {}",
        .source.as_ref().map_or_else(
            || "another server answers there".to_owned(), |error| error.to_string()),
        last_lines(.lines)
    )]
    NotReady {
        /// Where it was to listen.
        endpoint: String,
        /// The number it had. It was killed.
        pid: u32,
        /// How long it was waited for.
        waited: Duration,
        /// What came of the last request; nothing if another server answered it.
        source: Option<Box<ClientError>>,
        /// The last that it said.
        lines: Vec<String>,
    },
    /// etcd is still there after SIGKILL, which takes a kernel that waits for a disk. It is watched: it
    /// will not outlive this program.
    #[error("etcd (pid {pid}) is still there {waited:.1?} after SIGKILL")]
    NotStopped {
        /// Its number.
        pid: u32,
        /// How long it was waited for.
        waited: Duration,
    },
}

impl EtcdServerError {
    pub(super) fn invalid(
        what: &'static str,
        value: impl ToString,
        fix: impl Into<String>,
    ) -> Self {
        Self::Config(ConfigError::invalid(what, value.to_string(), fix))
    }

    /// Whether another attempt, with other ports, may go better.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            // Somebody was quicker to take the port.
            Self::Exited { lines, .. } => lines.iter().any(|line| line.contains(TAKEN)),
            Self::NotReady { .. } => true,
            _ => false,
        }
    }
}

/// How etcd says that a port is not free.
const TAKEN: &str = "address already in use";

fn join(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn last_lines(lines: &[String]) -> String {
    match lines {
        [] => "it said nothing".to_owned(),
        lines => format!("it said last:\n{}", lines.join("\n")),
    }
}
