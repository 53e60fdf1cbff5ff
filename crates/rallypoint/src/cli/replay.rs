//! `rallypoint replay`: decides again what a file of events recorded.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;

use clap::Args;
use rallypoint_core::events::{Replay, ReplayError};
use thiserror::Error;

use super::AnyError;

/// The text after the options in `--help`.
pub(super) const AFTER_HELP: &str = "\
`rallypoint run --events FILE` records what the launcher was told and what it decided. This
command gives the recorded inputs to the same state machines again, and compares: their
decisions, and the events that follow. It needs the version that wrote the file.

Example:
  rallypoint replay events.jsonl

Exit codes: 0 every line is as recorded; 1 a line differs, or the file cannot be read; 2 the
command line is wrong.";

#[derive(Debug, Args)]
pub(super) struct ReplayCommand {
    /// File that rallypoint run --events wrote
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Why a file was not replayed.
#[derive(Debug, Error)]
enum ReplayFileError {
    #[error("{path:?} cannot be read; give a file that rallypoint run --events wrote")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path:?} is not what this version decides")]
    Replay { path: PathBuf, source: ReplayError },
}

impl ReplayCommand {
    pub(super) fn run(self) -> Result<(), AnyError> {
        let path = self.file;
        let unreadable = |source| ReplayFileError::Read { path: path.clone(), source };
        let file = BufReader::new(File::open(&path).map_err(unreadable)?);
        let mut replay = Replay::default();
        for line in file.split(b'\n') {
            let line = line.map_err(unreadable)?;
            let replayed = replay.line(&String::from_utf8_lossy(&line));
            replayed.map_err(|source| ReplayFileError::Replay { path: path.clone(), source })?;
        }
        let replayed = replay.end();
        let (starts, inputs, outputs) = (replayed.starts, replayed.inputs, replayed.outputs);
        let events = replayed.events;
        let mut text = format!(
            "{path:?}: {starts} starts, {inputs} inputs lead to the same {outputs} outputs and {events} events\n"
        );
        for line in &replayed.cut_off {
            text += &format!("line {line} is cut off, at the end of a launcher\n");
        }
        // The reader may be gone.
        let _ = io::stdout().write_all(text.as_bytes());
        Ok(())
    }
}
