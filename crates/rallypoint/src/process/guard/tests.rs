//! What a guard does when its input ends. Each test has a guard of its own, not the program's.

use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};

use super::*;
use crate::process::tests::ignores;

fn guard() -> Guard {
    Guard { shell: None, entries: BTreeSet::new() }
}

/// A process that leads a group of its own and would be there for a long time.
fn sleeper() -> (Child, Entry) {
    let child = Command::new("sleep").arg("100").process_group(0).spawn().unwrap();
    let entry = Entry::group(Pid::from_child(&child));
    (child, entry)
}

impl Guard {
    fn watch(&mut self, entry: &Entry) {
        self.entries.insert(entry.clone());
        self.tell("add", entry).unwrap();
    }

    fn unwatch(&mut self, entry: &Entry) {
        self.entries.remove(entry);
        self.tell("drop", entry).unwrap();
    }

    /// Ends its input, as our death does, and waits for it.
    fn end(self) {
        let mut shell = self.shell.unwrap().child;
        drop(shell.stdin.take());
        assert!(shell.wait().unwrap().success());
    }
}

#[test]
fn what_it_still_knows_at_the_end_is_ended_and_removed() {
    let root = tempfile::tempdir().unwrap();
    // Whatever a name is made of, it is one name.
    let names = ["plain", "a b  c ", " d", "*", "$(touch x)", "'\"\\n`", "-rf", "\u{fc}", "x/y"];
    let paths: Vec<_> = names.iter().map(|name| root.path().join(name)).collect();
    let kept = root.path().join("kept");
    let (mut watched, watched_entry) = sleeper();
    let (mut released, released_entry) = sleeper();
    let mut guard = guard();
    for path in paths.iter().chain([&kept]) {
        std::fs::create_dir_all(path.join("with/files")).unwrap();
        guard.watch(&Entry::directory(path).unwrap());
    }
    guard.watch(&watched_entry);
    guard.watch(&released_entry);
    guard.unwatch(&released_entry);
    guard.unwatch(&Entry::directory(&kept).unwrap());
    guard.end();
    assert_eq!(watched.wait().unwrap().signal(), Some(9));
    assert!(released.try_wait().unwrap().is_none(), "it was forgotten, and killed nevertheless");
    released.kill().unwrap();
    released.wait().unwrap();
    assert!(kept.is_dir());
    for path in paths {
        assert!(!path.exists(), "{path:?}");
    }
}

#[test]
fn one_that_was_killed_is_replaced_and_the_next_knows_everything() {
    let (mut early, early_entry) = sleeper();
    let (mut late, late_entry) = sleeper();
    let mut guard = guard();
    guard.watch(&early_entry);
    let first = Pid::from_child(&guard.shell.as_ref().unwrap().child);
    kill_process(first, Signal::KILL).unwrap();
    let begun = Instant::now();
    while guard.shell.as_mut().unwrap().child.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(1));
    }
    guard.watch(&late_entry);
    assert_ne!(Pid::from_child(&guard.shell.as_ref().unwrap().child), first);
    guard.end();
    assert_eq!(early.wait().unwrap().signal(), Some(9));
    assert_eq!(late.wait().unwrap().signal(), Some(9));
}

#[test]
fn signals_that_ask_do_not_end_it() {
    let (mut watched, entry) = sleeper();
    let mut guard = guard();
    guard.watch(&entry);
    let shell = Pid::from_child(&guard.shell.as_ref().unwrap().child);
    let begun = Instant::now();
    // They would end it before it has come to its first line.
    while !ignores(shell, Signal::TERM) {
        assert!(begun.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(1));
    }
    for signal in [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM] {
        kill_process(shell, signal).unwrap();
    }
    guard.end();
    assert_eq!(watched.wait().unwrap().signal(), Some(9));
}

#[test]
fn a_path_that_it_could_not_be_told_is_refused() {
    for path in ["/tmp/two\nlines", "relative"] {
        let error = Entry::directory(Path::new(path)).unwrap_err().to_string();
        assert!(error.contains(&format!("{path:?}")) && error.contains("TMPDIR"), "{error}");
    }
}
