//! The commands of an operator: `status`, `explain` and `ui` look at runs, `close`, `reopen` and `evict` change them.
//!
//! - `server`: the options that name a server, and what is read there.
//! - `confirm`: the question before a change, and its author.
//! - `text`: what is printed; names and reasons come from other hosts, so they are escaped.

pub(super) mod close;
mod confirm;
pub(super) mod evict;
pub(super) mod explain;
pub(super) mod reopen;
pub(super) mod server;
pub(super) mod status;
mod text;
pub(super) mod ui;
mod watch;

use std::io::Write;

use super::AnyError;

/// Runs a command to its end, on one thread.
fn block_on<T>(command: impl Future<Output = Result<T, AnyError>>) -> Result<T, AnyError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(command)
}

/// Prints to standard output. A reader that is gone ends the command.
fn print(text: &str) -> Result<(), AnyError> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    Ok(stdout.flush()?)
}
