//! Notice files: they announce a stop to workers that have no signal handler.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::json;

use crate::log_target::LAUNCH;

/// Writes each worker's notice file, with the time left and the reason. Blocks on the disk.
pub(in crate::launch) fn write(files: &[PathBuf], left: Duration, why: &str) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (seconds, deadline) = (left.as_secs_f64(), (now + left).as_secs_f64());
    let text = format!("{}\n", json!({"seconds": seconds, "deadline": deadline, "reason": why}));
    for file in files {
        if let Err(error) = write_whole(file, &text) {
            tracing::warn!(
                target: LAUNCH,
                path = ?file, %error, "a worker cannot be told in its file that it will be stopped"
            );
        }
    }
}

/// Writes and renames, so that a reader never sees a part of the file.
fn write_whole(file: &Path, text: &str) -> io::Result<()> {
    let new = file.with_extension("new");
    fs::write(&new, text)?;
    fs::rename(new, file)
}
