//! The write-ahead log in the data directory.
//!
//! The whole store is in memory, so the log has one task: to make a batch of records durable before it is
//! acknowledged. That is an append and one `fdatasync`. Now and then the log is rewritten from the store,
//! in the same format, and replaces the old one by a rename.
//!
//! - `frame`: the layout of the file.
//! - `record`: the content of a frame as bytes.
//!
//! All functions block; the server calls them from a thread of its own.

mod frame;
pub(crate) mod fuzzing;
mod record;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rallypoint_core::mvcc::Record;
use thiserror::Error;

use self::frame::{CHUNK, FRAME_HEADER, HEADER, WalFrame};

use crate::log_target::SERVER;
use crate::util::backoff::Backoff;
use crate::util::file_lock::try_lock;
use crate::util::random;

const LOG: &str = "log";
const NEW_LOG: &str = "log.new";
const LOCK: &str = "lock";

/// A log shorter than this is never rewritten.
const SMALL: u64 = 64 << 20;

/// The backoff between attempts to rewrite the log.
const REWRITE_BACKOFF: Backoff =
    Backoff::new(Duration::from_secs(1), Duration::from_secs(300)).without_jitter();

/// Why a data directory cannot be used. When a server does not start for such a reason, nothing in the
/// directory was changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WalError {
    /// The directory belongs to something else.
    #[error(
        "data directory {dir} is not Rallypoint's: it holds {found:?}; \
         give an empty directory, or one that does not exist yet"
    )]
    Foreign {
        /// The directory.
        dir: PathBuf,
        /// The name of a file that is not Rallypoint's.
        found: String,
    },
    /// Another server uses the directory.
    #[error("data directory {dir} is in use by another server; stop it, or give another directory")]
    Locked {
        /// The directory.
        dir: PathBuf,
    },
    /// The file is not a log, or a log of another version.
    #[error(
        "{path} is not a log that this version can read: it begins with {found:?}, \
         not {:?}; use the version that wrote it, or another directory",
        HEADER.escape_ascii().to_string()
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// Its first bytes.
        found: String,
    },
    /// The log was changed or truncated by another program.
    #[error(
        "{path} is damaged at byte {offset}: {what}; nothing was changed. \
         Restore the file, or move the directory away to start with an empty store"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The offset of the defect.
        offset: usize,
        /// The defect.
        what: String,
    },
    /// An operation of the operating system has failed.
    #[error("cannot {action} {path}")]
    Io {
        /// The operation.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// Adds the operation and the path to an error of the operating system.
fn context<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> WalError + 'a {
    move |source| WalError::Io { action, path: path.to_owned(), source }
}

/// The log of one server, open for appending. Holds the directory's lock until it is dropped.
#[derive(Debug)]
pub(super) struct Wal {
    dir: PathBuf,
    cluster_id: u64,
    file: File,
    /// The offset of the next frame.
    end: u64,
    /// The file's length.
    capacity: u64,
    /// The length of the log after its last rewrite; 0 if there was none.
    fresh: u64,
    /// If the last rewrite failed: when to try again.
    postponed: Option<Instant>,
    backoff: Backoff,
    _lock: File,
}

impl Wal {
    /// Opens the log in `dir`, or creates one, and returns its records.
    ///
    /// Nothing in the directory is changed unless all of it is valid.
    pub(super) fn open(dir: &Path) -> Result<(Self, Vec<Record>), WalError> {
        let exists = survey(dir)?;
        if !exists {
            create_dir(dir)?;
        }
        let lock = lock(dir)?;
        let path = dir.join(LOG);
        if !path.try_exists().map_err(context("look for", &path))? {
            let cluster_id = random::number().max(1);
            let (file, end) = write_new(dir, cluster_id, Vec::new())?;
            rename_new(dir)?;
            sync_dir(dir).map_err(context("sync", dir))?;
            return Ok((Self::new(dir, cluster_id, file, (end, end), lock)?, Vec::new()));
        }
        let bytes = fs::read(&path).map_err(context("read", &path))?;
        let contents = frame::decode(&bytes).map_err(|damage| WalError::Damaged {
            path: path.clone(),
            offset: damage.offset,
            what: damage.what,
        })?;
        let file = OpenOptions::new().write(true).open(&path).map_err(context("open", &path))?;
        // A server that was killed during a rewrite has left an incomplete file.
        remove_new(dir)?;
        if contents.torn > 0 {
            tracing::warn!(
                target: SERVER,
                bytes = contents.torn,
                "the last write was interrupted before it was acknowledged; dropping it"
            );
            file.write_all_at(&vec![0; contents.torn as usize], contents.end)
                .map_err(context("write", &path))?;
        }
        // The last frame of a server that was killed, or the file's name, may be in the kernel's memory
        // only. What is served from here on must not depend on that.
        file.sync_data().and_then(|()| sync_dir(dir)).map_err(context("sync", &path))?;
        // How much of the log is superfluous is unknown. If a restart counted as a rewrite, each would
        // double the size that the log may grow to.
        let log = Self::new(dir, contents.cluster_id, file, (contents.end, 0), lock)?;
        Ok((log, contents.records))
    }

