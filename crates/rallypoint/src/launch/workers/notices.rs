//! What workers find in a file of theirs when they will be stopped, so that they need no handler for a signal.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::json;

/// Writes down, for each worker, that it has so much time left. Blocks on the disk.
pub(in crate::launch) fn write(files: &[PathBuf], left: Duration, why: &str) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (seconds, deadline) = (left.as_secs_f64(), (now + left).as_secs_f64());
    let text = format!("{}\n", json!({"seconds": seconds, "deadline": deadline, "reason": why}));
    for file in files {
        if let Err(error) = write_whole(file, &text) {
            tracing::warn!(path = ?file, %error, "a worker cannot be told in its file that it will be stopped");
        }
    }
}

/// Whoever sees the file sees all of it.
fn write_whole(file: &Path, text: &str) -> io::Result<()> {
    let new = file.with_extension("new");
    fs::write(&new, text)?;
    fs::rename(new, file)
}
