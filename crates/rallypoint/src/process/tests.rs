//! Groups: that they end, as a whole, and tell how.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;

use super::*;

/// Whether there is such a process, other than as a memory of one.
fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().and_then(|rest| rest.trim().chars().next()).is_some_and(|c| c != 'Z')
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(20), "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A shell with this script, and the first line that it prints.
fn start(script: &str) -> (Group, String) {
    let mut command = command("sh");
    let (reader, writer) = io::pipe().unwrap();
    command.args(["-c", script]).stdout(writer);
    let group = Group::start(&mut command).unwrap();
    drop(command);
    let mut line = String::new();
    BufReader::new(reader).read_line(&mut line).unwrap();
    (group, line.trim().to_owned())
}

#[tokio::test]
async fn a_child_that_ends_takes_its_group_with_it_and_tells_how() {
    let (mut group, line) = start("sleep 100 & echo $!; exit 3");
    let grandchild: u32 = line.parse().unwrap();
    assert_eq!(group.exited().await.unwrap().code(), Some(3));
    until("the grandchild is gone", || !lives(grandchild));
    // Asking again is fine, and a signal goes to nobody.
    assert_eq!(group.exited().await.unwrap().code(), Some(3));
    group.signal(Signal::KILL);
}

#[tokio::test]
async fn a_signal_reaches_the_whole_group() {
    let (mut group, line) = start("sleep 100 & echo $!; wait");
    group.signal(Signal::TERM);
    assert_eq!(group.exited().await.unwrap().signal(), Some(15));
    until("the grandchild is gone", || !lives(line.parse().unwrap()));
}

#[test]
fn dropping_it_ends_all_of_it() {
    let (group, line) = start("trap '' TERM; sleep 100 & echo $!; wait");
    let child = group.id();
    drop(group);
    assert!(!lives(child));
    until("the grandchild is gone", || !lives(line.parse().unwrap()));
}

#[tokio::test]
async fn waiting_can_be_given_up_and_taken_up_again() {
    let (mut group, _) = start("echo; exec sleep 100");
    let patience = Duration::from_millis(20);
    assert!(tokio::time::timeout(patience, group.exited()).await.is_err());
    group.signal(Signal::KILL);
    assert_eq!(group.exited().await.unwrap().signal(), Some(9));
}

#[tokio::test]
async fn a_program_that_cannot_be_executed_ends_at_once() {
    let mut command = command("/nowhere/etcd");
    command.stderr(Stdio::null());
    let mut group = Group::start(&mut command).unwrap();
    assert_eq!(group.exited().await.unwrap().code(), Some(127));
}

#[tokio::test]
async fn a_child_sees_its_arguments_and_nothing_on_its_input() {
    let mut command = command("sh");
    let (reader, writer) = io::pipe().unwrap();
    command.args(["-c", r#"cat; printf '%s|' "$@""#, "sh", "a b", "", "*", "$x"]).stdout(writer);
    let mut group = Group::start(&mut command).unwrap();
    drop(command);
    assert!(group.exited().await.unwrap().success());
    assert_eq!(io::read_to_string(reader).unwrap(), "a b||*|$x|");
}

#[test]
fn a_temporary_directory_is_private_and_goes_with_its_files() {
    use std::os::unix::fs::PermissionsExt;
    let directory = TemporaryDirectory::new("rallypoint-test-").unwrap();
    let path = directory.path().to_owned();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    std::fs::create_dir_all(path.join("a/b")).unwrap();
    std::fs::write(path.join("a/b/c"), "").unwrap();
    drop(directory);
    assert!(!path.exists());
}
