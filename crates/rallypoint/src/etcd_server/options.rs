//! How to start an etcd.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::error::EtcdServerError;
use super::output::EtcdOutput;

/// How to start an etcd, or several.
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
    /// The `etcd` binary. Unless given: what `TORCHELASTIC_ETCD_BINARY_PATH` names; else `etcd` or
    /// `bin/etcd` beside this program; else `etcd` in `PATH`.
    pub binary: Option<PathBuf>,
    /// Where clients connect, 127.0.0.1:0 unless given; port 0 takes a free one. Members of a cluster
    /// beyond the first take free ports of the same address.
    ///
    /// On all interfaces (0.0.0.0) etcd serves other hosts too, but clients that ask it for its members
    /// are told the loopback address, since we do not know by which name others reach this host. Give
    /// one address instead, or `--advertise-client-urls` in [`args`](Self::args) for a single etcd.
    pub listen: SocketAddr,
    /// Where the data lie. One that is given is kept, and what it holds is served again; only
    /// one server or cluster may use it at a time. Unless given there is a temporary one, which is
    /// removed at the end.
    pub data_dir: Option<PathBuf>,
    /// Where etcd's output goes: nowhere, unless given.
    pub output: EtcdOutput,
    /// More arguments for etcd. They come last, and etcd takes the last of several.
    pub args: Vec<OsString>,
    /// How long one attempt to start may take, 60 s unless given.
    pub start_timeout: Duration,
    /// How often to try, 3 times unless given. Only what may pass is tried again: a port that somebody
    /// else was quicker to take, or a server that was not ready in time.
    pub attempts: u32,
    /// How long etcd may take to end after SIGTERM before it is killed, 5 s unless given.
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
    /// These options after `change`, so that a single expression can set several of them.
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
        // More vote ever more slowly, and a mistake here starts very many processes.
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

/// The most members that a cluster may have. etcd's own advice is at most 7.
pub const MAX_MEMBERS: usize = 9;
