//! The `rallypoint` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    rallypoint::cli::run(std::env::args_os())
}

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
