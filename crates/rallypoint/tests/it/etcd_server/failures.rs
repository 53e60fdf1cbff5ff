//! What can go wrong, and how it is told.

use std::path::Path;
use std::time::Duration;

use rallypoint::etcd_server::{EtcdServer, EtcdServerError, EtcdServerOptions};

use super::{PATIENCE, argument, fake, lives, nothing_is_left, options, processes_with, starts};
use crate::support::Version;
use crate::support::hostile::eventually;
use crate::support::process::Directory;

async fn fails(options: EtcdServerOptions) -> (EtcdServerError, String) {
    let error = EtcdServer::start(options).await.unwrap_err();
    let text = error.to_string();
    (error, text)
}

#[tokio::test]
async fn no_such_file() {
    let (error, text) = fails(options(Path::new("/nowhere/etcd"))).await;
    assert!(matches!(error, EtcdServerError::NotFound { .. }), "{text}");
    assert!(text.contains("/nowhere/etcd"), "{text}");
}

#[tokio::test]
async fn a_file_that_is_no_program() {
    let directory = Directory::new();
    let path = directory.path().join("etcd");
    std::fs::write(&path, "").unwrap();
    let (error, text) = fails(options(&path)).await;
    assert!(matches!(error, EtcdServerError::NotExecutable { .. }), "{text}");
    assert!(text.contains(path.to_str().unwrap()) && text.contains("chmod"), "{text}");
}

#[tokio::test]
async fn one_that_exits_at_once_is_not_tried_again_and_its_words_are_told() {
    let directory = Directory::new();
    let etcd = fake(&directory, "echo to output; echo to error >&2; exit 7");
    let (error, text) = fails(options(&etcd)).await;
    let EtcdServerError::Exited { status, lines, pid, .. } = error else { panic!("{text}") };
    assert_eq!(status.code(), Some(7));
    assert_eq!(lines, ["to output", "to error"]);
    assert!(text.contains("exit status: 7") && text.contains("to output\nto error"), "{text}");
    assert!(!lives(pid));
    assert_eq!(starts(&etcd).len(), 1);
    nothing_is_left(&etcd).await;
}

#[tokio::test]
async fn one_that_is_killed_is_told_by_its_signal() {
    let directory = Directory::new();
    let (_, text) = fails(options(&fake(&directory, "kill -SEGV $$"))).await;
    assert!(text.contains("SIGSEGV") && text.contains("it wrote no output"), "{text}");
}

#[tokio::test]
async fn only_the_last_lines_are_told() {
    let directory = Directory::new();
    let etcd = fake(&directory, "seq 1 10000; exit 1");
    let (error, text) = fails(options(&etcd)).await;
    let EtcdServerError::Exited { lines, .. } = error else { panic!("{text}") };
    assert_eq!(lines.len(), 20);
    assert_eq!(lines[19], "10000");
}

#[tokio::test]
async fn a_wrong_argument_is_told_in_etcds_words() {
    let args = vec!["--no-such-flag".into()];
    let (error, text) =
        fails(options(&Version::V3_5.etcd()).with(|options| options.args = args)).await;
    assert!(matches!(error, EtcdServerError::Exited { .. }), "{text}");
    assert!(text.contains("no-such-flag"), "{text}");
}

#[tokio::test]
async fn one_that_is_never_ready_is_tried_again_and_killed() {
    let directory = Directory::new();
    let etcd = fake(&directory, "echo thinking; sleep 100 & wait");
    let start_timeout = Duration::from_secs(3);
    let (error, text) = fails(options(&etcd).with(|options| {
        options.start_timeout = start_timeout;
        options.attempts = 2;
    }))
    .await;
    let EtcdServerError::NotReady { source, lines, waited, pid, .. } = error else {
        panic!("{text}")
    };
    assert!(waited >= start_timeout, "{waited:?}");
    assert!(source.is_some());
    assert_eq!(lines, ["thinking"]);
    // What the last request said.
    assert!(text.contains("Connection refused"), "{text}");
    assert!(!lives(pid));
    assert_eq!(starts(&etcd).len(), 2);
    nothing_is_left(&etcd).await;
}

