//! Errors of starting workers.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why not all workers could be started.
#[derive(Debug, Error)]
pub(crate) enum StartError {
    /// The program was not found.
    #[error(
        "there is no program {program:?}; searched: {searched}",
        searched = .searched.iter().map(|path| format!("{path:?}")).collect::<Vec<_>>().join(", ")
    )]
    NotFound {
        /// The program's name.
        program: OsString,
        /// The paths that were tried.
        searched: Vec<PathBuf>,
    },
    /// The file is not executable.
    #[error("{path:?} cannot be executed: {source}; chmod +x makes a file a program")]
    NotExecutable {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// A file or directory for the workers' output cannot be created.
    #[error(
        "cannot make {path:?} for the workers' output: {source}; --log-dir names another place"
    )]
    Files {
        /// The file or directory.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The process cannot be started.
    #[error("cannot start the worker of local rank {local_rank}: {source}")]
    Process {
        /// The worker.
        local_rank: u32,
        /// The error.
        source: io::Error,
    },
}
