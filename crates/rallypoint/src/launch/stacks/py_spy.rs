//! Stacks of Python, by the program py-spy: it reads the memory of the process and does not stop it.

use std::env;
use std::ffi::OsStr;
use std::io::{self, PipeReader, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rallypoint_core::agent::stacks::Frame;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde_json::Value;
use thiserror::Error;

use crate::launch::job::HIDDEN;
use crate::process::{self, ProcessGroup};
use crate::util::program::{candidates, first_executable};

/// The variable with the path of the program.
const PROGRAM: &str = "PYSPY_BIN";

/// The largest output that is read.
const LARGEST: usize = 4 << 20;

/// A process that runs changes its stack while it is read, so a second look may succeed.
const ATTEMPTS: usize = 2;

/// Why there is no stack.
#[derive(Debug, Error)]
pub(super) enum DumpError {
    #[error("py-spy cannot be started: {0}")]
    Start(#[from] io::Error),
    #[error("py-spy took too long and was killed")]
    Late,
    #[error("py-spy: {0}")]
    Refused(String),
}

/// The path of py-spy: the one that `PYSPY_BIN` names, or on the `PATH`, or beside the program of the workers.
pub(super) fn find(program: &OsStr) -> Option<PathBuf> {
    let beside = Path::new(program).parent().filter(|parent| parent.is_absolute());
    let mut places = match env::var_os(PROGRAM).filter(|path| !path.is_empty()) {
        Some(path) => vec![PathBuf::from(path)],
        None => candidates("py-spy".as_ref(), env::var_os("PATH").as_deref()),
    };
    places.extend(beside.map(|directory| directory.join("py-spy")));
    first_executable(places).ok()
}

/// The stack of the main thread, the innermost call first. Blocks, at most until the deadline and the moment that
/// killing a process takes.
pub(super) fn dump(program: &Path, pid: u32, deadline: Instant) -> Result<Vec<Frame>, DumpError> {
    let mut last = Err(DumpError::Late);
    for _ in 0..ATTEMPTS {
        last = attempt(program, pid, deadline);
        if !matches!(last, Err(DumpError::Refused(_))) {
            break;
        }
    }
    last
}

fn attempt(program: &Path, pid: u32, deadline: Instant) -> Result<Vec<Frame>, DumpError> {
    let mut command = process::command(program)?;
    for hidden in HIDDEN {
        command.env_remove(hidden);
    }
    command.args(["dump", "--nonblocking", "--json", "--pid", &pid.to_string()]);
    let (mut output, writer) = io::pipe()?;
    let (mut errors, error_writer) = io::pipe()?;
    command.stdout(writer).stderr(error_writer);
    let group = ProcessGroup::start(&mut command)?;
    // Its own ends must not keep the pipes open.
    drop(command);
    let text = read(&mut output, deadline);
    let error = text.is_some().then(|| read(&mut errors, deadline)).flatten();
    drop(group);
    let text = text.ok_or(DumpError::Late)?;
    parse(&text, pid).ok_or_else(|| DumpError::Refused(reason(&error.unwrap_or_default())))
}

/// Everything up to the end; `None` if the end does not come in time.
fn read(pipe: &mut PipeReader, deadline: Instant) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let time = Timespec::try_from(left.max(Duration::from_millis(1))).ok()?;
        if left.is_zero() {
            return None;
        }
        match poll(&mut [PollFd::new(&*pipe, PollFlags::IN)], Some(&time)) {
            Err(Errno::INTR) => continue,
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
        match pipe.read(&mut buffer) {
            Ok(0) => return Some(all),
            Ok(length) if all.len() < LARGEST => all.extend_from_slice(&buffer[..length]),
            Ok(_) => return None,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

/// The first line that says what is wrong.
fn reason(errors: &[u8]) -> String {
    let text = String::from_utf8_lossy(errors);
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or("no stack, and no reason");
    first.trim_start_matches("Error: ").to_owned()
}

/// The calls of the main thread.
fn parse(json: &[u8], pid: u32) -> Option<Vec<Frame>> {
    let threads: Value = serde_json::from_slice(json).ok()?;
    let threads = threads.as_array()?;
    let is_main =
        |thread: &&Value| thread["os_thread_id"] == pid || thread["thread_name"] == "MainThread";
    let main = threads.iter().find(is_main).or_else(|| threads.first())?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let frame = |frame: &Value| Frame {
        function: text(&frame["name"]),
        file: text(&frame["filename"]),
        line: frame["line"].as_u64().and_then(|line| line.try_into().ok()).unwrap_or(0),
    };
    let frames: Vec<Frame> = main["frames"].as_array()?.iter().map(frame).collect();
    (!frames.is_empty()).then_some(frames)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const THREADS: &str = r#"[
        {"os_thread_id": 8, "thread_name": "Thread-1", "frames": [{"name": "x", "filename": "x.py", "line": 1}]},
        {"os_thread_id": 7, "thread_name": "MainThread", "frames": [
            {"name": "Queue.put", "filename": "/usr/lib/python3.11/queue.py", "line": 140, "locals": null},
            {"name": "load", "filename": "/job/data.py", "line": 88}]}]"#;

    #[test]
    fn the_stack_is_that_of_the_main_thread() {
        let found = parse(THREADS.as_bytes(), 7).unwrap();
        let load = Frame { function: "load".into(), file: "/job/data.py".into(), line: 88 };
        assert_eq!((found.len(), &found[1]), (2, &load));
        for other in ["", "[]", "{}", r#"[{"frames": []}]"#, "Error"] {
            assert_eq!(parse(other.as_bytes(), 7), None, "{other}");
        }
    }

    /// A tool that says this and then does this.
    fn tool(script: &str) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("py-spy");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        (directory, path)
    }

    #[test]
    fn a_tool_that_hangs_or_fails_is_named_and_bounded() {
        let soon = || Instant::now() + Duration::from_secs(30);
        let (_kept, refuses) = tool("echo 'Error: Permission denied (os error 1)' >&2; exit 1");
        let error = dump(&refuses, 7, soon()).unwrap_err().to_string();
        assert_eq!(error, "py-spy: Permission denied (os error 1)");
        let (_kept, hangs) = tool("echo '['; exec sleep 1000");
        let begun = Instant::now();
        let late = dump(&hangs, 7, begun + Duration::from_millis(300)).unwrap_err();
        assert!(matches!(late, DumpError::Late), "{late}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        let (_kept, answers) = tool(&format!("cat <<'END'\n{THREADS}\nEND"));
        assert_eq!(dump(&answers, 7, soon()).unwrap().len(), 2);
    }
}