    fn new(
        dir: &Path,
        cluster_id: u64,
        file: File,
        (end, fresh): (u64, u64),
        lock: File,
    ) -> Result<Self, WalError> {
        let path = dir.join(LOG);
        let capacity = file.metadata().map_err(context("measure", &path))?.len();
        Ok(Self {
            dir: dir.to_owned(),
            cluster_id,
            file,
            end,
            capacity,
            fresh,
            postponed: None,
            backoff: REWRITE_BACKOFF,
            _lock: lock,
        })
    }

    /// Appends records. They are on disk when this returns.
    ///
    /// After an error the state of the file is unknown, and the log must not be used again.
    pub(super) fn append(&mut self, records: Vec<Record>) -> Result<(), WalError> {
        // Each frame is synced before the next one begins: only the last frame of a file may be torn.
        frame::frames(records).try_for_each(|frame| self.append_frame(frame))
    }

    fn append_frame(&mut self, frame: WalFrame) -> Result<(), WalError> {
        let path = self.dir.join(LOG);
        let frame = frame::encode(frame, self.end);
        let end = self.end + frame.len() as u64;
        let capacity = capacity(end);
        if capacity > self.capacity {
            // The length must be on disk before the frame: after a power cut that kept the beginning of the
            // frame and not the new length, the file would look truncated.
            self.file
                .set_len(capacity)
                .and_then(|()| self.file.sync_all())
                .map_err(context("grow", &path))?;
            self.capacity = capacity;
        }
        self.file
            .write_all_at(&frame, self.end)
            .and_then(|()| self.file.sync_data())
            .map_err(context("write", &path))?;
        self.end = end;
        Ok(())
    }

    /// The id of the cluster whose history this is; no other log has it.
    pub(super) fn cluster_id(&self) -> u64 {
        self.cluster_id
    }

    /// The length of the log in bytes.
    pub(super) fn len(&self) -> u64 {
        self.end
    }

    /// Whether enough was appended that a rewrite may make the log much shorter.
    pub(super) fn is_long(&self) -> bool {
        self.end > SMALL.max(2 * self.fresh)
    }

    /// Whether a rewrite is due: the log is long, and no rewrite failed a short while ago.
    pub(super) fn is_due(&self) -> bool {
        self.is_long() && self.postponed.is_none_or(|again| Instant::now() >= again)
    }

    /// Replaces the log by one with these records, and returns whether that was possible. If not, most likely
    /// because the disk is full, the old log is unchanged and stays in use, and the incomplete new one is
    /// removed.
    ///
    /// After an error the state of the file is unknown, and the log must not be used again.
    pub(super) fn rewrite(&mut self, records: Vec<Record>) -> Result<bool, WalError> {
        let written = write_new(&self.dir, self.cluster_id, records);
        let replaced = written.and_then(|written| rename_new(&self.dir).map(|()| written));
        let (file, end) = match replaced {
            Ok(written) => written,
            Err(error) => {
                let delay = self.backoff.next_delay();
                self.postponed = Some(Instant::now() + delay);
                let source = std::error::Error::source(&error).map(ToString::to_string);
                tracing::warn!(
                    target: SERVER,
                    %error, source, log_bytes = self.end, again_in = ?delay,
                    "the log cannot be compacted and keeps growing; make room on the disk"
                );
                if let Err(error) = remove_new(&self.dir) {
                    tracing::warn!(
                        target: SERVER,
                        %error, "what there is of the new log stays on the disk"
                    );
                }
                return Ok(false);
            }
        };
        // The rename must be durable, too.
        sync_dir(&self.dir).map_err(context("sync", &self.dir))?;
        let capacity = capacity(end);
        (self.file, self.end, self.capacity, self.fresh) = (file, end, capacity, end);
        self.postponed = None;
        self.backoff.reset();
        Ok(true)
    }
}

