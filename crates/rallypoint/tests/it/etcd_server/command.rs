//! `rallypoint serve --engine etcd`, and how it ends: of its own will or not.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Output};
use std::time::Duration;

use rallypoint::client::{Client, ClientOptions};
use rallypoint::core::kv::{KeyRange, Put};
use rallypoint::rendezvous::{RendezvousHandlerRegistry, RendezvousParameters};
use rustix::process::Signal;

use super::{PATIENCE, fake, lives, nothing_is_left, processes_with, starts};
use crate::support::Version;
use crate::support::hostile::eventually;
use crate::support::process::{Directory, Process, Recipe};

/// The command as a child, with an etcd that a test can find again, and a temporary directory of its own
/// whose name is a hard one.
struct Serve {
    process: Process,
    input: Option<ChildStdin>,
    etcd: PathBuf,
    temporary: PathBuf,
    directory: Directory,
}

impl Serve {
    fn start(version: Version, args: &[&str]) -> Self {
        let directory = Directory::new();
        // Its output goes elsewhere, or it would end by itself when nobody is there to read it. And it
        // has a companion in its group, which has no reason at all to end by itself.
        let script = format!(
            "sleep 1000 > /dev/null 2>&1 & echo $! >> \"$0.companions\"
             exec '{}' \"$@\" > \"$0.output\" 2>&1",
            version.etcd().display()
        );
        let etcd = fake(&directory, &script);
        let temporary = directory.path().join("it's \"$(a)\" * hard  name ");
        std::fs::create_dir(&temporary).unwrap();
        let mut all: Vec<OsString> = vec!["serve".into(), "--engine".into(), "etcd".into()];
        all.extend(["--listen", "127.0.0.1:0", "--ready-file"].map(Into::into));
        all.push(directory.path().join("ready").into());
        all.extend(args.iter().map(Into::into));
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let env = vec![
            ("TORCHELASTIC_ETCD_BINARY_PATH".to_owned(), text(&etcd)),
            ("TMPDIR".to_owned(), text(&temporary)),
            // The settings of another etcd, with which ours would not start.
            ("ETCD_NAME".to_owned(), "other".to_owned()),
            ("ETCD_CONFIG_FILE".to_owned(), "/nowhere".to_owned()),
        ];
        let program = env!("CARGO_BIN_EXE_rallypoint").into();
        let recipe = Recipe { program, args: all, env, log: directory.path().join("log") };
        let (process, input) = Process::start_with_input(&recipe);
        Self { process, input: Some(input), etcd, temporary, directory }
    }

    /// The endpoints in its ready file, once it is there.
    async fn endpoints(&mut self) -> String {
        let path = self.directory.path().join("ready");
        eventually("there is a ready file", PATIENCE, async || {
            assert!(!self.process.has_ended(), "{}", self.process.log_tail());
            path.exists()
        })
        .await;
        std::fs::read_to_string(path).unwrap().trim().to_owned()
    }

    /// Waits for its end; its exit code and all that it printed.
    async fn ended(&mut self) -> (Option<i32>, String) {
        let ended = async || self.process.has_ended();
        eventually("it has ended", PATIENCE, ended).await;
        (self.process.exit_status().unwrap().code(), self.output())
    }

    /// All that it printed.
    fn output(&self) -> String {
        let output = std::fs::read(self.directory.path().join("log")).unwrap();
        String::from_utf8_lossy(&output).into_owned()
    }

    /// Waits until there is no etcd, no guard and no directory.
    async fn nothing_is_left(&self) {
        nothing_is_left(&self.etcd).await;
        let companions = self.etcd.with_extension("companions");
        for pid in std::fs::read_to_string(companions).unwrap_or_default().lines() {
            let gone = async || !lives(pid.parse().unwrap());
            eventually("its companion is gone", PATIENCE, gone).await;
        }
        let empty = async || std::fs::read_dir(&self.temporary).unwrap().next().is_none();
        eventually("the temporary directory is empty", PATIENCE, empty).await;
        // The guard removes it with a process of its own.
        let gone = async || processes_with(&self.temporary).is_empty();
        eventually("no process knows the temporary directory", PATIENCE, gone).await;
    }
}

