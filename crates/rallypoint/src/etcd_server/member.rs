//! One etcd process: its command line, its readiness, its end.

use std::env;
use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::error::EtcdServerError;
use super::output::{EtcdOutput, Output};
use crate::client::{Client, ClientError, ClientOptions};
use crate::log_target::ETCD_SERVER;
use crate::process::{self, ProcessGroup};

/// How long an etcd may take to be gone after SIGKILL.
const DEATH: Duration = Duration::from_secs(10);

/// The patience of the first request to a server that has only just been started, and of the last: it
/// doubles. The client waits longer and longer between its attempts, so its patience must be short to
/// notice a quick start, and long for a server that is slow to answer.
const FIRST_PATIENCE: Duration = Duration::from_millis(250);
const LAST_PATIENCE: Duration = Duration::from_secs(8);

/// A request with less time than this would say nothing but that it had no time.
const SHORTEST_PATIENCE: Duration = Duration::from_millis(100);

/// Between requests that were answered, but not as they should be. After the others the client itself
/// has paused.
const PAUSE: Duration = Duration::from_millis(50);

/// What is the same each time a member is started.
#[derive(Debug)]
pub(super) struct Recipe {
    pub(super) binary: PathBuf,
    /// A name that no other etcd has, so that we know ours when it answers.
    pub(super) name: String,
    /// Where clients of this host reach it.
    pub(super) endpoint: SocketAddr,
    pub(super) data: PathBuf,
    /// The options of etcd besides its name and its data directory.
    pub(super) flags: Vec<(&'static str, String)>,
    pub(super) args: Vec<OsString>,
    pub(super) output: EtcdOutput,
}

impl Recipe {
    fn command(&self) -> io::Result<Command> {
        let mut command = process::command(&self.binary)?;
        command.args(["--name", &self.name]).arg("--data-dir").arg(&self.data);
        for (flag, value) in &self.flags {
            command.arg(flag).arg(value);
        }
        command.args(&self.args);
        // They are meant for another etcd of this host. This one would even refuse to start if one of
        // them names what its command line names too. (Without the exception it does not run on ARM.)
        for (name, _) in env::vars_os() {
            if name.as_bytes().starts_with(b"ETCD_") && name != "ETCD_UNSUPPORTED_ARCH" {
                command.env_remove(name);
            }
        }
        Ok(command)
    }
}

/// A member, which runs or not.
#[derive(Debug)]
pub(super) struct Member {
    recipe: Recipe,
    running: Option<Running>,
    version: String,
}

#[derive(Debug)]
struct Running {
    group: ProcessGroup,
    output: Output,
}

impl Member {
    pub(super) fn new(recipe: Recipe) -> Self {
        Self { recipe, running: None, version: String::new() }
    }

    pub(super) fn endpoint(&self) -> SocketAddr {
        self.recipe.endpoint
    }

    /// What it said it is when it was last started.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(|running| running.group.id())
    }

    /// Starts the process, and does not wait for it. Its ports must be free.
    pub(super) fn start(&mut self) -> Result<(), EtcdServerError> {
        let destination = self.recipe.output.open()?;
        let started = self.recipe.command().and_then(|mut command| {
            let output = Output::of(&mut command, destination)?;
            Ok((ProcessGroup::start(&mut command)?, output))
        });
        let (group, output) = started.map_err(|source| {
            let binary = self.recipe.binary.clone();
            EtcdServerError::Start { binary, source }
        })?;
        let (pid, endpoint) = (group.id(), self.recipe.endpoint);
        tracing::info!(
            target: ETCD_SERVER,
            pid, %endpoint, binary = ?self.recipe.binary, data = ?self.recipe.data, "started etcd"
        );
        self.running = Some(Running { group, output });
        Ok(())
    }

