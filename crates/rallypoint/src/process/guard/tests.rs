//! The guard before and after the end of its parent. Each test has a guard of its own, not the program's.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;

use rustix::net::{Shutdown, shutdown};
use rustix::time::{ClockId, clock_gettime};

use super::*;
use crate::process::table;
use crate::process::tests::{has, lives, until};

/// A process that leads a group of its own and would be there for a long time.
fn sleeper() -> (Child, Pid) {
    let child = Command::new("sleep").arg("100").process_group(0).spawn().unwrap();
    let pid = Pid::from_child(&child);
    (child, pid)
}

fn in_future(time: Duration) -> Option<Time> {
    let now = clock_gettime(ClockId::Boottime);
    Some(Duration::new(now.tv_sec.try_into().unwrap(), now.tv_nsec.try_into().unwrap()) + time)
}

impl GuardHandle {
    /// The process id of the guard, once it is ready.
    fn guard(&self) -> Pid {
        let mut found = None;
        until("there is a guard", || {
            let state = self.lock();
            found = state.running.as_ref().filter(|guard| guard.has_begun).map(|guard| guard.pid);
            found.is_some()
        });
        found.unwrap()
    }

    /// Closes the link, as the end of the parent does, and waits for the end of the guard.
    fn end(&self) {
        let guard = self.guard();
        let mut state = self.lock();
        state.entries.clear();
        state.sockets.clear();
        shutdown(&state.running.as_ref().unwrap().link, Shutdown::Write).unwrap();
        drop(state);
        until("the guard is gone", || table::stat(guard).is_none());
    }
}

#[test]
fn remaining_entries_are_killed_and_removed_at_the_end() {
    let root = tempfile::tempdir().unwrap();
    // Names with special characters are not split or interpreted.
    let names =
        ["plain", "a b  c ", " d", "*", "$(touch x)", "'\"\\n`", "-rf", "\u{fc}", "x/y", "a\nb"];
    let paths: Vec<_> = names.iter().map(|name| root.path().join(name)).collect();
    let kept = root.path().join("kept");
    let ((mut group, group_pid), (mut worker, worker_pid)) = (sleeper(), sleeper());
    let (mut released, released_pid) = sleeper();
    let handle = GuardHandle::new();
    for path in paths.iter().chain([&kept]) {
        std::fs::create_dir_all(path.join("with/files")).unwrap();
        handle.add(&GuardEntry::directory(path).unwrap()).unwrap();
    }
    handle.add(&GuardEntry::Group(group_pid)).unwrap();
    handle.add(&GuardEntry::Workers(worker_pid)).unwrap();
    handle.add(&GuardEntry::Group(released_pid)).unwrap();
    handle.forget(&GuardEntry::Group(released_pid));
    handle.forget(&GuardEntry::directory(&kept).unwrap());
    handle.end();
    assert_eq!(group.wait().unwrap().signal(), Some(9));
    assert_eq!(worker.wait().unwrap().signal(), Some(9));
    assert!(released.try_wait().unwrap().is_none(), "it was forgotten, and killed nevertheless");
    released.kill().unwrap();
    released.wait().unwrap();
    assert!(kept.is_dir());
    for path in paths {
        assert!(!path.exists(), "{path:?}");
    }
}

#[test]
fn a_killed_guard_is_replaced_and_its_replacement_gets_all_entries() {
    let ((mut group, group_pid), (mut worker, worker_pid)) = (sleeper(), sleeper());
    let handle = GuardHandle::new();
    let socket = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
    handle.listen("secret", socket.clone()).unwrap();
    handle.add(&GuardEntry::Group(group_pid)).unwrap();
    handle.add(&GuardEntry::Workers(worker_pid)).unwrap();
    handle.fence_at(in_future(Duration::from_millis(600)));
    let first = handle.guard();
    kill_process(first, Signal::KILL).unwrap();
    // The replacement needs no message from this process.
    until("it is noticed", || table::stat(first).is_none());
    assert_ne!(handle.guard(), first);
    let mut line = String::new();
    let stream = TcpStream::connect(socket.local_addr().unwrap()).unwrap();
    BufReader::new(stream).read_line(&mut line).unwrap();
    assert_eq!(line, "rallypoint-guard secret\n");
    assert_eq!(worker.wait().unwrap().signal(), Some(9), "the fence");
    assert!(group.try_wait().unwrap().is_none());
    handle.end();
    assert_eq!(group.wait().unwrap().signal(), Some(9));
}

#[test]
fn signals_that_ask_to_end_do_not_end_the_guard() {
    let (mut watched, pid) = sleeper();
    let handle = GuardHandle::new();
    handle.add(&GuardEntry::Group(pid)).unwrap();
    let guard = handle.guard();
    assert!(has(guard, "SigBlk:", Signal::TERM));
    for signal in [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1] {
        kill_process(guard, signal).unwrap();
    }
    handle.forget(&GuardEntry::Group(pid));
    handle.add(&GuardEntry::Group(pid)).unwrap();
    assert_eq!(handle.guard(), guard);
    handle.end();
    assert_eq!(watched.wait().unwrap().signal(), Some(9));
}

