//! Threads that copy the workers' output to files and to the console.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tokio::sync::watch;

use super::lines::Lines;
use super::progress::LastOutput;
use crate::launch::console::{Console, OutputStream};
use crate::log_target::LAUNCH;

/// The time without output, after all workers are gone, after which a pipe that another process holds open is given up.
const PATIENCE: Duration = Duration::from_secs(1);

/// The copiers of all starts. They outlive their workers, so that stopping workers never waits for a slow
/// console.
///
/// Dropping it has the effect of [`OutputCopiers::finish`], without the wait.
#[derive(Debug)]
pub(crate) struct OutputCopiers {
    copiers: Mutex<Vec<Copier>>,
    /// Never written: closing it tells the copiers that all workers are gone.
    workers: Mutex<Option<PipeWriter>>,
    last_call: Arc<PipeReader>,
}

impl OutputCopiers {
    /// Without copiers.
    pub(crate) fn new() -> io::Result<Self> {
        let (last_call, workers) = io::pipe()?;
        Ok(Self {
            copiers: Mutex::default(),
            workers: Mutex::new(Some(workers)),
            last_call: Arc::new(last_call),
        })
    }

    /// Starts copying a stream.
    pub(super) fn start(&self, copy: Copy) -> io::Result<()> {
        let (sender, ended) = watch::channel(());
        let last_call = self.last_call.clone();
        let thread = std::thread::Builder::new().name("worker-output".to_owned());
        let thread = thread.spawn(move || {
            // Dropped when the thread ends, which `finish` waits for.
            let _running = sender;
            copy.run(Pipe { last_call, patience: None });
        })?;
        let mut copiers = lock(&self.copiers);
        copiers.extract_if(.., |copier| copier.thread.is_finished()).for_each(Copier::join);
        copiers.push(Copier { ended, thread });
        Ok(())
    }

    /// Waits until all output of the workers is written, however slow its reader is. Call it after the last worker is
    /// gone: a pipe that another process holds open is given up after a second without output. Can be called again.
    /// Cancel-safe.
    pub(crate) async fn finish(&self) {
        drop(lock(&self.workers).take());
        let all: Vec<_> = lock(&self.copiers).iter().map(|copier| copier.ended.clone()).collect();
        for mut ended in all {
            while ended.changed().await.is_ok() {}
        }
        std::mem::take(&mut *lock(&self.copiers)).into_iter().for_each(Copier::join);
    }
}

/// A thread that copies a stream until its last writer is gone. A thread and not a task, so that the launcher does not
/// delay a worker, nor a blocked console the launcher.
#[derive(Debug)]
struct Copier {
    ended: watch::Receiver<()>,
    thread: JoinHandle<()>,
}

impl Copier {
    /// Joins a thread that has ended.
    fn join(self) {
        // A panic was reported by the panic hook.
        let _ = self.thread.join();
    }
}

/// A stream to copy, and its destinations.
pub(super) struct Copy {
    pub(super) local_rank: u32,
    pub(super) reader: PipeReader,
    pub(super) file: Option<(File, PathBuf)>,
    pub(super) lines: Lines,
    pub(super) console: Arc<Console>,
    pub(super) stream: OutputStream,
    pub(super) last_output: Arc<LastOutput>,
}

impl Copy {
    fn run(mut self, mut pipe: Pipe) {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let piece = match pipe.read(&mut self.reader, &mut buffer) {
                Ok(0) => break,
                Ok(length) => &buffer[..length],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    let local_rank = self.local_rank;
                    tracing::warn!(
                        target: LAUNCH,
                        local_rank,
                        "the output of a worker is held open by a process that left its group"
                    );
                    break;
                }
                Err(error) => {
                    tracing::warn!(target: LAUNCH, %error, "the output of a worker cannot be read");
                    break;
                }
            };
            self.last_output.note();
            if let Some((file, path)) = &mut self.file
                && let Err(error) = file.write_all(piece)
            {
                tracing::warn!(target: LAUNCH, ?path, %error, "a log is not written any more");
                self.file = None;
            }
            let lines = self.lines.feed(piece);
            show(&self.console, self.stream, &lines);
        }
        show(&self.console, self.stream, &self.lines.finish());
    }
}

fn show(console: &Console, stream: OutputStream, lines: &str) {
    if !lines.is_empty() {
        console.write(stream, lines.as_bytes());
    }
}

/// Reads a pipe that other processes may hold open for ever.
struct Pipe {
    last_call: Arc<PipeReader>,
    /// The remaining time without output, once all workers are gone. Time for writing does not count.
    patience: Option<Duration>,
}

impl Pipe {
    /// Reads available bytes. Times out without output after all workers are gone.
    fn read(&mut self, reader: &mut PipeReader, buffer: &mut [u8]) -> io::Result<usize> {
        if self.patience.is_none() {
            let mut both =
                [&*reader, &*self.last_call].map(|pipe| PollFd::new(pipe, PollFlags::IN));
            poll(&mut both, None)?;
            if !both[1].revents().is_empty() {
                self.patience = Some(PATIENCE);
            }
        }
        if let Some(patience) = &mut self.patience {
            let begun = Instant::now();
            let time = Timespec::try_from(*patience).map_err(|_| Errno::INVAL)?;
            let ready = poll(&mut [PollFd::new(&*reader, PollFlags::IN)], Some(&time));
            *patience = patience.saturating_sub(begun.elapsed());
            if ready? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        reader.read(buffer)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
