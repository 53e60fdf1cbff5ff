//! The errors of starting and running etcd.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use thiserror::Error;

use super::search::VARIABLE;
use crate::client::ClientError;
use crate::config::ConfigError;

/// Why an etcd process did not start, or ended.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EtcdServerError {
    /// An option is invalid. No process was started.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The search found no `etcd` binary.
    #[error(
        "found no etcd; there is none at {}; install one, or set {VARIABLE} to its path",
        join(.searched)
    )]
    NotFound {
        /// All paths, in the order of the search.
        searched: Vec<PathBuf>,
    },
    /// The environment variable names a file that does not exist. The search does not fall back to another
    /// binary, since the variable asks for this one.
    #[error(
        "{VARIABLE} is {value:?}, and that is no file; correct it, or unset it to search elsewhere"
    )]
    Variable {
        /// The value of the variable.
        value: PathBuf,
    },
    /// The binary exists, but this user may not execute it.
    #[error("etcd at {path:?} cannot be executed: {source}; chmod +x, or name another")]
    NotExecutable {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The data directory cannot be used.
    #[error("the data directory {path:?} cannot be used: {source}")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Another cluster, of this program or of another, uses the data directory.
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
        /// The error of the operating system.
        source: io::Error,
    },
    /// The address in `listen` cannot be bound.
    #[error(
        "cannot listen on {address}: {source}; is another server there? Port 0 takes a free one"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The operating system did not start the process of etcd or of its guard.
    #[error("cannot start {binary:?}: {source}")]
    Start {
        /// The `etcd` binary.
        binary: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// etcd ended by itself.
    #[error("etcd at {endpoint} (pid {pid}) ended by itself, {status}; {}", last_lines(.lines))]
    Exited {
        /// The client address of the process.
        endpoint: String,
        /// The process id.
        pid: u32,
        /// The exit code, or the signal that ended the process.
        status: ExitStatus,
        /// The last lines of its output.
        lines: Vec<String>,
    },
    /// etcd ended by itself, and other code of this program collected its exit status.
    #[error(
        "etcd at {endpoint} (pid {pid}) ended by itself, and its exit status is unknown: {source}"
    )]
    Lost {
        /// The client address of the process.
        endpoint: String,
        /// The process id.
        pid: u32,
        /// The error of the operating system.
        source: io::Error,
    },
    /// etcd runs but does not answer.
    #[error(
        "etcd at {endpoint} (pid {pid}) was not ready after {waited:.1?}: {}; {}",
        .source.as_ref().map_or_else(
            || "another server answers there".to_owned(), |error| error.to_string()),
        last_lines(.lines)
    )]
    NotReady {
        /// The client address of the process.
        endpoint: String,
        /// The process id. The process was killed.
        pid: u32,
        /// How long the start was waited for.
        waited: Duration,
        /// The error of the last request; `None` if another server answered it.
        source: Option<Box<ClientError>>,
        /// The last lines of its output.
        lines: Vec<String>,
    },
    /// The cluster of a job does not let a new member take the place of the one that this host had.
    #[error(
        "the etcd cluster of this run had another member at {endpoint}, and this one cannot take its place: {source}; \
         stop the job on all hosts, and start it again"
    )]
    NotReplaced {
        /// The address of the member for clients.
        endpoint: String,
        /// The answer of the cluster.
        source: Box<ClientError>,
    },
    /// etcd still runs after SIGKILL, which happens when the kernel waits for a disk. Its guard ends it when
    /// this program ends.
    #[error("etcd (pid {pid}) still runs {waited:.1?} after SIGKILL")]
    NotStopped {
        /// The process id.
        pid: u32,
        /// How long its end was waited for.
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

    /// Whether an attempt with other ports may succeed.
    pub(super) fn is_retryable(&self) -> bool {
        match self {
            // Another process took the port between its reservation and the start.
            Self::Exited { lines, .. } => lines.iter().any(|line| line.contains(PORT_IN_USE)),
            Self::NotReady { .. } => true,
            _ => false,
        }
    }
}

/// The words of etcd's message about a port that is in use.
const PORT_IN_USE: &str = "address already in use";

fn join(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn last_lines(lines: &[String]) -> String {
    match lines {
        [] => "it wrote no output".to_owned(),
        lines => format!("the last lines of its output:\n{}", lines.join("\n")),
    }
}
