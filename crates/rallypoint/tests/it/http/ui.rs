//! The page of runs: `serve --http` and `rallypoint ui`, as processes.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use super::{Page, ask, get_with, told_address};
use crate::launch::{Job, free_endpoint, host_of, until, wait};
use crate::secure::Authority;
use crate::status::documented::fields;
use crate::support::hostile::Target;
use crate::support::process::{Directory, Process};
use crate::support::{Embedded, Etcd, Version};

const LOCAL: &str = "Host: localhost\r\n";

/// `rallypoint ui` at a free port.
struct Ui {
    process: Process,
    stdout: PathBuf,
    stderr: PathBuf,
    _directory: Directory,
}

impl Ui {
    fn start(endpoint: &str, words: &[&str], variables: &[(&str, &str)]) -> Self {
        let directory = Directory::new();
        let [stdout, stderr] = ["stdout", "stderr"].map(|name| directory.path().join(name));
        let mut command = Command::new(env!("CARGO_BIN_EXE_rallypoint"));
        command.args(["ui", "--rdzv-endpoint", endpoint]).args(words);
        if !words.contains(&"--http") {
            command.args(["--http", "127.0.0.1:0"]);
        }
        command.envs(variables.iter().copied()).stdin(Stdio::null());
        command.stdout(File::create(&stdout).unwrap()).stderr(File::create(&stderr).unwrap());
        let process = Process::of(&mut command, vec![stdout.clone(), stderr.clone()]);
        Self { process, stdout, stderr, _directory: directory }
    }

    fn stderr(&self) -> String {
        std::fs::read_to_string(&self.stderr).unwrap()
    }

    /// The address of the page, which the command says.
    fn address(&self) -> String {
        until("the address of the page", || {
            let said = std::fs::read_to_string(&self.stdout).unwrap();
            let (_, url) = said.split_once("://")?;
            Some(url.strip_suffix("/\n")?.to_owned())
        })
    }

    /// How it ends by itself.
    fn ended(&mut self) -> (Option<i32>, String) {
        let status = until("it ends", || self.process.exit_status());
        (status.code(), self.stderr())
    }
}

fn get(address: &str, path: &str) -> Page {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\n{LOCAL}\r\n").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    Page { code, body: body.to_owned() }
}

fn json(page: &Page) -> Value {
    serde_json::from_str(&page.body).unwrap_or_else(|error| panic!("{error}: {page:?}"))
}

/// The events that a viewer gets.
struct Events(BufReader<TcpStream>);

impl Events {
    fn of(address: &str, query: &str) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        write!(stream, "GET /api/watch{query} HTTP/1.1\r\n{LOCAL}\r\n").unwrap();
        Self(BufReader::new(stream))
    }

    fn next(&mut self) -> (String, Value) {
        let (mut event, mut line) = (String::new(), String::new());
        loop {
            line.clear();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream ended");
            if let Some(name) = line.strip_prefix("event: ") {
                event = name.trim().to_owned();
            } else if let Some(data) = line.strip_prefix("data: ") {
                return (event, serde_json::from_str(data).unwrap());
            }
        }
    }

    #[track_caller]
    fn until(&mut self, what: &str, like: impl Fn(&str, &Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let (event, data) = self.next();
            if like(&event, &data) {
                return data;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "{what}: {event} {data}");
        }
    }
}

/// A job at a server that is no part of it, in which nothing happens by time.
fn job_at(address: &str, nnodes: &str) -> Job {
    Job::with_conf(address, nnodes, "is_host=false,lease_ttl=30,last_call_timeout=1")
}

/// A node is killed, and its lease is long: another node notices that the process is gone, which takes a moment too.
const NOTICED: Duration = Duration::from_secs(2);

