//! The last lines of a log of any length.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

const LINES: usize = 20;
const BYTES: u64 = 64 << 10;

/// The last lines of a file, within its last 64 KiB.
pub(super) fn last_lines(path: &Path) -> io::Result<Vec<String>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let skipped = length.saturating_sub(BYTES);
    file.seek(SeekFrom::Start(skipped))?;
    let mut bytes = Vec::new();
    // The file may still grow.
    file.take(BYTES).read_to_end(&mut bytes)?;
    Ok(lines(&bytes, skipped > 0))
}

/// Without the first line if the text starts within a line, unless it is the only one.
fn lines(bytes: &[u8], is_cut: bool) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    // Of a progress bar, the latest state.
    let shown = |line: &str| {
        let last = line.trim_end().rsplit('\r').next();
        last.unwrap_or_default().to_owned()
    };
    let mut lines: Vec<String> = text.trim_end().lines().map(shown).collect();
    let surplus = lines.len().saturating_sub(LINES);
    let surplus = if is_cut && lines.len() > 1 { surplus.max(1) } else { surplus };
    lines.drain(..surplus);
    lines
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn the_last_lines_are_those_that_are_whole() {
        for (text, is_cut, expected) in [
            ("a\nb\n", false, &["a", "b"][..]),
            ("a\nb", true, &["b"]),
            ("a", true, &["a"]),
            ("10%\r20%\r30%\nb\r\n\n", false, &["30%", "b"]),
            ("", false, &[]),
            ("\n\n", false, &[]),
        ] {
            assert_eq!(lines(text.as_bytes(), is_cut), expected, "{text:?}");
        }
        assert_eq!(lines(b"\xff\n", false), ["\u{fffd}"]);
    }

    #[test]
    fn of_a_long_file_only_the_end_is_read() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        for number in 0..100_000 {
            writeln!(file, "line {number}").unwrap();
        }
        let lines = last_lines(file.path()).unwrap();
        assert_eq!(lines.len(), LINES);
        assert_eq!((&*lines[0], &*lines[19]), ("line 99980", "line 99999"));
        write!(file, "{}", "x".repeat(100_000)).unwrap();
        assert_eq!(last_lines(file.path()).unwrap(), ["x".repeat(BYTES as usize)]);
    }
}
