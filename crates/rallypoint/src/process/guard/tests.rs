//! What a guard does when its input ends, and before. Each test has a guard of its own, not the program's.

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
    /// The guard, when it has begun.
    fn guard(&self) -> Pid {
        let mut found = None;
        until("there is a guard", || {
            let state = self.lock();
            found = state.running.as_ref().filter(|guard| guard.has_begun).map(|guard| guard.pid);
            found.is_some()
        });
        found.unwrap()
    }

    /// Ends its input, as our death does, and waits for it.
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
fn what_it_still_knows_at_the_end_is_ended_and_removed() {
    let root = tempfile::tempdir().unwrap();
    // Whatever a name is made of, it is one name.
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
fn one_that_was_killed_is_replaced_at_once_and_the_next_knows_everything() {
    let ((mut group, group_pid), (mut worker, worker_pid)) = (sleeper(), sleeper());
    let handle = GuardHandle::new();
    let socket = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
    handle.listen("secret", socket.clone()).unwrap();
    handle.add(&GuardEntry::Group(group_pid)).unwrap();
    handle.add(&GuardEntry::Workers(worker_pid)).unwrap();
    handle.fence_at(in_future(Duration::from_millis(600)));
    let first = handle.guard();
    kill_process(first, Signal::KILL).unwrap();
    // Nobody has to say anything for that.
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
fn signals_that_ask_do_not_end_it() {
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
fn it_is_not_called_as_its_launcher_is() {
    let handle = GuardHandle::new();
    handle.begin().unwrap();
    let name = std::fs::read_to_string(format!("/proc/{}/comm", handle.guard())).unwrap();
    assert_eq!(name, "rp-guard\n");
    handle.end();
}

#[test]
fn at_the_fence_workers_end_and_nobody_else() {
    let ((mut early, early_pid), (mut other, other_pid)) = (sleeper(), sleeper());
    let handle = GuardHandle::new();
    handle.add(&GuardEntry::Workers(early_pid)).unwrap();
    handle.add(&GuardEntry::Group(other_pid)).unwrap();
    // It is put off as often as one likes.
    for _ in 0..10 {
        handle.fence_at(in_future(Duration::from_millis(400)));
        std::thread::sleep(Duration::from_millis(100));
        assert!(early.try_wait().unwrap().is_none());
    }
    assert_eq!(early.wait().unwrap().signal(), Some(9));
    until("the launcher is told", || handle.fenced().is_some());
    // Whoever comes too late is not spared either.
    let (mut late, late_pid) = sleeper();
    handle.add(&GuardEntry::Workers(late_pid)).unwrap();
    assert_eq!(late.wait().unwrap().signal(), Some(9));
    // Until there is another fence, or none.
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
fn a_guard_that_does_not_listen_holds_up_no_fence_and_hears_the_last() {
    let (mut worker, pid) = sleeper();
    let handle = GuardHandle::new();
    handle.add(&GuardEntry::Workers(pid)).unwrap();
    let guard = handle.guard();
    kill_process(guard, Signal::STOP).unwrap();
    until("it stands still", || table::stat(guard).is_some_and(|stat| stat.state == b'T'));
    let begun = Instant::now();
    // Far more than fit.
    for _ in 0..3000 {
        handle.fence_at(in_future(Duration::from_millis(1)));
    }
    handle.fence_at(None);
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    // What it hears first is long past, so it knows that it has slept.
    std::thread::sleep(Duration::from_millis(900));
    kill_process(guard, Signal::CONT).unwrap();
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(handle.guard(), guard);
    assert!(worker.try_wait().unwrap().is_none(), "it has not heard the last word");
    handle.end();
    assert_eq!(worker.wait().unwrap().signal(), Some(9));
}

/// As torchrun starts them: in sessions of their own, by somebody else, and with children that have forgotten
/// where they come from.
#[test]
fn workers_of_others_are_known_by_a_mark() {
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
    // What is left at the end goes as well.
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
fn more_than_it_keeps_are_greeted_all_the_same() {
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
    // The first are held until the end.
    streams[0].get_ref().set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let read = streams[0].read_line(&mut String::new());
    assert!(read.is_err(), "{read:?}");
    handle.end();
    streams[0].get_ref().set_read_timeout(None).unwrap();
    assert_eq!(streams[0].read_line(&mut String::new()).unwrap(), 0);
    assert_eq!(TcpStream::connect(address).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
}
