//! Splits a worker's output into lines for the console. Pure.

/// A longer line is shown in parts, so that a line without end does not fill memory.
const LONGEST: usize = 64 << 10;

/// The lines of one stream of a worker.
#[derive(Debug)]
pub(in crate::launch) struct Lines {
    prefix: String,
    /// A line without its end yet.
    begun: Vec<u8>,
    /// The last byte was a carriage return, so a line feed next belongs to the same line end.
    after_return: bool,
}

impl Lines {
    /// Lines with this prefix.
    pub(in crate::launch) fn new(prefix: String) -> Self {
        Self { prefix, begun: Vec::new(), after_return: false }
    }

    /// The lines that this piece completes. A carriage return ends a line too, for progress bars.
    pub(in crate::launch) fn feed(&mut self, piece: &[u8]) -> String {
        let mut whole = String::new();
        for part in piece.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let (text, end) = match part.split_last() {
                Some((end @ (b'\n' | b'\r'), text)) => (text, Some(*end)),
                _ => (part, None),
            };
            let is_rest_of_end = self.after_return && end == Some(b'\n') && text.is_empty();
            self.after_return = end == Some(b'\r');
            if is_rest_of_end {
                continue;
            }
            self.begun.extend_from_slice(text);
            // A progress bar starts with a carriage return, which would be an empty line.
            let is_nothing = end == Some(b'\r') && self.begun.is_empty();
            if end.is_some() && !is_nothing || self.begun.len() >= LONGEST {
                self.end_line(&mut whole);
            }
        }
        whole
    }

    /// The last line, if it lacks a line end.
    pub(in crate::launch) fn finish(mut self) -> String {
        let mut whole = String::new();
        if !self.begun.is_empty() {
            self.end_line(&mut whole);
        }
        whole
    }

    fn end_line(&mut self, whole: &mut String) {
        whole.push_str(&self.prefix);
        whole.push_str(&String::from_utf8_lossy(&self.begun));
        whole.push('\n');
        self.begun.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is shown, piece by piece, and at the end.
    fn shown(pieces: &[&[u8]]) -> Vec<String> {
        let mut lines = Lines::new("> ".to_owned());
        let mut shown: Vec<String> = pieces.iter().map(|piece| lines.feed(piece)).collect();
        shown.push(lines.finish());
        shown
    }

    #[test]
    fn only_whole_lines_are_shown_and_the_last_one_at_the_end() {
        for (pieces, expected) in [
            (&[b"a\nb\n" as &[u8]][..], &["> a\n> b\n", ""][..]),
            (&[b"a", b"b\nc", b"d"], &["", "> ab\n", "", "> cd\n"]),
            (&[b"\n\n"], &["> \n> \n", ""]),
            (&[b"a\r\nb\r", b"\nc"], &["> a\n> b\n", "", "> c\n"]),
            (&[b"\r10%\r20%", b"\r\n\n"], &["> 10%\n", "> 20%\n> \n", ""]),
            // A character in two pieces is one character.
            (&[b"\xc3", b"\xa4\n"], &["", "> \u{e4}\n", ""]),
            (&[b"\xff\xfe!\n"], &["> \u{fffd}\u{fffd}!\n", ""]),
            (&[], &[""]),
        ] {
            assert_eq!(shown(pieces), expected, "{pieces:?}");
        }
    }

    #[test]
    fn a_line_without_end_is_shown_in_parts() {
        let shown = shown(&[&[b'x'; LONGEST], b"y\n"]);
        assert_eq!(shown[0].len(), LONGEST + 3);
        assert_eq!(shown[1], "> y\n");
    }
}
