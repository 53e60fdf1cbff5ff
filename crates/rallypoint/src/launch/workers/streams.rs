//! Where a worker's two streams go: to the launcher's, to a file, to both, or nowhere.

use std::fs::File;
use std::io::{self, PipeReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::lines::Lines;
use crate::launch::console::{Console, Stream};

/// What to do with a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    /// It is the launcher's own.
    Inherited,
    Nowhere,
    /// To its file alone.
    File,
    /// To the console line by line, and to its file if there are files.
    Copied {
        to_file: bool,
    },
}

/// What was asked for: a file instead of the console, a file as well, to be seen at all.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) redirected: bool,
    pub(super) copied: bool,
    pub(super) shown: bool,
}

impl Route {
    pub(super) fn new(wanted: Wanted, has_files: bool) -> Self {
        match wanted {
            Wanted { copied: true, shown: true, .. } => Self::Copied { to_file: has_files },
            Wanted { redirected: false, copied: false, shown: true } => Self::Inherited,
            Wanted { redirected: false, copied: false, shown: false } => Self::Nowhere,
            _ if has_files => Self::File,
            _ => Self::Nowhere,
        }
    }

    pub(super) fn has_file(self) -> bool {
        matches!(self, Self::File | Self::Copied { to_file: true })
    }
}

/// One stream of one worker.
#[derive(Debug)]
pub(super) struct Source<'a> {
    pub(super) stream: Stream,
    pub(super) route: Route,
    /// Its file, if the route has one.
    pub(super) file: Option<&'a Path>,
    /// What its lines on the console begin with.
    pub(super) prefix: String,
}

impl Source<'_> {
    /// What the worker is to be started with, and who copies it meanwhile.
    pub(super) fn open(self, console: &Arc<Console>) -> io::Result<(Stdio, Option<Copier>)> {
        let create = |path: &Path| Ok::<_, io::Error>((File::create_new(path)?, path.to_owned()));
        let file = self.file.map(create).transpose()?;
        Ok(match (self.route, file) {
            (Route::Inherited, _) => (Stdio::inherit(), None),
            (Route::Copied { .. }, file) => {
                let (reader, writer) = io::pipe()?;
                let copy = Copy {
                    reader,
                    file,
                    lines: Lines::new(self.prefix),
                    console: console.clone(),
                    stream: self.stream,
                };
                (writer.into(), Some(Copier::start(copy)?))
            }
            (_, Some((file, _))) => (file.into(), None),
            (_, None) => (Stdio::null(), None),
        })
    }
}

/// A thread that copies a stream until its last writer is gone. A thread and not a task: a worker is not
/// held up by what else the launcher does, nor the launcher by a console that nobody reads.
#[derive(Debug)]
pub(super) struct Copier {
    ended: watch::Receiver<bool>,
    thread: JoinHandle<()>,
}

impl Copier {
    fn start(copy: Copy) -> io::Result<Self> {
        let (sender, ended) = watch::channel(false);
        let thread = std::thread::Builder::new().name("worker-output".to_owned());
        let thread = thread.spawn(move || {
            copy.run();
            sender.send_replace(true);
        })?;
        Ok(Self { ended, thread })
    }

    /// Waits until everything is written.
    pub(super) async fn ended(&self) {
        let _ = self.ended.clone().wait_for(|ended| *ended).await;
    }

    /// Blocks until then, but not beyond the deadline: what holds the stream open then may do so for ever.
    pub(super) fn join_before(self, deadline: Instant) {
        while !self.thread.is_finished() {
            if Instant::now() > deadline {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // Its panic was told by itself.
        let _ = self.thread.join();
    }
}

struct Copy {
    reader: PipeReader,
    file: Option<(File, PathBuf)>,
    lines: Lines,
    console: Arc<Console>,
    stream: Stream,
}

impl Copy {
    fn run(mut self) {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let piece = match self.reader.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => &buffer[..length],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    tracing::warn!(%error, "the output of a worker cannot be read");
                    break;
                }
            };
            if let Some((file, path)) = &mut self.file
                && let Err(error) = file.write_all(piece)
            {
                tracing::warn!(?path, %error, "a log is not written any more");
                self.file = None;
            }
            let lines = self.lines.feed(piece);
            show(&self.console, self.stream, &lines);
        }
        show(&self.console, self.stream, &self.lines.finish());
    }
}

fn show(console: &Console, stream: Stream, lines: &str) {
    if !lines.is_empty() {
        console.write(stream, lines.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_stream_goes() {
        let route = |redirected, copied, shown, has_files| {
            Route::new(Wanted { redirected, copied, shown }, has_files)
        };
        const COPIED: Route = Route::Copied { to_file: true };
        for (redirected, copied, shown, with_files, without) in [
            (false, false, true, Route::Inherited, Route::Inherited),
            (false, false, false, Route::Nowhere, Route::Nowhere),
            (true, false, true, Route::File, Route::Nowhere),
            (true, false, false, Route::File, Route::Nowhere),
            (false, true, true, COPIED, Route::Copied { to_file: false }),
            (true, true, true, COPIED, Route::Copied { to_file: false }),
            (false, true, false, Route::File, Route::Nowhere),
            (true, true, false, Route::File, Route::Nowhere),
        ] {
            let wanted = (redirected, copied, shown);
            assert_eq!(route(redirected, copied, shown, true), with_files, "{wanted:?}");
            assert_eq!(route(redirected, copied, shown, false), without, "{wanted:?}");
        }
    }
}
