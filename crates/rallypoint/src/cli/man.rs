//! `rallypoint man`: our pages of the manual, written from the options and their help.

use std::io;
use std::path::{Path, PathBuf};

use clap::builder::Resettable;
use clap::{Args, Command};
use clap_mangen::roff::{Roff, roman};
use thiserror::Error;

use super::{AnyError, command};
use crate::launch::job::Environment;

/// The text after the options in `--help`.
pub(super) const AFTER_HELP: &str = "\
The directory is made if it is not there. The Python package installs the pages.

Example:
  rallypoint man ~/.local/share/man/man1
  man rallypoint-run";

#[derive(Debug, Args)]
pub(super) struct Man {
    /// Directory for the pages, one for each command
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
}

/// Why the pages were not written.
#[derive(Debug, Error)]
#[error(
    "pages of the manual cannot be written to {directory:?}; give a directory that you may write to"
)]
struct ManError {
    directory: PathBuf,
    source: io::Error,
}

impl Man {
    pub(super) fn run(self) -> Result<(), AnyError> {
        let directory = self.directory;
        // Its page would say the same as that of `--help`.
        let mut all = command(&Environment::new()).disable_help_subcommand(true);
        all.build();
        std::fs::create_dir_all(&directory)
            .and_then(|()| write_pages(&all, &directory))
            .map_err(|source| ManError { directory, source }.into())
    }
}

/// Writes the page of a command, and those of its subcommands.
fn write_pages(command: &Command, directory: &Path) -> io::Result<()> {
    for subcommand in command.get_subcommands() {
        write_pages(subcommand, directory)?;
    }
    let man = clap_mangen::Man::new(command.clone().after_help(Resettable::Reset))
        .source(concat!("rallypoint ", env!("CARGO_PKG_VERSION")));
    let mut page = Vec::new();
    man.render(&mut page)?;
    if let Some(text) = command.get_after_help() {
        notes(&text.to_string()).to_writer(&mut page)?;
    }
    std::fs::write(directory.join(man.get_filename()), page)
}

/// The text after the options as a section. Sentences are filled to the width of the terminal; lines that are
/// indented, such as examples and tables, stay as they are.
fn notes(text: &str) -> Roff {
    let mut notes = Roff::default();
    notes.control("SH", ["NOTES"]);
    let mut filled = true;
    for line in text.lines() {
        let sentence = !line.starts_with(' ');
        if sentence != filled {
            filled = sentence;
            notes.control(if filled { "fi" } else { "nf" }, []);
        }
        notes.text([roman(line)]);
    }
    notes
}
