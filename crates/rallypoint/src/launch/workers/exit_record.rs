//! The record of a worker's exit, for the failure report.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use rallypoint_core::agent::error_file::ErrorFile;
use tokio::time::timeout;

use crate::log_target::LAUNCH;
use crate::util::blocking::blocking;

/// The time limit for reading an error file, which may be on a network file system.
const PATIENCE: Duration = Duration::from_secs(1);

/// The limit on the size of an error file.
const LONGEST: u64 = 4 << 20;

/// The record of one worker.
#[derive(Debug, Default)]
pub(crate) struct ExitRecord {
    pub(crate) pid: u32,
    /// The log files, for streams that have one.
    pub(crate) stdout: Option<PathBuf>,
    pub(crate) stderr: Option<PathBuf>,
    /// The path of the error file.
    pub(crate) error_file: Option<PathBuf>,
    pub(in crate::launch) ended: OnceLock<WorkerEnd>,
}

/// The exit of a worker.
#[derive(Debug, Clone)]
pub(crate) struct WorkerEnd {
    /// The time of the exit, by the wall clock, for people.
    pub(crate) at: SystemTime,
    /// The error file, if the worker wrote one.
    pub(crate) error: Option<ErrorFileContent>,
}

/// An error file: parsed, and verbatim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ErrorFileContent {
    pub(crate) said: ErrorFile,
    pub(crate) text: String,
}

impl ExitRecord {
    /// The exit, once it was seen.
    pub(crate) fn ended(&self) -> Option<&WorkerEnd> {
        self.ended.get()
    }

    /// Records the exit, with the error file.
    pub(super) async fn note_end(&self) -> &WorkerEnd {
        let at = SystemTime::now();
        let error = match &self.error_file {
            Some(path) => read_error_file(path.clone()).await,
            None => None,
        };
        self.ended.get_or_init(|| WorkerEnd { at, error })
    }
}

/// Reads an error file. A file that cannot be read is no failure of the worker, so it is only logged.
async fn read_error_file(path: PathBuf) -> Option<ErrorFileContent> {
    let file = path.clone();
    let text = match timeout(PATIENCE, blocking(move || read(&file))).await {
        Ok(Ok(text)) => text?,
        Ok(Err(error)) => {
            tracing::warn!(target: LAUNCH, ?path, %error, "an error file cannot be read");
            return None;
        }
        Err(_) => {
            tracing::warn!(
                target: LAUNCH,
                ?path, waited = ?PATIENCE, "an error file takes too long to be read"
            );
            return None;
        }
    };
    match ErrorFile::parse(&text) {
        Ok(said) => Some(ErrorFileContent { said, text }),
        Err(error) => {
            tracing::warn!(target: LAUNCH, ?path, %error, "an error file makes no sense");
            None
        }
    }
}

/// The text, if the file exists.
fn read(path: &Path) -> io::Result<Option<String>> {
    // Opening a pipe would block until it has a writer.
    match path.metadata() {
        Ok(metadata) if metadata.is_file() => {}
        Ok(_) => return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no plain file")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    }
    let mut text = String::new();
    File::open(path)?.take(LONGEST).read_to_string(&mut text)?;
    Ok(Some(text))
}
