//! One member of a real etcd.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use super::process::{Directory, Process, Recipe, log_tail};
use super::tools::{Version, free_port};
use super::wire::wait_until_ready;

/// The certificates that a server listens with, as PEM files.
#[derive(Debug, Clone, Copy)]
pub struct Tls<'a> {
    /// The server's certificate.
    pub cert: &'a Path,
    /// Its key.
    pub key: &'a Path,
    /// If clients must show a certificate: who signs theirs.
    pub client_ca: Option<&'a Path>,
}

/// A real etcd of one member.
#[derive(Debug)]
pub struct Etcd {
    // Before the directory: the process must be gone when its files are removed.
    process: Option<Process>,
    recipe: Recipe,
    endpoint: String,
    plain: String,
    version: Version,
    directory: Directory,
}

impl Etcd {
    /// Starts a fresh one and waits until it serves.
    pub async fn start(version: Version) -> Self {
        Self::start_with(version, &[]).await
    }

    /// The same with more command line arguments.
    pub async fn start_with(version: Version, args: &[&str]) -> Self {
        Self::launch(version, None, args).await
    }

    /// The same, for clients that speak TLS.
    pub async fn start_tls(version: Version, tls: Tls<'_>, args: &[&str]) -> Self {
        Self::launch(version, Some(tls), args).await
    }

    async fn launch(version: Version, tls: Option<Tls<'_>>, args: &[&str]) -> Self {
        let mut complaint = String::new();
        // Between finding a free port and etcd's taking it somebody else may be quicker.
        for _ in 0..5 {
            let mut etcd = Self::prepare(version, tls, args);
            match etcd.run().await {
                Ok(()) => return etcd,
                Err(error) => {
                    complaint = format!("{error}\n{}", log_tail(&etcd.recipe.log));
                    if !complaint.contains("address already in use") {
                        break;
                    }
                }
            }
        }
        panic!("etcd {} did not start: {complaint}", version.name());
    }

    fn prepare(version: Version, tls: Option<Tls<'_>>, args: &[&str]) -> Self {
        let directory = Directory::new();
        let plain = format!("http://127.0.0.1:{}", free_port());
        let peer = format!("http://127.0.0.1:{}", free_port());
        // With TLS there is a second, plain address, for the readiness check.
        let endpoint = match tls {
            Some(_) => format!("https://127.0.0.1:{}", free_port()),
            None => plain.clone(),
        };
        let listen = if tls.is_some() { format!("{endpoint},{plain}") } else { plain.clone() };
        let mut all: Vec<OsString> =
            vec!["--data-dir".into(), directory.path().join("data").into()];
        let mut flag = |name: &str, value: OsString| all.extend([name.into(), value]);
        flag("--name", "single".into());
        flag("--listen-client-urls", listen.into());
        flag("--advertise-client-urls", endpoint.clone().into());
        flag("--listen-peer-urls", peer.clone().into());
        flag("--initial-advertise-peer-urls", peer.clone().into());
        flag("--initial-cluster", format!("single={peer}").into());
        flag("--logger", "zap".into());
        if let Some(tls) = tls {
            flag("--cert-file", tls.cert.into());
            flag("--key-file", tls.key.into());
            if let Some(ca) = tls.client_ca {
                flag("--trusted-ca-file", ca.into());
                flag("--client-cert-auth", "".into());
                all.pop();
            }
        }
        all.extend(args.iter().map(OsString::from));
        let log = directory.path().join("log");
        let recipe = Recipe { program: version.etcd(), args: all, env: Vec::new(), log };
        Self { process: None, recipe, endpoint, plain, version, directory }
    }

    async fn run(&mut self) -> Result<(), String> {
        let process = self.process.insert(Process::start(&self.recipe));
        wait_until_ready(&self.plain, Duration::from_secs(30), || process.has_ended()).await
    }

    /// `http://127.0.0.1:…` (`https://…` with TLS).
    pub fn endpoint(&self) -> String {
        self.endpoint.clone()
    }

    /// The address without the scheme.
    pub fn address(&self) -> String {
        self.endpoint.rsplit('/').next().unwrap().to_owned()
    }

    /// Where this etcd also listens without TLS.
    pub fn plain_endpoint(&self) -> String {
        self.plain.clone()
    }

    /// Which etcd it is.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The number that the kernel knows it by.
    pub fn id(&self) -> u32 {
        self.process.as_ref().unwrap().id()
    }

    /// Kills it with SIGKILL. Its data stay.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Kills it if it runs, and starts it again on the same address with the same data.
    pub async fn restart(&mut self) {
        self.kill();
        for attempt in 1.. {
            match self.run().await {
                Ok(()) => return,
                Err(error) if attempt == 3 => {
                    panic!("etcd did not restart: {error}\n{}", log_tail(&self.recipe.log))
                }
                Err(_) => self.kill(),
            }
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
        log_tail(&self.recipe.log)
    }

    /// A directory for the test's own files, gone with the server.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }
}
