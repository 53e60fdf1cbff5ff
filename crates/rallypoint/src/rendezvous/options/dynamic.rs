//! The options of the backends that share one document (`etcd-v2` and its like).

use std::time::Duration;

use super::{ConnectionOptions, Zero, check_names, count, seconds};
use crate::client::ClientOptions;
use crate::rendezvous::parameters::{ParameterError, RendezvousParameters};

const NAMES: &[&str] = &[
    "timeout",
    "join_timeout",
    "last_call_timeout",
    "close_timeout",
    "heartbeat_timeout",
    "keep_alive_interval",
    "keep_alive_max_attempt",
    "cas_backoff_max_seconds",
];

/// What the backends that share one document can be told.
///
/// | option | default | |
/// |---|---|---|
/// | `join_timeout` | 600 s | how long a group may take to form; `timeout` if only that is given |
/// | `last_call_timeout` | 30 s | how long nodes may still come when there are enough |
/// | `close_timeout` | 30 s | how long closing the run may take |
/// | `heartbeat_timeout` | 5 s | how long one sign of life may take |
/// | `keep_alive_interval` | 5 s | the time between two signs of life |
/// | `keep_alive_max_attempt` | 3 | a node that misses so many of them counts as dead |
/// | `cas_backoff_max_seconds` | 0 s | the longest pause before writing again after another node was quicker |
/// | `read_timeout` | 60 s | how long one request may take |
///
/// Those about the connection are the same as in [`EtcdOptions`](super::EtcdOptions).
///
/// ```
/// use std::time::Duration;
/// use rallypoint::rendezvous::{DynamicOptions, RendezvousParameters};
///
/// // torchrun always gives a timeout.
/// let parameters =
///     RendezvousParameters::new("etcd-v2", "", "job-7", 4, 8)?.with("timeout", 900);
/// let options = DynamicOptions::from_parameters(&parameters)?;
/// assert_eq!(options.join_timeout, Duration::from_secs(900));
/// # Ok::<(), rallypoint::rendezvous::ParameterError>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DynamicOptions {
    /// How to reach the servers.
    pub connection: ConnectionOptions,
    /// How long a group may take to form.
    pub join_timeout: Duration,
    /// How long nodes may still come when there are enough.
    pub last_call_timeout: Duration,
    /// How long closing the run may take.
    pub close_timeout: Duration,
    /// How long one sign of life may take.
    pub heartbeat_timeout: Duration,
    /// The time between two signs of life.
    pub keep_alive_interval: Duration,
    /// A node that misses so many of them counts as dead.
    pub keep_alive_max_attempt: u32,
    /// The longest pause before writing again after another node was quicker.
    pub cas_backoff_max: Duration,
}

impl DynamicOptions {
    /// Reads the options and the endpoint.
    ///
    /// # Errors
    /// [`ParameterError`] names the first option that is wrong or unknown, and what would be right.
    pub fn from_parameters(parameters: &RendezvousParameters) -> Result<Self, ParameterError> {
        check_names(parameters, NAMES)?;
        let time = |key, default| seconds(parameters, key, default, Zero::Refused);
        let timeout = time("timeout", 600)?;
        let join_timeout = match parameters.get("join_timeout") {
            Some(_) => time("join_timeout", 600)?,
            None => timeout,
        };
        let attempts = count(parameters, "keep_alive_max_attempt", 1, u32::MAX)?;
        Ok(Self {
            connection: ConnectionOptions::read(parameters, 60)?,
            join_timeout,
            last_call_timeout: time("last_call_timeout", 30)?,
            close_timeout: time("close_timeout", 30)?,
            heartbeat_timeout: time("heartbeat_timeout", 5)?,
            keep_alive_interval: time("keep_alive_interval", 5)?,
            keep_alive_max_attempt: attempts.unwrap_or(3),
            cas_backoff_max: seconds(parameters, "cas_backoff_max_seconds", 0, Zero::Allowed)?,
        })
    }

    /// The options of a client that reaches the servers.
    pub fn client_options(&self) -> ClientOptions {
        self.connection.client_options()
    }
}
