//! Process groups: they end as a whole, and their exit status is known.

mod killed;

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;

use rustix::process::{getpid, kill_process};

use super::*;

/// Whether this process exists and is not a zombie.
pub(super) fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().and_then(|rest| rest.trim().chars().next()).is_some_and(|c| c != 'Z')
}

fn ignores(pid: Pid, signal: Signal) -> bool {
    has(pid, "SigIgn:", signal)
}

/// Whether a signal is in one of the sets of a process.
pub(super) fn has(pid: Pid, set: &str, signal: Signal) -> bool {
    signals::has(&std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap(), set, signal)
}

pub(super) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(20), "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A shell with this script, and the first line that it prints.
fn start(script: &str) -> (ProcessGroup, String) {
    start_by(ProcessGroup::start, script)
}

fn start_by(
    way: fn(&mut Command) -> io::Result<ProcessGroup>,
    script: &str,
) -> (ProcessGroup, String) {
    let mut command = command("sh").unwrap();
    let (reader, writer) = io::pipe().unwrap();
    command.args(["-c", script]).stdout(writer);
    let group = way(&mut command).unwrap();
    drop(command);
    let mut line = String::new();
    BufReader::new(reader).read_line(&mut line).unwrap();
    (group, line.trim().to_owned())
}

#[tokio::test]
async fn the_group_of_a_child_that_ends_is_killed_and_its_status_is_known() {
    let (group, line) = start("sleep 100 & echo $!; exit 3");
    let grandchild: u32 = line.parse().unwrap();
    assert_eq!(group.exited().await.unwrap().code(), Some(3));
    until("the grandchild is gone", || !lives(grandchild));
    // The status can be read again, and a signal reaches no process.
    assert_eq!(group.exited().await.unwrap().code(), Some(3));
    group.signal(Signal::KILL);
}

#[tokio::test]
async fn a_signal_reaches_the_whole_group() {
    let (group, line) = start("sleep 100 & echo $!; wait");
    group.signal(Signal::TERM);
    assert_eq!(group.exited().await.unwrap().signal(), Some(15));
    until("the grandchild is gone", || !lives(line.parse().unwrap()));
}

#[test]
fn the_entry_of_a_child_that_ends_is_removed_at_once() {
    let (group, line) = start("sleep 100 & echo $!; exit 3");
    let entry = GuardEntry::Group(group.pid);
    until("the guard has forgotten it", || !guard::program().knows(&entry));
    until("the grandchild is gone", || !lives(line.parse().unwrap()));
    group.signal(Signal::KILL);
}

/// After the kernel has reaped the leader, its number may belong to another group, so no signal is sent to it.
#[test]
fn where_the_kernel_reaps_children_no_group_is_signalled_after_the_end_of_its_leader() {
    const NAME: &str = "process::tests::where_the_kernel_reaps_children_no_group_is_signalled_after_the_end_of_its_leader";
    const INSIDE: &str = "RALLYPOINT_TEST_SIGCHLD_IGNORED";
    if std::env::var_os(INSIDE).is_none() {
        // Runs this test again in a process that started with SIGCHLD ignored.
        // (Not every shell passes that on.)
        let ignore = "import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])";
        let again = Command::new("python3")
            .args(["-c", ignore])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", NAME])
            .env(INSIDE, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&again.stdout);
        assert!(again.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    assert!(ignores(getpid(), Signal::CHILD));
    let asked = |group: ProcessGroup| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let error = runtime.block_on(group.exited()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::CHILD.raw_os_error()), "{error}");
    };
    let signalled = |group: ProcessGroup| group.signal(Signal::KILL);
    let ways: [&dyn Fn(ProcessGroup); 3] = [&asked, &signalled, &drop];
    for way in ways {
        let (group, line) = start("sleep 100 & echo $!; exit 3");
        let entry = GuardEntry::Group(group.pid);
        until("the child is gone", || {
            wait_without_reaping(group.pid, WaitIdOptions::NOHANG).is_err()
        });
        way(group);
        until("the guard has forgotten it", || !guard::program().knows(&entry));
        let lived = lives(line.parse().unwrap());
        let _ = kill_process(Pid::from_raw(line.parse().unwrap()).unwrap(), Signal::KILL);
        assert!(lived, "a process of a reaped group was killed");
    }
    // A running child is killed as usual.
    let (group, _) = start("echo; exec sleep 100");
    let child = group.id();
    drop(group);
    until("the child is gone", || !lives(child));
}

