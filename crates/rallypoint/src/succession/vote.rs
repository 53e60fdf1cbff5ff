//! Whether a node counts for the first group of a run.
//!
//! The hosts of the order are the group of round 0, and its members must not vote twice: a launcher that is started again
//! on its host remembers nothing, and could begin the run anew beside the nodes that go on. So a node that confirms its
//! rank leaves a note on its host, and refreshes it while it is a member. A launcher that finds a note, however old, does
//! not vote if any other host remembers a group, and not before every other host has answered that it remembers none: a
//! host that does not answer may be in a group that goes on without this one. If no host remembers any, the whole job was
//! started again, and the launcher also waits until no worker of the group before can be left.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rallypoint_core::rendezvous::succession::order::HostAnswer;
use rallypoint_core::rendezvous::succession::outlives;
use tokio::time::{Instant, sleep, timeout};

use super::order::{HostOrder, OrderSetup, PATIENCE};
use crate::embedded::runtime_directory;
use crate::log_target::EMBEDDED;
use crate::util::blocking::blocking;
use crate::util::boot_note::BootNote;

/// The pause between two looks at the note and at the other hosts.
const AGAIN: Duration = Duration::from_millis(500);

/// After this time the log says that the file system of the note does not answer.
const SLOW: Duration = Duration::from_secs(2);

/// The note of a host that a node of this run has confirmed a rank there. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct VoteNote(Arc<NoteFile>);

#[derive(Debug)]
struct NoteFile {
    note: BootNote,
    /// Held by the thread that writes or removes the file.
    io: Mutex<()>,
    /// Whether the note is to be there.
    wanted: AtomicBool,
}

impl VoteNote {
    fn new(setup: &OrderSetup, host: usize) -> Self {
        let port = setup.endpoints.get(host).map_or(0, |endpoint| endpoint.port);
        let run: String = setup.run_id.bytes().map(|byte| format!("{byte:02x}")).collect();
        // A file name has at most 255 bytes.
        let run = run.get(..128).unwrap_or(&run);
        // Hosts may share the directory, and each writes the time of its own boot.
        let name = format!("rallypoint-voted-{host}-{port}-{run}");
        Self::of_file(BootNote::new(&runtime_directory(), &name))
    }

    fn of_file(note: BootNote) -> Self {
        let (io, wanted) = (Mutex::default(), AtomicBool::new(false));
        Self(Arc::new(NoteFile { note, io, wanted }))
    }

    /// The note of this host, if it is one of the order.
    pub(crate) fn of(order: &HostOrder) -> Option<Self> {
        order.own().map(|(host, _)| Self::new(order.setup(), host))
    }

    /// A node of this host is about to confirm a rank: it must not before this is done.
    ///
    /// A file system that does not answer is waited for, however long. It is often that of all hosts, so that no host
    /// would have a note of the group. A file that cannot be written is another matter: a container may have no place
    /// for it, and is replaced as a whole.
    pub(crate) fn write(&self) -> impl Future<Output = ()> + Send + 'static {
        let file = self.0.clone();
        file.wanted.store(true, Ordering::Relaxed);
        async move {
            let path = file.note.path().display().to_string();
            let writing = {
                let file = file.clone();
                blocking(move || file.write())
            };
            let told = "the node confirms its rank only when it is written";
            if let Err(error) = unless_slow(writing, &path, told).await {
                tracing::warn!(
                    target: EMBEDDED,
                    %error, path, "a launcher that is started again on this host will not know of this one"
                );
            }
        }
    }

    /// The node is a member of a group. Nothing, while the last write is still under way.
    pub(crate) fn refresh(&self) -> Option<impl Future<Output = ()> + Send + 'static> {
        let is_idle = self.0.io.try_lock().is_ok();
        is_idle.then(|| self.write())
    }

    /// The node leaves in good order. No write that was begun before leaves a note behind.
    pub(crate) async fn remove(&self) {
        let file = self.0.clone();
        file.wanted.store(false, Ordering::Relaxed);
        blocking(move || {
            let _alone = file.alone();
            file.note.remove();
        })
        .await;
    }

    /// How long ago the note was written, if there is one.
    async fn age(&self) -> Option<Duration> {
        let file = self.0.clone();
        let path = file.note.path().display().to_string();
        let told = "whether this node counts for the first group is not known before";
        unless_slow(blocking(move || file.note.age()), &path, told).await
    }
}

impl NoteFile {
    fn alone(&self) -> std::sync::MutexGuard<'_, ()> {
        self.io.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::io::Result<()> {
        let _alone = self.alone();
        match self.wanted.load(Ordering::Relaxed) {
            true => self.note.write(),
            false => Ok(()),
        }
    }
}

