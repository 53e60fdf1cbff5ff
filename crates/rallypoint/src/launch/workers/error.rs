//! Why workers cannot be started.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why not all workers could be started.
#[derive(Debug, Error)]
pub(crate) enum StartError {
    /// There is no such program.
    #[error(
        "there is no program {program:?}; searched: {searched}",
        searched = .searched.iter().map(|path| format!("{path:?}")).collect::<Vec<_>>().join(", ")
    )]
    NotFound {
        /// What was asked for.
        program: OsString,
        /// Where it could have been.
        searched: Vec<PathBuf>,
    },
    /// It is there, but is none.
    #[error("{path:?} cannot be executed: {source}; chmod +x makes a file a program")]
    NotExecutable {
        /// What was found.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file or directory for its output cannot be made.
    #[error(
        "cannot make {path:?} for the workers' output: {source}; --log-dir names another place"
    )]
    Files {
        /// Which one.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The system refuses.
    #[error("cannot start the worker of local rank {local_rank}: {source}")]
    Process {
        /// Which worker.
        local_rank: u32,
        /// Why not.
        source: io::Error,
    },
}
