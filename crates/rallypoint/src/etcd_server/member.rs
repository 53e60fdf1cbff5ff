//! One etcd process: its command line, its readiness and its end.

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
use super::output::{EtcdOutput, OutputTail};
use super::unauthenticated::version_of;
use crate::client::{Client, ClientError, ClientOptions};
use crate::log_target::ETCD_SERVER;
use crate::process::{self, ProcessGroup};

/// How long etcd may take to end after SIGKILL.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// The timeout of the first request to a starting server. It doubles with each request up to
/// [`MAX_TIMEOUT`]. The client's own backoff grows, so short timeouts notice a quick start, and long ones
/// suit a server that is slow to answer.
const FIRST_TIMEOUT: Duration = Duration::from_millis(250);
/// The longest timeout of a request to a starting server.
const MAX_TIMEOUT: Duration = Duration::from_secs(8);

/// The shortest timeout of a request. With less, its error would say only that it timed out.
const MIN_TIMEOUT: Duration = Duration::from_millis(100);

/// The pause between requests, for servers that answer with a wrong name. After a failed request the
/// client has already backed off.
const PAUSE: Duration = Duration::from_millis(50);

/// How a member is started, the same at each start.
#[derive(Debug)]
pub(super) struct MemberSpec {
    pub(super) binary: PathBuf,
    /// A name that no other etcd has, by which its answer is recognised.
    pub(super) name: String,
    /// The address at which clients of this host reach the member.
    pub(super) endpoint: SocketAddr,
    /// The address at which members of this host reach the member.
    pub(super) peer: SocketAddr,
    /// The client by which the member is asked whether it is ready.
    pub(super) client: ClientOptions,
    pub(super) data: PathBuf,
    /// The options of etcd, apart from its name and data directory.
    pub(super) flags: Vec<(&'static str, String)>,
    pub(super) args: Vec<OsString>,
    pub(super) output: EtcdOutput,
}

impl MemberSpec {
    fn command(&self) -> io::Result<Command> {
        let mut command = process::command(&self.binary)?;
        command.args(["--name", &self.name]).arg("--data-dir").arg(&self.data);
        for (flag, value) in &self.flags {
            command.arg(flag).arg(value);
        }
        command.args(&self.args);
        // These variables are meant for another etcd of this host. etcd refuses to start if one of them
        // conflicts with its command line. (Without the exception it does not run on ARM.)
        for (name, _) in env::vars_os() {
            if name.as_bytes().starts_with(b"ETCD_") && name != "ETCD_UNSUPPORTED_ARCH" {
                command.env_remove(name);
            }
        }
        Ok(command)
    }
}

/// A member of a cluster, running or not.
#[derive(Debug)]
pub(super) struct EtcdMember {
    spec: MemberSpec,
    running: Option<Running>,
    version: String,
}

#[derive(Debug)]
struct Running {
    group: ProcessGroup,
    output: OutputTail,
}

impl EtcdMember {
    pub(super) fn new(spec: MemberSpec) -> Self {
        Self { spec, running: None, version: String::new() }
    }

    pub(super) fn endpoint(&self) -> SocketAddr {
        self.spec.endpoint
    }

    /// The version that the server reported at its last start.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(|running| running.group.id())
    }

    /// Starts the process without waiting until it is ready. Its ports must be free.
    pub(super) fn start(&mut self) -> Result<(), EtcdServerError> {
        let destination = self.spec.output.open()?;
        let started = self.spec.command().and_then(|mut command| {
            let output = OutputTail::of(&mut command, destination)?;
            Ok((ProcessGroup::start(&mut command)?, output))
        });
        let (group, output) = started.map_err(|source| {
            let binary = self.spec.binary.clone();
            EtcdServerError::Start { binary, source }
        })?;
        let (pid, endpoint) = (group.id(), self.spec.endpoint);
        tracing::info!(
            target: ETCD_SERVER,
            pid, %endpoint, binary = ?self.spec.binary, data = ?self.spec.data, "started etcd"
        );
        self.running = Some(Running { group, output });
        Ok(())
    }

