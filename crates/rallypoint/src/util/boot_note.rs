//! A small file with a time of this boot: a process leaves it for the next one on the same host.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;

use super::clock::boot_time;

/// The note of this user with one name.
#[derive(Debug, Clone)]
pub(crate) struct BootNote {
    path: PathBuf,
}

impl BootNote {
    /// The note `name` of this user in a directory.
    pub(crate) fn new(directory: &Path, name: &str) -> Self {
        let user = rustix::process::getuid().as_raw();
        Self { path: directory.join(format!("{name}-{user}")) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// How long ago the note was written; `None` if there is none of this boot. What cannot be read was written just now:
    /// its writer was killed while it wrote.
    pub(crate) fn age(&self) -> Option<Duration> {
        let file = OpenOptions::new().read(true).custom_flags(no_links()).open(&self.path).ok()?;
        let mut text = String::new();
        let read = io::Read::read_to_string(&mut io::Read::take(file, 128), &mut text);
        let (boot, millis) = read.ok().and_then(|_| text.trim().split_once(' ')).unzip();
        if boot.is_some_and(|boot| boot != boot_id()) {
            return None;
        }
        let written = millis.and_then(|millis| millis.parse().ok()).map(Duration::from_millis);
        Some(written.map(|written| boot_time().saturating_sub(written)).unwrap_or_default())
    }

    /// Writes the present time.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn write(&self) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600).custom_flags(no_links());
        let text = format!("{} {}\n", boot_id(), boot_time().as_millis());
        options.open(&self.path)?.write_all(text.as_bytes())
    }

    /// Removes the note, if there is one.
    pub(crate) fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Refuses symbolic links, since the directory may be writable by all users.
fn no_links() -> i32 {
    i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or_default()
}

/// The id of this boot, which the times in a note are relative to.
fn boot_id() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note() -> (tempfile::TempDir, BootNote) {
        let directory = tempfile::tempdir().unwrap();
        let note = BootNote::new(directory.path(), "note");
        (directory, note)
    }

    #[test]
    fn a_note_tells_how_old_it_is() {
        let (_directory, note) = note();
        assert_eq!(note.age(), None);
        note.write().unwrap();
        assert!(note.age().unwrap() < Duration::from_secs(5));
        let text = format!("{} {}", boot_id(), (boot_time() - Duration::from_secs(8)).as_millis());
        fs::write(&note.path, text).unwrap();
        let age = note.age().unwrap();
        assert!((Duration::from_secs(8)..Duration::from_secs(13)).contains(&age), "{age:?}");
        note.remove();
        assert_eq!(note.age(), None);
    }

    #[test]
    fn what_cannot_be_read_was_written_just_now_and_another_boot_does_not_count() {
        let (_directory, note) = note();
        for (text, age) in [
            (String::new(), Some(Duration::ZERO)),
            (format!("{} x", boot_id()), Some(Duration::ZERO)),
            ("00000000-0000-0000-0000-000000000000 5".to_owned(), None),
        ] {
            fs::write(&note.path, &text).unwrap();
            assert_eq!(note.age(), age, "{text:?}");
        }
    }

    #[test]
    fn a_link_that_somebody_put_there_is_not_followed() {
        let (directory, note) = note();
        let other = directory.path().join("precious");
        fs::write(&other, "keep").unwrap();
        std::os::unix::fs::symlink(&other, &note.path).unwrap();
        assert!(note.write().is_err());
        assert_eq!(note.age(), None);
        assert_eq!(fs::read_to_string(other).unwrap(), "keep");
    }
}