#[tokio::test]
async fn a_port_that_is_taken_is_told_before_anything_is_started() {
    let directory = Directory::new();
    let etcd = fake(&directory, "exec 'ETCD' \"$@\"");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap();
    let (error, text) = fails(options(&etcd).with(|options| options.listen = listen)).await;
    assert!(
        matches!(error, EtcdServerError::Listen { address, .. } if address == listen),
        "{text}"
    );
    assert!(text.contains(&listen.to_string()) && text.contains("in use"), "{text}");
    assert!(starts(&etcd).is_empty());
}

#[tokio::test]
async fn ports_that_somebody_else_was_quicker_to_take_are_replaced_by_others() {
    let directory = Directory::new();
    // The first time, the very ports that it is given are taken: by another etcd, so that something
    // answers there. It is not ours, and must not be mistaken for it.
    let etcd = fake(
        &directory,
        r#"if mkdir "$(dirname "$0")/first"; then
               'ETCD' --name other --data-dir "$(dirname "$0")/other" --listen-client-urls "$6" \
                   --advertise-client-urls "$6" --listen-peer-urls "${10}" \
                   --initial-advertise-peer-urls "${10}" --initial-cluster other="${10}" &
               for url in "$6" "${10}"; do
                   # As the kernel lists a socket that listens.
                   socket=$(printf ':%04X 00000000:0000 0A' "${url##*:}")
                   until grep -q "$socket" /proc/net/tcp; do sleep 0.05; done
               done
               sleep 1
           fi
           exec 'ETCD' "$@""#,
    );
    let mut server = EtcdServer::start(options(&etcd)).await.unwrap();
    let starts = starts(&etcd);
    assert_eq!(starts.len(), 2, "{starts:?}");
    for flag in ["--listen-client-urls", "--listen-peer-urls"] {
        assert_ne!(argument(&starts[0], flag), argument(&starts[1], flag));
    }
    let client = server.client().await.unwrap();
    let members = client.members().await.unwrap();
    assert_eq!(members[0].name, argument(&starts[1], "--name"));
    server.stop().await.unwrap();
    nothing_is_left(&etcd).await;
    let gone = async || processes_with(&directory.path().join("other")).is_empty();
    eventually("the other is gone", PATIENCE, gone).await;
}

#[tokio::test]
async fn taken_ports_are_not_tried_for_ever() {
    let directory = Directory::new();
    let etcd = fake(&directory, "echo 'listen tcp: bind: address already in use'; exit 1");
    let (error, text) = fails(options(&etcd).with(|options| options.attempts = 4)).await;
    assert!(matches!(error, EtcdServerError::Exited { .. }), "{text}");
    assert_eq!(starts(&etcd).len(), 4);
}

#[tokio::test]
async fn one_that_does_not_end_when_asked_is_killed() {
    let directory = Directory::new();
    let etcd = fake(&directory, "trap '' TERM; 'ETCD' \"$@\" & while :; do sleep 100; done");
    let stop_timeout = Duration::from_millis(300);
    let mut server =
        EtcdServer::start(options(&etcd).with(|options| options.stop_timeout = stop_timeout))
            .await
            .unwrap();
    let pid = server.pid().unwrap();
    server.stop().await.unwrap();
    assert!(!lives(pid));
    nothing_is_left(&etcd).await;
}

#[tokio::test]
async fn a_data_directory_that_cannot_be() {
    let directory = Directory::new();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let data_dir = Some(file.join("data"));
    let (error, text) =
        fails(options(&Version::V3_5.etcd()).with(|options| options.data_dir = data_dir)).await;
    assert!(matches!(error, EtcdServerError::Directory { .. }), "{text}");
    assert!(text.contains("file/data"), "{text}");
}

#[tokio::test]
async fn options_that_make_no_sense() {
    let usual = || options(&Version::V3_5.etcd());
    for (options, field) in [
        (usual().with(|options| options.attempts = 0), "attempts \"0\""),
        (usual().with(|options| options.start_timeout = Duration::ZERO), "start_timeout \"0ns\""),
    ] {
        let (error, text) = fails(options).await;
        assert!(matches!(error, EtcdServerError::Config(_)), "{text}");
        assert!(text.contains(field), "{text}");
    }
}
