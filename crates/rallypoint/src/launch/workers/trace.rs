//! What is known of a worker when it is gone, for the report.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use rallypoint_core::agent::error_file::ErrorFile;
use tokio::time::timeout;

use crate::util::blocking::blocking;

/// How long an error file may take to be read. It may lie on a file system of the network.
const PATIENCE: Duration = Duration::from_secs(1);

/// No message is longer. A file that is has gone wrong.
const LONGEST: u64 = 4 << 20;

/// What is known of one worker.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub(crate) pid: u32,
    /// Where its output was written to, as far as it was.
    pub(crate) stdout: Option<PathBuf>,
    pub(crate) stderr: Option<PathBuf>,
    /// Where it may say why it failed.
    pub(crate) error_file: Option<PathBuf>,
    pub(in crate::launch) ended: OnceLock<Ended>,
}

/// How a worker was found when it was gone.
#[derive(Debug, Clone)]
pub(crate) struct Ended {
    /// When, by the clock on the wall, for people.
    pub(crate) at: SystemTime,
    /// What it left.
    pub(crate) error: Option<LastWords>,
}

/// An error file: what it says, and to the letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LastWords {
    pub(crate) said: ErrorFile,
    pub(crate) text: String,
}

impl Trace {
    /// Its end, once it was seen.
    pub(crate) fn ended(&self) -> Option<&Ended> {
        self.ended.get()
    }

    /// Notes the end, with what the error file says.
    pub(super) async fn note_end(&self) -> &Ended {
        let at = SystemTime::now();
        let error = match &self.error_file {
            Some(path) => last_words(path.clone()).await,
            None => None,
        };
        self.ended.get_or_init(|| Ended { at, error })
    }
}

/// What was left in this file. That it cannot be read is no failure of the worker, so it is only said.
async fn last_words(path: PathBuf) -> Option<LastWords> {
    let file = path.clone();
    let text = match timeout(PATIENCE, blocking(move || read(&file))).await {
        Ok(Ok(text)) => text?,
        Ok(Err(error)) => {
            tracing::warn!(?path, %error, "an error file cannot be read");
            return None;
        }
        Err(_) => {
            tracing::warn!(?path, waited = ?PATIENCE, "an error file takes too long to be read");
            return None;
        }
    };
    match ErrorFile::parse(&text) {
        Ok(said) => Some(LastWords { said, text }),
        Err(error) => {
            tracing::warn!(?path, %error, "an error file makes no sense");
            None
        }
    }
}

/// The text, if there is such a file.
fn read(path: &Path) -> io::Result<Option<String>> {
    // Opening a pipe would wait for a writer.
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
