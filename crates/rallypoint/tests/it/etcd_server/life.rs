//! One etcd from its start to its end.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use rallypoint::core::kv::{KeyRange, Put};
use rallypoint::etcd_server::{EtcdOutput, EtcdServer, EtcdServerError};

use super::{PATIENCE, argument, fake, lives, nothing_is_left, options, real, starts};
use crate::support::Version;
use crate::support::hostile::eventually;
use crate::support::process::Directory;
use crate::support::tools::free_port;

/// The data directory of a running etcd, by its command line.
fn data_dir(pid: u32) -> PathBuf {
    let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
    PathBuf::from(argument(&line.replace('\0', "\t"), "--data-dir"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_at_once_have_ports_of_their_own_and_leave_nothing() {
    for version in Version::all() {
        let starting = (0..20).map(|_| EtcdServer::start(options(&version.etcd())));
        let mut servers = try_join_all(starting).await.unwrap();
        let ports: BTreeSet<u16> = servers.iter().map(EtcdServer::port).collect();
        let pids: BTreeSet<u32> = servers.iter().filter_map(EtcdServer::pid).collect();
        let directories: Vec<PathBuf> = pids.iter().copied().map(data_dir).collect();
        assert_eq!((ports.len(), pids.len()), (20, 20));
        for server in &servers {
            let client = server.client().await.unwrap();
            client.put(Put::new("port", server.port().to_string())).await.unwrap();
        }
        for server in &servers {
            let found = server.client().await.unwrap().range(KeyRange::key("port")).await.unwrap();
            assert_eq!(found.kvs[0].value, server.port().to_string());
        }
        assert!(directories.iter().all(|directory| directory.is_dir()));
        for stopped in join_all(servers.iter_mut().map(EtcdServer::stop)).await {
            stopped.unwrap();
        }
        // While the handles are still there: it is stopping that did it.
        assert!(!pids.into_iter().any(lives));
        assert!(!directories.iter().any(|directory| directory.exists()));
        drop(servers);
    }
}

#[tokio::test]
async fn it_tells_where_and_what_it_is() {
    for version in Version::all() {
        let mut server = EtcdServer::start(options(&version.etcd())).await.unwrap();
        assert_eq!(server.host(), IpAddr::from(Ipv4Addr::LOCALHOST));
        assert_eq!(server.endpoint(), format!("127.0.0.1:{}", server.port()));
        assert!(server.version().starts_with(version.name()), "{}", server.version());
        let pid = server.pid().unwrap();
        assert!(lives(pid));
        let status = server.client().await.unwrap().status().await.unwrap();
        assert_eq!(status.version, server.version());
        server.stop().await.unwrap();
        assert_eq!(server.pid(), None);
        server.stop().await.unwrap();
        assert!(!lives(pid));
    }
}

/// From 3.6 on, and in the last ones of 3.5, an etcd with users tells strangers neither its status nor its members.
#[tokio::test]
async fn one_whose_data_have_users_becomes_ready() {
    for version in Version::all() {
        let directory = Directory::new();
        let data = Some(directory.path().join("data"));
        let usual = || options(&version.etcd()).with(|options| options.data_dir = data.clone());
        let mut server = EtcdServer::start(usual()).await.unwrap();
        for command in [
            &["user", "add", "root:word"][..],
            &["user", "grant-role", "root", "root"],
            &["auth", "enable"],
        ] {
            let done = std::process::Command::new(version.etcdctl())
                .env("ETCDCTL_API", "3")
                .args(["--endpoints", &server.endpoint()])
                .args(command)
                .output()
                .unwrap();
            assert!(done.status.success(), "{command:?}: {done:?}");
        }
        server.stop().await.unwrap();
        let quick = usual().with(|options| options.start_timeout = Duration::from_secs(20));
        let mut server = EtcdServer::start(quick).await.unwrap();
        assert!(server.version().starts_with(version.name()), "{}", server.version());
        let stranger = server.client().await.unwrap().range(KeyRange::key("a")).await;
        assert!(stranger.is_err());
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn dropping_it_leaves_nothing() {
    let directory = Directory::new();
    let etcd = real(&directory, Version::V3_5);
    let server = EtcdServer::start(options(&etcd)).await.unwrap();
    let (pid, data) = (server.pid().unwrap(), data_dir(server.pid().unwrap()));
    drop(server);
    assert!(!lives(pid));
    assert!(!data.exists());
}

#[tokio::test]
async fn a_start_that_is_given_up_leaves_nothing() {
    let directory = Directory::new();
    let etcd = real(&directory, Version::V3_5);
    // At first there is not even the time to start the process. On a quick machine the last may be ready.
    for round in 0.. {
        let patience = Duration::from_micros(500) * (1 << round);
        drop(tokio::time::timeout(patience, EtcdServer::start(options(&etcd))).await);
        nothing_is_left(&etcd).await;
        if round >= 9 && !starts(&etcd).is_empty() {
            break;
        }
        assert!(patience < PATIENCE, "it never started");
    }
}

#[test]
fn it_does_not_need_the_runtime_that_it_was_started_on() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut server = runtime().block_on(EtcdServer::start(options(&Version::V3_5.etcd()))).unwrap();
    runtime().block_on(async {
        server.client().await.unwrap().put(Put::new("k", "v")).await.unwrap();
        server.stop().await.unwrap();
    });
}

#[tokio::test]
async fn a_given_directory_is_kept_and_served_again() {
    for version in Version::all() {
        let directory = Directory::new();
        let data = directory.path().join("data");
        let options =
            options(&version.etcd()).with(|options| options.data_dir = Some(data.clone()));
        let mut first = EtcdServer::start(options.clone()).await.unwrap();
        first.client().await.unwrap().put(Put::new("stopped", "1")).await.unwrap();
        first.stop().await.unwrap();
        assert!(data.join("member").is_dir());
        // The second is killed, and the third finds what both have acknowledged.
        let second = EtcdServer::start(options.clone()).await.unwrap();
        second.client().await.unwrap().put(Put::new("killed", "2")).await.unwrap();
        drop(second);
        let mut third = EtcdServer::start(options).await.unwrap();
        let client = third.client().await.unwrap();
        for (key, value) in [("stopped", "1"), ("killed", "2")] {
            assert_eq!(client.range(KeyRange::key(key)).await.unwrap().kvs[0].value, value);
        }
        third.stop().await.unwrap();
        assert!(data.join("member").is_dir());
    }
}

#[tokio::test]
async fn one_that_ends_by_itself_is_noticed() {
    let mut server = EtcdServer::start(options(&Version::V3_4.etcd())).await.unwrap();
    let pid = server.pid().unwrap();
    let data = data_dir(pid);
    assert!(tokio::time::timeout(Duration::from_millis(50), server.exited()).await.is_err());
    kill(pid);
    let ended = tokio::time::timeout(PATIENCE, server.exited()).await.unwrap();
    let text = ended.to_string();
    assert!(matches!(ended, EtcdServerError::Exited { pid: ended, .. } if ended == pid), "{text}");
    assert!(text.contains("SIGKILL") && text.contains("the last lines of its output:"), "{text}");
    assert_eq!(server.pid(), None);
    server.stop().await.unwrap();
    assert!(!data.exists());
}

fn kill(pid: u32) {
    use rustix::process::{Pid, Signal, kill_process};
    kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
}

#[tokio::test]
async fn output_goes_to_a_file_if_asked() {
    let directory = Directory::new();
    let file = directory.path().join("output");
    std::fs::write(&file, "before\n").unwrap();
    let output = EtcdOutput::File(file.clone());
    let options = options(&Version::V3_5.etcd()).with(|options| options.output = output);
    let mut server = EtcdServer::start(options).await.unwrap();
    server.stop().await.unwrap();
    let written = async || std::fs::read_to_string(&file).unwrap().contains("ready to serve");
    eventually("its output is in the file", PATIENCE, written).await;
    assert!(std::fs::read_to_string(&file).unwrap().starts_with("before\n"));
}

#[tokio::test]
async fn much_output_does_not_hold_it_up() {
    let directory = Directory::new();
    // More than any pipe holds.
    let etcd = fake(&directory, "head -c 1000000 /dev/zero | tr '\\0' x; exec 'ETCD' \"$@\"");
    let mut server = EtcdServer::start(options(&etcd)).await.unwrap();
    server.stop().await.unwrap();
}

#[tokio::test]
async fn arguments_reach_it_and_a_free_port_can_be_chosen() {
    let directory = Directory::new();
    let etcd = real(&directory, Version::V3_5);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let args = vec!["--snapshot-count=77".into()];
    let chosen = options(&etcd).with(|options| {
        options.listen = address;
        options.args = args;
    });
    let mut server = EtcdServer::start(chosen).await.unwrap();
    assert_eq!(server.endpoint(), address.to_string());
    assert!(starts(&etcd)[0].ends_with("--snapshot-count=77\t"));
    server.stop().await.unwrap();
}