/// The page of a server, of a server elsewhere, and of an etcd: each shows that a group forms, and that a node dies.
#[test]
fn a_group_forms_and_a_node_dies_and_both_are_shown_within_a_second() {
    for kind in ["serve", "ui", "etcd"] {
        let etcd = (kind == "etcd").then(|| wait(Etcd::start(Version::V3_5)));
        let args: &[&str] = if kind == "serve" { &["--http", "127.0.0.1:0"] } else { &[] };
        let ours = etcd.is_none().then(|| wait(Target::start(args)));
        let endpoint = match (&ours, &etcd) {
            (Some(ours), _) => ours.address().to_string(),
            (_, etcd) => etcd.as_ref().unwrap().address(),
        };
        let ui = (kind != "serve").then(|| Ui::start(&endpoint, &[], &[]));
        let page = match &ui {
            Some(ui) => ui.address(),
            None => told_address(&ours.as_ref().unwrap().output()).unwrap(),
        };
        let mut view = Events::of(&page, "?run=job");
        assert_eq!(view.next().0, "gone", "{kind}");
        let job = job_at(&endpoint, "2:3");
        let mut nodes = job.launchers(3);
        let group = job.group(3);
        let formed = Instant::now();
        let told = view.until("a group", |_, data| data["status"]["state"] == "final");
        assert!(formed.elapsed() < Duration::from_secs(1), "{kind}: {:?}", formed.elapsed());
        assert_eq!(told["status"]["counts"]["present"], 3, "{told}");
        assert!(told["status"]["nodes"][0]["lease"]["ttl_s"] == 30, "{told}");
        let kinds = |data: &Value| -> Vec<String> {
            let events = data["events"].as_array().unwrap();
            events.iter().map(|event| event["kind"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(kinds(&told), ["round_opened", "round_frozen", "round_final"], "{told}");
        let node = |data: &Value, pid: u32| -> Value {
            let nodes = data["status"]["nodes"].as_array().unwrap();
            nodes.iter().find(|node| node["pid"] == pid).cloned().unwrap_or_default()
        };
        let pid = nodes[1].id();
        assert_eq!(node(&told, pid)["state"], "member");
        let id = node(&told, pid)["id"].as_str().unwrap().to_owned();
        nodes[1].kill();
        let killed = Instant::now();
        view.until("it is no member", |_, data| node(data, pid)["state"] != "member");
        assert!(killed.elapsed() < NOTICED, "{kind}: {:?}", killed.elapsed());
        let again = job.group_after(&group, 2);
        let told = view.until("the next group", |_, data| {
            data["status"]["round"] == 2 && data["status"]["state"] == "final"
        });
        let opened = told["events"].as_array().unwrap().iter();
        let opened = opened.filter(|event| event["kind"] == "round_opened" && event["round"] == 2);
        let why: Vec<&str> = opened.map(|event| event["why"].as_str().unwrap()).collect();
        assert!(why[0].contains(&id), "{told}");
        let told = told["explain"].to_string();
        assert!(told.contains("Round 1 began"), "why the last rounds began: {told}");
        let runs = json(&get(&page, "/api/runs"));
        assert_eq!(runs["server"]["kind"], if kind == "etcd" { "etcd" } else { "rallypoint" });
        assert_eq!(runs["runs"][0]["run"], "job", "{runs}");
        again.tell("exit 0");
        nodes[0].ends_with(0);
        nodes[2].ends_with(0);
        view.until("the end", |_, data| data["status"]["state"] == "closed");
    }
}

#[test]
fn a_page_without_a_server_says_so_and_shows_the_server_when_it_comes() {
    let mut server = wait(Embedded::memory());
    let endpoint = server.address();
    server.kill();
    let begun = Instant::now();
    let ui = Ui::start(&endpoint, &[], &[]);
    let page = ui.address();
    assert_eq!(get(&page, "/").code, 200, "the page itself needs no server");
    let mut view = Events::of(&page, "");
    let (event, told) = view.next();
    assert_eq!(event, "away", "{told}");
    let words = format!("no server answers at {endpoint}: nothing listens there");
    assert!(told["why"].as_str().unwrap().contains(&words), "{told}");
    until("it says so", || ui.stderr().contains(&words).then_some(()));
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
    wait(server.restart());
    view.until("the server", |event, _| event == "runs");
    until("it says so", || ui.stderr().contains("the server answers now").then_some(()));
    // A server that is stopped in its tracks closes no connection.
    for gone in ["paused", "killed"] {
        let begun = Instant::now();
        if gone == "paused" {
            server.pause()
        } else {
            server.kill()
        }
        view.until(gone, |event, _| event == "away");
        assert!(begun.elapsed() < Duration::from_secs(7), "{gone}: {:?}", begun.elapsed());
        if gone == "paused" {
            server.resume()
        } else {
            wait(server.restart())
        }
        view.until("the server again", |event, _| event == "runs");
    }
}

#[test]
fn the_secret_and_the_certificates_of_the_server_hold_for_its_page() {
    let directory = Directory::new();
    let authority = Authority::new();
    let (cert, key) = authority.sign(directory.path(), "127.0.0.1");
    let ca = directory.path().join("ca.crt");
    std::fs::write(&ca, authority.pem()).unwrap();
    let [ca, cert, key] = [&ca, &cert, &key].map(|path| path.to_str().unwrap());
    let endpoint = free_endpoint();
    let job = Job::at(&endpoint, "2");
    let line = job.launcher().with(&["--cacert", ca, "--cert", cert, "--key", key]);
    let nodes = [line.env("RALLYPOINT_SECRET", "sesame").start()];
    host_of(&nodes, &endpoint);
    let conf = format!("protocol=https,cacert={ca},cert={cert},key={key}");
    let secret = [("RALLYPOINT_SECRET", "sesame")];
    let ui = Ui::start(&endpoint, &["--rdzv-conf", &conf], &secret);
    let page = ui.address();
    for path in ["/", "/app.js", "/api/runs", "/api/runs/job", "/api/watch"] {
        assert_eq!(get(&page, path).code, 401, "{path}");
        let wrong = "Authorization: Bearer simsim\r\n";
        assert_eq!(get_with(&page, path, wrong).code, 401, "{path}");
    }
    let right = "Authorization: Bearer sesame\r\n";
    let told = until("the run", || {
        let told = get_with(&page, "/api/runs/job", right);
        (told.code == 200).then(|| json(&told))
    });
    assert_eq!(told["status"]["state"], "joinable", "{told}");
    let (code, said) = Ui::start(&endpoint, &["--rdzv-conf", &conf], &[]).ended();
    assert_eq!(code, Some(1), "without the secret: {said}");
    assert!(!said.contains("sesame"), "{said}");
    // Other hosts see the page of a server with TLS over TLS.
    let words = ["--rdzv-conf", &conf, "--http", "0.0.0.0:0"];
    let (code, said) = Ui::start(&endpoint, &words, &secret).ended();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("give --cert and --key"), "{said}");
    // A server that wants a certificate is not shown to everybody on this host either.
    let (code, said) =
        Ui::start(&endpoint, &["--rdzv-conf", &conf], &[("RALLYPOINT_SECRET", "")]).ended();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("--client-ca"), "{said}");
}

#[test]
fn a_launcher_has_the_page_of_the_server_of_its_job_and_wants_its_secret() {
    let endpoint = free_endpoint();
    let job = Job::at(&endpoint, "2");
    let launch = || {
        let line = job.launcher().with(&["--http", "127.0.0.1:0"]);
        line.env("RALLYPOINT_SECRET", "sesame").start()
    };
    let mut nodes = [launch(), launch()];
    let group = job.group(2);
    for node in &nodes {
        let page = until("the address of the page", || told_address(&node.stderr()));
        assert_eq!(get(&page, "/").code, 401);
        let right = "Authorization: Bearer sesame\r\n";
        let told = get_with(&page, "/api/runs/job", right);
        assert_eq!((told.code, json(&told)["status"]["state"].as_str()), (200, Some("final")));
    }
    group.tell("exit 0");
    nodes.iter_mut().for_each(|node| drop(node.ends_with(0)));
    // The server of a job of one node is at a port that only the job knows.
    let alone = Job::new(&["--standalone"]);
    let mut node = alone.launch_with(&["--http", "127.0.0.1:0"]);
    let group = alone.group(1);
    let page = until("the address of the pages", || told_address(&node.stderr()));
    assert_eq!((get(&page, "/healthz").code, get(&page, "/").code), (200, 404));
    group.tell("exit 0");
    node.ends_with(0);
}

#[test]
fn a_port_that_is_taken_is_an_error_that_names_the_option() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, said) = Ui::start("127.0.0.1:1", &["--http", &address], &[]).ended();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(&format!("{address} is taken")), "{said}");
    assert!(said.contains("--http 127.0.0.1:0 takes a free port"), "{said}");
}

