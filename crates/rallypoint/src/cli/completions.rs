//! `rallypoint completions`: what a shell needs to complete our command lines.

use std::io::{self, Write};

use clap::Args;
use clap_complete::{Shell, generate};

use super::{AnyError, command};
use crate::launch::job::Environment;

/// The text after the options in `--help`.
pub(super) const AFTER_HELP: &str = "\
The script goes to standard output. The Python package installs it for bash, zsh and fish.

Examples:
  For this shell alone:
    source <(rallypoint completions bash)
  For good:
    rallypoint completions bash >~/.local/share/bash-completion/completions/rallypoint
    rallypoint completions fish >~/.config/fish/completions/rallypoint.fish
  For good, in a directory of zsh's fpath:
    rallypoint completions zsh >~/.zfunc/_rallypoint";

#[derive(Debug, Args)]
pub(super) struct Completions {
    /// Shell for which the script is
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl Completions {
    #[expect(clippy::unnecessary_wraps, reason = "as every command")]
    pub(super) fn run(self) -> Result<(), AnyError> {
        let mut script = Vec::new();
        generate(self.shell, &mut command(&Environment::new()), "rallypoint", &mut script);
        // The reader may be gone.
        let _ = io::stdout().write_all(&script);
        Ok(())
    }
}
