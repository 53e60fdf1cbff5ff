//! The question before a change, and the author of it.

use std::io::{BufRead, IsTerminal, Write};

use crate::cli::AnyError;
use crate::util::host::host_name;

/// Asks whether to go on, on the terminal. `yes` is the answer given by `--yes`.
///
/// # Errors
/// If the answer is no, or there is no terminal to ask on.
pub(super) fn confirm(question: &str, yes: bool) -> Result<(), AnyError> {
    if yes {
        return Ok(());
    }
    let (stdin, mut stderr) = (std::io::stdin(), std::io::stderr());
    if !stdin.is_terminal() || !stderr.is_terminal() {
        let refused = format!("{question} There is no terminal to ask on: give --yes to do it");
        return Err(refused.into());
    }
    write!(stderr, "{question} [y/N] ")?;
    stderr.flush()?;
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer)?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err("nothing was changed".into()),
    }
}

/// The author of a change, as `user@host`, for the nodes to say who did it.
pub(super) fn author() -> String {
    let named = ["USER", "LOGNAME"].iter().filter_map(|name| std::env::var(name).ok());
    let user = named.into_iter().find(|user| !user.is_empty());
    let user = user.unwrap_or_else(|| format!("uid{}", rustix::process::getuid().as_raw()));
    format!("{user}@{}", host_name())
}
