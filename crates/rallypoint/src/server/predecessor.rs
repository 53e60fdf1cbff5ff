//! What a server in memory leaves for the one that follows it at the same port: when it last renewed a lease.
//!
//! A server that keeps nothing does not know who has workers from the time before it. But if one ran here until a
//! moment ago, leases that it renewed may still be held, and the nodes that meet now must wait for their end; see
//! [`Predecessor`]. The moment is in a small file, which stays when the server is killed and goes when it ends
//! without anybody who could still count on it.

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
use crate::util::blocking::blocking;
use crate::util::clock::boot_time;

/// The moment is noted at most so often.
const EVERY: Duration = Duration::from_secs(1);

/// Longer leases are not those of nodes that have workers.
const LONGEST_LEASE: Duration = Duration::from_secs(3600);

/// The file of one port.
#[derive(Debug, Clone)]
pub(super) struct Note {
    path: PathBuf,
    /// Whether nothing is noted any more. A write that was under way when the server ended must not come after.
    ended: Arc<Mutex<bool>>,
}

impl Note {
    /// The note of whoever of this user serves on the port of `address`.
    pub(super) fn new(directory: &Path, address: SocketAddr) -> Self {
        let (user, port) = (rustix::process::getuid().as_raw(), address.port());
        let path = directory.join(format!("rallypoint-served-{user}-{port}"));
        Self { path, ended: Arc::default() }
    }

    /// Lets the nodes know of the server before this one, if there was one a short while ago.
    pub(super) async fn tell(&self, engine: &Engine) {
        let note = self.clone();
        let Some(silent) = blocking(move || note.silent()).await else { return };
        let silent_ms = u64::try_from(silent.as_millis()).unwrap_or(u64::MAX);
        let put = Op::Put(Put::new(PREDECESSOR, encode(&Predecessor { silent_ms })));
        tracing::info!(
            ?silent,
            "a server that kept nothing was here before; new groups wait for its leases"
        );
        // In memory nothing can be refused that is this small.
        let _ = engine.write(|store, _| store.txn(Txn::when([]).then([put]))).await;
    }

    /// Notes every renewal, until the server stops.
    pub(super) async fn keep(&self, engine: &Engine) {
        loop {
            engine.renewed().await;
            let note = self.clone();
            if let Err(error) = blocking(move || note.write()).await {
                let path = self.path.display();
                tracing::warn!(%error, %path, "a server after this one will not know of it");
                return std::future::pending().await;
            }
            sleep(EVERY).await;
        }
    }

    /// Takes the note away, unless somebody may still have workers.
    pub(super) async fn end(&self, engine: &Engine) {
        let (note, stays) = (self.clone(), engine.has_lease_in_use(LONGEST_LEASE));
        blocking(move || {
            *note.ended() = true;
            if !stays {
                // There need not be one.
                let _ = fs::remove_file(&note.path);
            }
        })
        .await;
    }

    /// How long the server before this one has renewed no lease; nothing if that makes no difference.
    fn silent(&self) -> Option<Duration> {
        let file = OpenOptions::new().read(true).custom_flags(no_links()).open(&self.path).ok()?;
        let mut text = String::new();
        let read = io::Read::read_to_string(&mut io::Read::take(file, 128), &mut text);
        // One that was killed while it wrote was there a moment ago.
        let (boot, millis) = read.ok().and_then(|_| text.trim().split_once(' ')).unzip();
        if boot.is_some_and(|boot| boot != boot_id()) {
            return None;
        }
        let noted = millis.and_then(|millis| millis.parse().ok()).map(Duration::from_millis);
        // What came within the pause was not noted.
        let silent = noted.map(|noted| boot_time().saturating_sub(noted + EVERY));
        Some(silent.unwrap_or_default()).filter(|silent| *silent < LONGEST_LEASE)
    }

    fn ended(&self) -> MutexGuard<'_, bool> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> io::Result<()> {
        // Held until it is written.
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

/// The directory may be everybody's.
fn no_links() -> i32 {
    i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or_default()
}

/// Names this start of the machine, whose clock the moments are of.
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
