//! The options of the backends that share one document (`dynamic`).

use std::time::Duration;

use rallypoint_core::rendezvous::documents::Limits;
use rallypoint_core::rendezvous::dynamic::Settings;

use super::{ConnectionOptions, Zero, check_names, count, time};
use crate::client::ClientOptions;
use crate::config::parameters::{ParameterError, RendezvousParameters};

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
/// | `cas_backoff_max_seconds` | 0.1 s | the longest pause before writing again after another node was quicker |
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
///     RendezvousParameters::new("dynamic", "", "job-7", 4, 8)?.with("timeout", 900);
/// let options = DynamicOptions::from_parameters(&parameters)?;
/// assert_eq!(options.settings.join, Duration::from_secs(900));
/// # Ok::<(), rallypoint::rendezvous::ParameterError>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DynamicOptions {
    /// How to reach the servers.
    pub connection: ConnectionOptions,
    /// How large a group may be, and how long everything may take.
    pub settings: Settings,
}

impl DynamicOptions {
    /// Reads the options and the endpoint.
    ///
    /// # Errors
    /// [`ParameterError`] names the first option that is wrong or unknown, and what would be right.
    pub fn from_parameters(parameters: &RendezvousParameters) -> Result<Self, ParameterError> {
        check_names(parameters, NAMES)?;
        let time = |key, default: Duration| time(parameters, key, default, Zero::Refused);
        let RendezvousParameters { min_nodes, max_nodes, .. } = parameters;
        let usual = Settings::new(Limits { min: *min_nodes, max: *max_nodes });
        let most = time("timeout", usual.join)?;
        let attempts = count(parameters, "keep_alive_max_attempt", 2, u32::MAX)?;
        let backoff = "cas_backoff_max_seconds";
        let settings = Settings {
            join: time("join_timeout", most)?,
            last_call: time("last_call_timeout", usual.last_call)?,
            close: time("close_timeout", usual.close)?,
            heartbeat: time("heartbeat_timeout", usual.heartbeat)?,
            keep_alive_interval: time("keep_alive_interval", usual.keep_alive_interval)?,
            keep_alive_max_attempt: attempts.unwrap_or(usual.keep_alive_max_attempt),
            cas_backoff_max: super::time(
                parameters,
                backoff,
                usual.cas_backoff_max,
                Zero::Allowed,
            )?,
            ..usual
        };
        Ok(Self { connection: ConnectionOptions::read(parameters, 60)?, settings })
    }

    /// The options of a client that reaches the servers.
    pub fn client_options(&self) -> ClientOptions {
        self.connection.client_options()
    }
}