/// As `pkill -9 rallypoint` would: it must not take the guard with the launcher.
#[test]
fn the_guard_has_another_process_name_than_its_launcher() {
    let handle = GuardHandle::new();
    handle.begin().unwrap();
    let name = std::fs::read_to_string(format!("/proc/{}/comm", handle.guard())).unwrap();
    assert_eq!(name, "rp-guard\n");
    handle.end();
}

#[test]
fn the_fence_kills_workers_and_no_other_process() {
    let ((mut early, early_pid), (mut other, other_pid)) = (sleeper(), sleeper());
    let handle = GuardHandle::new();
    handle.add(&GuardEntry::Workers(early_pid)).unwrap();
    handle.add(&GuardEntry::Group(other_pid)).unwrap();
    // The fence is moved several times.
    for _ in 0..10 {
        handle.fence_at(in_future(Duration::from_millis(400)));
        std::thread::sleep(Duration::from_millis(100));
        assert!(early.try_wait().unwrap().is_none());
    }
    assert_eq!(early.wait().unwrap().signal(), Some(9));
    until("the launcher is told", || handle.fenced().is_some());
    // A worker that starts after the fence is killed too.
    let (mut late, late_pid) = sleeper();
    handle.add(&GuardEntry::Workers(late_pid)).unwrap();
    assert_eq!(late.wait().unwrap().signal(), Some(9));
    // Until a later fence is set, or none.
    handle.fence_at(None);
    let (mut next, next_pid) = sleeper();
    handle.add(&GuardEntry::Workers(next_pid)).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert!(next.try_wait().unwrap().is_none() && other.try_wait().unwrap().is_none());
    handle.end();
    assert_eq!(next.wait().unwrap().signal(), Some(9));
    assert_eq!(other.wait().unwrap().signal(), Some(9));
}

#[test]
fn setting_the_fence_of_a_stopped_guard_does_not_block_and_the_last_fence_arrives() {
    let (mut worker, pid) = sleeper();
    let handle = GuardHandle::new();
    handle.add(&GuardEntry::Workers(pid)).unwrap();
    let guard = handle.guard();
    kill_process(guard, Signal::STOP).unwrap();
    until("the guard is stopped", || table::stat(guard).is_some_and(|stat| stat.state == b'T'));
    let begun = Instant::now();
    // Far more messages than the link holds.
    for _ in 0..3000 {
        handle.fence_at(in_future(Duration::from_millis(1)));
    }
    handle.fence_at(None);
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    // The first fence that it reads is long past, so it detects its suspension.
    std::thread::sleep(Duration::from_millis(900));
    kill_process(guard, Signal::CONT).unwrap();
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(handle.guard(), guard);
    assert!(worker.try_wait().unwrap().is_none(), "the last fence did not arrive");
    handle.end();
    assert_eq!(worker.wait().unwrap().signal(), Some(9));
}

/// torchrun starts workers like these: in sessions of their own, and with children that have another environment.
#[test]
fn workers_of_another_launcher_are_recognized_by_a_mark() {
    let value = format!("guard-test-{}", std::process::id());
    let start = |variable: &str, value: &str| {
        let script = "env -i sleep 100 & echo $!; wait; exec sleep 100";
        let mut command = Command::new("setsid");
        command.args(["sh", "-c", script]).env(variable, value).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (child, line.trim().parse::<u32>().unwrap())
    };
    let (mut first, first_child) = start("RALLYPOINT_TEST_MARK", &value);
    let (mut other, other_child) = start("RALLYPOINT_TEST_MARK", &format!("{value}-other"));
    let handle = GuardHandle::new();
    handle.add(&GuardEntry::marked("RALLYPOINT_TEST_MARK", &value).unwrap()).unwrap();
    handle.fence_at(in_future(Duration::from_millis(100)));
    assert_eq!(first.wait().unwrap().signal(), Some(9));
    until("its child is gone", || !lives(first_child));
    handle.fence_at(None);
    // Marked processes that run at the end are killed too.
    let (mut last, last_child) = start("RALLYPOINT_TEST_MARK", &value);
    handle.end();
    assert_eq!(last.wait().unwrap().signal(), Some(9));
    until("its child is gone", || !lives(last_child));
    assert!(other.try_wait().unwrap().is_none() && lives(other_child));
    kill_process(Pid::from_raw(other_child.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn clients_beyond_the_limit_of_connections_receive_the_token_too() {
    let handle = GuardHandle::new();
    let socket = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
    let address = socket.local_addr().unwrap();
    handle.listen("token", socket).unwrap();
    handle.begin().unwrap();
    let mut streams = Vec::new();
    for number in 0..300 {
        let mut reader = BufReader::new(TcpStream::connect(address).unwrap());
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert_eq!(line, "rallypoint-guard token\n", "{number}");
        streams.push(reader);
    }
    // The first connections stay open until the end.
    streams[0].get_ref().set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let read = streams[0].read_line(&mut String::new());
    assert!(read.is_err(), "{read:?}");
    handle.end();
    streams[0].get_ref().set_read_timeout(None).unwrap();
    assert_eq!(streams[0].read_line(&mut String::new()).unwrap(), 0);
    assert_eq!(TcpStream::connect(address).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
}