/// The length of a file with `end` bytes of frames and the zeros after them.
fn capacity(end: u64) -> u64 {
    (end + FRAME_HEADER as u64).next_multiple_of(CHUNK)
}

/// Whether the directory exists; an error if it belongs to another program.
fn survey(dir: &Path) -> Result<bool, WalError> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        entries => entries.map_err(context("use as a data directory", dir))?,
    };
    if check_header(&dir.join(LOG))? {
        return Ok(true);
    }
    // Without a log the directory is usable only if it holds no other files. A new volume has a lost+found;
    // an interrupted server may have left the lock.
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry.map_err(context("read", dir))?.file_name());
    }
    let begun = names.iter().any(|name| name == LOCK);
    let harmless =
        |name: &OsString| name == LOCK || name == "lost+found" || (begun && name == NEW_LOG);
    match names.iter().find(|name| !harmless(name)) {
        None => Ok(true),
        Some(name) => {
            let found = name.to_string_lossy().into_owned();
            Err(WalError::Foreign { dir: dir.to_owned(), found })
        }
    }
}

/// Creates the directory and its missing parents, and syncs each of them.
fn create_dir(dir: &Path) -> Result<(), WalError> {
    let missing: Vec<&Path> = dir.ancestors().take_while(|above| !above.exists()).collect();
    // The data may be protected by a password on the server.
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(context("create", dir))?;
    for made in missing {
        let above = made.parent().filter(|above| !above.as_os_str().is_empty());
        sync_dir(above.unwrap_or_else(|| Path::new("."))).map_err(context("sync", dir))?;
    }
    Ok(())
}

/// Whether the log exists; an error if it is another program's file of that name. This is checked before the
/// lock, which must not be left in another program's directory. Rallypoint's log has its header from the
/// moment that it has its name.
fn check_header(path: &Path) -> Result<bool, WalError> {
    let mut beginning = Vec::new();
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        file => file
            .and_then(|file| file.take(HEADER.len() as u64).read_to_end(&mut beginning))
            .map_err(context("read", path))?,
    };
    if beginning != HEADER {
        let found = beginning.escape_ascii().to_string();
        return Err(WalError::Format { path: path.to_owned(), found });
    }
    Ok(true)
}

fn lock(dir: &Path) -> Result<File, WalError> {
    let path = dir.join(LOCK);
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(context("open", &path))?;
    match try_lock(&file) {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(WalError::Locked { dir: dir.to_owned() }),
        Err(TryLockError::Error(source)) => Err(context("lock", &path)(source)),
    }
}

/// Writes a whole log beside the old one, if there is one. It is on disk when this returns, and replaces the
/// old one by a rename, so that one of them exists even after a crash.
fn write_new(dir: &Path, cluster_id: u64, records: Vec<Record>) -> Result<(File, u64), WalError> {
    let new_path = dir.join(NEW_LOG);
    let file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&new_path)
        .map_err(context("create", &new_path))?;
    let write = || -> io::Result<u64> {
        reserve(&file, records.iter().map(frame::size).sum())?;
        file.write_all_at(HEADER, 0)?;
        let mut end = HEADER.len() as u64;
        let mut append = |frame| -> io::Result<()> {
            let bytes = frame::encode(frame, end);
            file.write_all_at(&bytes, end)?;
            end += bytes.len() as u64;
            Ok(())
        };
        append(WalFrame { cluster_id, records: Vec::new() })?;
        frame::frames(records).try_for_each(append)?;
        file.set_len(capacity(end))?;
        file.sync_all()?;
        Ok(end)
    };
    let end = write().map_err(context("write", &new_path))?;
    Ok((file, end))
}

/// Reserves disk space before the first write, so that a full disk is noticed at once and other programs'
/// writes do not fail meanwhile. Not every file system supports it.
fn reserve(file: &File, bytes: usize) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::Errno;
    match fallocate(file, FallocateFlags::empty(), 0, capacity(bytes as u64)) {
        Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => Err(error.into()),
        _ => Ok(()),
    }
}

fn rename_new(dir: &Path) -> Result<(), WalError> {
    let path = dir.join(LOG);
    fs::rename(dir.join(NEW_LOG), &path).map_err(context("replace", &path))
}

/// Removes the incomplete file of a rewrite.
fn remove_new(dir: &Path) -> Result<(), WalError> {
    let path = dir.join(NEW_LOG);
    match fs::remove_file(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(context("remove", &path)),
    }
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
