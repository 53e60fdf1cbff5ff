//! A note that a server in memory leaves for the next server on the same port: the time of its last lease renewal.
//!
//! A server in memory does not know which nodes have workers from before its start. But if another server ran on this
//! port a moment ago, nodes may still hold leases that it renewed, and a new rendezvous must wait for their expiry; see
//! [`Predecessor`]. The time is in a small file, which stays when the server is killed, and is removed when the server
//! ends without leases in use.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rallypoint_core::kv::{Op, Put, Txn};
use rallypoint_core::rendezvous::documents::{Predecessor, encode};
use rallypoint_core::rendezvous::keys::PREDECESSOR;
use tokio::time::sleep;

use super::engine::Engine;
use crate::log_target::SERVER;
use crate::util::blocking::blocking;
use crate::util::boot_note::BootNote;

/// The shortest interval between two writes of the note.
const EVERY: Duration = Duration::from_secs(1);

/// Leases with a longer time to live are not those of nodes with workers.
const LONGEST_LEASE: Duration = Duration::from_secs(3600);

/// The note of one port.
#[derive(Debug, Clone)]
pub(super) struct Note {
    file: BootNote,
    /// Whether the note is final. A write that was under way when the server ended must not come after its removal.
    ended: Arc<Mutex<bool>>,
}

impl Note {
    /// The note of servers of this user on the port of `address`.
    pub(super) fn new(directory: &Path, address: SocketAddr) -> Self {
        let file = BootNote::new(directory, &format!("rallypoint-served-{}", address.port()));
        Self { file, ended: Arc::default() }
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
                let path = self.file.path().display();
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
                note.file.remove();
            }
        })
        .await;
    }

    /// How long ago the server before this one renewed a lease; `None` if that makes no difference.
    fn silent(&self) -> Option<Duration> {
        // A renewal within the interval after the last write was not noted.
        let silent = self.file.age().map(|age| age.saturating_sub(EVERY));
        silent.filter(|silent| *silent < LONGEST_LEASE)
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
        self.file.write()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_knows_how_long_the_one_before_it_was_silent_and_writes_nothing_after_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let note = Note::new(directory.path(), "127.0.0.1:29400".parse().unwrap());
        assert_eq!(note.silent(), None);
        note.write().unwrap();
        assert_eq!(note.silent(), Some(Duration::ZERO), "it may have renewed one just now");
        note.file.remove();
        *note.ended() = true;
        note.write().unwrap();
        assert_eq!(note.silent(), None);
    }
}
