//! The `rallypoint` command.

fn main() {}
