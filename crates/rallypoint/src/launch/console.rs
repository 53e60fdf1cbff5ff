//! The console: standard output and standard error, shared by the log, the live line and the workers' output.
//!
//! Writes are whole lines, so that lines never mix. A live line may stand below them; it is
//! erased before any other write and redrawn after it.
//!
//! The reader may be slow. Copiers of a worker's output block then, as the worker would; the launcher does
//! not: its log lines and the live line wait in a [`Queue`] for a thread that writes them.

mod queue;

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::termios::tcgetwinsize;

use self::queue::{ConsoleItem, Queue};

use crate::log_target::LAUNCH;

/// Erases the cursor's line.
const CLEAR: &[u8] = b"\r\x1b[K";

/// The width of a terminal that does not report one.
const USUAL_WIDTH: usize = 80;

/// The time limit for writing the last lines at exit.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// One of the two output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputStream {
    Stdout,
    Stderr,
}

/// The console. Write errors are ignored: there is no other place to report them.
///
/// Log lines go through it as well: `Arc<Console>` is a writer for `tracing_subscriber`. When it is dropped,
/// its thread writes the remaining lines, and ends. Nothing joins the thread, since a slow reader may block it.
pub(crate) struct Console {
    screen: Arc<Screen>,
    queue: Arc<Queue>,
    error_is_terminal: bool,
    may_colour: bool,
    is_for_people: bool,
}

/// Both streams, with blocking writes.
struct Screen {
    /// Locked before the other.
    error: Mutex<Below>,
    output: Mutex<Box<dyn Write + Send>>,
    output_is_terminal: bool,
}

/// Standard error, with the live line.
struct Below {
    writer: Box<dyn Write + Send>,
    live: Option<String>,
    width: fn() -> Option<usize>,
}

impl Console {
    /// The console of this process. If it is not for people, a program parses every line that the launcher writes to
    /// standard error as a log line.
    ///
    /// # Errors
    /// The writing thread cannot be started.
    pub(crate) fn new(is_for_people: bool) -> io::Result<Self> {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let screen = Screen {
            error: Mutex::new(Below { writer: Box::new(io::stderr()), live: None, width }),
            output: Mutex::new(Box::new(io::stdout())),
            output_is_terminal: io::stdout().is_terminal() && !is_dumb,
        };
        let error_is_terminal = io::stderr().is_terminal() && !is_dumb && is_for_people;
        Self::on(screen, error_is_terminal, !is_set("NO_COLOR"), is_for_people)
    }

    fn on(
        screen: Screen,
        error_is_terminal: bool,
        may_colour: bool,
        is_for_people: bool,
    ) -> io::Result<Self> {
        let (screen, queue) = (Arc::new(screen), Arc::new(Queue::default()));
        let (written, waiting) = (screen.clone(), queue.clone());
        let thread = std::thread::Builder::new().name("console".to_owned());
        thread.spawn(move || written.write_all(&waiting))?;
        Ok(Self { screen, queue, error_is_terminal, may_colour, is_for_people })
    }

    /// Whether standard error may have lines that are not log lines.
    pub(crate) fn is_for_people(&self) -> bool {
        self.is_for_people
    }

    /// Whether the stream is a terminal that shows colours.
    pub(crate) fn is_coloured(&self, stream: OutputStream) -> bool {
        let is_terminal = match stream {
            OutputStream::Stdout => self.screen.output_is_terminal,
            OutputStream::Stderr => self.error_is_terminal,
        };
        is_terminal && self.may_colour
    }

    /// Writes whole lines, each with its line end. Blocks until the stream accepts them.
    pub(crate) fn write(&self, stream: OutputStream, lines: &[u8]) {
        self.screen.write(stream, lines);
    }

    /// Queues whole lines for standard error, after the log lines before them. Does not block.
    pub(crate) fn say(&self, lines: &str) {
        self.queue.insist(lines.as_bytes());
    }

    /// Whether there is a terminal for the live line.
    pub(crate) fn has_live_line(&self) -> bool {
        self.error_is_terminal
    }

    /// Shows this line below all others until the next call. Only on a terminal. Does not
    /// block.
    pub(crate) fn set_live(&self, line: Option<String>) {
        if self.error_is_terminal {
            self.queue.set_live(line);
        }
    }