#[test]
fn it_ends_when_it_is_interrupted_also_with_viewers() {
    let server = wait(Embedded::memory());
    for signal in [Signal::INT, Signal::TERM] {
        let mut ui = Ui::start(&server.address(), &[], &[]);
        let mut view = Events::of(&ui.address(), "");
        view.next();
        ui.process.signal(signal);
        let (code, said) = ui.ended();
        assert_eq!(code, Some(0), "{said}");
    }
}

#[test]
fn the_page_of_a_server_wants_its_password() {
    let args = ["--http", "127.0.0.1:0", "--user", "root", "--password", "sesame"];
    let target = wait(Target::start(&args));
    let page = told_address(&target.output()).unwrap();
    assert_eq!(get(&page, "/").code, 401);
    let stream = TcpStream::connect(&page).unwrap();
    let told = ask(stream, "/api/runs", "Authorization: Bearer sesame\r\n");
    assert_eq!((told.code, json(&told)["runs"].as_array().unwrap().len()), (200, 0), "{told:?}");
}

/// The fields in the table of the page of the book, below a heading.
fn documented(heading: &str) -> BTreeSet<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/page.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once(&format!("\n## {heading}\n")).unwrap();
    let section = rest.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once(" |"));
    rows.flat_map(|(names, _)| names.split('`').step_by(2).map(str::to_owned))
        .filter(|name| !name.is_empty())
        .collect()
}