    /// Waits until the member serves requests, has ended, or the timeout is over.
    pub(super) async fn ready(&mut self, timeout: Duration) -> Result<(), EtcdServerError> {
        let begun = Instant::now();
        let spec = &self.spec;
        let (client, name) = (spec.client.clone(), spec.name.clone());
        let answering = wait_until_ready(client, name, (spec.endpoint, spec.peer), begun + timeout);
        let failed = tokio::select! {
            // The end comes first: a server that answers at the port of an ended etcd is another one.
            biased;
            ended = self.exited() => return Err(ended),
            answer = answering => match answer {
                Ok(version) => {
                    let (endpoint, pid) = (self.spec.endpoint, self.pid());
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
            endpoint: self.spec.endpoint.to_string(),
            pid: self.pid().unwrap_or_default(),
            waited: begun.elapsed(),
            source: failed.map(Box::new),
            lines: self.running.as_ref().map(|running| running.output.lines()).unwrap_or_default(),
        })
    }

    /// Waits until the process has ended by itself. Never returns if it does not run.
    pub(super) async fn exited(&mut self) -> EtcdServerError {
        let Some(Running { group, output }) = &mut self.running else {
            return std::future::pending().await;
        };
        let (endpoint, pid) = (self.spec.endpoint.to_string(), group.id());
        match group.exited().await {
            Ok(status) => {
                let lines = output.last_lines_of_ended().await;
                EtcdServerError::Exited { endpoint, pid, status, lines }
            }
            Err(source) => EtcdServerError::Lost { endpoint, pid, source },
        }
    }

    /// Forgets the process after its end was reported.
    pub(super) fn forget(&mut self) {
        self.running = None;
    }

    /// Sends SIGTERM to the process if it runs.
    pub(super) fn terminate(&self) {
        if let Some(running) = &self.running {
            running.group.signal(Signal::TERM);
        }
    }

    /// Waits until the process has ended; returns at once if it does not run.
    pub(super) async fn ended(&mut self) {
        if let Some(running) = &mut self.running {
            // The status does not matter: the process was told to end.
            let _ = running.group.exited().await;
        }
    }

    /// Kills the process. Writes that it acknowledged are on disk.
    pub(super) async fn kill(&mut self) -> Result<(), EtcdServerError> {
        let Some(Running { group, .. }) = &mut self.running else { return Ok(()) };
        group.signal(Signal::KILL);
        if timeout(KILL_TIMEOUT, group.exited()).await.is_err() {
            return Err(EtcdServerError::NotStopped { pid: group.id(), waited: KILL_TIMEOUT });
        }
        self.running = None;
        Ok(())
    }
}

/// Sends requests until the etcd called `name` answers, and returns its version. The error is that of the
/// last request; `None` if another server answered it.
async fn wait_until_ready(
    client: ClientOptions,
    name: String,
    (endpoint, peer): (SocketAddr, SocketAddr),
    deadline: Instant,
) -> Result<String, Option<ClientError>> {
    let client = Client::connect(client).await.map_err(Some)?;
    let mut timeout = FIRST_TIMEOUT;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let failed = match version_and_name(&client.with_timeout(timeout.min(left))).await {
            Ok((version, Some(found))) if found == name => return Ok(version),
            Ok(_) => None,
            // The data have users, whose passwords are not known here. From 3.6 on, etcd tells its status and its
            // members to users alone.
            Err(error) if error.is_unauthenticated() => {
                match version_of(endpoint, peer, &name, timeout.min(left)).await {
                    Some(version) => return Ok(version),
                    None => Some(error),
                }
            }
            Err(error) => Some(error),
        };
        if Instant::now() + PAUSE + MIN_TIMEOUT > deadline {
            sleep_until(deadline).await;
            return Err(failed);
        }
        sleep(PAUSE).await;
        timeout = (timeout * 2).min(MAX_TIMEOUT);
    }
}

/// The version of the server, and its name in its cluster.
async fn version_and_name(client: &Client) -> Result<(String, Option<String>), ClientError> {
    let status = client.status().await?;
    // This request needs a leader, so a server that answers it has one.
    let members = client.members().await?;
    let own = members.into_iter().find(|member| member.id == status.member_id);
    Ok((status.version, own.map(|member| member.name)))
}
