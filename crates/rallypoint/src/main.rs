//! The `rallypoint` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    // The guard and the gates are this program, and have no use for the rest of it.
    if let Some(code) = rallypoint::process::reexecuted() {
        return code;
    }
    rallypoint::cli::run(std::env::args_os())
}

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
