//! Destinations of a worker's two streams: the launcher's own, a file, both, or none.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use super::copiers::{Copy, OutputCopiers};
use super::lines::Lines;
use super::progress::LastOutput;
use crate::launch::console::{Console, OutputStream};

/// The destination of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    /// The launcher's own stream.
    Inherited,
    Nowhere,
    /// A file alone.
    File,
    /// The console line by line, and a file if there are files.
    Copied {
        to_file: bool,
    },
}

/// The user's choice: a file instead of the console, a file as well, on the console at all.
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

    /// The route of a stream that the launcher must see, as a sign of progress.
    pub(super) fn seen(self) -> Self {
        match self {
            Self::Inherited => Self::Copied { to_file: false },
            other => other,
        }
    }

    pub(super) fn has_file(self) -> bool {
        matches!(self, Self::File | Self::Copied { to_file: true })
    }
}

/// One stream of one worker.
#[derive(Debug)]
pub(super) struct StreamSource<'a> {
    pub(super) stream: OutputStream,
    pub(super) local_rank: u32,
    pub(super) route: Route,
    /// The file, if the route has one.
    pub(super) file: Option<&'a Path>,
    /// The prefix of its lines on the console.
    pub(super) prefix: String,
    /// Where a copier notes that there is output.
    pub(super) last_output: Arc<LastOutput>,
}

impl StreamSource<'_> {
    /// The worker's end of the stream. Starts a copier if the route needs one.
    pub(super) fn open(self, console: &Arc<Console>, output: &OutputCopiers) -> io::Result<Stdio> {
        let create = |path: &Path| Ok::<_, io::Error>((File::create_new(path)?, path.to_owned()));
        let file = self.file.map(create).transpose()?;
        Ok(match (self.route, file) {
            (Route::Inherited, _) => Stdio::inherit(),
            (Route::Copied { .. }, file) => {
                let (reader, writer) = io::pipe()?;
                output.start(Copy {
                    local_rank: self.local_rank,
                    reader,
                    file,
                    lines: Lines::new(self.prefix),
                    console: console.clone(),
                    stream: self.stream,
                    last_output: self.last_output,
                })?;
                writer.into()
            }
            (_, Some((file, _))) => file.into(),
            (_, None) => Stdio::null(),
        })
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
