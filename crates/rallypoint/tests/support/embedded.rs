//! Our own server, run as the program that users run.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::process::{Directory, Process, Recipe, log_tail};
use super::tools::free_port;
use super::wire::wait_until_ready;

/// `rallypoint serve` as a child process.
#[derive(Debug)]
pub struct Embedded {
    // Before the directory: the process must be gone when its files are removed.
    process: Option<Process>,
    address: SocketAddr,
    args: Vec<OsString>,
    env: Vec<(String, String)>,
    directory: Directory,
}

impl Embedded {
    /// A fresh server that keeps everything in memory.
    pub async fn memory() -> Self {
        Self::start_with(false, &[]).await
    }

    /// A fresh server with a data directory.
    pub async fn disk() -> Self {
        Self::start_with(true, &[]).await
    }

    /// A fresh server, on disk or not, with more command line arguments.
    pub async fn start_with(disk: bool, args: &[&str]) -> Self {
        Self::in_directory(Directory::new(), disk, args).await
    }

    /// The same in a directory that already holds files which the arguments name.
    pub async fn in_directory(directory: Directory, disk: bool, args: &[&str]) -> Self {
        let mut all: Vec<OsString> = args.iter().map(OsString::from).collect();
        if disk {
            all.extend(["--data-dir".into(), directory.path().join("data").into()]);
        }
        // While the server is down, no other program may get its port.
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        // What it leaves for the next server on its port goes with the directory.
        let temporary = directory.path().to_str().unwrap().to_owned();
        let env = vec![("TMPDIR".to_owned(), temporary)];
        let mut server = Self { process: None, address, args: all, env, directory };
        if let Err(error) = server.run().await {
            panic!("rallypoint serve did not start: {error}\n{}", server.log_tail());
        }
        server
    }

    async fn run(&mut self) -> Result<(), String> {
        let ready = self.directory.path().join("ready");
        let _ = std::fs::remove_file(&ready);
        let mut args: Vec<OsString> =
            vec!["serve".into(), "--listen".into(), self.address.to_string().into()];
        args.extend(["--ready-file".into(), ready.clone().into()]);
        args.extend(self.args.iter().cloned());
        let program = PathBuf::from(env!("CARGO_BIN_EXE_rallypoint"));
        let recipe = Recipe { program, args, env: self.env.clone(), log: self.log() };
        let process = self.process.insert(Process::start(&recipe));
        self.address = wait_for_file(&ready, process).await?;
        let endpoint = format!("http://{}", self.address);
        wait_until_ready(&endpoint, Duration::from_secs(30), || process.has_ended()).await
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    /// `http://127.0.0.1:…`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The address without the scheme.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// The number that the kernel knows it by.
    pub fn id(&self) -> u32 {
        self.process.as_ref().unwrap().id()
    }

    /// Kills it with SIGKILL. What it has on disk stays.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Asks it to end (SIGTERM) and waits until it has.
    pub async fn stop(&mut self) {
        let mut process = self.process.take().unwrap();
        process.signal(Signal::TERM);
        let started = Instant::now();
        while !process.has_ended() {
            assert!(started.elapsed() < Duration::from_secs(10), "still there 10 s after SIGTERM");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Kills it, if it runs, and starts it again with one argument replaced by another.
    pub async fn restart_with(&mut self, old: &str, new: &str) {
        for argument in self.args.iter_mut().filter(|argument| *argument == old) {
            *argument = new.into();
        }
        self.restart().await;
    }

    /// Kills it if it runs, and starts it again on the same address with what it has on disk.
    pub async fn restart(&mut self) {
        self.kill();
        if let Err(error) = self.run().await {
            panic!("rallypoint serve did not restart: {error}\n{}", self.log_tail());
        }
    }

    /// Stops it in its tracks: connections stay open, nothing is answered.
    pub fn pause(&mut self) {
        self.process.as_mut().unwrap().signal(Signal::STOP);
    }

    /// Lets it go on after [`Self::pause`].
    pub fn resume(&mut self) {
        self.process.as_mut().unwrap().signal(Signal::CONT);
    }

    /// The end of its log.
    pub fn log_tail(&self) -> String {
        log_tail(&self.log())
    }

    /// A directory for the test's own files, gone with the server. Its data are in `data` there.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }
}

/// The address in the ready file, once it is there.
async fn wait_for_file(path: &Path, process: &mut Process) -> Result<SocketAddr, String> {
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(20) {
        if let Ok(text) = std::fs::read_to_string(path)
            && let Ok(address) = text.trim().parse()
        {
            return Ok(address);
        }
        if process.has_ended() {
            return Err("it ended by itself".into());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Err("no address in its ready file after 20 s".into())
}
