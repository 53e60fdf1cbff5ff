//! What the kernel shows of a process, in `/proc`.

use std::fs;

use rallypoint_core::agent::stacks::Frame;

/// The largest number of functions of the kernel in a stack.
const MOST: usize = 6;

/// Whether the process is a Python interpreter, or has one in it.
pub(super) fn is_python(pid: u32) -> bool {
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let is_named = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with("python");
    program.file_name().is_some_and(is_named)
        || fs::read_to_string(format!("/proc/{pid}/maps"))
            .is_ok_and(|maps| maps.contains("libpython"))
}

/// Where the main thread of the process is in the kernel, the innermost function first. Only root may read all of it;
/// other users see the function that it waits in.
pub(super) fn frames(pid: u32) -> Vec<Frame> {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let stack = read("stack");
    let mut functions: Vec<&str> = stack.lines().filter_map(function).take(MOST).collect();
    let waits_in = read("wchan");
    let status = read("status");
    if functions.is_empty() {
        functions.push(match waits_in.trim() {
            "" | "0" => state(&status),
            waits_in => waits_in,
        });
    }
    let file = read("comm").trim().to_owned();
    let frame =
        |function: &str| Frame { function: function.to_owned(), file: file.clone(), line: 0 };
    functions.into_iter().map(frame).collect()
}

/// The function of a line such as `[<0>] futex_wait+0x67/0x120`.
fn function(line: &str) -> Option<&str> {
    let (_, function) = line.split_once("] ")?;
    let name = function.split('+').next()?.trim();
    // How every call of the kernel begins.
    (!name.is_empty() && !name.starts_with("entry_SYSCALL") && name != "do_syscall_64")
        .then_some(name)
}

/// The state of a process that waits nowhere, such as `running`.
fn state(status: &str) -> &str {
    let line = status.lines().find_map(|line| line.strip_prefix("State:"));
    let word = line.and_then(|line| Some(line.split_once('(')?.1.split_once(')')?.0));
    word.unwrap_or("an unknown place")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_kernel_has_a_function() {
        for (line, expected) in [
            ("[<0>] futex_do_wait+0x46/0x90", Some("futex_do_wait")),
            ("[<0>] entry_SYSCALL_64_after_hwframe+0x76/0x7e", None),
            ("[<0>] do_syscall_64+0x71/0x280", None),
            ("", None),
        ] {
            assert_eq!(function(line), expected);
        }
        assert_eq!(state("Name:\tsh\nState:\tR (running)\n"), "running");
        assert_eq!(state(""), "an unknown place");
    }

    #[test]
    fn a_process_that_waits_is_somewhere() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut found = Vec::new();
        // It begins as a copy of this program.
        for _ in 0..1000 {
            found = frames(child.id());
            if found.iter().any(|frame| frame.file == "sleep" && frame.function.contains("sleep")) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let is_python = is_python(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.iter().any(|frame| frame.function.contains("sleep")), "{found:?}");
        assert!(!is_python);
        assert_eq!(frames(child.id())[0].function, "an unknown place");
    }
}
