//! Starts etcd as a child process, for a job on one host and for tests.
//!
//! [`EtcdServer`] is PyTorch's `EtcdServer` with the v3 API: the same search for the binary, free ports,
//! several attempts, and a server that has answered before [`EtcdServer::start`] returns. Differences:
//!
//! - The process and its temporary directory never outlive the program, even one that is killed.
//! - A given data directory is kept.
//! - A variable that names no file is an error; PyTorch silently uses another etcd.
//! - The v2 API is not enabled (etcd 3.6 no longer has it); `--enable-v2` in [`EtcdServerOptions::args`]
//!   enables it.
//! - Settings of another etcd in the environment (`ETCD_…`) are ignored.

mod cluster;
mod data_dir;
mod error;
#[cfg(feature = "cli")]
mod job_member;
mod member;
#[cfg(feature = "cli")]
mod member_plan;
mod options;
mod output;
mod ports;
mod search;
mod unauthenticated;

use std::net::IpAddr;

pub use self::cluster::EtcdCluster;
pub use self::error::EtcdServerError;
#[cfg(feature = "cli")]
pub(crate) use self::job_member::{JobMember, quorum_lost};
#[cfg(feature = "cli")]
pub(crate) use self::member_plan::{MemberPlan, check_hosts};
pub use self::options::{EtcdServerOptions, MAX_MEMBERS};
pub use self::output::EtcdOutput;

use crate::client::{Client, ClientError};

/// An etcd cluster of one member, as a child process.
///
/// [`stop`](Self::stop) ends it with SIGTERM. Dropping the value ends it with SIGKILL and removes its
/// temporary directory, which blocks the thread for some milliseconds. Acknowledged writes are on disk, so
/// SIGKILL loses none. If this process is killed, a guard process does the same: this program again, or a
/// `rallypoint` command, as [`reexecuted`](crate::process::reexecuted) explains.
///
/// The server does not depend on the tokio runtime that started it.
///
/// ```no_run
/// use rallypoint::core::kv::Put;
/// use rallypoint::etcd_server::{EtcdServer, EtcdServerOptions};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let mut etcd = EtcdServer::start(EtcdServerOptions::default()).await?;
/// println!("etcd {} at {}", etcd.version(), etcd.endpoint());
/// etcd.client().await?.put(Put::new("greeting", "hello")).await?;
/// etcd.stop().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct EtcdServer {
    cluster: EtcdCluster,
}

impl EtcdServer {
    /// Starts an etcd and waits until it serves requests.
    ///
    /// Dropping the future ends the process.
    ///
    /// # Errors
    /// [`EtcdServerError`] says why the last attempt failed.
    pub async fn start(options: EtcdServerOptions) -> Result<Self, EtcdServerError> {
        Ok(Self { cluster: EtcdCluster::start(1, options).await? })
    }

    /// The address for clients: `host:port`.
    pub fn endpoint(&self) -> String {
        self.cluster.address().to_string()
    }

    /// The address that the server listens on; the loopback address if it listens on all interfaces.
    pub fn host(&self) -> IpAddr {
        self.cluster.address().ip()
    }

    /// The port that the server listens on.
    pub fn port(&self) -> u16 {
        self.cluster.address().port()
    }

    /// Connects a client to the server.
    ///
    /// # Errors
    /// The errors of [`Client::connect`].
    pub async fn client(&self) -> Result<Client, ClientError> {
        self.cluster.client().await
    }

    /// The version of etcd, such as `3.5.1`.
    pub fn version(&self) -> &str {
        self.cluster.version()
    }

    /// The process id; `None` after [`stop`](Self::stop).
    pub fn pid(&self) -> Option<u32> {
        self.cluster.pids().into_iter().flatten().next()
    }

    /// Waits until the process ends by itself, and returns how it ended. Never returns after
    /// [`stop`](Self::stop).
    ///
    /// The call is cancel-safe: dropping the future loses no event.
    pub async fn exited(&mut self) -> EtcdServerError {
        self.cluster.exited().await.1
    }

    /// Ends the process with SIGTERM and, after [`EtcdServerOptions::stop_timeout`], SIGKILL; then removes
    /// its temporary directory. A second call does nothing.
    ///
    /// If the future is dropped, etcd may still run; it ends when the `EtcdServer` is dropped.
    ///
    /// # Errors
    /// [`EtcdServerError::NotStopped`] if the process does not end even after SIGKILL.
    pub async fn stop(&mut self) -> Result<(), EtcdServerError> {
        self.cluster.stop().await
    }
}