    /// Blocks until all queued lines are written, for two seconds at most, since the reader may be slow.
    pub(crate) fn flush(&self) {
        self.queue.flush(FLUSH_TIMEOUT);
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl Screen {
    /// Writes queued items until the queue is closed and empty.
    fn write_all(&self, queue: &Queue) {
        while let Some(item) = queue.next() {
            match item {
                ConsoleItem::Lines(lines) => self.write(OutputStream::Stderr, &lines),
                ConsoleItem::Live(line) => self.set_live(line),
                // The warning is a log line and passes through this queue as well.
                ConsoleItem::Dropped(count) => {
                    tracing::warn!(
                        target: LAUNCH,
                        "{count} log lines were dropped: the reader of standard error is too slow"
                    );
                }
            }
        }
    }

    fn write(&self, stream: OutputStream, lines: &[u8]) {
        match stream {
            OutputStream::Stderr => lock(&self.error).above(|writer| put(writer, lines)),
            OutputStream::Stdout if self.output_is_terminal => {
                lock(&self.error).above(|_| put(&mut **lock(&self.output), lines));
            }
            // The reader of standard output may be slow, and the log must not wait for it.
            OutputStream::Stdout => put(&mut **lock(&self.output), lines),
        }
    }

    fn set_live(&self, line: Option<String>) {
        let mut error = lock(&self.error);
        error.clear();
        error.live = line;
        error.draw();
    }
}

impl Below {
    fn above(&mut self, write: impl FnOnce(&mut (dyn Write + Send))) {
        self.clear();
        write(&mut *self.writer);
        self.draw();
    }

    fn clear(&mut self) {
        if self.live.is_some() {
            put(&mut *self.writer, CLEAR);
        }
    }

    fn draw(&mut self) {
        if let Some(live) = &self.live {
            let line = fitted(live, (self.width)().unwrap_or(USUAL_WIDTH));
            put(&mut *self.writer, line.as_bytes());
        }
    }
}

/// Queues whole log lines for standard error; drops them if the reader is too slow. Never blocks.
impl Write for &Console {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        self.queue.push(lines);
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn put(writer: &mut (dyn Write + Send), bytes: &[u8]) {
    let _ = writer.write_all(bytes).and_then(|()| writer.flush());
}

/// The width of the terminal that standard error is.
fn width() -> Option<usize> {
    let columns = tcgetwinsize(io::stderr()).ok()?.ws_col;
    (columns > 0).then_some(columns.into())
}

/// As much of the text as a line has room for, without what would move the cursor. The last column stays
/// free: some terminals go on to the next line there.
fn fitted(text: &str, width: usize) -> String {
    text.chars().filter(|c| !c.is_control()).take(width.saturating_sub(1)).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use super::*;

    /// What was written.
    #[derive(Clone, Default)]
    pub(crate) struct Shown(Arc<Mutex<Vec<u8>>>);

    impl Shown {
        pub(crate) fn text(&self) -> String {
            String::from_utf8(lock(&self.0).clone()).unwrap()
        }
    }

    impl Write for Shown {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            lock(&self.0).write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Console {
        /// One that can be looked at: its standard output and its standard error.
        pub(crate) fn shown(is_terminal: bool) -> (Self, Shown, Shown) {
            let (output, error) = (Shown::default(), Shown::default());
            (Self::of(is_terminal, output.clone(), error.clone()), output, error)
        }

        /// One with these streams.
        pub(crate) fn of(
            is_terminal: bool,
            output: impl Write + Send + 'static,
            error: impl Write + Send + 'static,
        ) -> Self {
            let below = Below { writer: Box::new(error), live: None, width: || Some(10) };
            let screen = Screen {
                error: Mutex::new(below),
                output: Mutex::new(Box::new(output)),
                output_is_terminal: is_terminal,
            };
            Self::on(screen, is_terminal, true, true).unwrap()
        }

        /// Waits until everything is written, on any machine.
        fn settle(&self) {
            assert!(self.queue.flush(Duration::from_secs(60)));
        }
    }

    #[test]
    fn the_live_line_is_taken_away_and_put_back() {
        let (console, output, error) = Console::shown(true);
        console.set_live(Some("waiting for two\nnodes".to_owned()));
        console.settle();
        console.write(OutputStream::Stderr, b"one\n");
        console.write(OutputStream::Stdout, b"two\n");
        console.set_live(None);
        console.settle();
        console.write(OutputStream::Stderr, b"three\n");
        let live = "waiting f";
        let clear = "\r\x1b[K";
        assert_eq!(error.text(), format!("{live}{clear}one\n{live}{clear}{live}{clear}three\n"));
        assert_eq!(output.text(), "two\n");
    }

    #[test]
    fn in_a_file_there_is_no_live_line_and_no_colour() {
        let (console, _, error) = Console::shown(false);
        console.set_live(Some("waiting".to_owned()));
        console.settle();
        console.write(OutputStream::Stderr, b"one\n");
        assert_eq!(error.text(), "one\n");
        assert!(
            !console.is_coloured(OutputStream::Stdout)
                && !console.is_coloured(OutputStream::Stderr)
        );
    }

    #[test]
    fn a_line_is_cut_to_the_terminal() {
        assert_eq!(fitted("a\tb\x1b[31mc", 80), "ab[31mc");
        assert_eq!(fitted("äöüß", 4), "äöü");
        assert_eq!(fitted("abc", 0), "");
    }

    #[test]
    fn log_lines_go_through_it() {
        let (console, _, error) = Console::shown(true);
        let console = Arc::new(console);
        console.set_live(Some("live".to_owned()));
        console.settle();
        let log = tracing_subscriber::fmt().with_ansi(false).with_writer(console.clone()).finish();
        tracing::subscriber::with_default(log, || tracing::info!(target: LAUNCH, "said"));
        console.settle();
        let text = error.text();
        assert!(text.starts_with("live\r\x1b[K") && text.ends_with("said\nlive"), "{text:?}");
    }
    /// A writer that blocks until the sender is dropped.
    struct Stuck(std::sync::mpsc::Receiver<()>, Shown);

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            self.1.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_log_and_the_live_line_do_not_wait_for_a_slow_console() {
        let (reader, stuck) = std::sync::mpsc::channel();
        let error = Shown::default();
        let console = Arc::new(Console::of(true, Shown::default(), Stuck(stuck, error.clone())));
        // As a copier of a worker's output, which does wait.
        let copier = console.clone();
        let copier = std::thread::spawn(move || copier.write(OutputStream::Stderr, b"copied\n"));
        for number in 0..100_000 {
            // In one piece, as the log does it: a queue that is almost full takes some pieces and drops others.
            (&*console).write_all(format!("line {number}\n").as_bytes()).unwrap();
        }
        console.set_live(Some("live".to_owned()));
        console.set_live(None);
        console.say("the end\n");
        assert!(!console.queue.flush(Duration::from_millis(1)));
        drop(reader);
        copier.join().unwrap();
        console.settle();
        let text = error.text();
        let lines: Vec<&str> = text.lines().filter(|line| *line != "copied").collect();
        assert!(lines.len() < 100_000, "there is no bound: {}", lines.len());
        assert_eq!((lines[0], lines[lines.len() - 1]), ("line 0", "the end"));
    }
}
