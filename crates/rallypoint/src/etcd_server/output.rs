//! The output of etcd: its destination, and its last lines, which errors quote.

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

/// The destination of etcd's output. Errors quote the last lines with each of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum EtcdOutput {
    /// The output is discarded.
    #[default]
    Discard,
    /// The standard error of this process.
    Inherit,
    /// The end of this file, which is created if it does not exist.
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

/// How many bytes of output are kept. After an error in its command line, etcd prints its usage in a dozen
/// lines or more.
const KEPT_BYTES: usize = 16 << 10;
/// How many lines of output an error quotes.
const KEPT_LINES: usize = 20;

/// How long to wait for the end of the output after the process has ended. A descendant that left the
/// process group could hold the output open for ever.
const OUTPUT_END_TIMEOUT: Duration = Duration::from_secs(5);

/// The last output of one process.
#[derive(Debug)]
pub(super) struct OutputTail {
    kept: Arc<Mutex<Vec<u8>>>,
    ended: watch::Receiver<bool>,
}

impl OutputTail {
    /// Redirects the standard output and standard error of `command` to a pipe.
    ///
    /// A thread reads the pipe until its end. A task would not do: if the runtime were busy or shut down,
    /// etcd would block on a full pipe.
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

    /// Waits for the end of the output, and returns the last lines. The process must have ended.
    pub(super) async fn last_lines_of_ended(&mut self) -> Vec<String> {
        let _ = timeout(OUTPUT_END_TIMEOUT, self.ended.wait_for(|ended| *ended)).await;
        self.lines()
    }

    /// The last lines of the output so far.
    pub(super) fn lines(&self) -> Vec<String> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&kept);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let first = lines.len().saturating_sub(KEPT_LINES);
        lines[first..].iter().map(ToString::to_string).collect()
    }
}

/// Copies the pipe to `destination` and `kept` until its last writer closes it.
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
            tracing::warn!(target: ETCD_SERVER, %error, "etcd's output cannot be written; discarding it");
            destination = Box::new(io::sink());
        }
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(read);
        let surplus = kept.len().saturating_sub(KEPT_BYTES);
        kept.drain(..surplus);
    }
}
