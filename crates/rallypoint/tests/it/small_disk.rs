//! A disk that has no room for a second copy of the log: a tmpfs in a mount namespace of the server's own,
//! which is gone with it. Needs root, and `unshare` of util-linux.

use std::path::PathBuf;
use std::time::Duration;

use rallypoint::proto::etcd as pb;

use crate::support::hostile::{Target, eventually};
use crate::support::process::Directory;
use crate::support::wire;

const MEGABYTE: usize = 1 << 20;

/// A server whose data lies on a disk of this size in megabytes, and the path of its data from here.
async fn on_a_disk_of(megabytes: usize, directory: Directory) -> (Target, PathBuf) {
    let disk = directory.path().join("disk");
    std::fs::create_dir_all(&disk).unwrap();
    let path = disk.to_str().unwrap().to_owned();
    let inside = format!("mount -t tmpfs -o size={megabytes}m tmpfs \"$0\" && exec \"$@\"");
    let shell = format!("exec unshare --mount sh -c '{inside}' {path} \"$0\" \"$@\"");
    let server = Target::start_in(directory, &shell, &["--data-dir", "DIR/disk/data"]).await;
    let data = PathBuf::from(format!("/proc/{}/root{path}/data", server.id()));
    assert!(data.join("log").exists(), "this machine allows no mounts, which this test needs");
    (server, data)
}

fn put(key: impl Into<bytes::Bytes>, value: Vec<u8>) -> pb::PutRequest {
    pb::PutRequest { key: key.into(), value: value.into(), ..Default::default() }
}

/// It ended the server, left what it had written on the full disk, and did so again after each start.
#[tokio::test]
async fn a_log_that_has_no_room_for_a_second_copy_is_rewritten_when_there_is() {
    let (mut server, data) = on_a_disk_of(100, Directory::new()).await;
    let (log, new) = (data.join("log"), data.join("log.new"));
    let length = || std::fs::metadata(&log).unwrap().len() as usize / MEGABYTE;
    let mut kv = wire::kv(&server.endpoint());
    for number in 0..60_u8 {
        kv.put(put(vec![number], vec![number; MEGABYTE])).await.unwrap();
    }
    // A log of more than 64 MiB would be compacted, but 60 MiB of it are in use.
    let mut head = 0;
    for number in 0..12_u8 {
        let answer = kv.put(put(vec![number], vec![number + 100; MEGABYTE])).await;
        let answer = answer.unwrap_or_else(|why| panic!("{why}: {}", server.output()));
        head = answer.into_inner().header.unwrap().revision;
        assert!(!new.exists(), "a part of a log fills the disk");
    }
    assert!(length() > 64, "{} MiB: this disk was not too small", length());
    server.assert_unharmed();
    let output = server.output();
    assert!(output.contains("the log cannot be compacted"), "no warning: {output}");

    // As soon as less is needed there is room, without a restart.
    let delete = pb::DeleteRangeRequest {
        key: vec![5].into(),
        range_end: vec![0].into(),
        ..Default::default()
    };
    kv.delete_range(delete).await.unwrap();
    kv.compact(pb::CompactionRequest { revision: head + 1, ..Default::default() }).await.unwrap();
    eventually("the log is short again", Duration::from_secs(30), async || {
        kv.put(put("more", vec![7])).await.unwrap();
        length() < 20
    })
    .await;
    for number in 0..5_u8 {
        let range = pb::RangeRequest { key: vec![number].into(), ..Default::default() };
        let found = kv.range(range).await.unwrap().into_inner();
        assert_eq!(found.kvs[0].value, vec![number + 100; MEGABYTE]);
    }
    assert!(!new.exists());
    server.assert_unharmed();
}

/// What a killed server left of a log must not fill the disk for good.
#[tokio::test]
async fn what_is_left_of_an_interrupted_rewrite_is_removed_at_the_next_start() {
    let args = ["--data-dir", "DIR/data"];
    let server = Target::start_in(Directory::new(), "", &args).await;
    wire::kv(&server.endpoint()).put(put("k", vec![7])).await.unwrap();
    let new = server.directory().join("data/log.new");
    let mut server = server;
    server.signal(rustix::process::Signal::KILL);
    server.ended(Duration::from_secs(10)).await;
    std::fs::write(&new, vec![7; MEGABYTE]).unwrap();
    let server = Target::start_in(server.into_directory(), "", &args).await;
    assert!(!new.exists());
    let range = pb::RangeRequest { key: "k".into(), ..Default::default() };
    assert_eq!(wire::kv(&server.endpoint()).range(range).await.unwrap().into_inner().count, 1);
}