/// Waits for work on a file, and says so if it takes long.
async fn unless_slow<T>(work: impl Future<Output = T>, path: &str, told: &str) -> T {
    let mut work = std::pin::pin!(work);
    if let Ok(done) = timeout(SLOW, work.as_mut()).await {
        return done;
    }
    tracing::warn!(
        target: EMBEDDED,
        path, "the file system does not answer; {told}. Set XDG_RUNTIME_DIR or TMPDIR to a directory of this host"
    );
    work.await
}

impl HostOrder {
    /// Whether the node of this process counts for the first group of the run. Waits where that is not certain.
    pub(crate) async fn votes(&self) -> bool {
        while !self.is_decided() {
            // No first group forms any more, so it does not matter which host this is.
            if self.know_of_a_group().await {
                return false;
            }
            let _ = timeout(AGAIN, self.decided()).await;
        }
        let Some(note) = VoteNote::of(self) else { return false };
        let (begun, fresh) = (Instant::now(), 2 * outlives(self.setup().lease_ttl));
        loop {
            // A note that cannot be read has no age.
            let Some(age) = note.age().await.map(|age| age.max(begun.elapsed())) else {
                return true;
            };
            let left = fresh.saturating_sub(age);
            match self.ask_for_groups().await {
                Memory::Group => return false,
                Memory::None if left.is_zero() => return true,
                Memory::None => self.set_vote_obstacle(format!(
                    "this host was part of this run a moment ago, and no other host remembers it; this launcher waits up \
                     to {fresh:.0?}, until no worker of that time can be left. Another run id begins at once"
                )),
                Memory::Silent(hosts) => self.set_vote_obstacle(format!(
                    "this host was part of this run before, and {} of the endpoint does not answer, so a group of the \
                     run may be there; start its launcher, or take another run id",
                    hosts.join(",")
                )),
            }
            sleep(AGAIN).await;
        }
    }

    /// Why it is not known yet whether the node counts, with the remedy.
    pub(crate) fn vote_obstacle(&self) -> String {
        match self.is_decided() {
            false => format!(
                "a name of the endpoint {:?} does not resolve, so it is not known whether it means this host; correct \
                 the name on all nodes, or start its host",
                self.names()
            ),
            true => self.last_vote_obstacle(),
        }
    }

    /// Whether any other host remembers a group of the run.
    async fn know_of_a_group(&self) -> bool {
        matches!(self.ask_for_groups().await, Memory::Group)
    }

    /// What the hosts remember of the run.
    async fn ask_for_groups(&self) -> Memory {
        let answers = self.ask(0, PATIENCE).await;
        let knows = |answer: &HostAnswer| match answer {
            HostAnswer::Silent => false,
            HostAnswer::StandsBy { remembers } => *remembers > 0,
            HostAnswer::Serves { formed } => *formed > 0,
        };
        if answers.iter().any(knows) {
            return Memory::Group;
        }
        let is_silent = |host: &usize| answers[*host] == HostAnswer::Silent;
        let silent: Vec<String> =
            (0..answers.len()).filter(is_silent).map(|host| self.name(host)).collect();
        if silent.is_empty() { Memory::None } else { Memory::Silent(silent) }
    }
}

/// What the hosts of the order remember of a run.
enum Memory {
    /// One of them knows of a group.
    Group,
    /// All have answered, and none knows of a group.
    None,
    /// None is known to know of a group, and these do not answer.
    Silent(Vec<String>),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note() -> (tempfile::TempDir, VoteNote) {
        let directory = tempfile::tempdir().unwrap();
        let note = VoteNote::of_file(BootNote::new(directory.path(), "note"));
        (directory, note)
    }

    /// A file system that does not answer: the thread that writes holds this as long.
    fn hang(note: &VoteNote) -> std::sync::MutexGuard<'_, ()> {
        note.0.alone()
    }

    #[tokio::test]
    #[expect(clippy::await_holding_lock, reason = "the file system hangs meanwhile")]
    async fn a_confirmation_waits_for_its_note_and_a_refresh_does_not_pile_up() {
        let (_directory, note) = note();
        let hung = hang(&note);
        let mut writing = tokio::spawn(note.write());
        assert!(timeout(Duration::from_millis(50), &mut writing).await.is_err());
        assert!(note.refresh().is_none());
        drop(hung);
        writing.await.unwrap();
        assert!(note.age().await.is_some());
        note.refresh().unwrap().await;
    }

    #[tokio::test]
    async fn a_write_that_was_begun_before_the_node_left_leaves_nothing() {
        let (_directory, note) = note();
        let late = note.write();
        note.remove().await;
        late.await;
        assert_eq!(note.age().await, None);
        note.write().await;
        assert!(note.age().await.is_some());
    }

    #[tokio::test]
    async fn a_node_without_a_place_for_its_note_goes_on() {
        let (directory, note) = note();
        drop(directory);
        note.write().await;
        assert_eq!(note.age().await, None);
    }
}
