//! What etcd says: where it goes, and the end of it, which is kept for errors.

use std::fs::File;
use std::io::{self, PipeReader, Read, Write};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::error::EtcdServerError;

use crate::log_target::ETCD_SERVER;

/// Where etcd's output goes. Its last lines are kept for errors whatever is chosen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum EtcdOutput {
    /// Nowhere.
    #[default]
    Discard,
    /// To the standard error of this process.
    Inherit,
    /// To the end of this file, which is made if there is none.
    File(PathBuf),
}

impl EtcdOutput {
    pub(super) fn open(&self) -> Result<Box<dyn Write + Send>, EtcdServerError> {
        match self {
            Self::Discard => Ok(Box::new(io::sink())),
            Self::Inherit => Ok(Box::new(io::stderr())),
            Self::File(path) => match File::options().create(true).append(true).open(path) {
                Ok(file) => Ok(Box::new(file)),
                Err(source) => Err(EtcdServerError::Output { path: path.clone(), source }),
            },
        }
    }
}

/// How much is kept, in bytes and in lines. After a complaint about its command line etcd explains how it
/// is used, in a dozen lines or more.
const KEPT_BYTES: usize = 16 << 10;
const KEPT_LINES: usize = 20;

/// How long to wait for the last words of a process that has ended. Something that it started and that
/// left its group could hold its output open for ever.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// The output of one process.
#[derive(Debug)]
pub(super) struct Output {
    kept: Arc<Mutex<Vec<u8>>>,
    ended: watch::Receiver<bool>,
}

impl Output {
    /// Takes the standard output and the standard error of a command that is about to be started.
    ///
    /// They are read by a thread, which ends when they do, and not by a task: should the runtime be
    /// busy, or gone, etcd would be held up by what it cannot say.
    pub(super) fn of(
        command: &mut Command,
        destination: Box<dyn Write + Send>,
    ) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        command.stdout(writer.try_clone()?).stderr(writer);
        let kept = Arc::<Mutex<Vec<u8>>>::default();
        let (sender, ended) = watch::channel(false);
        let thread = std::thread::Builder::new().name("etcd-output".to_owned());
        let keep = kept.clone();
        thread.spawn(move || {
            drain(reader, destination, &keep);
            sender.send_replace(true);
        })?;
        Ok(Self { kept, ended })
    }

    /// The last lines of a process that has ended.
    pub(super) async fn last_words(&mut self) -> Vec<String> {
        let _ = timeout(LAST_WORDS, self.ended.wait_for(|ended| *ended)).await;
        self.lines()
    }

    /// The last lines so far.
    pub(super) fn lines(&self) -> Vec<String> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&kept);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let first = lines.len().saturating_sub(KEPT_LINES);
        lines[first..].iter().map(ToString::to_string).collect()
    }
}

/// Passes everything on until the last writer is gone.
fn drain(mut reader: PipeReader, mut destination: Box<dyn Write + Send>, kept: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 8 << 10];
    loop {
        let read = match reader.read(&mut buffer) {
            Ok(0) => return,
            Ok(read) => &buffer[..read],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                return tracing::warn!(target: ETCD_SERVER, %error, "etcd's output cannot be read");
            }
        };
        if let Err(error) = destination.write_all(read) {
            tracing::warn!(target: ETCD_SERVER, %error, "etcd's output is not kept any more");
            destination = Box::new(io::sink());
        }
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(read);
        let surplus = kept.len().saturating_sub(KEPT_BYTES);
        kept.drain(..surplus);
    }
}