    /// Waits until it serves, or has ended, or the time is over.
    pub(super) async fn ready(&mut self, patience: Duration) -> Result<(), EtcdServerError> {
        let begun = Instant::now();
        let asking = ask(self.recipe.endpoint, self.recipe.name.clone(), begun + patience);
        let failed = tokio::select! {
            // Looked at first: whatever answers at the port of an etcd that has ended is another.
            biased;
            ended = self.exited() => return Err(ended),
            answer = asking => match answer {
                Ok(version) => {
                    let (endpoint, pid) = (self.recipe.endpoint, self.pid());
                    tracing::info!(
                        target: ETCD_SERVER,
                        %endpoint, pid, version, after = ?begun.elapsed(), "etcd is ready"
                    );
                    self.version = version;
                    return Ok(());
                }
                Err(failed) => failed,
            },
        };
        Err(EtcdServerError::NotReady {
            endpoint: self.recipe.endpoint.to_string(),
            pid: self.pid().unwrap_or_default(),
            waited: begun.elapsed(),
            source: failed.map(Box::new),
            lines: self.running.as_ref().map(|running| running.output.lines()).unwrap_or_default(),
        })
    }

    /// Waits until it has ended by itself. For ever if it does not run.
    pub(super) async fn exited(&mut self) -> EtcdServerError {
        let Some(Running { group, output }) = &mut self.running else {
            return std::future::pending().await;
        };
        let (endpoint, pid) = (self.recipe.endpoint.to_string(), group.id());
        match group.exited().await {
            Ok(status) => {
                let lines = output.last_words().await;
                EtcdServerError::Exited { endpoint, pid, status, lines }
            }
            Err(source) => EtcdServerError::Lost { endpoint, pid, source },
        }
    }

    /// Notes that it was seen to have ended.
    pub(super) fn forget(&mut self) {
        self.running = None;
    }

    /// Asks it to end, with SIGTERM.
    pub(super) fn ask_to_end(&self) {
        if let Some(running) = &self.running {
            running.group.signal(Signal::TERM);
        }
    }

    /// Waits until it has ended, or not at all if it does not run.
    pub(super) async fn ended(&mut self) {
        if let Some(running) = &mut self.running {
            // How it ended is of no interest: it was asked to.
            let _ = running.group.exited().await;
        }
    }

    /// Ends it at once. What it acknowledged is on disk.
    pub(super) async fn kill(&mut self) -> Result<(), EtcdServerError> {
        let Some(Running { group, .. }) = &mut self.running else { return Ok(()) };
        group.signal(Signal::KILL);
        if timeout(DEATH, group.exited()).await.is_err() {
            return Err(EtcdServerError::NotStopped { pid: group.id(), waited: DEATH });
        }
        self.running = None;
        Ok(())
    }
}

/// Asks until the etcd of this name answers, and returns its version. Otherwise what came of the last
/// request; nothing if another server answered.
async fn ask(
    endpoint: SocketAddr,
    name: String,
    deadline: Instant,
) -> Result<String, Option<ClientError>> {
    let client = Client::connect(ClientOptions::new([endpoint.to_string()])).await.map_err(Some)?;
    let mut patience = FIRST_PATIENCE;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let failed = match who(&client.with_timeout(patience.min(left))).await {
            Ok((version, Some(found))) if found == name => return Ok(version),
            Ok(_) => None,
            Err(error) => Some(error),
        };
        if Instant::now() + PAUSE + SHORTEST_PATIENCE > deadline {
            sleep_until(deadline).await;
            return Err(failed);
        }
        sleep(PAUSE).await;
        patience = (patience * 2).min(LAST_PATIENCE);
    }
}

/// The version of the server, and the name it has in its cluster.
async fn who(client: &Client) -> Result<(String, Option<String>), ClientError> {
    let status = client.status().await?;
    // This takes a leader, so that a server which says it is ready has one.
    let members = client.members().await?;
    let own = members.into_iter().find(|member| member.id == status.member_id);
    Ok((status.version, own.map(|member| member.name)))
}
