//! Data directories that cannot be used: the command says so in one line and touches nothing.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rallypoint::proto::etcd as pb;

use crate::support::hostile::{Target, Watching};
use crate::support::process::Directory;
use crate::support::{Embedded, wire};

/// Runs `rallypoint serve` on a data directory that it must refuse. What it said on standard error.
fn refused(data: &Path, prepare: impl FnOnce(&mut Command)) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rallypoint"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(data);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    prepare(&mut command);
    let mut child = command.spawn().unwrap();
    let started = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if started.elapsed() > Duration::from_secs(10) {
            child.kill().unwrap();
            panic!("it runs on {}", data.display());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert_eq!(output.stdout, b"", "it said that it listens");
    assert_eq!(text.lines().count(), 1, "not one line: {text}");
    assert!(text.starts_with("rallypoint: "), "{text}");
    assert!(text.contains(data.to_str().unwrap()), "no path in {text}");
    text
}

/// Every file below a directory, with what it holds.
fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap()) {
        if entry.file_type().unwrap().is_dir() {
            all.insert(entry.path(), Vec::new());
            all.extend(contents(&entry.path()));
        } else {
            all.insert(entry.path(), fs::read(entry.path()).unwrap());
        }
    }
    all
}

/// A data directory with one key in it, and no server.
async fn written() -> Embedded {
    let mut server = Embedded::disk().await;
    let put = pb::PutRequest { key: "k".into(), value: "v".into(), ..Default::default() };
    wire::kv(&server.endpoint()).put(put).await.unwrap();
    server.kill();
    server
}

#[tokio::test]
async fn a_damaged_log_is_one_line_and_exit_code_1() {
    let server = written().await;
    let data = server.directory().join("data");
    let mut log = fs::read(data.join("log")).unwrap();
    log[40] ^= 1;
    fs::write(data.join("log"), log).unwrap();
    let before = contents(&data);
    let text = refused(&data, |_| {});
    assert!(
        text.contains("is damaged at byte 16") && text.contains("nothing was changed"),
        "{text}"
    );
    assert_eq!(contents(&data), before);
}

#[tokio::test]
async fn a_directory_that_a_server_uses_is_refused() {
    let mut server = written().await;
    server.restart().await;
    let data = server.directory().join("data");
    let before = contents(&data);
    let text = refused(&data, |_| {});
    assert!(text.contains("is in use by another server; stop it"), "{text}");
    assert_eq!(contents(&data), before);
    // And the one that uses it never noticed.
    let get = pb::RangeRequest { key: "k".into(), ..Default::default() };
    assert_eq!(wire::kv(&server.endpoint()).range(get).await.unwrap().into_inner().count, 1);
}

#[test]
fn etcds_own_directory_is_left_to_etcd() {
    let directory = Directory::new();
    let data = directory.path().join("data");
    fs::create_dir_all(data.join("member/wal")).unwrap();
    fs::write(data.join("member/wal/0.wal"), "etcd's").unwrap();
    let before = contents(directory.path());
    let text = refused(&data, |_| {});
    assert!(text.contains("is not Rallypoint's: it holds \"member\""), "{text}");
    assert_eq!(contents(directory.path()), before);
}

#[test]
fn a_file_is_no_directory() {
    let directory = Directory::new();
    let data = directory.path().join("data");
    fs::write(&data, "precious").unwrap();
    let text = refused(&data, |_| {});
    assert!(text.contains("Not a directory"), "{text}");
    assert_eq!(fs::read(&data).unwrap(), b"precious");
}

/// Permissions bind everyone but root, so root runs the server as somebody else.
#[test]
fn a_directory_that_cannot_be_written_is_refused() {
    let directory = Directory::new();
    let data = directory.path().join("data");
    fs::create_dir(&data).unwrap();
    for (path, mode) in [(directory.path(), 0o755), (&data, 0o555)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let text = refused(&data, |command| {
        if rustix::process::geteuid().is_root() {
            command.uid(65534).gid(65534);
        }
    });
    assert!(text.contains("Permission denied"), "{text}");
    assert_eq!(contents(&data), BTreeMap::new());
    // So that a user other than root can remove it.
    fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A limit of the file's size stands for a full disk: the write fails half-way through a run.
#[tokio::test]
async fn a_disk_that_takes_no_more_ends_the_server_and_loses_nothing() {
    let args = ["--data-dir", "DIR/data"];
    let full = "trap '' XFSZ; ulimit -f 8192";
    let mut server = Target::start_in(Directory::new(), full, &args).await;
    let mut watching = Watching::open(&server.endpoint()).await;
    let mut kv = wire::kv(&server.endpoint());
    let value: bytes::Bytes = vec![7; 100 << 10].into();
    let put = || pb::PutRequest { key: "k".into(), value: value.clone(), ..Default::default() };
    let mut last = 0;
    let refused = loop {
        match kv.put(put()).await {
            Ok(answer) => last = answer.into_inner().header.unwrap().revision,
            Err(refused) => break refused,
        }
        assert!(last < 200, "the limit does not hold");
    };
    assert_eq!(refused.message(), "etcdserver: server stopped", "{refused:?}");
    assert_eq!(watching.assert_over().await.message(), "etcdserver: server stopped");
    let status = server.ended(Duration::from_secs(8)).await;
    assert_eq!(status.code(), Some(1), "{}", server.output());
    let said = server.output();
    let line = said.lines().last().unwrap();
    assert!(line.contains("data/log") && line.contains("File too large"), "{line}");

    let again = Target::start_in(server.into_directory(), "", &args).await;
    let mut kv = wire::kv(&again.endpoint());
    let get = pb::RangeRequest { key: "k".into(), ..Default::default() };
    let answer = kv.range(get).await.unwrap().into_inner();
    // The one that failed was never acknowledged, and may be there or not.
    assert!([last, last + 1].contains(&answer.kvs[0].mod_revision), "{last}");
    kv.put(put()).await.unwrap();
}
