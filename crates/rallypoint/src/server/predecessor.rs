//! A note that a server in memory leaves for the next server on the same port: the time of its last lease renewal.
//!
//! A server in memory does not know which nodes have workers from before its start. But if another server ran on this
//! port a moment ago, nodes may still hold leases that it renewed, and a new rendezvous must wait for their expiry; see
//! [`Predecessor`]. The time is in a small file, which stays when the server is killed, and is removed when the server
//! ends without leases in use.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rallypoint_core::kv::{Op, Put, Txn};
use rallypoint_core::rendezvous::documents::{Predecessor, encode};
use rallypoint_core::rendezvous::keys::PREDECESSOR;
use rustix::fs::OFlags;
use tokio::time::sleep;

use super::engine::Engine;
use crate::log_target::SERVER;
use crate::util::blocking::blocking;
use crate::util::clock::boot_time;

/// The shortest interval between two writes of the note.
const EVERY: Duration = Duration::from_secs(1);

/// Leases with a longer time to live are not those of nodes with workers.
const LONGEST_LEASE: Duration = Duration::from_secs(3600);

/// The note of one port.
#[derive(Debug, Clone)]
pub(super) struct Note {
    path: PathBuf,
    /// Whether the note is final. A write that was under way when the server ended must not come after its removal.
    ended: Arc<Mutex<bool>>,
}

impl Note {
    /// The note of servers of this user on the port of `address`.
    pub(super) fn new(directory: &Path, address: SocketAddr) -> Self {
        let (user, port) = (rustix::process::getuid().as_raw(), address.port());
        let path = directory.join(format!("rallypoint-served-{user}-{port}"));
        Self { path, ended: Arc::default() }
    }

    /// Publishes to the nodes that there was a server before this one, if it renewed leases recently.
    pub(super) async fn tell(&self, engine: &Engine) {
        let note = self.clone();
        let Some(silent) = blocking(move || note.silent()).await else { return };
        let silent_ms = u64::try_from(silent.as_millis()).unwrap_or(u64::MAX);
        let put = Op::Put(Put::new(PREDECESSOR, encode(&Predecessor { silent_ms })));
        tracing::info!(
            target: SERVER,
            ?silent,
            "a server that kept nothing was here before; new groups wait for its leases"
        );
        // A write of this size is never refused by a store in memory.
        let _ = engine.write(|store, _| store.txn(Txn::when([]).then([put]))).await;
    }

    /// Notes lease renewals until the server stops.
    pub(super) async fn keep(&self, engine: &Engine) {
        loop {
            engine.renewed().await;
            let note = self.clone();
            if let Err(error) = blocking(move || note.write()).await {
                let path = self.path.display();
                tracing::warn!(
                    target: SERVER,
                    %error, %path, "a server after this one will not know of it"
                );
                return std::future::pending().await;
            }
            sleep(EVERY).await;
        }
    }

    /// Removes the note, unless nodes may still have workers.
    pub(super) async fn end(&self, engine: &Engine) {
        let (note, stays) = (self.clone(), engine.has_lease_in_use(LONGEST_LEASE));
        blocking(move || {
            *note.ended() = true;
            if !stays {
                // The file may be missing.
                let _ = fs::remove_file(&note.path);
            }
        })
        .await;
    }

    /// How long ago the server before this one renewed a lease; `None` if that makes no difference.
    fn silent(&self) -> Option<Duration> {
        let file = OpenOptions::new().read(true).custom_flags(no_links()).open(&self.path).ok()?;
        let mut text = String::new();
        let read = io::Read::read_to_string(&mut io::Read::take(file, 128), &mut text);
        // A server that was killed while it wrote the note ran a moment ago.
        let (boot, millis) = read.ok().and_then(|_| text.trim().split_once(' ')).unzip();
        if boot.is_some_and(|boot| boot != boot_id()) {
            return None;
        }
        let noted = millis.and_then(|millis| millis.parse().ok()).map(Duration::from_millis);
        // A renewal within the interval after the last write was not noted.
        let silent = noted.map(|noted| boot_time().saturating_sub(noted + EVERY));
        Some(silent.unwrap_or_default()).filter(|silent| *silent < LONGEST_LEASE)
    }

    fn ended(&self) -> MutexGuard<'_, bool> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> io::Result<()> {
        // The lock is held until the note is written.
        let ended = self.ended();
        if *ended {
            return Ok(());
        }
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600).custom_flags(no_links());
        let text = format!("{} {}\n", boot_id(), boot_time().as_millis());
        options.open(&self.path)?.write_all(text.as_bytes())
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

    fn note() -> (tempfile::TempDir, Note) {
        let directory = tempfile::tempdir().unwrap();
        let note = Note::new(directory.path(), "127.0.0.1:29400".parse().unwrap());
        (directory, note)
    }

    #[test]
    fn a_server_knows_how_long_the_one_before_it_was_silent() {
        let (_directory, note) = note();
        assert_eq!(note.silent(), None);
        note.write().unwrap();
        assert_eq!(note.silent(), Some(Duration::ZERO), "it may have renewed one just now");
        let noted = |before: Duration| {
            let text = format!("{} {}", boot_id(), (boot_time() - before).as_millis());
            fs::write(&note.path, text).unwrap();
            note.silent()
        };
        let silent = noted(Duration::from_secs(8)).unwrap();
        assert!((Duration::from_secs(7)..Duration::from_secs(8)).contains(&silent), "{silent:?}");
    }

    #[test]
    fn what_cannot_be_read_was_there_a_moment_ago_and_another_start_of_the_machine_does_not_count()
    {
        let (_directory, note) = note();
        for (text, silent) in [
            (String::new(), Some(Duration::ZERO)),
            (format!("{} x", boot_id()), Some(Duration::ZERO)),
            ("00000000-0000-0000-0000-000000000000 5".to_owned(), None),
        ] {
            fs::write(&note.path, &text).unwrap();
            assert_eq!(note.silent(), silent, "{text:?}");
        }
    }

    #[test]
    fn nothing_is_written_after_the_end() {
        let (_directory, note) = note();
        *note.ended() = true;
        note.write().unwrap();
        assert!(!note.path.exists());
    }

    #[test]
    fn a_link_that_somebody_put_there_is_not_followed() {
        let (directory, note) = note();
        let other = directory.path().join("precious");
        fs::write(&other, "keep").unwrap();
        std::os::unix::fs::symlink(&other, &note.path).unwrap();
        assert!(note.write().is_err());
        assert_eq!(note.silent(), None);
        assert_eq!(fs::read_to_string(other).unwrap(), "keep");
    }
}