/// The processes of real etcds that were started here.
fn etcds(serve: &Serve) -> Vec<u32> {
    processes_with(&serve.temporary).into_iter().collect()
}

#[tokio::test]
async fn killed_it_leaves_no_etcd_and_no_directory() {
    for (members, count) in [("1", 1), ("3", 3)] {
        let mut serve = Serve::start(Version::V3_5, &["--members", members]);
        let endpoints = serve.endpoints().await;
        let client = Client::connect(ClientOptions::new([endpoints])).await.unwrap();
        client.put(Put::new("k", "v")).await.unwrap();
        assert_eq!(etcds(&serve).len(), count);
        assert_eq!(std::fs::read_dir(&serve.temporary).unwrap().count(), 1);
        serve.process.signal(Signal::KILL);
        serve.nothing_is_left().await;
    }
}

#[tokio::test]
async fn killed_at_any_moment_it_leaves_no_etcd_and_no_directory() {
    for millis in [0, 2, 4, 6, 8, 10, 12, 15, 20, 30, 50, 100, 200] {
        let mut serve = Serve::start(Version::V3_5, &[]);
        tokio::time::sleep(Duration::from_millis(millis)).await;
        serve.process.signal(Signal::KILL);
        serve.ended().await;
        serve.nothing_is_left().await;
    }
}

#[tokio::test]
async fn asked_to_stop_it_leaves_nothing_and_succeeds() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut serve = Serve::start(Version::V3_4, &[]);
        serve.endpoints().await;
        serve.process.signal(signal);
        let (code, output) = serve.ended().await;
        assert_eq!(code, Some(0), "{output}");
        assert!(output.contains("listening on http://127.0.0.1:"), "{output}");
        assert!(!serve.directory.path().join("ready").exists());
        serve.nothing_is_left().await;
    }
}

#[tokio::test]
async fn asked_to_stop_while_it_starts_it_leaves_nothing() {
    let mut serve = Serve::start(Version::V3_4, &[]);
    let started = async || !starts(&serve.etcd).is_empty();
    eventually("etcd was started", PATIENCE, started).await;
    serve.process.signal(Signal::TERM);
    let (code, output) = serve.ended().await;
    assert_eq!(code, Some(0), "{output}");
    serve.nothing_is_left().await;
}

#[tokio::test]
async fn it_ends_with_its_input_if_told_to() {
    let mut serve = Serve::start(Version::V3_5, &["--stop-at-eof"]);
    serve.endpoints().await;
    drop(serve.input.take());
    let (code, output) = serve.ended().await;
    assert_eq!(code, Some(0), "{output}");
    serve.nothing_is_left().await;
}

#[tokio::test]
async fn an_etcd_that_dies_takes_the_command_with_it() {
    let mut serve = Serve::start(Version::V3_5, &[]);
    serve.endpoints().await;
    kill(etcds(&serve)[0]);
    let (code, output) = serve.ended().await;
    assert_eq!(code, Some(1), "{output}");
    assert!(output.contains("ended by itself") && output.contains("SIGKILL"), "{output}");
    serve.nothing_is_left().await;
}

fn kill(pid: u32) {
    use rustix::process::{Pid, kill_process};
    kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
}

