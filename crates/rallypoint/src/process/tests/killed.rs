//! A launcher that is killed or stopped. The launcher is a process of its own: this test program, run again.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Child;
use std::thread::sleep;

use rustix::time::{ClockId, clock_gettime};

use super::*;
use crate::process::{LivenessSocket, fence_at, start_guard};

const INSIDE: &str = "RALLYPOINT_TEST_LAUNCHER";

fn now() -> Time {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.try_into().unwrap(), now.tv_nsec.try_into().unwrap())
}

/// The body of the launcher, if [`INSIDE`] is set; otherwise it does nothing. It prints its processes, and then
/// moves its fence by the milliseconds in [`INSIDE`] until it ends.
#[test]
fn launcher() {
    let Some(ahead) = std::env::var(INSIDE).ok().and_then(|ahead| ahead.parse().ok()) else {
        return;
    };
    let ahead = Duration::from_millis(ahead);
    let socket = LivenessSocket::open(Ipv4Addr::LOCALHOST.into()).unwrap();
    start_guard().unwrap();
    let mut command = command("sleep").unwrap();
    let worker = ProcessGroup::start_lasting(command.arg("100")).unwrap();
    let (port, guard) = (socket.port(), guard::program().running().unwrap());
    let fence = || fence_at((!ahead.is_zero()).then(|| now() + ahead));
    fence();
    writeln!(io::stderr(), "launcher {} {guard} {port} {}", worker.id(), socket.token()).unwrap();
    for _ in 0..2000 {
        fence();
        sleep(Duration::from_millis(50));
    }
}

struct Launcher {
    child: Child,
    worker: Pid,
    guard: Pid,
    address: SocketAddr,
    token: String,
}

impl Launcher {
    fn start(ahead: Duration) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "process::tests::killed::launcher", "--nocapture"])
            .env(INSIDE, ahead.as_millis().to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = lines.map_while(Result::ok).find(|line| line.starts_with("launcher ")).unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let pid = |word: &str| Pid::from_raw(word.parse().unwrap()).unwrap();
        let address = (Ipv4Addr::LOCALHOST, words[3].parse().unwrap()).into();
        let (worker, guard, token) = (pid(words[1]), pid(words[2]), words[4].to_owned());
        Self { child, worker, guard, address, token }
    }

    fn all(&self) -> [Pid; 3] {
        [Pid::from_child(&self.child), self.guard, self.worker]
    }

    fn worker_lives(&self) -> bool {
        lives(self.worker.as_raw_nonzero().get().unsigned_abs())
    }

    fn is_refused(&self) -> bool {
        TcpStream::connect(self.address).is_err()
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // A failed test leaves processes. The guard ends by itself.
        let _ = kill_process(self.guard, Signal::CONT);
    }
}

fn signal(pids: &[Pid], signal: Signal) {
    for pid in pids {
        kill_process(*pid, signal).unwrap();
    }
}

#[test]
fn the_liveness_socket_refuses_connections_soon_after_the_last_worker_has_ended() {
    let mut launcher = Launcher::start(Duration::ZERO);
    let mut line = String::new();
    let mut reader = BufReader::new(TcpStream::connect(launcher.address).unwrap());
    reader.read_line(&mut line).unwrap();
    assert_eq!(line, format!("rallypoint-guard {}\n", launcher.token));
    let begun = Instant::now();
    launcher.child.kill().unwrap();
    until("it is refused", || {
        let was_alive = launcher.worker_lives();
        let is_refused = launcher.is_refused();
        assert!(!(is_refused && was_alive && launcher.worker_lives()));
        is_refused
    });
    let elapsed = begun.elapsed();
    assert!(!launcher.worker_lives());
    // The limit is for a loaded host. On an idle one it takes some milliseconds.
    assert!(elapsed < Duration::from_secs(2), "{elapsed:?}");
}

#[test]
fn the_liveness_socket_accepts_connections_while_only_a_worker_is_left() {
    let mut launcher = Launcher::start(Duration::ZERO);
    // Stopped, so that the launcher does not start another guard.
    signal(&[Pid::from_child(&launcher.child)], Signal::STOP);
    kill_process(launcher.guard, Signal::KILL).unwrap();
    launcher.child.kill().unwrap();
    launcher.child.wait().unwrap();
    sleep(Duration::from_millis(100));
    assert!(launcher.worker_lives() && !launcher.is_refused());
    kill_process(launcher.worker, Signal::KILL).unwrap();
    until("it is refused", || launcher.is_refused());
}

#[test]
fn the_workers_of_a_launcher_that_is_stopped_past_its_fence_are_killed() {
    let launcher = Launcher::start(Duration::from_millis(1000));
    sleep(Duration::from_millis(300));
    assert!(launcher.worker_lives());
    let begun = Instant::now();
    signal(&[Pid::from_child(&launcher.child)], Signal::STOP);
    until("the worker is killed", || !launcher.worker_lives());
    let elapsed = begun.elapsed();
    let range = Duration::from_millis(850)..Duration::from_millis(1500);
    assert!(range.contains(&elapsed), "{elapsed:?}");
    let stat = table::stat(Pid::from_child(&launcher.child)).unwrap();
    assert_eq!(stat.state, b'T', "it still stands still");
}

#[test]
fn a_suspended_node_continues_if_its_launcher_moves_the_fence() {
    let launcher = Launcher::start(Duration::from_millis(1000));
    signal(&launcher.all(), Signal::STOP);
    sleep(Duration::from_millis(2500));
    // The guard first, because it must wait for the launcher.
    signal(&[launcher.guard], Signal::CONT);
    sleep(Duration::from_millis(200));
    assert!(launcher.worker_lives());
    signal(&launcher.all(), Signal::CONT);
    sleep(Duration::from_millis(1500));
    let stat = table::stat(launcher.worker).unwrap();
    assert_eq!(stat.state, b'S', "it neither runs on");
}

#[test]
fn the_workers_of_a_suspended_node_are_killed_if_its_launcher_does_not_move_the_fence() {
    let launcher = Launcher::start(Duration::from_millis(1000));
    signal(&launcher.all(), Signal::STOP);
    sleep(Duration::from_millis(2500));
    // The launcher stays stopped.
    signal(&[launcher.worker, launcher.guard], Signal::CONT);
    let begun = Instant::now();
    until("the worker is held", || {
        table::stat(launcher.worker).is_some_and(|stat| stat.state == b'T')
    });
    until("the worker is killed", || !launcher.worker_lives());
    let elapsed = begun.elapsed();
    let range = Duration::from_millis(800)..Duration::from_millis(2000);
    assert!(range.contains(&elapsed), "{elapsed:?}");
}
