//! A real etcd, started from here: for a job on one host, for tests, for trials.
//!
//! It is PyTorch's `EtcdServer` with the v3 API: the same search for the binary, free ports, several
//! attempts, and a server that has answered before [`EtcdServer::start`] returns. What is different:
//!
//! - It never outlives its program, even one that is killed, and neither does its temporary directory.
//! - A data directory that was given is kept.
//! - A variable that names no file is an error; PyTorch silently takes another etcd.
//! - The v2 API is not switched on (etcd 3.6 no longer has it): `--enable-v2` in
//!   [`EtcdServerOptions::args`] does it.
//! - The settings of another etcd in the environment (`ETCD_…`) are not taken over.

mod cluster;
mod error;
mod home;
mod member;
mod options;
mod output;
mod ports;
mod search;

use std::net::IpAddr;

pub use self::cluster::EtcdCluster;
pub use self::error::EtcdServerError;
pub use self::options::{EtcdServerOptions, MAX_MEMBERS};
pub use self::output::EtcdOutput;

use crate::client::{Client, ClientError};

/// An etcd of one member, as a child process.
///
/// [`stop`](Self::stop) is the polite way to end it. Dropping it ends it too, with SIGKILL, and removes
/// its temporary directory; that keeps the thread for some milliseconds. (What etcd has acknowledged is
/// on disk, so being killed costs it nothing.) If this process is killed, the same is done by a guard: this
/// program again, or a `rallypoint` command, for which see [`reexecuted`](crate::process::reexecuted).
///
/// It does not depend on the runtime that it was started on.
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
    /// Starts an etcd and waits until it serves.
    ///
    /// Dropping the future ends what was started.
    ///
    /// # Errors
    /// [`EtcdServerError`] says why the last attempt failed.
    pub async fn start(options: EtcdServerOptions) -> Result<Self, EtcdServerError> {
        Ok(Self { cluster: EtcdCluster::start(1, options).await? })
    }

    /// Where clients reach it: `host:port`.
    pub fn endpoint(&self) -> String {
        self.cluster.address().to_string()
    }

    /// The address that it listens on; the loopback address if it listens on all.
    pub fn host(&self) -> IpAddr {
        self.cluster.address().ip()
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.cluster.address().port()
    }

    /// A client of it.
    ///
    /// # Errors
    /// As for [`Client::connect`].
    pub async fn client(&self) -> Result<Client, ClientError> {
        self.cluster.client().await
    }

    /// Its version, such as `3.5.1`.
    pub fn version(&self) -> &str {
        self.cluster.version()
    }

    /// The number of its process; nothing once it was stopped.
    pub fn pid(&self) -> Option<u32> {
        self.cluster.pids().into_iter().flatten().next()
    }

    /// Waits until it ends by itself, and tells how. For ever if it was stopped.
    ///
    /// Dropping the future loses nothing.
    pub async fn exited(&mut self) -> EtcdServerError {
        self.cluster.exited().await.1
    }

    /// Ends it with SIGTERM and, after [`EtcdServerOptions::stop_timeout`], SIGKILL; then removes its
    /// temporary directory. Once is enough, and a second time does nothing.
    ///
    /// If the future is dropped, etcd may still run; it ends when this is dropped.
    ///
    /// # Errors
    /// [`EtcdServerError::NotStopped`] if it cannot be ended even by SIGKILL.
    pub async fn stop(&mut self) -> Result<(), EtcdServerError> {
        self.cluster.stop().await
    }
}
