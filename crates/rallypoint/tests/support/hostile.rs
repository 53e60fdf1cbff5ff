//! For tests that mean harm: a server that is watched from outside, and bytes that no client sends.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rallypoint::proto::etcd as pb;
use rallypoint::proto::etcd::watch_request::RequestUnion;
use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tonic::{Status, Streaming};

use super::process::{Directory, Process, Recipe};
use super::wire;

/// `rallypoint serve` as a child process that nothing was said to yet, with or without TLS.
#[derive(Debug)]
pub struct Target {
    process: Process,
    address: SocketAddr,
    log: PathBuf,
    directory: Directory,
}

impl Target {
    /// A server in memory, with these arguments.
    pub async fn start(args: &[&str]) -> Self {
        Self::start_in(Directory::new(), "", args).await
    }

    /// The same in a directory that may hold files already, after some words to the shell that
    /// starts it. `DIR` in an argument stands for the directory.
    pub async fn start_in(directory: Directory, shell: &str, args: &[&str]) -> Self {
        let path = directory.path();
        let (ready, log) = (path.join("ready"), path.join("output"));
        // A later start in the same directory must not find what an earlier one left.
        let _ = std::fs::remove_file(&ready);
        let _ = std::fs::remove_file(&log);
        let process = Process::start(&recipe(path, shell, args));
        let mut target =
            Self { process, address: SocketAddr::from(([127, 0, 0, 1], 0)), log, directory };
        let started = Instant::now();
        while target.address.port() == 0 {
            assert!(started.elapsed() < Duration::from_secs(20), "not up: {}", target.output());
            assert!(!target.process.has_ended(), "it ended: {}", target.output());
            if let Ok(text) = std::fs::read_to_string(&ready) {
                target.address = text.trim().parse().unwrap();
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        target
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:…`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The number that the kernel knows it by.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// The directory that it was started in.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Gives the directory back when the server is gone.
    pub fn into_directory(self) -> Directory {
        self.directory
    }

    /// All that it printed.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// A raw connection to it.
    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends it a signal.
    pub fn signal(&mut self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Waits until it has ended, and tells how.
    pub async fn ended(&mut self, patience: Duration) -> ExitStatus {
        let started = Instant::now();
        loop {
            if let Some(status) = self.process.exit_status() {
                return status;
            }
            assert!(started.elapsed() < patience, "still there: {}", self.output());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// It runs, and nothing in it has panicked.
    pub fn assert_unharmed(&mut self) {
        assert!(!self.process.has_ended(), "the server ended: {}", self.output());
        let output = self.output();
        assert!(!output.contains("panicked"), "something panicked: {output}");
    }

    /// How much memory it has, in bytes.
    pub fn resident_bytes(&self) -> usize {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
    }

    /// How many files and sockets it has open.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.process.id())).unwrap().count()
    }
}

/// How `rallypoint serve` is started in a directory. What it prints goes to `output` there.
pub fn recipe(directory: &Path, shell: &str, args: &[&str]) -> Recipe {
    let here = directory.to_str().unwrap();
    let mut all: Vec<OsString> = vec!["-c".into(), format!("{shell}\nexec \"$0\" \"$@\"").into()];
    all.push(env!("CARGO_BIN_EXE_rallypoint").into());
    all.extend(["serve", "--listen", "127.0.0.1:0", "--ready-file"].map(OsString::from));
    all.push(directory.join("ready").into());
    all.extend(args.iter().map(|arg| arg.replace("DIR", here).into()));
    let log = directory.join("output");
    Recipe { program: "sh".into(), args: all, env: Vec::new(), log }
}

/// Waits until something holds; says what if it never does.
pub async fn eventually(what: &str, patience: Duration, mut holds: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !holds().await {
        assert!(started.elapsed() < patience, "after {patience:?} still not: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What a client says first.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// HTTP/2's frame types that the tests name.
pub mod kind {
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const CONTINUATION: u8 = 9;
}

/// An HTTP/2 frame.
#[derive(Debug, Clone)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

/// A frame as bytes.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Reads one frame; `None` when the connection is over.
pub async fn read_frame(stream: &mut TcpStream) -> Option<Frame> {
    let mut header = [0; 9];
    stream.read_exact(&mut header).await.ok()?;
    let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
    let mut payload = vec![0; length as usize];
    stream.read_exact(&mut payload).await.ok()?;
    let id = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
    Some(Frame { kind: header[3], flags: header[4], stream: id, payload })
}

/// Makes a connection into an HTTP/2 one: preface and settings, theirs acknowledged, and one ping
/// answered, so that the server is known to serve it. Otherwise the reason that it gave.
pub async fn greet(stream: &mut TcpStream) -> Result<(), String> {
    let settings = [frame(kind::SETTINGS, 0, 0, b""), frame(kind::SETTINGS, 1, 0, b"")].concat();
    // A server that refuses may have closed already; its reason is there all the same.
    let _ = stream.write_all(&[PREFACE, &settings].concat()).await;
    ping(stream).await
}

/// Sends a ping and waits for the answer, whatever else comes before it.
pub async fn ping(stream: &mut TcpStream) -> Result<(), String> {
    let _ = stream.write_all(&frame(kind::PING, 0, 0, b"rallying")).await;
    loop {
        match read_frame(stream).await {
            Some(Frame { kind: kind::PING, flags: 1, .. }) => return Ok(()),
            Some(Frame { kind: kind::GOAWAY, payload, .. }) => {
                return Err(String::from_utf8_lossy(&payload[8..]).into_owned());
            }
            Some(_) => {}
            None => return Err("the connection ended".into()),
        }
    }
}

/// The headers of a gRPC call, packed in HPACK's plainest way.
pub fn request_headers(path: &str) -> Vec<u8> {
    // POST and http are in the static table; so are the names that the other numbers stand for.
    let mut block = vec![0x83, 0x86, 0x04];
    let mut text = |before: &[u8], text: &str| {
        block.extend(before);
        block.push(u8::try_from(text.len()).ok().filter(|length| *length < 127).unwrap());
        block.extend(text.as_bytes());
    };
    text(&[], path);
    text(&[0x01], "localhost");
    text(&[0x0f, 0x10], "application/grpc");
    text(&[0x00], "te");
    text(&[], "trailers");
    block
}

/// A watch stream whose client decides when to read.
#[derive(Debug)]
pub struct Watching {
    requests: mpsc::Sender<pb::WatchRequest>,
    responses: Streaming<pb::WatchResponse>,
}

impl Watching {
    /// Opens a stream on a connection of its own.
    pub async fn open(endpoint: &str) -> Self {
        let (requests, mut sent) = mpsc::channel(16);
        let sent = futures_util::stream::poll_fn(move |context| sent.poll_recv(context));
        let mut client = pb::watch_client::WatchClient::new(wire::channel(endpoint));
        let opened = tokio::time::timeout(Duration::from_secs(5), client.watch(sent)).await;
        let responses = opened.expect("no answer in 5 s").unwrap().into_inner();
        Self { requests, responses }
    }

    async fn send(&mut self, request: RequestUnion) {
        let request = pb::WatchRequest { request_union: Some(request) };
        self.requests.send(request).await.unwrap();
    }

    /// Asks for a watch.
    pub async fn create(&mut self, create: pb::WatchCreateRequest) {
        self.send(RequestUnion::CreateRequest(create)).await;
    }

    /// Asks for the end of one.
    pub async fn cancel(&mut self, watch_id: i64) {
        self.send(RequestUnion::CancelRequest(pb::WatchCancelRequest { watch_id })).await;
    }

    /// What comes next, which must come soon.
    pub async fn message(&mut self) -> Result<Option<pb::WatchResponse>, Status> {
        let next = tokio::time::timeout(Duration::from_secs(10), self.responses.message()).await;
        next.expect("nothing comes")
    }

    /// The next response; the stream must be alive.
    pub async fn next(&mut self) -> pb::WatchResponse {
        self.message().await.unwrap().expect("the stream ended")
    }

    /// Waits until the stream has failed, and tells why.
    pub async fn assert_over(&mut self) -> Status {
        loop {
            match self.message().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("the stream ended without a status"),
                Err(status) => return status,
            }
        }
    }
}