/// A shell that exits at once with 3, and a child of it that runs until SIGTERM.
const SURVIVOR: &str =
    "sh -c 'trap \"exit 0\" TERM; echo $$; while :; do sleep 0.01; done' & exit 3";

#[tokio::test]
async fn processes_left_in_a_lasting_group_can_be_signalled() {
    let (group, line) = start_by(ProcessGroup::start_lasting, SURVIVOR);
    assert_eq!(group.exited().await.unwrap().code(), Some(3));
    until("the leader is reaped", || {
        wait_without_reaping(group.pid, WaitIdOptions::NOHANG).is_err()
    });
    let timeout = Duration::from_millis(20);
    assert!(tokio::time::timeout(timeout, group.gone()).await.is_err());
    assert!(lives(line.parse().unwrap()) && guard::program().knows(&group.entry));
    group.signal(Signal::TERM);
    group.gone().await;
    assert!(!lives(line.parse().unwrap()) && !guard::program().knows(&group.entry));
    assert_eq!(group.exited().await.unwrap().code(), Some(3));
    group.signal(Signal::KILL);
}

#[tokio::test]
async fn a_lasting_group_of_one_process_ends_with_it() {
    let (group, _) = start_by(ProcessGroup::start_lasting, "echo; kill -9 $$");
    group.gone().await;
    assert_eq!(group.exited().await.unwrap().signal(), Some(9));
    assert!(!guard::program().knows(&group.entry));
}

#[tokio::test]
async fn dropping_a_lasting_group_kills_processes_that_are_left() {
    let (group, line) = start_by(ProcessGroup::start_lasting, SURVIVOR);
    group.exited().await.unwrap();
    let entry = group.entry.clone();
    drop(group);
    assert!(!lives(line.parse().unwrap()) && !guard::program().knows(&entry));
}

/// In a container, the init process may not reap orphans.
#[tokio::test]
async fn zombies_do_not_count_as_processes_of_a_group() {
    let script = "import os, time
if os.fork() == 0: os._exit(0)
os.setsid()
print(os.getpid(), flush=True)
time.sleep(100)";
    let (group, line) =
        start_by(ProcessGroup::start_lasting, &format!("python3 -c '{script}' & exit 0"));
    group.gone().await;
    let stranger = Pid::from_raw(line.parse().unwrap()).unwrap();
    let reserved = rustix::process::test_kill_process_group(group.pid);
    kill_process(stranger, Signal::KILL).unwrap();
    assert_eq!(reserved, Ok(()), "there was no zombie in the group");
}

#[test]
fn dropping_a_group_kills_all_of_its_processes() {
    let (group, line) = start("trap '' TERM; sleep 100 & echo $!; wait");
    let child = group.id();
    drop(group);
    assert!(!lives(child));
    until("the grandchild is gone", || !lives(line.parse().unwrap()));
}

#[tokio::test]
async fn waiting_for_the_end_is_cancel_safe() {
    let (group, _) = start("echo; exec sleep 100");
    let timeout = Duration::from_millis(20);
    assert!(tokio::time::timeout(timeout, group.exited()).await.is_err());
    group.signal(Signal::KILL);
    assert_eq!(group.exited().await.unwrap().signal(), Some(9));
}

#[tokio::test]
async fn a_program_that_cannot_be_executed_ends_at_once() {
    let mut command = command("/nowhere/etcd").unwrap();
    command.stderr(Stdio::null());
    let group = ProcessGroup::start(&mut command).unwrap();
    assert_eq!(group.exited().await.unwrap().code(), Some(127));
}

#[tokio::test]
async fn a_child_gets_its_arguments_and_an_empty_standard_input() {
    let mut command = command("sh").unwrap();
    let (reader, writer) = io::pipe().unwrap();
    command.args(["-c", r#"cat; printf '%s|' "$@""#, "sh", "a b", "", "*", "$x"]).stdout(writer);
    let group = ProcessGroup::start(&mut command).unwrap();
    drop(command);
    assert!(group.exited().await.unwrap().success());
    assert_eq!(io::read_to_string(reader).unwrap(), "a b||*|$x|");
}

#[test]
fn a_temporary_directory_is_private_and_removed_with_its_files() {
    use std::os::unix::fs::PermissionsExt;
    let directory = TemporaryDirectory::new("rallypoint-test-").unwrap();
    let path = directory.path().to_owned();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    std::fs::create_dir_all(path.join("a/b")).unwrap();
    std::fs::write(path.join("a/b/c"), "").unwrap();
    drop(directory);
    assert!(!path.exists());
}