#[tokio::test]
async fn a_cluster_serves_a_rendezvous_and_goes_on_without_a_member_but_not_without_two() {
    let mut serve = Serve::start(Version::V3_5, &["--members", "3"]);
    let endpoints = serve.endpoints().await;
    assert_eq!(endpoints.split(',').count(), 3);
    let etcds = etcds(&serve);
    kill(etcds[0]);
    let said = async || serve.output().contains("the remaining members continue");
    eventually("it is said", PATIENCE, said).await;
    let node = async |_| {
        let parameters = RendezvousParameters::new("etcd", &endpoints, "job", 2, 2).unwrap();
        let handler = RendezvousHandlerRegistry::with_builtin().create_handler(parameters).await;
        handler.unwrap().next_rendezvous().await.unwrap().rank
    };
    let mut ranks = futures_util::future::join_all([0, 1].map(node)).await;
    ranks.sort_unstable();
    assert_eq!(ranks, [0, 1]);
    kill(etcds[1]);
    let (code, output) = serve.ended().await;
    assert_eq!(code, Some(1), "{output}");
    serve.nothing_is_left().await;
}

#[tokio::test]
async fn a_given_directory_is_kept() {
    let directory = Directory::new();
    let data = directory.path().join("data");
    for _ in 0..2 {
        let mut serve = Serve::start(Version::V3_4, &["--data-dir", data.to_str().unwrap()]);
        let client = Client::connect(ClientOptions::new([serve.endpoints().await])).await.unwrap();
        let before = client.range(KeyRange::key("k")).await.unwrap().kvs.len();
        client.put(Put::new(format!("k{before}"), "v")).await.unwrap();
        client.put(Put::new("k", "v")).await.unwrap();
        serve.process.signal(Signal::KILL);
        let gone = async || processes_with(&data).is_empty();
        eventually("etcd is gone", PATIENCE, gone).await;
        assert!(data.join("member").is_dir());
    }
    let mut serve = Serve::start(Version::V3_4, &["--data-dir", data.to_str().unwrap()]);
    let client = Client::connect(ClientOptions::new([serve.endpoints().await])).await.unwrap();
    assert_eq!(client.range(KeyRange::prefix("k")).await.unwrap().kvs.len(), 3);
}

fn run(args: &[&str], env: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rallypoint"))
        .arg("serve")
        .args(args)
        .env_remove("TORCHELASTIC_ETCD_BINARY_PATH")
        .envs(env.iter().copied())
        .output()
        .unwrap()
}

fn complaint(args: &[&str], env: &[(&str, &str)], code: i32) -> String {
    let output = run(args, env);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{text}");
    text
}

#[test]
fn what_only_one_engine_has_is_refused_by_name() {
    let text = complaint(&["--engine", "etcd", "--user", "me", "--max-leases", "7"], &[], 2);
    assert!(text.contains("no --user, no --max-leases"), "{text}");
    let text = complaint(&["--engine=etcd", "--cert=a", "--key=b"], &[], 2);
    assert!(text.contains("no --cert, no --key"), "{text}");
    let text = complaint(&["--members", "3"], &[], 2);
    assert!(text.contains("--members wants --engine etcd"), "{text}");
    let text = complaint(&["--engine", "etcd", "--members", "0"], &[], 2);
    assert!(text.contains("--members") && text.contains("from 1 to"), "{text}");
    let text = complaint(&["--engine", "other"], &[], 2);
    assert!(text.contains("embedded") && text.contains("etcd"), "{text}");
}

#[test]
fn an_etcd_that_is_not_there_is_told_with_every_place() {
    let text = complaint(&["--engine", "etcd"], &[("PATH", "/nowhere:/nor/here")], 1);
    assert!(text.contains("/nowhere/etcd") && text.contains("/nor/here/etcd"), "{text}");
    let named = [("TORCHELASTIC_ETCD_BINARY_PATH", "/no/such/etcd")];
    let text = complaint(&["--engine", "etcd"], &named, 1);
    assert!(text.contains(r#"TORCHELASTIC_ETCD_BINARY_PATH is "/no/such/etcd""#), "{text}");
}

#[test]
fn an_address_that_is_taken_is_told() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let etcd = Version::V3_5.etcd();
    let named = [("TORCHELASTIC_ETCD_BINARY_PATH", etcd.to_str().unwrap())];
    let text = complaint(&["--engine", "etcd", "--listen", &address], &named, 1);
    assert!(text.contains(&format!("cannot listen on {address}")), "{text}");
}
