//! The options of a started etcd.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::error::EtcdServerError;
use super::output::EtcdOutput;

/// The options of an [`EtcdServer`](super::EtcdServer) or [`EtcdCluster`](super::EtcdCluster).
///
/// ```
/// use rallypoint::etcd_server::{EtcdOutput, EtcdServerOptions};
///
/// let options = EtcdServerOptions::default().with(|options| {
///     options.data_dir = Some("/var/lib/trial".into());
///     options.output = EtcdOutput::Inherit;
///     options.args = vec!["--quota-backend-bytes=8589934592".into()];
/// });
/// assert_eq!(options.attempts, 3);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EtcdServerOptions {
    /// The `etcd` binary. By default: the file that `TORCHELASTIC_ETCD_BINARY_PATH` names; else `etcd` or
    /// `bin/etcd` beside this program; else `etcd` in `PATH`.
    pub binary: Option<PathBuf>,
    /// The address for clients, by default 127.0.0.1:0; port 0 chooses a free port. Members of a cluster
    /// beyond the first use free ports of the same address.
    ///
    /// On all interfaces (0.0.0.0) etcd serves other hosts too, but its member list has the loopback
    /// address, since the name of this host on the network is not known. Give one address instead, or
    /// `--advertise-client-urls` in [`args`](Self::args) for a single etcd.
    pub listen: SocketAddr,
    /// The data directory, by default a temporary one that is removed at the end. A given directory is
    /// kept, and data in it are served again; only one server or cluster may use it at a time.
    pub data_dir: Option<PathBuf>,
    /// The destination of etcd's output, by default [`EtcdOutput::Discard`].
    pub output: EtcdOutput,
    /// Additional arguments for etcd. They come last, and the last of several equal options applies.
    pub args: Vec<OsString>,
    /// The timeout of one attempt to start, by default 60 s.
    pub start_timeout: Duration,
    /// The number of attempts to start, by default 3. An attempt is retried only if another process took
    /// the port, or the server was not ready in time.
    pub attempts: u32,
    /// How long etcd may take to end after SIGTERM before it is killed, by default 5 s.
    pub stop_timeout: Duration,
}

impl Default for EtcdServerOptions {
    fn default() -> Self {
        Self {
            binary: None,
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            data_dir: None,
            output: EtcdOutput::Discard,
            args: Vec::new(),
            start_timeout: Duration::from_secs(60),
            attempts: 3,
            stop_timeout: Duration::from_secs(5),
        }
    }
}

impl EtcdServerOptions {
    /// Returns the options after `change`, so that a single expression can set several of them.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    pub(super) fn validate(&self, members: usize) -> Result<(), EtcdServerError> {
        if self.attempts == 0 {
            return Err(EtcdServerError::invalid("attempts", 0, "give at least 1"));
        }
        if self.start_timeout.is_zero() {
            let fix = "give the time that etcd may take to be ready";
            return Err(EtcdServerError::invalid(
                "start_timeout",
                format!("{:?}", self.start_timeout),
                fix,
            ));
        }
        // Larger clusters commit more slowly, and a mistyped number would start very many processes.
        if !(1..=MAX_MEMBERS).contains(&members) {
            return Err(EtcdServerError::invalid(
                "members",
                members,
                format!("give 1 to {MAX_MEMBERS}, best 3"),
            ));
        }
        Ok(())
    }
}

/// The largest number of members of a cluster. etcd recommends at most 7.
pub const MAX_MEMBERS: usize = 9;