/// The fields that are not documented with `rallypoint status` and the events.
fn own_fields(value: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    fields(value, "", &mut found);
    let elsewhere = ["status.", "explain.", "events.", "runs."];
    found.retain(|field| !elsewhere.iter().any(|start| field.starts_with(start)));
    found
}

/// A worker fails, and later the job hangs: the page has the last lines of the worker and the report of rank 0. Its
/// JSON has the fields of the book.
#[test]
fn a_failure_and_a_hang_are_shown_and_the_fields_are_those_of_the_book() {
    let target = wait(Target::start(&["--http", "127.0.0.1:0"]));
    let page = told_address(&target.output()).unwrap();
    let job = job_at(&target.address().to_string(), "2");
    let options = ["--nproc-per-node", "2", "--hang-after", "2:60", "--progress", "beat"];
    let options = [&options[..], &["--max-restarts", "1", "--tee", "3"]].concat();
    let _nodes: Vec<_> = (0..2).map(|_| job.launch_with(&options)).collect();
    let mut view = Events::of(&page, "?run=job");
    let long = "x".repeat(600);
    let group = job.group(4);
    group.workers[2].tell(&format!("echo '<b>{long}</b>' >&2; echo the end >&2; exit 7"));
    let told = view.until("the last lines", |_, data| !data["failure"].is_null());
    let failure = &told["failure"];
    let says = failure["failure"].as_str().unwrap();
    assert!(says.starts_with("rank 2 (local rank 0 on ") && says.contains("code 7"), "{failure}");
    assert_eq!(failure["round"], 1, "{failure}");
    let lines: Vec<&str> =
        failure["lines"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    let cut = format!("<b>{}…", &long[..509]);
    assert_eq!(lines, [&*cut, "the end"], "{failure}");
    let group = job.group(4);
    let beat = ": > \"$RALLYPOINT_PROGRESS_FILE\"";
    group.workers[3].tell(&format!("{beat}; exec sleep 1000"));
    group.workers[..3].iter().for_each(|worker| worker.does(beat));
    let told = view.until("the report", |_, data| {
        data["hang"]["groups"].as_array().is_some_and(|groups| !groups.is_empty())
    });
    let hang = &told["hang"];
    assert_eq!((&hang["round"], &hang["number"]), (&2.into(), &1.into()), "{hang}");
    assert_eq!(hang["groups"][0]["ranks"], serde_json::json!([3]), "the odd rank first: {hang}");
    assert!(hang["groups"][0]["place"].as_str().unwrap().contains("sleep"), "{hang}");
    assert!(hang["text"].as_str().unwrap().starts_with("no progress on "), "{hang}");
    assert_eq!(own_fields(&told), documented("JSON of one run"));
    let runs = json(&get(&page, "/api/runs"));
    let mut listed = documented("JSON of all runs");
    listed.insert("server".to_owned());
    assert_eq!(own_fields(&runs), listed);
}
