//! The table of options as text: the help of `rallypoint run`, the reference in the book, and the docstring of the
//! Python package. The files are checked by the tests, which write them with `UPDATE_DOCS=1`.

use std::fmt::Write as _;

use super::{Backend, is_own_of_launcher, rows};
#[cfg(test)]
use super::{Kind, OptionSpec};

/// The options of `--rdzv-conf` of `rallypoint run`, a line for each that fits a terminal of 100 columns.
pub(crate) fn help() -> String {
    const INDENT: usize = 22;
    let mut text = String::from("Options of --rdzv-conf, with their defaults:\n");
    for row in rows(Backend::Rallypoint).filter(|row| !is_own_of_launcher(row.name)) {
        let mut meaning = row.meaning.replace('`', "");
        if let Some(default) = row.default {
            let _ = write!(meaning, " [{default}]");
        }
        let mut lines = wrap(&meaning, 98 - INDENT).into_iter();
        let _ = writeln!(text, "  {:<20}{}", row.name, lines.next().unwrap_or_default());
        for line in lines {
            let _ = writeln!(text, "{:INDENT$}{line}", "");
        }
    }
    text
}

/// Breaks text into lines of at most `width` characters.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The rows of a backend as a table of Markdown.
#[cfg(test)]
pub(super) fn markdown(backend: Backend) -> String {
    let mut text = String::from("| option | value | default | meaning |\n|---|---|---|---|\n");
    for row in rows(backend) {
        let names: Vec<String> =
            [row.name].iter().chain(row.aliases).map(|name| format!("`{name}`")).collect();
        let default = row.default.map_or(String::new(), |default| format!("`{default}`"));
        let _ = writeln!(
            text,
            "| {} | {} | {default} | {} |",
            names.join(", "),
            value(row),
            row.meaning
        );
    }
    text
}

/// The rows of a backend as the entries of a Python docstring.
#[cfg(test)]
pub(super) fn docstring(backend: Backend) -> String {
    let mut text = String::new();
    for row in rows(backend) {
        let default = row.default.map_or(String::new(), |default| format!(" ({default})"));
        let meaning = row.meaning.replace('`', "``");
        let entry = format!("- ``{}``{default}: {meaning}", row.name);
        for (index, line) in wrap(&entry, 104).into_iter().enumerate() {
            let _ = writeln!(text, "        {}{line}", if index == 0 { "" } else { "  " });
        }
    }
    text
}

/// The type of the values, as users read it.
#[cfg(test)]
fn value(row: &OptionSpec) -> String {
    match row.kind {
        Kind::Seconds { .. } => "seconds".to_owned(),
        Kind::WholeSeconds { .. } => "whole seconds".to_owned(),
        Kind::Count { .. } => "whole number".to_owned(),
        Kind::Switch => "`true` or `false`".to_owned(),
        Kind::Text => "text".to_owned(),
        Kind::File => "file".to_owned(),
        Kind::Ports => "ports".to_owned(),
        Kind::Choice(words) => {
            words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
        }
    }
}
