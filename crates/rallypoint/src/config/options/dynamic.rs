//! The options of the backend `dynamic`, PyTorch's protocol over one shared document.

use rallypoint_core::rendezvous::documents::Limits;
use rallypoint_core::rendezvous::dynamic::DynamicSettings;

use super::{Backend, ConnectionOptions, Reader};
use crate::client::ClientOptions;
use crate::config::error::ConfigError;
use crate::config::parameters::RendezvousParameters;

/// The options of the backend `dynamic`. `docs/reference/options.md` lists them.
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
/// # Ok::<(), rallypoint::config::ConfigError>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DynamicOptions {
    /// How to reach the servers.
    pub connection: ConnectionOptions,
    /// The size of a group, and the timeouts of the protocol.
    pub settings: DynamicSettings,
}

impl DynamicOptions {
    /// Reads the options and the endpoint.
    ///
    /// # Errors
    /// [`ConfigError`] names the first option that is wrong or unknown, and the remedy.
    pub fn from_parameters(parameters: &RendezvousParameters) -> Result<Self, ConfigError> {
        let reader = Reader::new(parameters, Backend::Dynamic)?;
        let timeout = reader.time("timeout")?;
        let RendezvousParameters { min_nodes, max_nodes, .. } = parameters;
        let settings = DynamicSettings {
            limits: Limits { min: *min_nodes, max: *max_nodes },
            join: reader.optional_time("join_timeout")?.unwrap_or(timeout),
            last_call: reader.time("last_call_timeout")?,
            close: reader.time("close_timeout")?,
            heartbeat: reader.time("heartbeat_timeout")?,
            keep_alive_interval: reader.time("keep_alive_interval")?,
            keep_alive_max_attempt: reader.count("keep_alive_max_attempt")?,
            cas_backoff_max: reader.time("cas_backoff_max_seconds")?,
        };
        Ok(Self { connection: ConnectionOptions::read(&reader)?, settings })
    }

    /// The options of a client that reaches the servers.
    pub fn client_options(&self) -> ClientOptions {
        self.connection.client_options()
    }
}
