//! The console: standard output and standard error, shared by all who have something to say.
//!
//! What is written is whole lines, so that no two are ever mixed. Below them there may be a live line, which
//! is taken away before anything else is written and put back after it.

use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::termios::tcgetwinsize;

/// Takes away what the cursor's line says.
const CLEAR: &[u8] = b"\r\x1b[K";

/// The width of a terminal that does not tell.
const USUAL_WIDTH: usize = 80;

/// Where a line goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

/// The console. Errors of writing are nobody's concern: there is nowhere left to tell of them.
///
/// Log lines go through it as well: `Arc<Console>` is a writer for `tracing_subscriber`.
pub(crate) struct Console {
    /// Locked before the other.
    error: Mutex<Below>,
    output: Mutex<Box<dyn Write + Send>>,
    output_is_terminal: bool,
    error_is_terminal: bool,
    may_colour: bool,
    is_for_people: bool,
}

/// Standard error, with the live line.
struct Below {
    writer: Box<dyn Write + Send>,
    live: Option<String>,
    width: fn() -> Option<usize>,
}

impl Console {
    /// That of this process. If it is not for people, a program takes every line of standard error that is
    /// ours for a line of the log.
    pub(crate) fn new(is_for_people: bool) -> Self {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self {
            error: Mutex::new(Below { writer: Box::new(io::stderr()), live: None, width }),
            output: Mutex::new(Box::new(io::stdout())),
            output_is_terminal: io::stdout().is_terminal() && !is_dumb,
            error_is_terminal: io::stderr().is_terminal() && !is_dumb && is_for_people,
            may_colour: !is_set("NO_COLOR"),
            is_for_people,
        }
    }

    /// Whether other things than the log may be on standard error.
    pub(crate) fn is_for_people(&self) -> bool {
        self.is_for_people
    }

    /// Whether colours are of use there.
    pub(crate) fn is_coloured(&self, stream: Stream) -> bool {
        let is_terminal = match stream {
            Stream::Stdout => self.output_is_terminal,
            Stream::Stderr => self.error_is_terminal,
        };
        is_terminal && self.may_colour
    }

    /// Writes one or several whole lines, each with its end.
    pub(crate) fn write(&self, stream: Stream, lines: &[u8]) {
        match stream {
            Stream::Stderr => lock(&self.error).above(|writer| put(writer, lines)),
            Stream::Stdout if self.output_is_terminal => {
                lock(&self.error).above(|_| put(&mut **lock(&self.output), lines));
            }
            // Whoever reads there may be slow, and the log must not wait for it.
            Stream::Stdout => put(&mut **lock(&self.output), lines),
        }
    }

    /// Whether a live line would be seen.
    pub(crate) fn has_live_line(&self) -> bool {
        self.error_is_terminal
    }

    /// Shows this line below all others until another one is set, or none. Only on a terminal.
    pub(crate) fn set_live(&self, line: Option<String>) {
        if self.error_is_terminal {
            let mut error = lock(&self.error);
            error.clear();
            error.live = line;
            error.draw();
        }
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

/// What is written is on standard error.
impl Write for &Console {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        Console::write(self, Stream::Stderr, lines);
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
            let below = Below { writer: Box::new(error.clone()), live: None, width: || Some(10) };
            let console = Self {
                error: Mutex::new(below),
                output: Mutex::new(Box::new(output.clone())),
                output_is_terminal: is_terminal,
                error_is_terminal: is_terminal,
                may_colour: true,
                is_for_people: true,
            };
            (console, output, error)
        }
    }

    #[test]
    fn the_live_line_is_taken_away_and_put_back() {
        let (console, output, error) = Console::shown(true);
        console.set_live(Some("waiting for two\nnodes".to_owned()));
        console.write(Stream::Stderr, b"one\n");
        console.write(Stream::Stdout, b"two\n");
        console.set_live(None);
        console.write(Stream::Stderr, b"three\n");
        let live = "waiting f";
        let clear = "\r\x1b[K";
        assert_eq!(error.text(), format!("{live}{clear}one\n{live}{clear}{live}{clear}three\n"));
        assert_eq!(output.text(), "two\n");
    }

    #[test]
    fn in_a_file_there_is_no_live_line_and_no_colour() {
        let (console, _, error) = Console::shown(false);
        console.set_live(Some("waiting".to_owned()));
        console.write(Stream::Stderr, b"one\n");
        assert_eq!(error.text(), "one\n");
        assert!(!console.is_coloured(Stream::Stdout) && !console.is_coloured(Stream::Stderr));
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
        let log = tracing_subscriber::fmt().with_ansi(false).with_writer(console).finish();
        tracing::subscriber::with_default(log, || tracing::info!("said"));
        let text = error.text();
        assert!(text.starts_with("live\r\x1b[K") && text.ends_with("said\nlive"), "{text:?}");
    }
}
